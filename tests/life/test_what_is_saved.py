"""After ``save_async`` has returned, the caller may do with its arrays what it likes."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import devices
from tests.same import assert_same

import storax
from storax.store import posix


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Holds every save before its first byte until the event is set."""
    go = threading.Event()
    write_at = posix.NewFile.write_at

    def waits(self: Any, *arguments: Any) -> int:
        assert go.wait(60)
        return write_at(self, *arguments)

    monkeypatch.setattr(posix.NewFile, "write_at", waits)
    yield go
    go.set()


def _tree() -> dict[str, Any]:
    """Arrays of JAX in every placement, and of numpy in every layout."""
    values = np.arange(4096 * 8, dtype=np.float32).reshape(4096, 8)
    return {
        "default": jnp.asarray(values) + 1,
        "one": devices.on_one(values + 2, 3),
        "sharded": devices.on_mesh(values + 3, "data", "model"),
        "rows": devices.on_mesh(values + 4, "data"),
        "replicated": devices.on_mesh(values + 5),
        "scalar": jnp.float32(3.5),
        "key": jax.random.key(7),
        "numpy": values.copy(),
        "column": values.T,
        "every other": values[::2].copy()[::2],
        "big-endian": values.astype(">f4"),
        "small": np.arange(3),
        "0-d": np.array(4.0),
        "bool": values > 5,
    }


def _copy(tree: dict[str, Any]) -> dict[str, Any]:
    """The same values in memory that nobody else knows."""

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.copy(order="K")
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            data = np.array(jax.random.key_data(value))
            return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(value))
        return jax.device_put(np.array(value), value.sharding)

    return {name: one(value) for name, value in tree.items()}


def _delete(tree: dict[str, Any]) -> None:
    for value in tree.values():
        if isinstance(value, jax.Array):
            value.delete()


def _donate(tree: dict[str, Any]) -> None:
    """Donates every array to a computation that writes over it."""
    for name, value in tree.items():
        if isinstance(value, jax.Array) and name != "key":
            jax.block_until_ready(jax.jit(lambda x: x * 0 - 1, donate_argnums=0)(value))


def _overwrite(tree: dict[str, Any]) -> None:
    for value in tree.values():
        if isinstance(value, np.ndarray):
            value[...] = value.dtype.type(1)


def _drop(tree: dict[str, Any]) -> None:
    tree.clear()
    gc.collect()
    # Whatever memory was freed is used again.
    jax.block_until_ready([jnp.full((4096, 8), 9.0) for _ in range(8)])


@pytest.mark.parametrize("act", [_delete, _donate, _overwrite, _drop])
def test_what_was_there_at_the_call_is_saved(
    tmp_path: Path, held: threading.Event, act: Callable[[dict[str, Any]], None]
):
    tree = _tree()
    wanted = _copy(tree)
    handle = storax.save_async(tmp_path / "a", tree)
    act(tree)
    assert not handle.done()
    held.set()
    handle.result()
    assert_same(storax.load(tmp_path / "a", wanted), wanted, shardings=True)


@pytest.mark.parametrize("act", [_delete, _donate, _overwrite])
def test_a_manager_saves_what_was_there_at_the_call(
    tmp_path: Path, held: threading.Event, act: Callable[[dict[str, Any]], None]
):
    tree = _tree()
    wanted = _copy(tree)
    with storax.CheckpointManager(tmp_path) as manager:
        assert manager.save(1, args=storax.args.Composite(params=storax.args.StandardSave(tree)))
        act(tree)
        assert manager.is_saving_in_progress()
        held.set()
        manager.wait_until_finished()
        found = manager.restore(1, args=storax.args.Composite(params=storax.args.StandardRestore(wanted)))
    assert_same(found.params, wanted, shardings=True)


def test_a_training_step_that_donates_its_state_runs_beside_every_save(tmp_path: Path):
    """The loop that people write: donate the state in each step, save each step in the background."""
    step = jax.jit(lambda state: jax.tree.map(lambda x: x * 2 + 1, state), donate_argnums=0)
    state = {"w": devices.on_mesh(np.ones((512, 64), np.float32), "data"), "b": jnp.ones(1000)}
    wanted = []
    with storax.CheckpointManager(tmp_path) as manager:
        for number in range(6):
            wanted.append(jax.tree.map(np.array, state))
            manager.save(number, args=storax.args.StandardSave(state))
            state = step(state)
        manager.wait_until_finished()
        for number, values in enumerate(wanted):
            assert_same(manager.restore(number, args=storax.args.StandardRestore(values)), values)


@pytest.mark.parametrize("by", ["save_async", "manager"])
def test_the_copies_are_freed_when_the_save_has_ended(tmp_path: Path, by: str):
    array = np.ones(4_000_000)
    storax.save(tmp_path / "warm", {"w": array[:10]})  # what is imported and cached is not meant
    manager = storax.CheckpointManager(tmp_path / "run")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        if by == "manager":
            manager.save(0, args=storax.args.StandardSave({"w": array}))
            most = tracemalloc.get_traced_memory()[1]
            manager.wait_until_finished()
        else:
            handle = storax.save_async(tmp_path / "a", {"w": array})
            most = tracemalloc.get_traced_memory()[1]
            handle.result()
        # The handle, or the manager, is still there.
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert most - before > array.nbytes // 2  # there was a copy
    assert after - before < array.nbytes // 20
    manager.close()


def test_what_jax_holds_on_the_cpu_is_not_copied(tmp_path: Path):
    """Beside a large state there is no room for a second one, and a jax.Array does not change."""
    state = {"w": devices.on_mesh(np.ones((4096, 512), np.float32), "data")}
    storax.save(tmp_path / "warm", {"w": state["w"][:8]})
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        storax.save_async(tmp_path / "a", state).result()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most - before < state["w"].nbytes // 4
