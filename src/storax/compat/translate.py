"""From whatever code for Orbax passes, to items of storax. Orbax's own objects are told by their shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storax.compat import args as kinds
from storax.compat import handlers
from storax.compat.handlers import HandlerRestore, HandlerSave
from storax.compat.nested import CompositeRestore, CompositeSave
from storax.compat.registry import CheckpointHandlerRegistry, handler_class_of, made
from storax.errors import BadOption
from storax.items import Composite, LoadItem, SaveItem
from storax.stateful import StatefulRestore, StatefulSave

# Arguments of Orbax itself, by the name of their class.
_FOREIGN_SAVE: dict[str, Any] = {
    "StandardSaveArgs": kinds.StandardSave,
    "PyTreeSaveArgs": kinds.PyTreeSave,
    "JsonSaveArgs": kinds.JsonSave,
    "ArraySaveArgs": kinds.ArraySave,
    "ProtoSaveArgs": kinds.ProtoSave,
    "JaxRandomKeySaveArgs": kinds.JaxRandomKeySave,
    "NumpyRandomKeySaveArgs": kinds.NumpyRandomKeySave,
}
_FOREIGN_RESTORE: dict[str, Any] = {
    "StandardRestoreArgs": kinds.StandardRestore,
    "PyTreeRestoreArgs": kinds.PyTreeRestore,
    "JsonRestoreArgs": kinds.JsonRestore,
    "ArrayRestoreArgs": kinds.ArrayRestore,
    "ProtoRestoreArgs": kinds.ProtoRestore,
    "JaxRandomKeyRestoreArgs": kinds.JaxRandomKeyRestore,
    "NumpyRandomKeyRestoreArgs": kinds.NumpyRandomKeyRestore,
}
_TREE_ARGS = (kinds.PyTreeSave, kinds.StandardSave, kinds.PyTreeRestore, kinds.StandardRestore)


def is_args(value: Any) -> bool:
    """Whether a value is the arguments of an item, of storax, of Orbax or of the user."""
    if isinstance(value, (kinds.CheckpointArgs, Composite, kinds.JsonSave)):
        return True
    return any(kind.__name__ == "CheckpointArgs" for kind in type(value).__mro__)


def own_handler(handler: Any) -> Any:
    """A handler; for one of Orbax's own that is like one here, that one."""
    handler = made(handler)
    for kind in type(handler).__mro__:
        if kind.__module__.startswith("orbax."):
            if kind is not type(handler):
                return handler  # somebody's own, derived from Orbax's
            found = getattr(handlers, kind.__name__, None)
            return handler if found is None else found()
    return handler


@dataclass
class Items:
    """What a manager or a checkpointer was told of its items.

    Attributes:
      single: the handler of the only item, if the caller thinks of one.
      handlers: by item.
      registry: as the caller made it.
    """

    single: Any = None
    handlers: dict[str, Any] = field(default_factory=dict)
    registry: CheckpointHandlerRegistry | Any = None

    def handler(self, name: str, args: Any = None) -> Any | None:
        """The handler of an item, or None if storax finds out itself."""
        if name in self.handlers:
            return self.handlers[name]
        if self.registry is None:
            return None
        if args is not None and self.registry.has(name, args):
            return self.registry.get(name, args)
        return _of_registry(self.registry, name)

    def known(self) -> list[str]:
        """The items that have handlers."""
        entries = self.registry.get_all_entries() if self.registry is not None else {}
        return list(dict.fromkeys([*self.handlers, *(name for name, _ in entries if name is not None)]))


def _of_registry(registry: Any, name: str) -> Any | None:
    for (item, _), handler in registry.get_all_entries().items():
        if item == name and handler is not None:
            return made(handler)
    return None


def _fields(args: Any, kind: Any) -> dict[str, Any]:
    names = getattr(kind, "__dataclass_fields__", {})
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def save_item(args: Any, name: str, items: Items) -> SaveItem:
    """What saves an item, from its arguments."""
    if _is_composite(args):
        return CompositeSave({key: save_item(value, f"{name}.{key}", items) for key, value in args.items()})
    handler = items.handler(name, args)
    if handler is not None and not handlers.is_ours(handler) and not isinstance(args, _TREE_ARGS):
        return HandlerSave(handler, args)
    if isinstance(handler, handlers.JsonCheckpointHandler) and handler.filename is not None:
        made_save: SaveItem = handler.as_save(args.item)
        return made_save
    if isinstance(args, SaveItem):
        return args
    if (registered := handler_class_of(args)) is not None and type(args).__name__ not in _FOREIGN_SAVE:
        return HandlerSave(made(registered), args)
    if (kind := _FOREIGN_SAVE.get(type(args).__name__)) is not None:
        translated: SaveItem = kind(**_fields(args, kind))
        return translated
    if callable(getattr(args, "save", None)) and callable(getattr(args, "load", None)):
        return StatefulSave(args)
    raise BadOption(
        f"the item {name!r} is a {type(args).__name__}, which nothing can save. Pass StandardSave(tree), "
        "JsonSave(value), an object with save(directory) and load(directory), or arguments that are "
        "registered with a handler."
    )


