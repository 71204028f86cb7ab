"""`plan`: a save without devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.cli.command import FIXTURES, ok, storax
from tests.devices import on_mesh

import storax as library

TREE = {
    "mesh": {"data": 4, "model": 2},
    "arrays": {"w": {"shape": [1024, 512], "dtype": "float32", "spec": ["data", "model"]},
               "b": {"shape": [512], "dtype": "bfloat16", "spec": [None]}},
}  # fmt: skip


def test_it_explains_a_tree_of_shapes(tmp_path: Path):
    (tmp_path / "tree.json").write_text(json.dumps(TREE))
    found = ok("plan", tmp_path / "tree.json", "--hosts", 4, "--json").json
    assert found["mesh"] == {"data": 4, "model": 2}
    assert found["nbytes"] == sum(found["bytes_per_process"]) == 1024 * 512 * 4 + 512 * 2
    assert len(found["bytes_per_process"]) == 4
    assert found["plans"]["storax"]["balance"] <= 1.05
    text = ok("plan", tmp_path / "tree.json", "--hosts", 4).out
    assert "4 processes, mesh data 4 x model 2; 2 arrays" in text


def test_it_explains_a_checkpoint_on_its_own_mesh_and_on_another(tmp_path: Path):
    w = on_mesh(np.zeros((64, 64), np.float32), "data", "model")
    library.save(tmp_path / "a", {"w": w, "step": 3})
    own = ok("plan", tmp_path / "a", "--hosts", 2, "--json").json
    assert own["mesh"] == {"data": 4, "model": 2}
    other = ok("plan", tmp_path / "a", "--mesh", "data=8,model=4", "--hosts", 8, "--json").json
    assert other["mesh"] == {"data": 8, "model": 4}
    assert len(other["bytes_per_process"]) == 8
    assert own["nbytes"] == other["nbytes"] == 64 * 64 * 4 + 8


def test_it_explains_what_orbax_wrote():
    for version in ("0.6.4", "0.11.20", "0.12.8"):
        found = ok("plan", FIXTURES / version / "standard", "--hosts", 2, "--json").json
        assert found["mesh"] == {"data": 4, "model": 2}
        assert found["nbytes"] > 5000


def test_what_does_not_fit_is_said_so(tmp_path: Path):
    (tmp_path / "tree.json").write_text(json.dumps(TREE))
    assert storax("plan", tmp_path / "tree.json", "--hosts", 3).code == 2
    assert storax("plan", tmp_path / "tree.json", "--mesh", "data").code == 2
    for text in ("{", "[]", '{"arrays": 3}', '{"arrays": {"w": {}}}'):
        (tmp_path / "bad.json").write_text(text)
        assert storax("plan", tmp_path / "bad.json").code == 2, text
    assert storax("plan", tmp_path / "nope").code == 7


def test_a_checkpoint_without_a_mesh_asks_for_one(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.ones((8, 2), np.float32)})
    done = storax("plan", tmp_path / "a", "--hosts", 4)
    assert done.code == 2
    assert "--mesh data=32 --hosts 4" in done.err
    assert "0 chips" not in done.err
    ok("plan", tmp_path / "a", "--mesh", "data=32", "--hosts", 4)
    (tmp_path / "t.json").write_text(json.dumps({"arrays": {"w": {"shape": [8]}}, "mesh": [4]}))
    assert storax("plan", tmp_path / "t.json").code == 2
