"""`surgery` and `convert`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import ok, storax

import storax as library

SPEC = {"transforms": [{"stack": {"pattern": r"layers\.(\d+)\."}}, {"drop": {"pattern": "junk"}}]}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    layers = [{"w": np.full((200, 300), i, np.float32)} for i in range(4)]
    library.save(tmp_path / "a", {"layers": layers, "junk": np.zeros(5)})
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    return tmp_path / "a"


def test_surgery_stacks(source: Path, tmp_path: Path):
    ok("surgery", source, tmp_path / "b", "--spec", tmp_path / "spec.json", "--verify")
    found = library.load(tmp_path / "b")
    assert found["layers"]["w"].shape == (4, 200, 300)
    assert np.array_equal(found["layers"]["w"][:, 0, 0], [0, 1, 2, 3])
    assert "junk" not in found


def test_a_dry_run_says_where_each_leaf_comes_from_and_writes_nothing(source: Path, tmp_path: Path):
    done = ok("surgery", source, tmp_path / "b", "--spec", tmp_path / "spec.json", "--dry-run")
    assert "layers.w" in done.out
    assert "layers.3.w" in done.out
    assert "junk" in done.err
    assert not (tmp_path / "b").exists()
    found = ok("surgery", source, tmp_path / "b", "--spec", tmp_path / "spec.json", "-n", "--json").json
    assert found["dropped"] == ["junk"]
    assert found["read_bytes"] >= found["needed_bytes"] == 4 * 60_000 * 4


def test_a_recipe_goes_by_its_name(tmp_path: Path):
    library.save(tmp_path / "a", {f"layers_{i}": {"w": np.ones(2)} for i in range(3)})
    ok("surgery", tmp_path / "a", tmp_path / "b", "--recipe", "scan")
    assert library.load(tmp_path / "b")["layers"]["w"].shape == (3, 2)
    ok("surgery", tmp_path / "b", tmp_path / "c", "--recipe", "scan", "--backward")
    assert ok("diff", tmp_path / "a", tmp_path / "c", "--json").json == []


def test_surgery_needs_one_list_of_transforms(source: Path, tmp_path: Path):
    assert storax("surgery", source, tmp_path / "b").code == 2
    done = storax("surgery", source, tmp_path / "b", "--recipe", "llamma")
    assert done.code == 2
    assert "llama" in done.err
    (tmp_path / "bad.json").write_text('{"transforms": [{"dance": {}}]}')
    assert storax("surgery", source, tmp_path / "b", "--spec", tmp_path / "bad.json").code == 2


def test_convert_goes_there_and_back(source: Path, tmp_path: Path):
    ok(
        "convert",
        source,
        tmp_path / "m.safetensors",
        "--subtree",
        "layers",
        "--dtype",
        "bfloat16",
        "--verify",
    )
    (what,) = {row[1] for row in ok("show", tmp_path / "m.safetensors", "--match", "w").rows if "[" in row[1]}
    assert what == "bfloat16[200,300]"
    ok("convert", tmp_path / "m.safetensors", tmp_path / "b", "--compression", "zstd")
    assert ok("diff", tmp_path / "m.safetensors", tmp_path / "b", "--json").json == []
    assert storax("convert", source, tmp_path / "b").code == 6
