"""Handlers: which kind of item something is. Those of Orbax's names only name storax's own kinds of item."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storax.compat import args as kinds
from storax.compat.metadata import tree_of
from storax.compat.registry import args_classes_of
from storax.errors import BadOption
from storax.inspection import tree_metadata
from storax.publishing import Staged, StagedParts
from storax.stateful import Scratch, StagedFiles, finish, settle
from storax.store import posix
from storax.tree import documents

JSON_FILE = documents.JSON_ITEM_DOCUMENT


class CheckpointHandler:
    """What saves and restores one kind of item, in a directory that it is given.

    Derive from it, or have the same methods, for items of your own:
    ``save(directory, args=...)`` or ``save(directory, item)``, and ``restore`` likewise.
    """

    def save(self, directory: Path, *args: Any, **kwargs: Any) -> Any:
        """Writes an item."""
        raise NotImplementedError

    def restore(self, directory: Path, *args: Any, **kwargs: Any) -> Any:
        """Reads an item."""
        raise NotImplementedError

    def metadata(self, directory: Path) -> Any:
        """What is in an item."""
        return None

    def finalize(self, directory: Path) -> None:
        """Called when everything is written."""

    def close(self) -> None:
        """Called at the end."""

    @classmethod
    def typestr(cls) -> str:
        """The name of the handler in the step's document."""
        return f"{cls.__module__}.{cls.__qualname__}"


class AsyncCheckpointHandler(CheckpointHandler):
    """A handler with ``async_save``, which gives a list of futures to be waited for."""

    async def async_save(self, directory: Path, *args: Any, **kwargs: Any) -> Any:
        """Takes an item, and gives futures that write it."""
        raise NotImplementedError


class _TreeHandler(AsyncCheckpointHandler):
    """A handler of trees. Arguments that say how Orbax itself works are taken and do nothing."""

    saves: Any = None
    restores: Any = None

    def __init__(self, *_: Any, **options: Any) -> None:
        self.options = options

    def as_save(self, item: Any, **kwargs: Any) -> Any:
        """The arguments that save an item."""
        return self.saves(item, **kwargs)

    def as_restore(self, item: Any = None, **kwargs: Any) -> Any:
        """The arguments that restore an item."""
        return self.restores(item, **kwargs)

    def save(self, directory: Path, item: Any = None, *, args: Any = None, **kwargs: Any) -> None:
        wish = args if args is not None else self.as_save(item, **kwargs)
        write_staged(wish.stage(), Path(directory))

    async def async_save(self, directory: Path, item: Any = None, *, args: Any = None, **kwargs: Any) -> Any:
        self.save(directory, item, args=args, **kwargs)

    def restore(self, directory: Path, item: Any = None, *, args: Any = None, **kwargs: Any) -> Any:
        wish = args if args is not None else self.as_restore(item, **kwargs)
        return wish.load(Path(os.path.abspath(directory)))

    def metadata(self, directory: Path) -> Any:
        return tree_of(tree_metadata(Path(directory))[0], Path(directory))

    def structure(self, directory: Path) -> Any:
        """The tree of metadata."""
        return self.metadata(directory).tree


class PyTreeCheckpointHandler(_TreeHandler):
    """Trees, restored leaf by leaf as restore arguments say."""

    saves = kinds.PyTreeSave
    restores = kinds.PyTreeRestore


class BasePyTreeCheckpointHandler(PyTreeCheckpointHandler):
    """``PyTreeCheckpointHandler``."""


class StandardCheckpointHandler(_TreeHandler):
    """Trees, restored as a target says."""

    saves = kinds.StandardSave
    restores = kinds.StandardRestore


class ArrayCheckpointHandler(_TreeHandler):
    """One array or number."""

    saves = kinds.ArraySave
    restores = kinds.ArrayRestore


class JaxRandomKeyCheckpointHandler(_TreeHandler):
    """PRNG keys of JAX."""

    saves = kinds.JaxRandomKeySave
    restores = kinds.JaxRandomKeyRestore


class NumpyRandomKeyCheckpointHandler(_TreeHandler):
    """The state of numpy's global generator."""

    saves = kinds.NumpyRandomKeySave
    restores = kinds.NumpyRandomKeyRestore


class ProtoCheckpointHandler(_TreeHandler):
    """Protocol buffer messages."""

    saves = kinds.ProtoSave
    restores = kinds.ProtoRestore


