"""How Orbax behaves with trees, leaves and names, with storax and with Orbax."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from google.protobuf import struct_pb2
from tests.compat.side_by_side import both, outcome, plain, shows
from tests.devices import on_mesh, sharding

import storax
from storax.errors import BadOption

# Orbax leaves coroutines behind when it fails; they complain when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    yield
    gc.collect()


def test_what_a_restore_without_a_target_gives(tmp_path: Path) -> None:
    tree = {
        "none": None, "dict": {}, "list": [], "tuple": (), "int": 3, "float": 0.5, "np": np.arange(3),
        "jax": on_mesh(np.arange(8, dtype=np.float32), "data"), "pair": (np.ones(1), [np.zeros(2)]),
    }  # fmt: skip

    def program(ocp: Any, directory: Path) -> Any:
        ocp.PyTreeCheckpointer().save(directory / "x", tree)
        found = ocp.PyTreeCheckpointer().restore(directory / "x")
        return found, found["jax"].sharding == tree["jax"].sharding, type(found["pair"]).__name__

    ours, theirs = both(program, tmp_path, same=False)
    assert plain(ours[:2]) == plain(theirs[:2])
    assert (ours[2], theirs[2]) == ("tuple", "list")


def test_a_target_that_does_not_fit(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": jnp.ones(3), "b": jnp.ones(2)}))

        def restored(target: Any, **more: Any) -> Any:
            return outcome(
                lambda: checkpointer.restore(directory / "x", args=ocp.args.StandardRestore(target, **more))
            )

        a, b = jnp.zeros(3), jnp.zeros(2)
        cut = restored({"a": jnp.zeros(2), "b": jnp.zeros(4)}, strict=False)
        return (
            restored({"a": jnp.zeros(4), "b": b}),
            restored({"a": a}),
            restored({"a": a, "b": b, "c": a}),
            cut,
        )

    both(program, tmp_path)


def test_what_orbax_cannot_save(tmp_path: Path) -> None:
    trees = {
        "string": {"s": "text", "a": np.ones(1)}, "zero-size": {"a": np.zeros((0, 3)), "b": np.ones(1)},
        "bare": jnp.arange(3), "int keys": {1: np.ones(1), 2: np.zeros(1)}, "empty": {},
    }  # fmt: skip

    def program(ocp: Any, directory: Path) -> Any:
        found = {}
        for name, tree in trees.items():
            checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())

            def act(path: Path = directory / name, tree: Any = tree, checkpointer: Any = checkpointer) -> Any:
                checkpointer.save(path, args=ocp.args.StandardSave(tree))
                return checkpointer.restore(path)

            found[name] = outcome(act)
        return found

    ours, theirs = both(program, tmp_path, same=False)
    assert plain(ours) == plain(trees)
    assert list(ours["int keys"]) == [1, 2]
    refused = {name for name, value in theirs.items() if value in ("ValueError", "TypeError")}
    assert {"string", "zero-size", "bare"} <= refused


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def program(ocp: Any, directory: Path) -> Any:
        relative = directory.relative_to(tmp_path) / "x"
        return outcome(lambda: ocp.PyTreeCheckpointer().save(relative, {"a": np.ones(1)})), (
            directory / "x"
        ).is_dir()

    assert both(program, tmp_path, same=False) == ((None, True), ("ValueError", False))


def test_two_leaves_never_share_their_storage(tmp_path: Path) -> None:
    tree = {"a.b": np.zeros(2), "a": {"b": np.ones(2)}}

    def program(ocp: Any, directory: Path) -> Any:
        def act() -> Any:
            ocp.PyTreeCheckpointer().save(directory / "x", tree)
            return ocp.PyTreeCheckpointer().restore(directory / "x")

        return outcome(act)

    ours, theirs = both(program, tmp_path, same=False)
    assert ours == "ValueError"
    assert plain(theirs) != plain(tree)


def test_missing_leaves_are_filled_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storax.save(tmp_path / "x", {"a": np.arange(3)})
    found = storax.PyTreeCheckpointer().restore(
        tmp_path / "x", item={"a": np.zeros(3), "new": np.full(2, 9.0)}, transforms={}
    )
    assert plain(found) == plain({"a": np.arange(3), "new": np.full(2, 9.0)})
    assert "has no new: the target's own values stay" in caplog.text
    with pytest.raises(storax.TreeMismatch):
        storax.PyTreeCheckpointer().restore(
            tmp_path / "x", item={"a": np.zeros(3), "new": jax.ShapeDtypeStruct((2,), float)}, transforms={}
        )


def test_a_float_does_not_become_an_int_by_itself(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": jnp.full(2, 1.75)}))
        args = ocp.args.StandardRestore({"a": jnp.zeros(2, jnp.int32)})
        return outcome(lambda: checkpointer.restore(directory / "x", args=args))

    ours, theirs = both(program, tmp_path, same=False)
    assert ours == "ValueError"
    assert plain(theirs) == plain({"a": jnp.ones(2, jnp.int32)})


def test_plain_files_are_not_deleted_by_force(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        (directory / "x").mkdir()
        (directory / "x" / "notes.txt").write_text("mine")
        saved = outcome(lambda: ocp.PyTreeCheckpointer().save(directory / "x", {"a": np.ones(1)}, force=True))
        return saved, (directory / "x" / "notes.txt").exists()

    ours, theirs = both(program, tmp_path, same=False)
    assert ours == ("ValueError", True)
    assert theirs == (None, False)


@shows(
    "args.JaxRandomKeySave",
    "args.JaxRandomKeyRestore",
    "args.NumpyRandomKeySave",
    "args.NumpyRandomKeyRestore",
    "args.ArraySave",
    "args.ArrayRestore",
    "args.ProtoSave",
    "args.ProtoRestore",
    "ProtoCheckpointHandler",
    "ArrayCheckpointHandler",
    "nested Composite",
)
def test_keys_arrays_messages_and_items_inside_an_item(tmp_path: Path) -> None:
    message = struct_pb2.Struct()
    message["a"] = 1.5
    random.seed(3)
    state = random.getstate()
    numpy_state = np.random.RandomState(4).get_state()

    def save(ocp: Any, directory: Path) -> None:
        # Otherwise Orbax now and then looks for a directory of an inner item before it has made it.
        how = ocp.AsyncOptions(timeout_secs=60, create_directories_asynchronously=False)
        options = ocp.CheckpointManagerOptions(async_options=how)
        with ocp.CheckpointManager(directory, options=options) as mngr:
            args = ocp.args
            items = args.Composite(
                key=args.JaxRandomKeySave(jax.random.key(1)),
                raw=args.JaxRandomKeySave(jax.random.PRNGKey(2)),
                numpy=args.NumpyRandomKeySave(numpy_state),
                array=args.ArraySave(jnp.arange(3)),
                number=args.ArraySave(4),
                proto=args.ProtoSave(message),
                rngs=args.Composite(python=args.StandardSave(state), env=args.JsonSave({"seed": 1})),
            )
            mngr.save(0, args=items)

    def load(ocp: Any, directory: Path) -> Any:
        args = ocp.args
        wanted = args.Composite(
            key=args.JaxRandomKeyRestore(),
            raw=args.JaxRandomKeyRestore(),
            numpy=args.NumpyRandomKeyRestore(),
            array=args.ArrayRestore(),
            number=args.ArrayRestore(),
            proto=args.ProtoRestore(struct_pb2.Struct),
            rngs=args.Composite(python=args.StandardRestore(), env=args.JsonRestore()),
        )
        found = ocp.CheckpointManager(directory).restore(0, args=wanted)
        values = {name: found[name] for name in ("key", "raw", "numpy", "array", "number")}
        return values, dict(found["proto"]), found.rngs.env, found["rngs"]["python"]

    def program(ocp: Any, directory: Path) -> Any:
        save(ocp, directory)
        return load(ocp, directory)

    both(program, tmp_path)
    # Each reads what the other wrote.
    import orbax.checkpoint

    assert plain(load(storax, tmp_path / "orbax")) == plain(load(orbax.checkpoint, tmp_path / "storax"))


@shows(
    "type_handlers.register_type_handler",
    "type_handlers.SingleReplicaArrayHandler",
    "type_handlers.is_ocdbt_checkpoint",
)
def test_handlers_of_leaf_types_are_taken(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        if ocp is storax:  # Orbax would keep it, for all tests after this one
            handler = ocp.type_handlers.SingleReplicaArrayHandler(
                replica_axis_index=0, broadcast_memory_limit_bytes=1 << 30
            )
            ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
        ocp.PyTreeCheckpointer().save(directory / "x", {"a": jnp.arange(3)})
        return ocp.PyTreeCheckpointer().restore(directory / "x"), ocp.type_handlers.is_ocdbt_checkpoint(
            directory / "x"
        )

    both(program, tmp_path)
    with pytest.raises(BadOption, match="items of their own"):
        storax.type_handlers.register_type_handler(Path, storax.type_handlers.NumpyHandler())


@shows(
    "tree.to_flat_dict",
    "tree.from_flat_dict",
    "tree.get_param_names",
    "utils.serialize_tree",
    "utils.deserialize_tree",
    "transform_utils.intersect_trees",
    "test_utils.erase_and_create_empty",
    "metadata.ArrayMetadata",
    "utils.fully_replicated_host_local_array_to_global_array",
)
def test_helpers_for_trees(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"a": {"b": np.ones(1), "c": (np.zeros(1), {})}, "d": None}
        flat = ocp.tree.to_flat_dict(tree, sep="/")
        kept = ocp.tree.to_flat_dict(tree, keep_empty_nodes=True)
        back = ocp.tree.from_flat_dict(flat, sep="/")
        placed = ocp.tree.from_flat_dict(ocp.tree.to_flat_dict({"x": {"y": 1}}), target={"x": {"y": 0}})
        serialized = ocp.utils.serialize_tree({"a": {"b": 1}, "c": [2, 3]})
        again = ocp.utils.deserialize_tree(serialized, {"a": {"b": 0}, "c": [0, 0]})
        names = ocp.tree.get_param_names({"a": {"b": 1}, "c": [2, 3]})
        (directory / "e").mkdir()
        (directory / "e" / "old").write_text("x")
        emptied = ocp.test_utils.erase_and_create_empty(directory / "e")
        common = ocp.transform_utils.intersect_trees({"a": 1, "b": {"c": 2}}, {"a": 5, "b": {"d": 1}})
        return (
            sorted(flat),
            sorted(map(str, kept)),
            back,
            placed,
            serialized,
            again,
            names,
            list(emptied.iterdir()),
            common,
        )

    both(program, tmp_path)
    array = storax.utils.fully_replicated_host_local_array_to_global_array(jnp.arange(3))
    assert array.is_fully_replicated
    assert len(array.devices()) == jax.device_count()
    assert storax.metadata.ArrayMetadata(name="a", shape=(2,), dtype=np.dtype("f4")).shape == (2,)


def test_a_sharding_from_metadata_is_a_sharding_again(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        ocp.PyTreeCheckpointer().save(directory / "x", {"a": on_mesh(np.arange(8, dtype=np.float32), "data")})
        leaf = ocp.PyTreeCheckpointer().metadata(directory / "x").item_metadata["a"]
        return leaf.sharding.to_jax_sharding() == sharding("data"), leaf.shape, str(leaf.dtype)

    both(program, tmp_path)
