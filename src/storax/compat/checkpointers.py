"""Checkpointers: one item, or several, at one path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from storax import inspection
from storax.background import SaveHandle, start, turn
from storax.checkpoint import open_checkpoint
from storax.compat import handlers
from storax.compat.args import ArrayRestore, PyTreeRestore, StandardRestore
from storax.compat.handlers import (
    CompositeCheckpointHandler,
    PyTreeCheckpointHandler,
    StandardCheckpointHandler,
)
from storax.compat.metadata import StepMetadata, step_metadata
from storax.compat.options import AsyncOptions
from storax.compat.translate import Items, is_args, load_item, own_handler, save_item
from storax.errors import BadOption
from storax.items import Composite, LoadItem
from storax.publishing import refuse_taken, write_checkpoint
from storax.saving import check_json
from storax.store import commit
from storax.store.paths import resolve
from storax.store.unchanged import unchanged

Path_ = str | os.PathLike[str]


class AbstractCheckpointer:
    """What checkpointers derive from."""


class Checkpointer(AbstractCheckpointer):
    """Saves and restores at a path what its handler stands for. ``save`` returns when it is durable.

    Args:
      handler: what is saved; a ``CompositeCheckpointHandler`` for several items.
    """

    def __init__(self, handler: Any, **_: Any) -> None:
        self._handler = own_handler(handler)
        self._items = Items()
        if isinstance(self._handler, CompositeCheckpointHandler):
            self._items = Items(
                handlers={name: own_handler(h) for name, h in self._handler.handlers.items()},
                registry=self._handler.handler_registry,
            )

    @property
    def handler(self) -> Any:
        """The handler."""
        return self._handler

    def save(
        self,
        directory: Path_,
        *args: Any,
        force: bool = False,
        custom_metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Saves an item.

        Args:
          directory: where; also relative.
          args: the item, or arguments such as ``storax.args.PyTreeSave(tree)``.
          force: replace a checkpoint that is there; other files are never replaced.
          custom_metadata: a JSON object kept with it.
          kwargs: ``item`` and ``save_args``, or ``args``.
        """
        with turn():
            self._save(directory, args, force, custom_metadata, kwargs)()

    def _save(
        self,
        directory: Path_,
        args: tuple[Any, ...],
        force: bool,
        custom_metadata: Mapping[str, Any] | None,
        kwargs: dict[str, Any],
    ) -> Callable[[], None]:
        """Copies what must be copied; gives what writes it."""
        final = resolve(directory)
        refuse_taken(final, force)
        custom = check_json(custom_metadata, "custom_metadata")
        wish = _one(args, kwargs)
        items: dict[str | None, Any]
        if isinstance(wish, Composite) or type(wish).__name__ == "CompositeArgs":
            items = {name: save_item(value, name, self._items).stage() for name, value in wish.items()}
        elif wish is not None:
            single = Items(handlers={"": self._handler} if not self._is_composite else {})
            items = {None: save_item(wish, "", single).stage()}
        else:
            item, rest = _item(args, kwargs)
            items = {None: handlers.legacy_save(self._handler, item, rest).stage()}
        return lambda: write_checkpoint(final, items, overwrite=force, custom=custom)

    @property
    def _is_composite(self) -> bool:
        return isinstance(self._handler, CompositeCheckpointHandler)

    def restore(self, directory: Path_, *args: Any, **kwargs: Any) -> Any:
        """Restores an item.

        Args:
          directory: what ``save`` was given, or an item of a manager's step.
          args: the target, or arguments such as ``storax.args.PyTreeRestore(...)``.
          kwargs: ``item``, ``target``, ``restore_args``, ``transforms``, …, or ``args``.
        """
        path = resolve(directory)
        wish = _one(args, kwargs)
        if self._is_composite or isinstance(wish, Composite):
            return unchanged(path, lambda: self._restore_items(path, wish))
        if wish is not None:
            found = load_item(wish, "", Items(handlers={"": self._handler}))
        else:
            item, rest = _item(args, kwargs)
            found = handlers.legacy_restore(self._handler, item, rest)
        return unchanged(path, lambda: found.load(_item_directory(path, found)))

    def _restore_items(self, path: Path, wish: Any) -> Composite:
        checkpoint = open_checkpoint(path)
        if wish is None:
            return Composite(**{n: checkpoint.load_item(n, _load_tree) for n in checkpoint.every_item()})
        return Composite(
            **{
                name: load_item(value, name, self._items).load(checkpoint.item(name))
                for name, value in wish.items()
            }
        )

    def metadata(self, directory: Path_) -> StepMetadata:
        """What is in a checkpoint, without reading its values."""
        return step_metadata(inspection.metadata(resolve(directory)))

    def structure(self, directory: Path_) -> Any:
        """The tree of a checkpoint's metadata."""
        found = self.metadata(directory).item_metadata
        return getattr(found, "tree", found)

    def wait_until_finished(self) -> None:
        """Waits for the running save. Raises what went wrong."""

    def check_for_errors(self) -> None:
        """Raises what went wrong in a save that has ended; does not wait."""

    def close(self) -> None:
        """Waits for the running save. Raises what went wrong."""
        self.wait_until_finished()
        if callable(end := getattr(self._handler, "close", None)):
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _load_tree(directory: Path) -> Any:
    return PyTreeCheckpointHandler().restore(directory)


