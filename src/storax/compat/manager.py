"""``CheckpointManager`` with both generations of Orbax's arguments, translated for the manager of storax."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storax import manager as core
from storax.compat import handlers, translate
from storax.compat.metadata import RootMetadata, StepMetadata, TreeMetadata, step_metadata
from storax.compat.options import CheckpointManagerOptions, manager_options
from storax.compat.policies import ranking
from storax.compat.translate import Items, own_handler
from storax.errors import BadOption
from storax.inspection import CheckpointMetadata
from storax.items import Composite
from storax.plan.steps import Step
from storax.store.paths import resolve


@dataclass(frozen=True)
class CheckpointInfo:
    """A step, as subclasses of Orbax's manager look at it."""

    step: int
    time: float
    metrics: Mapping[str, Any] | None = None


class CheckpointManager(core.CheckpointManager):
    __doc__ = core.CheckpointManager.__doc__

    def __init__(
        self,
        directory: str | os.PathLike[str],
        checkpointers: Any = None,
        options: Any = None,
        metadata: Mapping[str, Any] | None = None,
        item_names: Sequence[str] | None = None,
        item_handlers: Any = None,
        logger: Any = None,
        handler_registry: Any = None,
    ) -> None:
        if hasattr(checkpointers, "max_to_keep"):
            checkpointers, options = None, checkpointers
        self._options = CheckpointManagerOptions() if options is None else options
        self._items = _items(checkpointers, item_handlers, handler_registry)
        self._item_names = tuple(item_names or ())
        super().__init__(directory, manager_options(options, resolve(directory)), metadata=metadata)
        self._ranking = self._ranking or ranking(getattr(options, "preservation_policy", None))

    def save(
        self,
        step: Any,
        items: Any = None,
        save_kwargs: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        force: bool | None = False,
        args: Any = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Saves a step, in the background unless the options say otherwise.

        When it returns, the caller may donate, delete or overwrite its arrays.

        Args:
          step: a whole number: int, numpy integer or 0-d ``jax.Array``.
          items: the older way: the item, or a dict of items for the handlers of the manager.
          save_kwargs: with ``items``: what their handlers take, such as ``save_args``.
          metrics: numbers by name, for ``best_fn``.
          force: save even if the policy says no.
          args: ``storax.args.StandardSave(tree)``, or a ``Composite`` of named items. Wins over ``items``.
          custom_metadata: a JSON object kept with the step.

        Returns:
          Whether it saved. If not, the log says why, once for each reason.
        """
        if args is None and items is None:
            raise BadOption(
                "there is nothing to save: pass args=StandardSave(tree), or a Composite of named items"
            )
        if args is not None:
            wish = translate.save_args(args, self._items)
        else:
            wish = translate.legacy_save_args(items, save_kwargs, self._items)
        return super().save(
            step, args=wish, metrics=metrics, force=bool(force), custom_metadata=custom_metadata
        )

    def restore(
        self,
        step: Any = None,
        items: Any = None,
        restore_kwargs: Mapping[str, Any] | None = None,
        directory: str | os.PathLike[str] | None = None,
        args: Any = None,
        *,
        fallback: bool = False,
    ) -> Any:
        """Restores a step.

        Args:
          step: which; None is the newest.
          items: the older way: the target, or a dict of targets for the handlers of the manager.
          restore_kwargs: with ``items``: what their handlers take, such as ``restore_args``.
          directory: another run's directory to restore from.
          args: ``storax.args.StandardRestore(target)``, or a ``Composite`` of the items wanted; only
            those are read. None restores everything as it was saved.
          fallback: restore the newest step that is whole, up to ``step``; all is read to find out.

        Returns:
          The tree; for named items a ``Composite``, that answers ``r["params"]`` and ``r.params``.
        """
        self.wait_until_finished()
        run = self._disk.path if directory is None else resolve(directory)
        reader = core.CheckpointManager(
            run, dataclasses.replace(self._settings, read_only=True, create=False)
        )
        if fallback:
            step = reader.newest_whole_step(step)
        number = reader.latest_step() if step is None else step
        if args is not None:
            wish = translate.restore_args(args, self._items)
        elif items is None and not restore_kwargs and self._items.single is None:
            return self._restore_all(reader, number)
        else:
            there = {} if number is None else reader.item_names(number)
            wish = translate.legacy_restore_args(items, restore_kwargs, self._items, there)
        return reader.restore(number, args=wish)

    def _restore_all(self, reader: core.CheckpointManager, step: Any) -> Any:
        """Everything in a step, as it was saved; what has a form of its own by the manager's handlers."""
        found = reader.restore(step)
        if not isinstance(found, Composite):
            return found
        more = {}
        for name, known in reader.item_names(reader.latest_step() if step is None else step).items():
            handler = self._items.handler(name)
            if not known and handler is not None and handlers.is_ours(handler):
                more[name] = handler.as_restore()
        return Composite(**found, **reader.restore(step, args=Composite(**more))) if more else found

    def metadata(self, step: Any = None) -> StepMetadata | RootMetadata:  # type: ignore[override]
        """What is in a step, without reading its values; without a step, the run's own metadata."""
        found = super().metadata(step)
        return step_metadata(found) if isinstance(found, CheckpointMetadata) else RootMetadata(found)

    def item_metadata(self, step: Any) -> Any:
        """The metadata of a step's items by name; of a single unnamed item its tree of metadata."""
        self.wait_until_finished()
        found: Any = self.metadata(step)
        found = found.item_metadata
        if isinstance(found, Composite) and list(found) == ["default"] and not self._item_names:
            return found["default"]
        if isinstance(found, TreeMetadata):
            return found
        missing = [name for name in self._item_names if name not in found]
        return Composite(**found, **dict.fromkeys(missing))

    def all_steps(self, read: bool = False) -> list[int]:
        """The committed steps, oldest first. ``read`` does nothing: the directory is always read."""
        return super().all_steps(read)

    @property
    def _checkpoints(self) -> list[CheckpointInfo]:
        return [_info(step) for step in self._disk.steps()]

    def _get_save_directory(self, step: int, directory: Any, key_name: str | None = None, **_: Any) -> Any:
        path = resolve(directory) / self._disk.names.name(step)
        return path if key_name is None else path / key_name


def _info(step: Step) -> CheckpointInfo:
    return CheckpointInfo(step.step, step.time, step.metrics)


def _items(checkpointers: Any, item_handlers: Any, registry: Any) -> Items:
    if isinstance(checkpointers, Mapping):
        found = {name: own_handler(_handler(one)) for name, one in checkpointers.items()}
        return Items(handlers=found)
    if checkpointers is not None:
        return Items(single=own_handler(_handler(checkpointers)))
    if isinstance(item_handlers, Mapping):
        return Items(
            handlers={name: own_handler(one) for name, one in item_handlers.items()}, registry=registry
        )
    if item_handlers is not None:
        return Items(single=own_handler(item_handlers))
    return Items(registry=registry)


def _handler(checkpointer: Any) -> Any:
    return getattr(checkpointer, "handler", None) or getattr(checkpointer, "_handler", checkpointer)
