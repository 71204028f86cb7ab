"""Orbax's names for policies, each the storax policy of the same meaning.

They answer Orbax's questions too (``should_save``, ``should_preserve``), and what answers only
these, a policy of the user or of Orbax itself, works as a storax policy through ``save_policy``
and ``keep_policy``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from storax.plan import cadence, retention
from storax.plan.cadence import Moment
from storax.plan.retention import Decisions
from storax.plan.steps import Decision, Step


class PolicyCheckpointInfo(Protocol):
    """What a policy of Orbax is told of a step."""

    step: int
    time: datetime.datetime
    metrics: Any


@dataclass
class _Told:
    """A ``PolicyCheckpointInfo``."""

    step: int
    time: datetime.datetime
    metrics: Any = None
    is_locked: bool = False


@dataclass(kw_only=True)
class DecisionContext:
    """What a save policy of Orbax is told of the run."""

    is_saving_in_progress: bool = False
    reached_preemption: bool = False
    multiprocessing_options: Any = None


@dataclass
class PreservationContext:
    """What a preservation policy of Orbax is told of the run: nothing."""


def _told(step: Step) -> _Told:
    return _Told(step.step, datetime.datetime.fromtimestamp(step.time, datetime.UTC), step.metrics)


def _step(told: Any) -> Step:
    when = getattr(told, "time", None)
    return Step(
        told.step,
        when.timestamp() if isinstance(when, datetime.datetime) else 0.0,
        getattr(told, "metrics", None),
    )


# --- when to save --------------------------------------------------------------------------------


class SaveDecisionPolicy:
    """A policy of the user: override ``should_save``."""

    def should_save(self, step: Any, previous_steps: Sequence[Any], *, context: Any) -> bool:
        """Whether to save; answered by ``decide_save`` for the policies below."""
        latest = max((told.step for told in previous_steps), default=None)
        moment = Moment(
            step.step,
            latest,
            _step(step).time,
            getattr(context, "is_saving_in_progress", False),
            getattr(context, "reached_preemption", False),
            lambda: [_step(told) for told in previous_steps],
        )
        policy: Any = self
        return bool(policy.decide_save(moment))


@dataclass(frozen=True)
class FixedIntervalPolicy(cadence.EveryNSteps, SaveDecisionPolicy):
    """``storax.plan.cadence.EveryNSteps``."""


@dataclass(frozen=True)
class SpecificStepsPolicy(cadence.SpecificSteps, SaveDecisionPolicy):
    """``storax.plan.cadence.SpecificSteps``."""


@dataclass(frozen=True)
class InitialSavePolicy(cadence.First, SaveDecisionPolicy):
    """``storax.plan.cadence.First``."""


@dataclass(frozen=True)
class PreemptionCheckpointingPolicy(cadence.OnPreemption, SaveDecisionPolicy):
    """``storax.plan.cadence.OnPreemption``."""


class ContinuousCheckpointingPolicy(cadence.Continuous, SaveDecisionPolicy):
    """``storax.plan.cadence.Continuous``."""

    def __init__(self, *, minimum_interval_secs: float | None = None) -> None:
        super().__init__(minimum_interval_secs)


class AnySavePolicy(cadence.AnySave, SaveDecisionPolicy):
    """``storax.plan.cadence.AnySave``."""

    def __init__(self, policies: Sequence[Any]) -> None:
        super().__init__([save_policy(policy) for policy in policies])


@dataclass(frozen=True)
class _ForeignSave:
    """A policy that only knows ``should_save``."""

    policy: Any

    def decide_save(self, moment: Moment) -> Decision:
        wanted = self.policy.should_save(
            _told(Step(moment.step, moment.now)),
            [_told(step) for step in moment.history()],
            context=DecisionContext(is_saving_in_progress=moment.saving, reached_preemption=moment.preempted),
        )
        return Decision(bool(wanted), f"{type(self.policy).__name__} says {'yes' if wanted else 'no'}")


def save_policy(policy: Any) -> cadence.SavePolicy:
    """A storax policy, from that or from one that only knows ``should_save``."""
    if isinstance(policy, cadence.SavePolicy):
        return policy
    if type(policy).__name__ == "PreemptionCheckpointingPolicy":
        return cadence.OnPreemption()
    if type(policy).__name__ == "AnySavePolicy":
        return AnySavePolicy(policy.policies)
    return _ForeignSave(policy)


# --- what to keep --------------------------------------------------------------------------------


class PreservationPolicy:
    """A policy of the user: override ``should_preserve``."""

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Whether to keep each; answered by ``decide_keep`` for the policies below."""
        policy: Any = self
        steps = [_step(told) for told in checkpoints]
        now = datetime.datetime.now(datetime.UTC).timestamp()
        decisions = policy.decide_keep(steps, now) if steps else {}
        return [bool(decisions[step.step]) for step in steps]


