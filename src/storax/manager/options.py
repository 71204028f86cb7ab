"""How a manager saves and keeps steps, and the policies that follow from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from storax.errors import BadOption
from storax.plan import cadence, retention
from storax.processes import DEFAULT_TIMEOUT
from storax.store import commit


class StepNames(Protocol):
    """How the directories of steps are called."""

    def name(self, step: int) -> str:
        """The name of a step's directory."""
        ...

    def step_of(self, name: str) -> int | None:
        """The step that a directory's name stands for, or None."""
        ...


@dataclass(frozen=True, slots=True)
class NumberedSteps:
    """``<prefix>_<step>``, padded with zeros to so many digits."""

    prefix: str | None = None
    digits: int | None = None

    def name(self, step: int) -> str:
        digits = str(step).zfill(self.digits or 0)
        return f"{self.prefix}_{digits}" if self.prefix else digits

    def step_of(self, name: str) -> int | None:
        prefix = re.escape(f"{self.prefix}_") if self.prefix else ""
        found = re.fullmatch(prefix + r"([0-9]+)", name)
        return int(found[1]) if found else None


# Names of these are tried out: they show padding that is cut off, digits in a prefix, and the like.
_TRIED = (0, 1, 10, 1000)


def check_names(names: StepNames) -> None:
    """Raises ``BadOption`` if steps would get names by which they are not found again."""
    for step in _TRIED:
        name = names.name(step)
        if "/" in name:
            raise BadOption(
                f"step {step} would be called {name!r}, which is a path, not a name. Give the manager that "
                "directory, and a step_prefix (or a format) without '/'."
            )
        if commit.DRAFT_SUFFIX in name:
            raise BadOption(
                f"step {step} would be called {name!r}: names with {commit.DRAFT_SUFFIX!r} are those of "
                "unfinished steps, which are deleted. Choose another step_prefix or format."
            )
        if (found := names.step_of(name)) != step:
            raise BadOption(
                f"step {step} would be called {name!r}, and that name is read as "
                f"{'no step' if found is None else f'step {found}'}, so it would not be found again. Choose "
                "another step_prefix or format; the name of a step ends with its digits."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ManagerOptions:
    """How a ``CheckpointManager`` saves and keeps steps.

    Args:
      save_interval_steps: save at multiples of this.
      save_on_steps: save at these steps as well.
      should_save_fn: ``(step, latest_step) -> bool``, instead of the interval.
      save_policy: instead of all these; from ``storax.plan.cadence``.
      max_to_keep: how many steps stay; None keeps all.
      keep_period: steps that are multiples of this stay as well.
      keep_seconds: a step stays as well if it was saved so long after the one that stayed before it.
      best_fn: from a step's metrics to a number; then the best steps stay instead of the newest. A step
        for which it raises counts as one without metrics; if it raises for all, all stay.
      best_mode: whether the best is the ``"max"`` or the ``"min"``.
      keep_checkpoints_without_metrics: with ``best_fn``, whether steps without metrics stay.
      keep_policy: instead of all these; from ``storax.plan.retention``.
      keep_newest: whether the newest step stays, whatever the metrics or a policy say.
      deletions_per_second: how many files are deleted in a second at most; None sets no limit.
      trash: steps that go are moved into this directory instead of being deleted; where a name is
        taken, it gets a number.
      step_prefix: steps are called ``<prefix>_<step>``.
      step_format_fixed_length: steps are padded with zeros to this many digits.
      step_names: instead of these two; how the directories of steps are called.
      directory_mode: who may do what with the directories of a step, as for ``chmod``.
      create: make the directory if it is missing; if not, ``save`` raises ``CheckpointNotFound``.
      read_only: never write: ``save`` does nothing and returns False.
      enable_async_checkpointing: whether ``save`` returns before the step is committed.
      timeout_seconds: how long to wait for a save before ``TimeoutError``.
      barrier_timeout: of a job of many processes, the seconds that one waits for the others.
      grace_seconds: how long this machine has after SIGTERM.
      cleanup_tmp_directories: delete also the drafts of other programs when the manager is made.
        Drafts of dead storax processes are always deleted.
    """

    save_interval_steps: int = 1
    save_on_steps: Container[int] | None = None
    should_save_fn: Callable[[int, int | None], bool] | None = None
    save_policy: cadence.SavePolicy | None = None
    max_to_keep: int | None = None
    keep_period: int | None = None
    keep_seconds: float | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: Literal["max", "min"] = "max"
    keep_checkpoints_without_metrics: bool = True
    keep_policy: retention.KeepPolicy | None = None
    keep_newest: bool = True
    deletions_per_second: float | None = None
    trash: Path | None = None
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    step_names: StepNames | None = None
    directory_mode: int | None = None
    create: bool = True
    read_only: bool = False
    enable_async_checkpointing: bool = True
    timeout_seconds: float | None = None
    barrier_timeout: float = DEFAULT_TIMEOUT
    grace_seconds: float = 30.0
    cleanup_tmp_directories: bool = False

    def saving(self) -> cadence.SavePolicy:
        """When to save."""
        if self.save_policy is not None:
            return self.save_policy
        interval = cadence.EveryNSteps(self.save_interval_steps)
        if self.should_save_fn is not None:
            return cadence.CustomSave(self.should_save_fn)
        on_steps = () if self.save_on_steps is None else (cadence.SpecificSteps(self.save_on_steps),)
        return cadence.AnySave((cadence.First(), interval, *on_steps))

    def keeping(self) -> retention.KeepPolicy:
        """What to keep."""
        if self.keep_policy is not None:
            return self.keep_policy
        best = self.ranking()
        period = () if self.keep_period is None else (retention.EveryNSteps(self.keep_period),)
        spaced = () if self.keep_seconds is None else (retention.EverySeconds(self.keep_seconds),)
        if self.max_to_keep is None:
            return retention.KeepAll()
        return retention.AnyKeep((best or retention.LatestN(self.max_to_keep), *period, *spaced))

    def ranking(self) -> retention.BestN | None:
        """How steps are ranked by their metrics, or None."""
        if self.best_fn is None:
            return None
        return retention.BestN(
            self.best_fn, self.best_mode, self.max_to_keep, self.keep_checkpoints_without_metrics
        )

    def names(self) -> StepNames:
        """How the directories of steps are called."""
        return self.step_names or NumberedSteps(self.step_prefix, self.step_format_fixed_length)