class JsonCheckpointHandler(_TreeHandler):
    """JSON; ``filename`` is that of its one file."""

    saves = kinds.JsonSave
    restores = kinds.JsonRestore

    def __init__(self, filename: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.filename = filename

    def as_save(self, item: Any, **kwargs: Any) -> Any:
        return kinds.JsonSave(item) if self.filename is None else kinds.NamedJsonSave(item, self.filename)

    def as_restore(self, item: Any = None, **kwargs: Any) -> Any:
        return kinds.JsonRestore() if self.filename is None else kinds.NamedJsonRestore(self.filename)

    def metadata(self, directory: Path) -> Any:
        return None


class CompositeCheckpointHandler(CheckpointHandler):
    """Several items: their names, and handlers for those that have one."""

    def __init__(self, *item_names: str, handler_registry: Any = None, **handlers: Any) -> None:
        self.item_names = tuple(item_names) + tuple(handlers)
        self.handlers: Mapping[str, Any] = handlers
        self.handler_registry = handler_registry


def is_ours(handler: Any) -> bool:
    """Whether a handler only names a kind of item of storax's own; not if a subclass saves in its own way."""
    if not isinstance(handler, _TreeHandler):
        return False
    kind = type(handler)
    return kind.save is _TreeHandler.save and kind.restore is _TreeHandler.restore


def write_staged(staged: Staged, directory: Path) -> None:
    """Writes a staged item into a directory that somebody else commits."""
    if isinstance(staged, StagedParts):
        texts = staged.merge_parts(directory, [staged.write_part(directory)])
    else:
        texts = staged.write(directory)
    for name, text in texts.items():
        posix.make_directories((directory / name).parent)
        posix.write_file(directory / name, text)


# --- handlers of users and of other packages -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HandlerSave:
    """An item that a handler of its own saves; the handler runs before ``stage`` returns."""

    handler: Any
    args: Any = None
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] | None = None

    def stage(self) -> Staged:
        scratch = Scratch()
        call = {"args": self.args} if self.args is not None else dict(self.keywords or {})
        if callable(begin := getattr(self.handler, "async_save", None)):
            later = _Futures(settle(begin(scratch.path, *self.positional, **call)))
        else:
            settle(self.handler.save(scratch.path, *self.positional, **call))
            later = _Futures(None)
        return StagedFiles(scratch, _typestr(self.handler), later.wait(self.handler, scratch.path))


class _Futures:
    """What an asynchronous handler gives: objects with ``result``."""

    def __init__(self, futures: Any) -> None:
        self._futures = list(futures or ())

    async def wait(self, handler: Any, directory: Path) -> None:
        for future in self._futures:
            await_result = future.result()
            if inspect.isawaitable(await_result):
                finish(await_result)
        if callable(end := getattr(handler, "finalize", None)):
            end(directory)


@dataclass(frozen=True, slots=True)
class HandlerRestore:
    """An item that a handler of its own restores."""

    handler: Any
    args: Any = None
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] | None = None

    def load(self, directory: Path) -> Any:
        call = {"args": self.args} if self.args is not None else dict(self.keywords or {})
        return settle(self.handler.restore(directory, *self.positional, **call))


def _typestr(handler: Any) -> str:
    if callable(name := getattr(handler, "typestr", None)):
        return str(name())
    return f"{type(handler).__module__}.{type(handler).__qualname__}"


def legacy_save(handler: Any, item: Any, kwargs: Mapping[str, Any] | None) -> Any:
    """What saves an item through a handler, from the arguments that older code has."""
    if is_ours(handler):
        return handler.as_save(item, **(kwargs or {}))
    save_args, _ = args_classes_of(handler)
    if save_args is not None:
        return HandlerSave(handler, _made_args(save_args, item, kwargs))
    return HandlerSave(handler, None, (item,), kwargs)


def legacy_restore(handler: Any, item: Any, kwargs: Mapping[str, Any] | None) -> Any:
    """What restores an item through a handler, from the arguments that older code has."""
    if is_ours(handler):
        return handler.as_restore(item, **(kwargs or {}))
    _, restore_args = args_classes_of(handler)
    if restore_args is not None:
        return HandlerRestore(handler, _made_args(restore_args, item, kwargs))
    return HandlerRestore(handler, None, () if item is None else (item,), kwargs)


def _made_args(kind: Any, item: Any, kwargs: Mapping[str, Any] | None) -> Any:
    try:
        return kind(**(kwargs or {})) if item is None else kind(item, **(kwargs or {}))
    except TypeError:
        try:
            return kind(item)
        except TypeError as error:
            raise BadOption(f"{kind.__name__} cannot be made from a {type(item).__name__}: {error}") from None
