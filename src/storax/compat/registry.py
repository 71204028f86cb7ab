"""Which handler belongs to which arguments of the user's own items, registered here or with Orbax itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from storax.errors import BadOption

T = TypeVar("T", bound=type)
_saving: dict[type, Any] = {}
_restoring: dict[type, Any] = {}


class CheckpointArgs:
    """What arguments of an item derive from."""


def register_with_handler(
    handler_cls: Any, for_save: bool = False, for_restore: bool = False
) -> Callable[[T], T]:
    """Says which handler saves or restores items that are given with the decorated class."""

    def register(args_cls: T) -> T:
        if for_save:
            _saving[args_cls] = handler_cls
        if for_restore:
            _restoring[args_cls] = handler_cls
        return args_cls

    return register


def handler_class_of(args: Any) -> Any | None:
    """The handler class that arguments were registered with, here or with Orbax, or None."""
    for kind in type(args).__mro__:
        found = _saving.get(kind) or _restoring.get(kind) or _registered_with_orbax(kind)
        if found is not None:
            return found
    return None


def args_classes_of(handler: Any) -> tuple[Any, Any]:
    """The classes of arguments that a handler was registered with, to save and to restore, or None."""
    kind = handler if isinstance(handler, type) else type(handler)
    for parent in kind.__mro__:
        save = next((args for args, known in _all_saving() if known is parent), None)
        restore = next((args for args, known in _all_restoring() if known is parent), None)
        if save is not None or restore is not None:
            return save, restore
    return None, None


def _orbax_table(name: str) -> dict[Any, Any]:
    # Packages that know Orbax register with it. It is asked only if somebody has imported it.
    module = sys.modules.get("orbax.checkpoint.checkpoint_args")
    table = getattr(module, name, None)
    return table if isinstance(table, dict) else {}


def _registered_with_orbax(kind: type) -> Any | None:
    return _orbax_table("_SAVE_ARG_TO_HANDLER").get(kind) or _orbax_table("_RESTORE_ARG_TO_HANDLER").get(kind)


def _all_saving() -> list[tuple[Any, Any]]:
    return [*_saving.items(), *_orbax_table("_SAVE_ARG_TO_HANDLER").items()]


def _all_restoring() -> list[tuple[Any, Any]]:
    return [*_restoring.items(), *_orbax_table("_RESTORE_ARG_TO_HANDLER").items()]


class CheckpointHandlerRegistry:
    """Handlers by item and kind of arguments. ``add`` takes handlers or their classes."""

    def __init__(self, other: CheckpointHandlerRegistry | None = None) -> None:
        self._entries: dict[tuple[str | None, type], Any] = {} if other is None else dict(other._entries)

    def add(self, item: str | None, args: Any, handler: Any = None) -> None:
        """Says which handler serves an item (None: every item) that is given with these arguments."""
        kind = args if isinstance(args, type) else type(args)
        if (item, kind) in self._entries:
            raise BadOption(f"{kind.__name__} is registered already for the item {item!r}")
        self._entries[item, kind] = handler

    def get(self, item: str | None, args: Any) -> Any:
        """The handler of an item that is given with these arguments. Raises ``BadOption``."""
        kind = args if isinstance(args, type) else type(args)
        for key in ((item, kind), (None, kind)):
            if key in self._entries:
                return made(self._entries[key])
        raise BadOption(f"no handler is registered for the item {item!r} with {kind.__name__}")

    def has(self, item: str | None, args: Any) -> bool:
        """Whether ``get`` would find one."""
        kind = args if isinstance(args, type) else type(args)
        return (item, kind) in self._entries or (None, kind) in self._entries

    def get_all_entries(self) -> dict[tuple[str | None, type], Any]:
        """Handlers by item and class of arguments."""
        return dict(self._entries)

    def handler_of(self, item: str) -> Any | None:
        """The handler that an item was registered with, or None."""
        return next(
            (made(h) for (name, _), h in self._entries.items() if name == item and h is not None), None
        )


class DefaultCheckpointHandlerRegistry(CheckpointHandlerRegistry):
    """As ``CheckpointHandlerRegistry``: storax's own arguments need no registration."""


def made(handler: Any) -> Any:
    """A handler, from one or from its class."""
    return handler() if isinstance(handler, type) else handler
