"""When to save and which steps to keep: pure functions of the steps that there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from storax.errors import BadOption


@dataclass(frozen=True, slots=True)
class SaveRule:
    """When a manager saves: at multiples of an interval, at named steps, and first of all."""

    interval: int = 1
    on_steps: frozenset[int] = frozenset()
    custom: Callable[[int, int | None], bool] | None = None

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise BadOption(f"save_interval_steps is {self.interval}; it must be at least 1")

    def wants(self, step: int, latest: int | None) -> bool:
        """Whether ``step`` should be saved when ``latest`` is the newest step there is."""
        if latest is not None and step <= latest:
            return False
        if self.custom is not None:
            return self.custom(step, latest)
        return latest is None or step % self.interval == 0 or step in self.on_steps


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Which steps stay: the newest ``count`` or the best ``count``, and every ``period``-th.

    The newest step always stays: a metric never costs the progress of a run.
    """

    count: int | None = None
    period: int | None = None
    best: Callable[[Any], float] | None = None
    mode: Literal["max", "min"] = "max"
    keep_unmeasured: bool = True

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 0:
            raise BadOption(f"max_to_keep is {self.count}; it must be None or at least 0")
        if self.period is not None and self.period < 1:
            raise BadOption(f"keep_period is {self.period}; it must be None or at least 1")
        if self.mode not in ("max", "min"):
            raise BadOption(f"best_mode is {self.mode!r}; it must be 'max' or 'min'")

    def ranked(self, metrics: Mapping[int, Any]) -> list[int]:
        """The steps that have a metric, worst first; a NaN is the worst, and of equals the older one."""
        if self.best is None:
            return []
        scores = {step: float(self.best(m)) for step, m in metrics.items() if m is not None}
        sign = 1 if self.mode == "max" else -1
        return sorted(scores, key=lambda s: (scores[s] == scores[s], sign * scores[s], s))

    def drops(
        self, steps: Collection[int], metrics: Mapping[int, Any], pinned: Collection[int] = ()
    ) -> list[int]:
        """The steps to delete, oldest first."""
        if self.count is None or not steps:
            return []
        kept = {max(steps), *pinned}
        if self.period:
            kept |= {step for step in steps if step % self.period == 0}
        if self.best is None:
            candidates: Sequence[int] = sorted(steps)
        else:
            candidates = self.ranked({s: m for s, m in metrics.items() if s in steps})
            if self.keep_unmeasured:
                kept |= set(steps) - set(candidates)
            else:
                candidates = [*sorted(set(steps) - set(candidates)), *candidates]
        kept |= set(candidates[max(0, len(candidates) - self.count) :])
        return sorted(set(steps) - kept)
