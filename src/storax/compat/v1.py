"""``storax.v1``: the calls of Orbax's version 1 that have the same meaning here.

Context objects are taken for their ``pytree.loading.partial_load``; all else in them says how Orbax
itself works. Its layouts, handlers and asynchronous loads are not here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from storax import inspection
from storax.background import SaveHandle
from storax.compat import policies
from storax.compat.args import Composite, StandardRestore, StandardSave
from storax.compat.checkpointers import Checkpointer
from storax.compat.handlers import CompositeCheckpointHandler
from storax.compat.manager import CheckpointManager
from storax.compat.metadata import StepMetadata, step_metadata
from storax.compat.options import CheckpointManagerOptions
from storax.loading import load as load
from storax.saving import save as save
from storax.saving import save_async as save_async
from storax.stateful import Stateful as StatefulCheckpointable
from storax.stateful import StatefulRestore, StatefulSave
from storax.store.paths import resolve

Path_ = str | os.PathLike[str]
load_pytree = load
save_pytree = save
_contexts: list[Context] = []


class Context:
    """Options for the calls in its ``with`` block. ``pytree.loading.partial_load`` counts."""

    def __init__(self, context: Context | None = None, **_: Any) -> None:
        partial = context is not None and bool(context.pytree.loading.partial_load)
        self.pytree: Any = SimpleNamespace(
            loading=SimpleNamespace(partial_load=partial), saving=SimpleNamespace()
        )
        self.array = SimpleNamespace(saving=SimpleNamespace(), loading=SimpleNamespace())
        self.asynchronous = SimpleNamespace()

    def __enter__(self) -> Self:
        _contexts.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _contexts.remove(self)


def _partial(own: Context | None = None) -> bool:
    context = _contexts[-1] if _contexts else own
    return context is not None and bool(context.pytree.loading.partial_load)


def _saves(items: Mapping[str, Any]) -> Composite:
    return Composite(
        **{
            name: StatefulSave(item) if isinstance(item, StatefulCheckpointable) else StandardSave(item)
            for name, item in items.items()
        }
    )


def _restores(items: Mapping[str, Any] | None, partial: bool) -> Composite | None:
    if items is None:
        return None
    return Composite(
        **{
            name: StatefulRestore(item)
            if isinstance(item, StatefulCheckpointable)
            else StandardRestore(item, partial=partial)
            for name, item in items.items()
        }
    )


def save_checkpointables(path: Path_, checkpointables: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Saves several items at a path: trees, and objects that save themselves."""
    Checkpointer(CompositeCheckpointHandler()).save(path, _saves(checkpointables), force=overwrite)


def load_checkpointables(path: Path_, abstract_checkpointables: Mapping[str, Any] | None = None) -> Any:
    """Loads the items that targets are given for; all trees if none are given."""
    wish = _restores(abstract_checkpointables, _partial())
    return dict(Checkpointer(CompositeCheckpointHandler()).restore(path, wish).items())


def metadata(path: Path_) -> StepMetadata:
    """What is in a checkpoint; its tree, or its items by name, is ``.metadata``."""
    return _Described.of(step_metadata(inspection.metadata(resolve(path))))


pytree_metadata = metadata
checkpointables_metadata = metadata


class _Described(StepMetadata):
    step: int | None = None

    @classmethod
    def of(cls, found: StepMetadata, step: int | None = None) -> _Described:
        described = cls(**vars(found))
        described.step = step
        return described

    @property
    def metadata(self) -> Any:
        """The tree, or the items by name."""
        return getattr(self.item_metadata, "tree", self.item_metadata)


class Response:
    """A save that was begun."""

    def __init__(self, manager: CheckpointManager) -> None:
        self._manager = manager

    def result(self, timeout: float | None = None) -> bool:
        """Waits until it is durable. Raises what went wrong."""
        self._manager.wait_until_finished()
        return True


class _Trainer:
    """Saves and loads the steps of a run: a ``CheckpointManager`` with the calls of version 1."""

    def __init__(
        self,
        directory: Path_,
        *,
        context: Context | None = None,
        save_decision_policy: Any = None,
        preservation_policy: Any = None,
        step_name_format: Any = None,
        custom_metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        options = CheckpointManagerOptions(
            save_decision_policy=save_decision_policy,
            preservation_policy=preservation_policy,
            step_name_format=step_name_format,
        )
        self._context = context
        self._manager = CheckpointManager(directory, options=options, metadata=custom_metadata)
        self.directory: Path = self._manager.directory

    @property
    def latest(self) -> Any:
        """The newest step, with ``.step``; or None."""
        step = self._manager.latest_step()
        return None if step is None else SimpleNamespace(step=step)

    @property
    def checkpoints(self) -> list[Any]:
        """The steps, oldest first, each with ``.step``."""
        return [SimpleNamespace(step=step) for step in self._manager.all_steps()]

    def should_save(self, step: int) -> bool:
        """Whether a step would be saved now."""
        return self._manager.should_save(step)

    def save_checkpointables_async(
        self, step: int, checkpointables: Mapping[str, Any], *, force: bool = False, **more: Any
    ) -> Response | None:
        """Begins to save a step; None if the policy declines it."""
        saved = self._manager.save(step, args=_saves(checkpointables), force=force, **_known(more))
        return Response(self._manager) if saved else None

    def save_checkpointables(self, step: int, checkpointables: Mapping[str, Any], **more: Any) -> bool:
        """Saves a step; False if the policy declines it."""
        response = self.save_checkpointables_async(step, checkpointables, **more)
        return response is not None and response.result()

    def load_checkpointables(self, step: Any = None, abstract_checkpointables: Any = None) -> dict[str, Any]:
        """Loads a step: the items that targets are given for; all trees if none are given."""
        wish = _restores(abstract_checkpointables, _partial(self._context))
        found = self._manager.restore(_number(step), args=wish)
        return dict(found.items()) if isinstance(found, Composite) else {"state": found}

    def save_async(self, step: int, state: Any, **more: Any) -> Response | None:
        """Begins to save a tree as a step."""
        return self.save_checkpointables_async(step, {"state": state}, **more)

    def save(self, step: int, state: Any, **more: Any) -> bool:
        """Saves a tree as a step."""
        return self.save_checkpointables(step, {"state": state}, **more)

    def load(self, step: Any = None, abstract_state: Any = None) -> Any:
        """Loads the tree of a step."""
        return self.load_checkpointables(step, {"state": abstract_state})["state"]

    def metadata(self, step: Any = None) -> Any:
        """What is in a step."""
        number = self._manager.latest_step() if step is None else _number(step)
        found = self._manager.metadata(-1 if number is None else number)
        return _Described.of(found, number) if isinstance(found, StepMetadata) else found

    checkpointables_metadata = metadata

    def reload(self) -> None:
        """Does nothing: steps are read from the directory whenever they are asked for."""

    def is_saving_in_progress(self) -> bool:
        """Whether a save runs."""
        return self._manager.is_saving_in_progress()

    def close(self) -> None:
        """Waits for the running save. Raises what went wrong."""
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _number(step: Any) -> Any:
    return getattr(step, "step", step)


def _known(more: dict[str, Any]) -> dict[str, Any]:
    return {name: more[name] for name in ("metrics", "custom_metadata") if name in more}


training = SimpleNamespace(
    Checkpointer=_Trainer, save_decision_policies=policies, preservation_policies=policies
)
AsyncResponse = SaveHandle
