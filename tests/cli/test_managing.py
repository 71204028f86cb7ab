"""`doctor` and `gc`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from tests.cli.command import FIXTURES, ok, storax
from tests.cli.runs import leave_draft, make_run

import storax as library
from storax.store import commit


def kinds(run: Path) -> dict[str, str]:
    return {Path(f["path"]).name: f["kind"] for f in storax("doctor", run, "--json").json}


def test_a_healthy_run_has_nothing(tmp_path: Path):
    done = ok("doctor", make_run(tmp_path / "run"))
    assert done.out == ""
    assert "nothing is wrong" in done.err


def test_doctor_finds_drafts_strays_and_steps_that_are_not_whole(tmp_path: Path):
    run = make_run(tmp_path / "run", steps=(1, 2, 3, 4, 5))
    draft = leave_draft(run, 6)
    living = commit.begin(run / "7")
    (run / "8.orbax-checkpoint-tmp-17").mkdir()
    (run / "notes.txt").write_text("x")
    shutil.rmtree(run / "1")
    (run / "1").mkdir()
    (run / "2" / "commit_success.txt").unlink()
    shutil.rmtree(run / "3" / "default")
    for name in ("manifest.ocdbt", "d", "ocdbt.process_0", "array_metadatas"):
        path = run / "4" / "default" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        assert kinds(run) == {
            draft.name: "a draft of a dead process",
            living.path.name: "a draft that a live process is writing",
            "8.orbax-checkpoint-tmp-17": "a draft of another program",
            "notes.txt": "a stray: a file that is no step",
            "1": "an empty step",
            "2": "a step without commit_success.txt",
            "3": "a step without items",
            "default": "a tree without its arrays",
        }
        assert storax("doctor", run).code == 1
    finally:
        commit.discard(living)


def test_what_orbax_wrote_is_healthy():
    for version in ("0.6.4", "0.11.20", "0.12.8"):
        assert ok("doctor", FIXTURES / version / "manager_single", "--json").json == []


def test_doctor_deletes_drafts_of_the_dead_if_asked(tmp_path: Path):
    run = make_run(tmp_path / "run")
    draft = leave_draft(run, 4)
    ok("doctor", run, "--fix", "--dry-run")
    assert storax("doctor", run, "--fix").code == 2
    assert draft.is_dir()
    ok("doctor", run, "--fix", "--yes")
    assert not draft.exists()
    assert ok("doctor", run, "--json").json == []


def test_gc_says_why_and_deletes_what_no_rule_keeps(tmp_path: Path):
    run = make_run(tmp_path / "run", steps=(1, 2, 3, 4, 5, 6))
    with library.CheckpointManager(run) as manager:
        manager.pin(1, "the paper")
    rules = ["--keep-last", 1, "--keep-every", 3]
    found = ok("gc", run, *rules, "--dry-run", "--json").json
    assert [v["step"] for v in found if v["keep"]] == [1, 3, 6]
    assert "the paper" in found[0]["why"]
    assert "multiple of 3" in found[2]["why"]
    assert len(list(run.iterdir())) == 6
    assert storax("gc", run, *rules, answer="n\n").code == 1
    ok("gc", run, *rules, "--yes")
    assert sorted(path.name for path in run.iterdir()) == ["1", "3", "6"]


def test_gc_keeps_the_best_the_named_and_the_newest(tmp_path: Path):
    run = make_run(tmp_path / "run", steps=(1, 2, 3, 4))
    rules = ["--keep-best", 1, "--metric", "loss", "--mode", "max", "--keep-step", 2]
    found = ok("gc", run, *rules, "-n", "--json").json
    assert [v["step"] for v in found if v["keep"]] == [1, 2, 4]


def test_gc_leaves_a_step_that_a_reader_holds_open(tmp_path: Path):
    run = make_run(tmp_path / "run")
    with library.open(run / "1"):
        ok("gc", run, "--keep-last", 1, "--yes")
    assert sorted(path.name for path in run.iterdir()) == ["1", "3"]


def test_gc_without_a_rule_deletes_nothing(tmp_path: Path):
    run = make_run(tmp_path / "run")
    assert storax("gc", run, "--yes").code == 2
    assert storax("gc", run, "--keep-best", 1, "--yes").code == 2
    assert len(list(run.iterdir())) == 3


def test_doctor_calls_nothing_of_a_checkpoint_a_stray(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.ones(3)})
    library.save_safetensors(tmp_path / "m.safetensors", {"w": np.ones(3)})
    step = make_run(tmp_path / "run") / "3"
    for path in (tmp_path / "a", step, step / "default", tmp_path / "m.safetensors"):
        done = storax("doctor", path)
        assert done.code == 2
        assert f"storax verify {path}" in done.err
        assert "stray" not in done.out + done.err


def test_doctor_says_where_the_runs_are(tmp_path: Path):
    library.save(tmp_path / "one" / "a", {"w": np.ones(3)})
    assert f"storax verify {tmp_path}/one/a" in storax("doctor", tmp_path / "one").err
    make_run(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "notes.txt").write_text("x")
    done = storax("doctor", tmp_path / "runs")
    assert (done.code, done.out) == (2, "")
    assert f"storax doctor {tmp_path}/runs/b" in done.err
    (tmp_path / "other").mkdir()
    assert storax("doctor", tmp_path / "other").code == 0  # a run in which nothing was saved yet
    (tmp_path / "other" / "notes.txt").write_text("x")
    assert storax("doctor", tmp_path / "other").code == 2


def test_doctor_finds_the_drafts_of_checkpoints_that_are_no_steps(tmp_path: Path):
    draft = commit.begin(tmp_path / "best")
    commit._let_go(draft)  # as the system does for the dead
    assert kinds(tmp_path) == {draft.path.name: "a draft of a dead process"}


def test_a_step_without_the_marker_is_whole_on_a_file_system(tmp_path: Path):
    run = make_run(tmp_path / "run")
    (run / "3" / "commit_success.txt").unlink()
    (found,) = ok("doctor", run, "--json").json
    assert found["serious"] is False
    assert "rm" not in found["advice"].split()
    assert [step["state"] for step in ok("ls", run, "--json").json] == ["committed"] * 3
    ok("verify", run / "3")