def _one(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The first arguments object among what was passed, or None: the rest then does not count."""
    every = [*args, *kwargs.values()]
    return next((value for value in every if is_args(value)), None)


def _item(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The item, from the arguments that older code has, and the others."""
    rest = dict(kwargs)
    named = [rest.pop(name) for name in ("item", "target", "state", "args") if name in rest]
    if len(args) > 1:
        raise BadOption(f"{len(args)} items were passed; name the arguments after the first")
    return next((value for value in (*args, *named) if value is not None), None), rest


def _item_directory(path: Path, wish: LoadItem) -> Path:
    """Where the one item of a checkpoint is."""
    is_tree = isinstance(wish, (PyTreeRestore, StandardRestore, ArrayRestore))
    if not is_tree and commit.is_committed(path):
        return path
    checkpoint = open_checkpoint(path)
    if (tree := checkpoint.only_tree) is not None:
        return tree
    raise BadOption(
        f"{path} has the items {', '.join([*checkpoint.items, *checkpoint.custom])}. Restore one of them: "
        f"restore({str(path / next(iter([*checkpoint.items, *checkpoint.custom])))!r})."
    )


class AsyncCheckpointer(Checkpointer):
    """As ``Checkpointer``, but ``save`` returns before the checkpoint is committed.

    ``restore``, ``metadata``, ``wait_until_finished``, ``close`` and the end of a ``with`` block wait
    for it; so does the end of the process.
    """

    def __init__(
        self, handler: Any, timeout_secs: float | None = None, *, async_options: Any = None, **_: Any
    ) -> None:
        super().__init__(handler)
        options = async_options or AsyncOptions()
        self._timeout = timeout_secs if timeout_secs is not None else options.timeout_secs
        self._callback = options.post_finalization_callback
        self._handle: SaveHandle | None = None

    def save(
        self,
        directory: Path_,
        *args: Any,
        force: bool = False,
        custom_metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Starts saving an item. As ``Checkpointer.save``."""
        self.wait_until_finished()
        callback = self._callback
        with turn() as mine:
            act = self._save(directory, args, force, custom_metadata, kwargs)

            def run() -> None:
                act()
                if callback is not None:
                    callback()

            self._handle = start(run, what=f"saving {resolve(directory)}", turn=mine)

    def restore(self, directory: Path_, *args: Any, **kwargs: Any) -> Any:
        """Waits for the running save, then restores. As ``Checkpointer.restore``."""
        self.wait_until_finished()
        return super().restore(directory, *args, **kwargs)

    def metadata(self, directory: Path_) -> StepMetadata:
        """Waits for the running save. As ``Checkpointer.metadata``."""
        self.wait_until_finished()
        return super().metadata(directory)

    def wait_until_finished(self) -> None:
        """Waits for the running save. Raises what went wrong."""
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                handle.result(self._timeout)
            finally:
                if not handle.done():
                    self._handle = handle  # the wait ended, not the save

    def check_for_errors(self) -> None:
        """Raises what went wrong in a save that has ended; does not wait."""
        if self._handle is not None and self._handle.done():
            self.wait_until_finished()


class PyTreeCheckpointer(Checkpointer):
    """Saves and restores trees, restored leaf by leaf as restore arguments say."""

    def __init__(self, *_: Any, **options: Any) -> None:
        super().__init__(PyTreeCheckpointHandler(**options))


class StandardCheckpointer(AsyncCheckpointer):
    """Saves and restores one tree at a path, in the background; restored as a target says.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> with storax.StandardCheckpointer() as c:
      ...     c.save(where, {"w": np.arange(3)})
      ...     c.restore(where)
      {'w': array([0, 1, 2])}
    """

    def __init__(self, *, async_options: Any = None, **options: Any) -> None:
        super().__init__(StandardCheckpointHandler(**options), async_options=async_options)
