"""``storax.checkpoint_utils``."""

from __future__ import annotations

from typing import Any

from storax import manager
from storax.compat.leaf_args import construct_restore_args as construct_restore_args
from storax.compat.step import as_step_names
from storax.manager.options import NumberedSteps
from storax.manager.steps import StepDirectory
from storax.store import commit
from storax.store.paths import resolve


def _translated(kwargs: dict[str, Any]) -> dict[str, Any]:
    """A reader's lease takes the place of Orbax's snapshots, so what is said of those does nothing."""
    for name in ("snapshot_dir", "set_immutable", "ignore_snapshot_errors"):
        kwargs.pop(name, None)
    if (format := kwargs.pop("step_name_format", None)) is not None:
        kwargs["step_names"] = as_step_names(format)
    return kwargs


def checkpoints_iterator(checkpoint_dir: Any, **kwargs: Any) -> Any:
    """``storax.manager.checkpoints_iterator``; ``step_name_format`` as well."""
    return manager.checkpoints_iterator(checkpoint_dir, **_translated(kwargs))


class FoundStep(int):
    """A step that was found. In a ``with`` block, no manager on this file system deletes it."""

    lease: Any = None

    def __enter__(self) -> FoundStep:
        if self.lease is not None:
            self.lease.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.lease is not None:
            self.lease.__exit__(*error)


def wait_for_new_checkpoint(checkpoint_dir: Any, **kwargs: Any) -> FoundStep:
    """``storax.manager.wait_for_new_checkpoint``; for ``with`` blocks and ``step_name_format`` as well."""
    kwargs = _translated(kwargs)
    step = FoundStep(manager.wait_for_new_checkpoint(checkpoint_dir, **kwargs))
    names = kwargs.get("step_names") or NumberedSteps(
        kwargs.get("step_prefix"), kwargs.get("step_format_fixed_length")
    )
    path = StepDirectory(resolve(checkpoint_dir), names).paths().get(int(step))
    step.lease = None if path is None else commit.lease(path)
    return step
