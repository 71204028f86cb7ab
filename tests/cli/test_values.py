"""`get`, `stats` and `diff`."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from tests.cli.command import ok, storax
from tests.cli.runs import tree
from tests.devices import on_mesh

import storax as library
from storax import checkpoint


def test_get_prints_a_slice(tmp_path: Path):
    library.save(tmp_path / "a", tree())
    assert ok("get", tmp_path / "a", "params.w[1:3, -1]").out == "[11., 17.]\n"
    assert ok("get", tmp_path / "a", "step").out == "7\n"
    assert ok("get", tmp_path / "a", "note").out == "hello\n"
    assert ok("get", tmp_path / "a", "params.w[::-2,0]", "--json").json["values"] == [18, 6]


def test_get_writes_npy(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.arange(6).reshape(2, 3), "h": np.ones(2, ml_dtypes.bfloat16)})
    ok("get", tmp_path / "a", "w[1]", "--out", tmp_path / "w.npy")
    assert np.array_equal(np.load(tmp_path / "w.npy"), [3, 4, 5])
    done = ok("get", tmp_path / "a", "h", "--out", tmp_path / "h.npy")
    assert np.load(tmp_path / "h.npy").dtype == np.float32
    assert "written as float32" in done.err
    assert storax("get", tmp_path / "a", "w", "-o", tmp_path / "w.txt").code == 2


def test_get_says_which_leaf_was_probably_meant(tmp_path: Path):
    library.save(tmp_path / "a", tree())
    done = storax("get", tmp_path / "a", "param.w")
    assert done.code == 2
    assert "params.w" in done.err


def test_get_refuses_an_index_that_does_not_fit(tmp_path: Path):
    library.save(tmp_path / "a", tree())
    for index in ("[9]", "[0,0,0]", "[x]", "[::0]", "[1:2:3:4]"):
        assert storax("get", tmp_path / "a", f"params.w{index}").code == 2, index


def test_stats_counts_what_is_not_finite(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.array([np.nan, np.inf, -np.inf, 0, 3, -4], np.float32)})
    done = ok("stats", tmp_path / "a", "--json")
    (found,) = done.json
    assert (found["nan"], found["inf"], found["zero"], found["count"]) == (1, 2, 1, 6)
    assert (found["min"], found["max"], found["norm"]) == (-4, 3, 5)
    assert "1 of 1 leaves have NaN or Inf" in ok("stats", tmp_path / "a").err


def test_stats_of_nothing_finite_and_of_nothing(tmp_path: Path):
    library.save(tmp_path / "a", {"n": np.full(3, np.nan), "e": np.zeros((0, 4)), "k": jax.random.key(0)})
    found = {entry["name"]: entry for entry in ok("stats", tmp_path / "a", "--json").json}
    assert (found["n"]["mean"], found["n"]["nan"]) == (None, 3)
    assert (found["e"]["count"], found["e"]["min"]) == (0, None)
    assert found["k"]["count"] == 2


def test_diff_names_every_kind_of_difference(tmp_path: Path):
    common = {"same": np.ones(4), "shape": np.ones(4), "dtype": np.ones(4), "v": np.array([1.0, 2, 3, 4])}
    library.save(tmp_path / "a", {**common, "a": np.ones(1), "s": "x"})
    changed = {"shape": np.ones(5), "dtype": np.ones(4, np.float32), "v": np.array([1, 2, 3, 4.4])}
    library.save(tmp_path / "b", {**common, **changed, "b": np.ones(1), "s": "y"})
    done = storax("diff", tmp_path / "a", tmp_path / "b", "--json")
    assert done.code == 1
    found = {d["name"]: d for d in done.json}
    kinds = {name: d["kind"] for name, d in found.items()}
    assert kinds == {
        "a": "only in A", "b": "only in B", "shape": "shape", "dtype": "dtype", "v": "values", "s": "value",
    }  # fmt: skip
    assert (found["v"]["count"], found["v"]["size"]) == (1, 4)
    assert abs(found["v"]["max_abs"] - 0.4) < 1e-12
    assert abs(found["v"]["max_rel"] - 0.4 / 4.4) < 1e-12


def test_diff_lets_small_differences_pass_if_asked(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.array([100.0, np.nan, 0.0])})
    library.save(tmp_path / "b", {"w": np.array([100.5, np.nan, -0.0])})
    assert storax("diff", tmp_path / "a", tmp_path / "b").code == 1
    assert ok("diff", tmp_path / "a", tmp_path / "b", "--rtol", 0.01)
    assert ok("diff", tmp_path / "a", tmp_path / "b", "--only-shapes")
    library.save(tmp_path / "c", {"w": np.array([100.0, 1.0, 0.0])})
    assert storax("diff", tmp_path / "a", tmp_path / "c", "--rtol", 0.5).code == 1  # a NaN is not near 1


def test_diff_sees_what_float64_does_not(tmp_path: Path):
    library.save(tmp_path / "a", {"n": np.array([1 << 60])})
    library.save(tmp_path / "b", {"n": np.array([(1 << 60) + 1])})
    assert storax("diff", tmp_path / "a", tmp_path / "b").code == 1


def test_diff_does_not_mind_other_chunks_and_shardings(tmp_path: Path):
    values = np.arange(128, dtype=np.float32).reshape(16, 8)
    library.save(tmp_path / "a", {"w": values})
    library.save(tmp_path / "b", {"w": on_mesh(values, "data", "model")})
    assert ok("diff", tmp_path / "a", tmp_path / "b", "--json").json == []


def test_get_opens_the_one_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library.save(tmp_path / "a", {f"l{i}": np.full(3, i) for i in range(20)} | {"odd[1]": np.ones(1)})
    opened = []
    original = checkpoint.open_array

    def watched(index: object, name: str, *rest: object, **options: object) -> object:
        opened.append(name)
        return original(index, name, *rest, **options)

    monkeypatch.setattr(checkpoint, "open_array", watched)
    assert ok("get", tmp_path / "a", "l7[0]").out == "7\n"
    assert opened == ["l7"]
    assert ok("get", tmp_path / "a", "odd[1]").out == "[1.]\n"


def test_get_of_several_items_takes_the_short_name_if_it_is_clear(tmp_path: Path):
    options = library.CheckpointManagerOptions(enable_async_checkpointing=False)
    with library.CheckpointManager(tmp_path, options=options) as manager:
        state = {name: library.args.StandardSave({"w": np.ones(1), name: np.zeros(1)}) for name in "ab"}
        manager.save(1, args=library.args.Composite(**state))
    assert ok("get", tmp_path, "a/w").out == "[1.]\n"
    assert ok("get", tmp_path, "b").out == "[0.]\n"
    done = storax("get", tmp_path, "w")
    assert done.code == 2
    assert "a/w, b/w" in done.err


def test_values_are_read_a_block_at_a_time(tmp_path: Path):
    nbytes = 96 << 20
    library.save(tmp_path / "a", {"w": np.ones(nbytes // 4, np.float32)})
    for words in (["stats"], ["diff", tmp_path / "a"]):
        tracemalloc.start()
        ok(*words, tmp_path / "a")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < nbytes, (words, peak)