@dataclass(frozen=True)
class PreserveAll(retention.KeepAll, PreservationPolicy):
    """``storax.plan.retention.KeepAll``."""


@dataclass(frozen=True)
class LatestN(retention.LatestN, PreservationPolicy):
    """``storax.plan.retention.LatestN``."""


@dataclass(frozen=True)
class EveryNSteps(retention.EveryNSteps, PreservationPolicy):
    """``storax.plan.retention.EveryNSteps``."""


@dataclass(frozen=True)
class EveryNStepsClosest(retention.ClosestToEveryN, PreservationPolicy):
    """``storax.plan.retention.ClosestToEveryN``."""


@dataclass(frozen=True)
class CustomSteps(retention.KeepSteps, PreservationPolicy):
    """``storax.plan.retention.KeepSteps``."""


class EveryNSeconds(retention.EverySeconds, PreservationPolicy):
    """``storax.plan.retention.EverySeconds``."""

    def __init__(self, interval_secs: float) -> None:
        super().__init__(interval_secs)


class LatestDuration(retention.YoungerThan, PreservationPolicy):
    """``storax.plan.retention.YoungerThan``."""

    def __init__(self, duration: datetime.timedelta) -> None:
        super().__init__(duration.total_seconds())


class BestN(retention.BestN, PreservationPolicy):
    """``storax.plan.retention.BestN``: the largest metrics, or with ``reverse`` the smallest."""

    def __init__(
        self,
        *,
        get_metric_fn: Callable[[Any], float],
        reverse: bool = False,
        n: int | None = None,
        keep_checkpoints_without_metrics: bool = True,
    ) -> None:
        super().__init__(get_metric_fn, "min" if reverse else "max", n, keep_checkpoints_without_metrics)


class AnyPreservationPolicy(retention.AnyKeep, PreservationPolicy):
    """``storax.plan.retention.AnyKeep``."""

    def __init__(self, policies: Sequence[Any]) -> None:
        super().__init__([keep_policy(policy) for policy in policies])


@dataclass(frozen=True)
class _ForeignKeep:
    """A policy that only knows ``should_preserve``."""

    policy: Any
    context: Any = field(default_factory=PreservationContext)

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        kept = self.policy.should_preserve([_told(step) for step in steps], context=self.context)
        name = type(self.policy).__name__
        return {
            step.step: Decision(bool(keep), f"{name} says {'yes' if keep else 'no'}")
            for step, keep in zip(steps, kept, strict=True)
        }


def keep_policy(policy: Any) -> retention.KeepPolicy:
    """A storax policy, from that or from one that only knows ``should_preserve``."""
    return policy if isinstance(policy, retention.KeepPolicy) else _ForeignKeep(policy)


def ranking(policy: Any) -> retention.BestN | None:
    """The policy that ranks steps by a metric, among those that a policy is made of."""
    if isinstance(policy, retention.BestN):
        return policy
    found = (ranking(part) for part in getattr(policy, "policies", ()))
    return next((part for part in found if part is not None), None)
