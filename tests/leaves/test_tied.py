"""The same array twice in a tree: stored once, said so, and one array again when loaded."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from tests.devices import on_mesh
from tests.same import abstract, assert_same

import storax


def _bytes_on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("d/*"))


def test_tied_leaves_are_stored_once(tmp_path: Path) -> None:
    shared = on_mesh(np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024), "data")
    key = jax.random.key(3)
    tree = {"embed": shared, "head": {"w": shared}, "k": key, "again": [key, shared]}
    storax.save(tmp_path / "a", tree)
    assert shared.nbytes < _bytes_on_disk(tmp_path / "a") < 1.01 * shared.nbytes
    ours = json.loads((tmp_path / "a" / "_METADATA").read_text())["custom_metadata"]["storax"]["leaves"]
    assert {name: fields["tied"] for name, fields in ours.items() if "tied" in fields} == {
        "embed": "again.1",
        "head.w": "again.1",
        "k": "again.0",
    }
    assert storax.verify(tmp_path / "a").ok


def test_a_load_gives_one_array_for_both(tmp_path: Path) -> None:
    shared = on_mesh(np.arange(64, dtype=np.float32).reshape(8, 8), "data")
    tree = {"a": shared, "b": [shared], "c": on_mesh(np.ones(8, np.float32), "data")}
    storax.save(tmp_path / "a", tree)
    for found in (storax.load(tmp_path / "a"), storax.load(tmp_path / "a", abstract(tree))):
        assert_same(found, tree, shardings=True)
        assert found["a"] is found["b"][0]
    # A target that wants two different things gets them.
    half = abstract(tree) | {"b": [jax.ShapeDtypeStruct((8, 8), jnp.bfloat16)]}
    found = storax.load(tmp_path / "a", half)
    assert found["a"].dtype == np.float32
    assert found["b"][0].dtype == jnp.bfloat16
    only = storax.load(tmp_path / "a", {"b": [abstract(tree)["b"][0]]}, partial=True)
    assert_same(only["b"][0], shared)


def test_equal_arrays_that_are_not_the_same_stay_two(tmp_path: Path) -> None:
    tree = {"a": jnp.ones(300), "b": jnp.ones(300)}
    storax.save(tmp_path / "a", tree)
    found = storax.load(tmp_path / "a")
    assert found["a"] is not found["b"]


def test_orbax_reads_tied_leaves_and_compression_keeps_them(tmp_path: Path) -> None:
    shared = jnp.arange(4096.0)
    tree = {"a": shared, "b": shared, "c": jnp.ones(3)}
    for compression in (None, "zstd"):
        path = tmp_path / str(compression)
        storax.save(path, tree, compression=compression)
        assert_same(storax.load(path), tree)
        with ocp.StandardCheckpointer() as checkpointer:
            assert_same(checkpointer.restore(path), tree)


def test_ties_end_where_leaves_become_different(tmp_path: Path) -> None:
    shared = jnp.arange(512.0)
    storax.save(tmp_path / "a", {"a": shared, "b": shared})
    doubled = [storax.surgery.scale("a", 2.0)]
    wanted = {"a": shared * 2, "b": shared}
    assert_same(storax.load(tmp_path / "a", transforms=doubled), wanted)
    storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=doubled)
    found = storax.load(tmp_path / "b", wanted)
    assert_same(found, wanted)
    storax.convert(tmp_path / "a", tmp_path / "c", chunk_bytes=1024)
    assert_same(storax.load(tmp_path / "c", wanted), {"a": shared, "b": shared})
