"""Orbax restores what storax wrote: all kinds that it has, and the rest of a tree with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from orbax.checkpoint import v1
from tests.devices import mesh, on_mesh, plain
from tests.interop import orbax, trees
from tests.leaves import dtypes
from tests.same import abstract, assert_same

import storax


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    with orbax.wide():
        yield


@pytest.mark.parametrize("name", trees.TREES)
def test_a_tree_at_a_path(name: str, tmp_path: Path) -> None:
    tree, _ = trees.TREES[name]
    storax.save(tmp_path / "a", tree)
    for read in orbax.READERS.values():
        assert_same(read(tmp_path / "a"), trees.without_target(name), shardings=True)
        assert_same(read(tmp_path / "a", abstract(tree)), tree, shardings=True)


@pytest.mark.parametrize("name", ["jax arrays", "layouts", "keys", "optimizer"])
def test_a_compressed_tree(name: str, tmp_path: Path) -> None:
    tree, _ = trees.TREES[name]
    storax.save(tmp_path / "a", tree, compression="zstd")
    for read in orbax.READERS.values():
        assert_same(read(tmp_path / "a"), trees.without_target(name), shardings=True)
        assert_same(read(tmp_path / "a", abstract(tree)), tree, shardings=True)


@pytest.mark.parametrize("name", trees.TREES)
def test_a_step_of_a_manager(name: str, tmp_path: Path) -> None:
    tree, _ = trees.TREES[name]
    with storax.CheckpointManager(tmp_path) as manager:
        manager.save(3, args=storax.args.StandardSave(tree))
    found = trees.without_target(name)
    assert_same(orbax.manager_restore(tmp_path, 3), found, shardings=True)
    assert_same(orbax.manager_restore(tmp_path, 3, ocp.args.StandardRestore()), found, shardings=True)
    target = ocp.args.StandardRestore(abstract(tree))
    assert_same(orbax.manager_restore(tmp_path, 3, target), tree, shardings=True)


@pytest.mark.parametrize("name", ["layouts", "keys"])
def test_another_sharding(name: str, tmp_path: Path) -> None:
    tree, _ = trees.TREES[name]
    storax.save(tmp_path / "a", tree)
    other = jax.sharding.NamedSharding(mesh(2, 4), jax.sharding.PartitionSpec())
    moved = jax.tree.map(lambda x: jax.device_put(x, other), tree)
    for read in orbax.READERS.values():
        assert_same(read(tmp_path / "a", abstract(moved)), moved, shardings=True)


def test_strings(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", trees.STRINGS)
    for read in orbax.READERS.values():
        assert_same(read(tmp_path / "a"), trees.STRINGS)
    for name in ("pytree", "v1"):
        assert_same(orbax.READERS[name](tmp_path / "a", trees.STRINGS), trees.STRINGS)
    with pytest.raises(ValueError, match="Unsupported type: <class 'str'>"):
        orbax.READERS["standard"](tmp_path / "a", trees.STRINGS)
    with storax.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=storax.args.StandardSave(trees.STRINGS))
    assert_same(orbax.manager_restore(tmp_path / "run", 1), trees.STRINGS)
    wish = ocp.args.PyTreeRestore(trees.STRINGS)
    assert_same(orbax.manager_restore(tmp_path / "run", 1, wish), trees.STRINGS)


def test_a_bare_string_and_a_bare_none(tmp_path: Path) -> None:
    storax.save(tmp_path / "s", "text")
    storax.save(tmp_path / "n", None)
    for name, read in orbax.READERS.items():
        assert read(tmp_path / "s") == "text"
        if name == "standard":
            with pytest.raises(ValueError, match="Unsupported tree type"):
                read(tmp_path / "n")
        else:
            assert read(tmp_path / "n") is None


def test_named_items(tmp_path: Path) -> None:
    params, config = {"w": on_mesh(trees.W, "data")}, {"lr": 0.1, "names": ["a", None]}
    with storax.CheckpointManager(tmp_path, metadata={"run": 1}) as manager:
        items = storax.args.Composite(
            params=storax.args.StandardSave(params),
            extra=storax.args.StandardSave({"n": 1, "s": "text"}),
            config=storax.args.JsonSave(config),
        )
        manager.save(5, args=items, metrics={"loss": 0.5}, custom_metadata={"note": "x"})
    with ocp.CheckpointManager(tmp_path) as theirs:
        assert theirs.all_steps() == [5]
        found = theirs.restore(5)
        assert_same(found["params"], params, shardings=True)
        assert_same(found["extra"], {"n": 1, "s": "text"})
        assert found["config"] == config
        wish = ocp.args.Composite(
            params=ocp.args.StandardRestore(abstract(params)), config=ocp.args.JsonRestore()
        )
        found = theirs.restore(5, args=wish)
        assert_same(found.params, params, shardings=True)
        assert found.config == config
        assert theirs.metrics(5) == {"loss": 0.5}
        assert theirs.metadata(5).custom_metadata == {"note": "x"}
        assert theirs.metadata().custom_metadata == {"run": 1}


def test_metadata_that_orbax_shows(tmp_path: Path) -> None:
    tree, _ = trees.TREES["layouts"]
    storax.save(tmp_path / "a", {**tree, "n": 3, "s": "text"}, custom_metadata={"note": "x"})
    with ocp.PyTreeCheckpointer() as theirs:
        found = theirs.metadata(tmp_path / "a")
    assert found.custom_metadata == {"note": "x"}
    shown = found.item_metadata.tree
    assert {n: (x.shape, x.dtype) for n, x in shown.items() if n in tree} == {
        n: (x.shape, x.dtype) for n, x in tree.items()
    }
    assert v1.metadata(tmp_path / "a").metadata["data"].shape == (16, 8)


# --- kinds that Orbax lacks ------------------------------------------------------------------------

# What is saved, and what Orbax takes it for.
LACKING: dict[str, tuple[Any, Any]] = {
    "bytes": (b"abc", np.frombuffer(b"abc", np.uint8)),
    "no bytes": (b"", np.zeros(0, np.uint8)),
    "complex": (1.5j, np.array(1.5j)),
    "numpy scalar": (np.float16(2.5), np.array(2.5, np.float16)),
    "big-endian": (np.arange(3, dtype=">i4"), np.arange(3, dtype=np.int32)),
    "zero-size": (np.zeros((0, 3), np.int8), np.zeros((0, 3), np.int8)),
    "zero-size on a mesh": (
        on_mesh(np.zeros((0, 4), np.float32), "data"),
        on_mesh(np.zeros((0, 4), np.float32), "data"),
    ),
    "int beyond 64 bits": (10**50, hex(10**50)),
    "lone surrogate": ("a\ud800", "a?"),
    **{n: (dtypes.values(n, (4, 3)), dtypes.values(n, (4, 3)).view(np.uint8)) for n in trees.FOREIGN_DTYPES},
    **{
        f"{n} on a mesh": (
            on_mesh(dtypes.values(n, (8, 4)), "data"),
            on_mesh(dtypes.values(n, (8, 4)).view(np.uint8), "data"),
        )
        for n in trees.FOREIGN_DTYPES
        if n in dtypes.IN_JAX
    },
}
REST = {
    "w": on_mesh(trees.W, "data", "model"),
    "n": np.arange(3),
    "k": jax.random.key(1),
    "s": "text",
    "i": 3,
}


@pytest.mark.parametrize("kind", LACKING)
def test_a_kind_that_orbax_lacks_leaves_the_rest_readable(kind: str, tmp_path: Path) -> None:
    saved, taken_for = LACKING[kind]
    tree = {**REST, "x": saved}
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    found = {**REST, "x": taken_for}
    for read in orbax.READERS.values():
        assert_same(read(tmp_path / "a"), found, shardings=True)
    for name in ("pytree", "v1"):
        assert_same(orbax.READERS[name](tmp_path / "a", abstract(found)), found, shardings=True)
    # And to leave it out, as Orbax does that.
    rest = {"w": abstract(REST["w"]), "k": abstract(REST["k"])}
    with v1.Context(pytree_options=v1.options.PyTreeOptions(loading=_PARTIAL)):
        assert_same(v1.load(tmp_path / "a", rest), {"w": REST["w"], "k": REST["k"]}, shardings=True)


_PARTIAL = v1.options.PyTreeOptions.Loading(partial_load=True)


# --- managers --------------------------------------------------------------------------------------


def test_orbax_goes_on_in_the_directory_of_storax(tmp_path: Path) -> None:
    options = {"max_to_keep": 3, "step_prefix": "step", "step_format_fixed_length": 6}
    with storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(**options)) as ours:
        for step in range(4):
            ours.save(step, args=storax.args.StandardSave({"n": step}))
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(**options)) as theirs:
        assert list(theirs.all_steps()) == [1, 2, 3]
        assert theirs.latest_step() == 3
        assert theirs.restore(2) == {"n": 2}
        theirs.save(4, args=ocp.args.StandardSave({"n": 4}))
        theirs.wait_until_finished()
        assert list(theirs.all_steps()) == [2, 3, 4]
    with storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(**options)) as ours:
        assert ours.all_steps() == [2, 3, 4]
        assert [ours.restore(step) for step in (2, 3, 4)] == [{"n": 2}, {"n": 3}, {"n": 4}]
        assert ours.save(5, args=storax.args.StandardSave({"n": 5}))
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(**options)) as theirs:
        assert list(theirs.all_steps()) == [3, 4, 5]


def test_the_best_steps_are_the_same(tmp_path: Path) -> None:
    rule: dict[str, Any] = {"best_fn": lambda m: m["loss"], "best_mode": "min", "max_to_keep": 2}
    with storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(**rule)) as ours:
        for step, loss in enumerate([3.0, 1.0, 2.0, 0.5]):
            ours.save(step, args=storax.args.StandardSave({"n": step}), metrics={"loss": loss})
        ours.wait_until_finished()
        assert (ours.all_steps(), ours.best_step()) == ([1, 3], 3)
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(**rule)) as theirs:
        assert (list(theirs.all_steps()), theirs.best_step()) == ([1, 3], 3)
        assert theirs.metrics(1) == {"loss": 1.0}


# --- TensorStore as the judge ----------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_tensorstore_reads_the_same_bytes(compression: Any, tmp_path: Path) -> None:
    tree = {
        "dtypes": {n: plain(dtypes.values(n, (5, 3))) for n in trees.COMMON},
        "scalars": {n: plain(dtypes.values(n, ())) for n in trees.COMMON},
        "numpy": {n: dtypes.values(n, (2, 3, 4)) for n in trees.COMMON},
        "mesh": on_mesh(trees.W, "data", "model"),
        "overhang": np.arange(17 << 20, dtype=np.uint8).reshape(17, -1),
        "columns": on_mesh(np.arange(40 << 20, dtype=np.uint8).reshape(4, -1), None, "model"),
        "empty": np.zeros((0, 2), np.int16),
    }
    storax.save(tmp_path / "a", tree, compression=compression)
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        name = ".".join(key.key for key in path)
        kvstore = {"driver": "ocdbt", "base": f"file://{tmp_path}/a/", "path": f"{name}/"}
        array = ts.open({"driver": "zarr3", "kvstore": kvstore}, open=True, read=True).result()
        host = np.asarray(value)
        assert array.dtype.numpy_dtype == host.dtype
        assert array.shape == host.shape
        assert array.read().result().tobytes() == host.tobytes(), name
        codecs = [codec["name"] for codec in array.spec().to_json()["metadata"]["codecs"]]
        assert codecs == ["bytes", *(["zstd"] if compression else []), "crc32c"]
