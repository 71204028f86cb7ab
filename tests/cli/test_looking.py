"""`ls` and `show`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tests.cli.command import Terminal, ok, process, storax
from tests.cli.runs import leave_draft, make_run, tree
from tests.devices import on_mesh

import storax as library
from storax.cli.printing import Column, print_table


def test_ls_lists_steps_with_size_metrics_and_what_keeps_them(tmp_path: Path):
    run = make_run(tmp_path / "run")
    with library.CheckpointManager(run) as manager:
        manager.pin(1, "the paper")
    found = ok("ls", run, "--json").json
    assert [step["step"] for step in found] == [1, 2, 3]
    assert [step["metrics"]["loss"] for step in found] == [1, 1 / 2, 1 / 3]
    assert [step["why"] for step in found] == [["pinned: the paper"], [], ["newest"]]
    sizes = [sum(f.stat().st_size for f in (run / str(n)).rglob("*") if f.is_file()) for n in (1, 2, 3)]
    assert [step["nbytes"] for step in found] == sizes


def test_ls_shows_what_a_dead_process_left(tmp_path: Path):
    run = make_run(tmp_path / "run")
    leave_draft(run, 4)
    states = {step["step"]: step["state"] for step in ok("ls", run, "--json").json}
    assert states == {1: "committed", 2: "committed", 3: "committed", 4: "dead draft"}
    assert [row[-1] for row in ok("ls", run).rows][-1] == "-"
    assert "dead draft" in ok("ls", run).out


def test_ls_names_the_runs_in_a_directory(tmp_path: Path):
    for name in ("a", "b"):
        make_run(tmp_path / "runs" / name)
    library.save(tmp_path / "runs" / "c", {"w": np.ones(3)})
    for verb in ("ls", "show", "verify"):
        done = storax(verb, tmp_path / "runs")
        assert done.code == 7
        assert "the runs a, b and the checkpoint c" in done.err
        assert f"{tmp_path}/runs/a" in done.err


def test_ls_lists_a_run_whose_newest_step_has_damaged_documents(tmp_path: Path):
    run = make_run(tmp_path / "run")
    (run / "3" / "_CHECKPOINT_METADATA").write_bytes(b"{")
    assert [step["step"] for step in ok("ls", run, "--json").json] == [1, 2, 3]


def test_show_of_a_run_is_its_newest_step_and_says_so(tmp_path: Path):
    done = ok("show", make_run(tmp_path / "run"))
    assert "newest step is 3" in done.err
    assert "float32[4,6]" in done.out


def test_show_tells_shape_chunks_and_sharding(tmp_path: Path):
    library.save(tmp_path / "a", {"w": on_mesh(np.zeros((16, 8), np.float32), "data", "model")})
    (row,) = ok("show", tmp_path / "a").rows
    assert row[0] == "w"
    assert row[1:] == [
        "float32[16,8]", "512 B", "544 B", "8 (4x2)", "P(data, model) over data=4 model=2",
    ]  # fmt: skip


def test_show_folds_matches_and_sorts(tmp_path: Path):
    library.save(tmp_path / "a", {"x": {"small": np.zeros(2), "large": np.zeros(9)}, "y": np.zeros(30)})
    names = lambda *words: [row[0] for row in ok("show", tmp_path / "a", *words).rows]  # noqa: E731
    assert names() == ["x", "large", "small", "y"] or names() == ["x", "small", "large", "y"]
    assert names("--depth", 1) == ["x…", "y"]
    assert names("--sort", "size") == ["y", "x", "large", "small"]
    assert names("--match", "la.ge") == ["x", "large"]


def test_show_folds_a_large_tree_unless_asked(tmp_path: Path):
    library.save(tmp_path / "a", {f"l{i}": {"a": {"b": np.zeros(1)}} for i in range(201)})
    done = ok("show", tmp_path / "a")
    assert len(done.rows) == 402
    assert "--depth 0" in done.err
    assert len(ok("show", tmp_path / "a", "-d", 0).rows) == 603


def test_show_prints_items_by_name_and_one_alone(tmp_path: Path):
    options = library.CheckpointManagerOptions(enable_async_checkpointing=False)
    with library.CheckpointManager(tmp_path / "run", options=options) as manager:
        items = {"state": library.args.StandardSave(tree()), "config": library.args.JsonSave({"lr": 1})}
        manager.save(1, args=library.args.Composite(**items))
    assert "config:" in ok("show", tmp_path / "run").out
    assert "config" not in ok("show", tmp_path / "run", "--item", "state").out
    assert storax("show", tmp_path / "run", "--item", "nope").code == 7
    assert ok("get", tmp_path / "run", "config").json == {"lr": 1}


def test_show_spells_leaves_that_documents_hold(tmp_path: Path):
    library.save(tmp_path / "a", {"s": "text", "n": None, "big": 1 << 80, "e": {}, "k": jnp.bfloat16(1)})
    out = ok("show", tmp_path / "a").out
    for text in ("str 'text'", "None", f"int {1 << 80}", "empty dict", "bfloat16"):
        assert text in out


def test_piped_output_is_plain_and_whole(tmp_path: Path):
    name = "a_rather_long_name_of_a_leaf_" * 8
    library.save(tmp_path / "a", {name: np.zeros(2)})
    done = process("show", tmp_path / "a", COLUMNS="40")
    assert name in done.out
    assert "\x1b" not in done.out + done.err
    assert all(line == line.rstrip() for line in done.out.splitlines())


def test_a_narrow_terminal_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    columns = [Column("step", "right"), Column("what", "left", "bold"), Column("why")]
    why = "it is not among the newest 1; it is not a multiple of 300"
    for width in ("30", "80", "300"):
        drawn = Terminal()
        monkeypatch.setenv("COLUMNS", width)
        monkeypatch.setattr(sys, "stdout", drawn)
        print_table(columns, [["1000", "float32[4096,128]", why]])
        lines = re.sub(r"\x1b\[[0-9;]*m|─", "", drawn.getvalue()).splitlines()
        assert "float32[4096,128]" in lines[2]
        assert " ".join(" ".join(lines).split()) == f"step what why 1000 float32[4096,128] {why}"


def test_tied_leaves_are_said_so_and_counted_once(tmp_path: Path):
    embed = jnp.ones((100, 100))
    library.save(tmp_path / "a", {"embed": embed, "head": embed})
    found = {leaf["name"]: leaf for leaf in ok("show", tmp_path / "a", "--json").json["items"][""]["tree"]}
    assert found["head"]["tied"] == "embed"
    assert "tied" not in found["embed"]
    assert sum(leaf["stored_bytes"] for leaf in found.values()) == 40_004
    assert "float32[100,100] = embed" in ok("show", tmp_path / "a").out
    assert ok("get", tmp_path / "a", "head[0,:2]").out == "[1., 1.]\n"