def load_item(args: Any, name: str, items: Items) -> LoadItem:
    """What restores an item, from its arguments."""
    if _is_composite(args):
        return CompositeRestore(
            {key: load_item(value, f"{name}.{key}", items) for key, value in args.items()}
        )
    handler = items.handler(name, args)
    if handler is not None and not handlers.is_ours(handler) and not isinstance(args, _TREE_ARGS):
        return HandlerRestore(handler, args)
    if isinstance(handler, handlers.JsonCheckpointHandler) and handler.filename is not None:
        made_load: LoadItem = handler.as_restore()
        return made_load
    kind = _FOREIGN_RESTORE.get(type(args).__name__)
    if kind is not None and not isinstance(args, kind):
        translated: LoadItem = kind(**_fields(args, kind))
        return translated
    # A stateful object has ``load`` as well as ``save``; a wish has only ``load``.
    if callable(getattr(args, "save", None)) and callable(getattr(args, "load", None)):
        return StatefulRestore(args)
    if isinstance(args, LoadItem):
        return args
    if (registered := handler_class_of(args)) is not None:
        return HandlerRestore(made(registered), args)
    raise BadOption(
        f"the item {name!r} is asked for with a {type(args).__name__}. Pass StandardRestore(target), "
        "JsonRestore(), the object that is to load itself, or arguments that are registered with a handler."
    )


def _is_composite(args: Any) -> bool:
    return isinstance(args, Composite) or type(args).__name__ == "CompositeArgs"


def save_args(args: Any, items: Items) -> Any:
    """What the core's ``save`` takes, from the arguments of a whole step."""
    if _is_composite(args):
        return Composite(**{name: save_item(value, name, items) for name, value in args.items()})
    return save_item(args, "default", items)


def restore_args(args: Any, items: Items) -> Any:
    """What the core's ``restore`` takes, from the arguments of a whole step."""
    if _is_composite(args):
        return Composite(**{name: load_item(value, name, items) for name, value in args.items()})
    return load_item(args, "default", items)


# --- the older generation: items, save_kwargs, restore_kwargs ----------------------------------------


def legacy_save_args(value: Any, kwargs: Mapping[str, Any] | None, items: Items) -> Any:
    """What the core's ``save`` takes, from ``items`` and ``save_kwargs``."""
    kwargs = kwargs or {}
    if items.single is not None or not items.known():
        return handlers.legacy_save(items.single or handlers.PyTreeCheckpointHandler(), value, kwargs)
    _check_named(value, items)
    return Composite(
        **{name: _legacy_save(name, item, kwargs.get(name), items) for name, item in value.items()}
    )


def _legacy_save(name: str, item: Any, kwargs: Any, items: Items) -> Any:
    if is_args(item):
        return save_item(item, name, items)
    handler = items.handler(name)
    if handler is None:
        raise BadOption(f"no handler is known for the item {name!r}; there are {', '.join(items.known())}")
    return handlers.legacy_save(handler, item, kwargs)


def legacy_restore_args(
    value: Any, kwargs: Mapping[str, Any] | None, items: Items, there: Mapping[str, Any]
) -> Any:
    """What the core's ``restore`` takes, from ``items`` and ``restore_kwargs``.

    Args:
      value: a target, or a dict of targets; None is all that the manager has handlers for.
      kwargs: what the handlers take.
      items: what the manager was told of its items.
      there: the saved items.
    """
    kwargs = kwargs or {}
    if items.single is not None or not items.known():
        return handlers.legacy_restore(items.single or handlers.PyTreeCheckpointHandler(), value, kwargs)
    if value is None:
        value = {name: None for name in items.known() if name in there}
    _check_named(value, items)
    return Composite(
        **{
            name: load_item(item, name, items)
            if is_args(item)
            else handlers.legacy_restore(items.handler(name), item, kwargs.get(name))
            for name, item in value.items()
        }
    )


def _check_named(value: Any, items: Items) -> None:
    if not isinstance(value, Mapping):
        names = ", ".join(items.known())
        raise BadOption(
            f"the manager has the items {names}; pass a dict of them, not a {type(value).__name__}"
        )
