"""storax loads what Orbax writes today, by each of its savers, and goes on in its directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tests.devices import mesh, on_mesh
from tests.interop import orbax, trees
from tests.same import abstract, assert_same

import storax

# What Orbax itself refuses to write, and leaves coroutines behind that nobody awaits when it does.
REFUSED = {
    **{(writer, "the empty tree"): "Found empty item" for writer in orbax.WRITERS},
    ("standard", "a bare array"): "StandardSave does not support single arrays",
    ("standard", "a bare numpy array"): "StandardSave does not support single arrays",
    ("standard", "a bare number"): "StandardSave does not support single arrays",
    ("no database", "odd keys"): "Invalid file path: a leaf's name is a directory there",
    ("no database, zarr3", "odd keys"): "Invalid file path: a leaf's name is a directory there",
}
MATRIX = [(w, name) for name in trees.TREES for w in orbax.WRITERS if (w, name) not in REFUSED]


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    with orbax.wide():
        yield


@pytest.mark.parametrize(("writer", "name"), MATRIX)
def test_a_tree_of_every_saver(writer: str, name: str, tmp_path: Path) -> None:
    tree, _ = trees.TREES[name]
    orbax.WRITERS[writer](tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), trees.from_orbax(name), shardings=True)
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)
    storax.metadata(tmp_path / "a")


@pytest.mark.parametrize("writer", [name for name in orbax.WRITERS if name != "standard"])
def test_strings_of_every_saver(writer: str, tmp_path: Path) -> None:
    orbax.WRITERS[writer](tmp_path / "a", trees.STRINGS)
    assert_same(storax.load(tmp_path / "a"), trees.STRINGS)
    assert_same(storax.load(tmp_path / "a", trees.STRINGS), trees.STRINGS)


@pytest.mark.parametrize("writer", orbax.WRITERS)
def test_another_sharding(writer: str, tmp_path: Path) -> None:
    tree, _ = trees.TREES["layouts"]
    orbax.WRITERS[writer](tmp_path / "a", tree)
    other = jax.sharding.NamedSharding(mesh(2, 4), jax.sharding.PartitionSpec(None, "model"))
    moved = {n: jax.device_put(x, other) if x.ndim == 2 else x for n, x in tree.items()}
    assert_same(storax.load(tmp_path / "a", abstract(moved)), moved, shardings=True)


def test_a_manager_of_orbax_with_items_and_metrics(tmp_path: Path) -> None:
    rule: dict[str, Any] = {"best_fn": lambda m: m["loss"], "best_mode": "min", "max_to_keep": 2}
    params = {"w": on_mesh(trees.W, "data")}
    theirs = ocp.CheckpointManager(
        tmp_path, options=ocp.CheckpointManagerOptions(**rule), metadata={"run": 1}
    )
    with theirs:
        for step, loss in enumerate([3.0, 1.0, 2.0, 0.5]):
            items = ocp.args.Composite(
                params=ocp.args.StandardSave(params), config=ocp.args.JsonSave({"step": step})
            )
            theirs.save(step, args=items, metrics={"loss": loss}, custom_metadata={"note": step})
        theirs.wait_until_finished()
        steps = list(theirs.all_steps())
    with storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(**rule)) as ours:
        assert ours.all_steps() == steps == [1, 3]
        assert ours.best_step() == 3
        assert ours.metrics(1) == {"loss": 1.0}
        assert ours.metadata() == {"run": 1}
        assert ours.metadata(1).custom_metadata == {"note": 1}
        found = ours.restore(1)
        assert_same(found.params, params, shardings=True)
        assert found.config == {"step": 1}
        with pytest.raises(storax.ItemNotFound, match="config"):
            ours.restore(1, args=storax.args.Composite(weights=storax.args.StandardRestore()))
        items = storax.args.Composite(
            params=storax.args.StandardSave(params), config=storax.args.JsonSave({"step": 4})
        )
        ours.save(4, args=items, metrics={"loss": 0.25})
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(**rule)) as again:
        assert list(again.all_steps()) == [3, 4]
        assert again.best_step() == 4
        assert again.restore(4)["config"] == {"step": 4}


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"step_prefix": "ckpt"},
        {"step_format_fixed_length": 8},
        {"step_prefix": "a", "step_format_fixed_length": 3},
    ],
    ids=str,
)
def test_the_same_steps_by_any_name(names: dict[str, Any], tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(**names)) as theirs:
        for step in (0, 7, 1000):
            theirs.save(step, args=ocp.args.StandardSave({"n": step}))
        theirs.wait_until_finished()
    with storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(**names)) as ours:
        assert ours.all_steps() == [0, 7, 1000]
        assert ours.restore() == {"n": 1000}
        ours.save(1001, args=storax.args.StandardSave({"n": 1001}))
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(**names)) as theirs:
        assert list(theirs.all_steps()) == [0, 7, 1000, 1001]
        assert theirs.restore(1001) == {"n": 1001}


def test_leaves_that_share_an_array_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = {"a.b": np.arange(3), "a": {"b": np.arange(3) + 10}}
    ocp.PyTreeCheckpointer().save(tmp_path / "a", tree)
    found = storax.load(tmp_path / "a")
    np.testing.assert_array_equal(found["a.b"], found["a"]["b"])
    assert [r.message for r in caplog.records if "share one array" in r.message and "a.b" in r.message]
