"""Every way in which Orbax writes and reads a tree, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import v1


def _restore_args(target: Any) -> Any:
    return ocp.checkpoint_utils.construct_restore_args(target)


def _standard(path: Path, target: Any = None) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def _pytree(path: Path, target: Any = None) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        if target is None:
            return checkpointer.restore(path)
        wish = ocp.args.PyTreeRestore(item=target, restore_args=_restore_args(target))
        return checkpointer.restore(path, args=wish)


# Of a tree straight in a directory. The standard handler refuses targets with strings in them.
READERS: dict[str, Callable[..., Any]] = {"standard": _standard, "pytree": _pytree, "v1": v1.load}


def manager_restore(directory: Path, step: int, args: Any = None, **options: Any) -> Any:
    with ocp.CheckpointManager(directory, **options) as manager:
        return manager.restore(step, args=args)


def _write(handler: Any, args: Any, path: Path) -> None:
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=args)


def _write_standard(path: Path, tree: Any) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)


def _write_async(path: Path, tree: Any) -> None:
    with ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(tree))


def _pytree_writer(**options: Any) -> Callable[[Path, Any], None]:
    return lambda path, tree: _write(ocp.PyTreeCheckpointHandler(**options), ocp.args.PyTreeSave(tree), path)


WRITERS: dict[str, Callable[[Path, Any], Any]] = {
    "standard": _write_standard,
    "pytree": _pytree_writer(),
    "async": _write_async,
    "zarr3": _pytree_writer(use_zarr3=True),
    "no database": _pytree_writer(use_ocdbt=False),
    "no database, zarr3": _pytree_writer(use_ocdbt=False, use_zarr3=True),
    "v1": v1.save,
}


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """64 bits for all threads: Orbax makes its arrays in threads of its own."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
