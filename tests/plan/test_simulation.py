"""A save that does not happen. What it says of real ones is in tests/processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.devices import on_mesh

import storax
from storax.checkpoint import SavedTree
from storax.ocdbt import layout
from storax.plan import planned, simulate, simulation

MIB = 1 << 20


def _tree(**arrays: tuple[list[int], list[object] | None]) -> dict[str, object]:
    entries = {name: {"shape": shape, "spec": spec} for name, (shape, spec) in arrays.items()}
    return {"mesh": {"data": 4, "model": 2}, "arrays": entries}


def test_what_is_sharded_is_even_in_any_plan_and_what_is_replicated_only_in_ours() -> None:
    sharded = simulate(_tree(w=([1024, 1024], [["data", "model"]])), hosts=4)
    assert sharded.loads.bytes == sharded.single_replica.bytes == (MIB,) * 4
    replicated = simulate(_tree(w=([1021, 1024], [])), hosts=4)
    assert replicated.single_replica.bytes == (1021 * 4096, 0, 0, 0)
    assert replicated.divided_replicas.bytes == (1021 * 1024,) * 4, "along the other axis"
    odd = simulate(_tree(w=([1021, 1023], [])), hosts=4)
    assert odd.divided_replicas.balance == 4
    assert odd.loads.balance < 1.05
    assert sum(odd.loads.bytes) >= odd.nbytes


def test_numpy_leaves_are_shared_out_too() -> None:
    found = simulate({"mesh": {"x": 4}, "arrays": {f"n{i}": {"shape": [999]} for i in range(400)}}, hosts=4)
    assert found.loads.bytes == (100 * 999 * 4,) * 4
    assert found.divided_replicas.bytes == (400 * 999 * 4, 0, 0, 0)


def test_json_text_and_another_mesh() -> None:
    text = json.dumps(_tree(w=([1024, 1024], ["data", "model"])))
    assert simulate(text, {"data": 2, "model": 8}, hosts=2).loads.bytes == (2 * MIB,) * 2


def test_a_checkpoints_own_metadata(tmp_path: Path) -> None:
    tree = {
        "w": on_mesh(np.zeros((64, 8), np.float32), "data", "model"),
        "n": np.zeros(6),
        "k": jax.random.key(0),
    }
    where = tmp_path / "a"
    storax.save(where, tree)
    arrays, mesh = planned(found.leaf for found in SavedTree.open(where).leaves())
    assert mesh == {"data": 4, "model": 2}
    assert {array.name: (array.nbytes, array.spec) for array in arrays} == {
        "w": (2048, (("data",), ("model",))),
        "n": (48, None),
        "k": (8, None),
    }
    assert simulate(arrays, mesh, hosts=2).nbytes == 2048 + 48 + 8


def test_all_that_does_not_fit_is_named() -> None:
    with pytest.raises(storax.BadOption, match="3 hosts of 2 chips are not the 8 devices"):
        simulate(_tree(w=([8], [])), hosts=3)
    tree = _tree(
        a=([8], ["rows"]), b=([3], ["data"]), c=([8], ["data", "model"]), d=([8], [["data", "data"]])
    )
    with pytest.raises(storax.BadOption) as caught:
        simulate(tree, hosts=4)
    assert [f"  {name}: " in str(caught.value) for name in "abcd"] == [True] * 4


def test_the_table() -> None:
    lines = str(simulate(_tree(w=([1024, 1024], [["data", "model"]])), hosts=4)).splitlines()
    assert lines[0] == "4 processes, mesh data 4 x model 2; 1 arrays, 4.0 MiB"
    assert lines[2].split() == ["storax", "1.0", "MiB", "1.0", "MiB", "1.00"]
    assert lines[5] == "8 chunks, at most 2 by one process; 14 files; largest slice 512.0 KiB"


def test_what_it_knows_of_the_writer_is_so() -> None:
    assert simulation._LARGEST_INLINE == layout.LARGEST_INLINE
    assert simulation._BYTES_PER_FILE == layout.BYTES_PER_FILE


def test_no_device_is_asked_for_and_jax_is_not_there() -> None:
    code = (
        "import sys; from storax.plan import simulate; "
        "found = simulate({'mesh': {'x': 8}, 'arrays': {'w': {'shape': [8]}}}, hosts=2); "
        "print(found.arrays, 'jax' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1", "False"]
