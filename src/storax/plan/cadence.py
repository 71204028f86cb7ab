"""When to save: from a moment of a run to a decision, with the reason. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from storax.errors import BadOption
from storax.plan.steps import Decision, Step, any_of


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known when a run asks whether to save.

    Attributes:
      step: the step that would be saved.
      latest: the newest step there is, or that is being saved; None if there is none.
      now: seconds since 1970.
      saving: whether a save runs.
      preempted: whether this machine was told to stop.
      history: reads the committed steps, oldest first; only policies that ask pay for it.
    """

    step: int
    latest: int | None = None
    now: float = 0.0
    saving: bool = False
    preempted: bool = False
    history: Callable[[], Sequence[Step]] = lambda: ()

    def since_last(self) -> float | None:
        """Seconds since the newest save began, or None if there was none."""
        times = [step.time for step in self.history()]
        return self.now - max(times) if times else None


@runtime_checkable
class SavePolicy(Protocol):
    """When to save."""

    def decide_save(self, moment: Moment) -> Decision:
        """Whether to save at this moment, and why."""
        ...


def decide_save(policy: SavePolicy, moment: Moment) -> Decision:
    """What a policy says, but never a step that is not newer than the newest one."""
    if moment.latest is not None and moment.step <= moment.latest:
        return Decision(False, f"it is not newer than step {moment.latest}, which is saved already")
    return policy.decide_save(moment)


@dataclass(frozen=True)
class EveryNSteps:
    """Save at multiples of ``interval``."""

    interval: int

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise BadOption(f"the interval between saves is {self.interval} steps; it must be at least 1")

    def decide_save(self, moment: Moment) -> Decision:
        is_multiple = moment.step % self.interval == 0
        return Decision(is_multiple, f"it is {'' if is_multiple else 'not '}a multiple of {self.interval}")


@dataclass(frozen=True)
class SpecificSteps:
    """Save at the steps named."""

    steps: Container[int]

    def decide_save(self, moment: Moment) -> Decision:
        named = moment.step in self.steps
        return Decision(named, f"it is {'' if named else 'not '}one of the steps named")


@dataclass(frozen=True)
class First:
    """Save if there is no step yet."""

    def decide_save(self, moment: Moment) -> Decision:
        if moment.latest is None:
            return Decision(True, "it is the first")
        return Decision(False, "it is not the first")


@dataclass(frozen=True)
class AtMostEvery:
    """Save when the newest save began at least ``seconds`` ago."""

    seconds: float

    def decide_save(self, moment: Moment) -> Decision:
        since = moment.since_last()
        if since is None:
            return Decision(True, "nothing was saved before")
        return Decision(since >= self.seconds, f"the last save began {since:.0f} s ago, of {self.seconds:g}")


@dataclass(frozen=True)
class Continuous:
    """Save whenever no save runs, at most every ``minimum_seconds``."""

    minimum_seconds: float | None = None

    def decide_save(self, moment: Moment) -> Decision:
        if moment.saving:
            return Decision(False, "a save still runs")
        if self.minimum_seconds:
            return AtMostEvery(self.minimum_seconds).decide_save(moment)
        return Decision(True, "no save runs")


@dataclass(frozen=True)
class OnPreemption:
    """Save when the machine was told to stop."""

    def decide_save(self, moment: Moment) -> Decision:
        return Decision(
            moment.preempted, f"the machine was {'' if moment.preempted else 'not '}told to stop (SIGTERM)"
        )


@dataclass(frozen=True)
class CustomSave:
    """Save when ``function(step, latest_step)`` says so."""

    function: Callable[[int, int | None], bool]

    def decide_save(self, moment: Moment) -> Decision:
        wanted = bool(self.function(moment.step, moment.latest))
        name = getattr(self.function, "__qualname__", repr(self.function))
        return Decision(wanted, f"{name} says {'yes' if wanted else 'no'}")


@dataclass(frozen=True)
class AnySave:
    """Save when one of the policies says so."""

    policies: Sequence[SavePolicy]

    def decide_save(self, moment: Moment) -> Decision:
        return any_of([policy.decide_save(moment) for policy in self.policies])


def is_certain(policy: SavePolicy) -> bool:
    """Whether all processes of a job come to the same decision: it depends on the steps alone."""
    if isinstance(policy, AnySave):
        return all(is_certain(part) for part in policy.policies)
    return isinstance(policy, (EveryNSteps, SpecificSteps, First))


def watches_preemption(policy: SavePolicy) -> bool:
    """Whether a policy asks for SIGTERM to be caught."""
    if isinstance(policy, AnySave):
        return any(watches_preemption(part) for part in policy.policies)
    return isinstance(policy, OnPreemption)
