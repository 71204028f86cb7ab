"""Which steps to keep: from what is known of them to a decision for each, and why. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from storax.errors import BadOption
from storax.plan.steps import Decision, Step, any_of

Decisions = dict[int, Decision]


@runtime_checkable
class KeepPolicy(Protocol):
    """What to keep."""

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        """For each step, oldest first, whether to keep it, and why."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a step, and why."""

    step: int
    keep: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.step:>10}  {'keep  ' if self.keep else 'delete'}  {self.reason}"


class Verdicts(list[Verdict]):
    """What becomes of each step. Shows itself as a table."""

    @property
    def dropped(self) -> list[int]:
        """The steps to delete, oldest first."""
        return [verdict.step for verdict in self if not verdict.keep]

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def explain(
    policy: KeepPolicy,
    steps: Sequence[Step],
    *,
    now: float = 0.0,
    pinned: Mapping[int, str] | None = None,
    leased: Collection[int] = (),
    keep_newest: bool = True,
) -> Verdicts:
    """What a policy makes of the steps, after what is above every policy.

    Args:
      policy: the policy.
      steps: the committed steps, in any order.
      now: seconds since 1970.
      pinned: the pinned steps, and why they are; they stay.
      leased: the steps that a reader holds open; they stay as long as it does.
      keep_newest: whether the newest step stays, whatever the policy says.

    Example:
      >>> steps = [Step(n) for n in (1, 2, 3, 4)]
      >>> explain(AnyKeep([LatestN(1), EveryNSteps(2)]), steps, pinned={1: "paper"})
               1  keep    it is pinned: paper
               2  keep    it is a multiple of 2
               3  delete  it is not among the newest 1; it is not a multiple of 2
               4  keep    it is among the newest 1; it is a multiple of 2
    """
    ordered = sorted(steps, key=lambda step: step.step)
    decisions = policy.decide_keep(ordered, now) if ordered else {}
    newest = ordered[-1].step if ordered else None
    verdicts = Verdicts()
    for step in (known.step for known in ordered):
        decision = decisions[step]
        if pinned and step in pinned:
            decision = Decision(True, f"it is pinned: {pinned[step]}" if pinned[step] else "it is pinned")
        elif not decision and step == newest and keep_newest:
            decision = Decision(True, f"it is the newest ({decision.reason})")
        elif not decision and step in leased:
            decision = Decision(True, f"a reader holds it open; it goes afterwards ({decision.reason})")
        verdicts.append(Verdict(step, decision.yes, decision.reason))
    return verdicts


def _each(steps: Sequence[Step], kept: Collection[int], yes: str, no: str | None = None) -> Decisions:
    """Decisions with one reason for yes, and its opposite for no."""
    no = no or yes.replace("it is ", "it is not ", 1)
    return {s.step: Decision(True, yes) if s.step in kept else Decision(False, no) for s in steps}


def _newest(steps: Sequence[int], count: int | None) -> set[int]:
    return set(steps if count is None else steps[len(steps) - min(count, len(steps)) :])


def _check_count(count: int | None, what: str) -> None:
    if count is not None and count < 0:
        raise BadOption(f"{what} is {count}; it must be None or at least 0")


@dataclass(frozen=True)
class KeepAll:
    """Keep every step."""

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        return _each(steps, {s.step for s in steps}, "every step is kept")


@dataclass(frozen=True)
class LatestN:
    """Keep the newest ``n`` steps; None keeps all."""

    n: int | None = None

    def __post_init__(self) -> None:
        _check_count(self.n, "the number of steps to keep (max_to_keep)")

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        if self.n is None:
            return KeepAll().decide_keep(steps, now)
        return _each(steps, _newest([s.step for s in steps], self.n), f"it is among the newest {self.n}")


@dataclass(frozen=True)
class EveryNSteps:
    """Keep multiples of ``interval_steps``, of these the newest ``max_to_keep`` if that is given.

    If not ``exact_interval``, steps that are so far from the kept one before them.
    """

    interval_steps: int
    exact_interval: bool = True
    max_to_keep: int | None = None

    def __post_init__(self) -> None:
        if self.interval_steps < 1:
            raise BadOption(
                f"steps are kept every {self.interval_steps}; it must be at least 1 (keep_period)"
            )
        _check_count(self.max_to_keep, "max_to_keep")

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        numbers = [s.step for s in steps]
        if self.exact_interval:
            chosen = [number for number in numbers if number % self.interval_steps == 0]
            reason = f"it is a multiple of {self.interval_steps}"
        else:
            chosen = _spaced(numbers, numbers, self.interval_steps)
            reason = f"it is {self.interval_steps} steps from the one before it"
        kept = _newest(chosen, self.max_to_keep)
        if len(kept) < len(chosen):
            return _each(steps, kept, f"{reason}, among the newest {self.max_to_keep} such")
        return _each(steps, kept, reason)


def _spaced(numbers: Sequence[int], positions: Sequence[float], apart: float) -> list[int]:
    """The first number, and each whose position is so far from that of the one taken before."""
    taken: list[int] = []
    last = 0.0
    for number, position in zip(numbers, positions, strict=True):
        if not taken or position - last >= apart:
            taken.append(number)
            last = position
    return taken


@dataclass(frozen=True)
class ClosestToEveryN:
    """Keep, for each multiple of ``interval_steps``, the step that is nearest to it, and the newest step."""

    interval_steps: int
    max_to_keep: int | None = None

    def __post_init__(self) -> None:
        EveryNSteps(self.interval_steps, max_to_keep=self.max_to_keep)

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        nearest: dict[int, int] = {}
        for number in (s.step for s in steps):
            multiple = round(number / self.interval_steps) * self.interval_steps
            if abs(number - multiple) <= abs(nearest.get(multiple, number) - multiple):
                nearest[multiple] = number
        chosen = sorted({*nearest.values(), *(s.step for s in steps[-1:])})
        kept = _newest(chosen, self.max_to_keep)
        return _each(steps, kept, f"it is the nearest to a multiple of {self.interval_steps}, or the newest")


@dataclass(frozen=True)
class EverySeconds:
    """Keep the first step, and each that was saved so many seconds after the kept one before it."""

    seconds: float

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        kept = _spaced([s.step for s in steps], [s.time for s in steps], self.seconds)
        return _each(steps, kept, f"it is {self.seconds:g} s younger than the one kept before it")


@dataclass(frozen=True)
class YoungerThan:
    """Keep what was saved in the last so many seconds."""

    seconds: float

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        young = [s.step for s in steps if now - s.time <= self.seconds]
        # A clock that was set back must not cost a step between two that stay.
        kept = {s.step for s in steps if young and s.step >= young[0]}
        return _each(
            steps, kept, f"it is not older than {self.seconds:g} s", f"it is older than {self.seconds:g} s"
        )


@dataclass(frozen=True)
class KeepSteps:
    """Keep the steps named."""

    steps: Collection[int]

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        return _each(steps, self.steps, "it is one of the steps named")


@dataclass(frozen=True)
class BestN:
    """Keep the ``n`` best steps by a metric; None keeps all.

    A metric that is not a number ranks last. A step of which the metric raises counts as one that was
    not measured; if it raises of every step that has metrics, they all stay: the function is wrong.
    """

    metric: Callable[[Any], float]
    mode: Literal["max", "min"] = "max"
    n: int | None = None
    keep_unmeasured: bool = True

    def __post_init__(self) -> None:
        _check_count(self.n, "the number of best steps to keep (max_to_keep)")
        if self.mode not in ("max", "min"):
            raise BadOption(f"best_mode is {self.mode!r}; it must be 'max' or 'min'")

    def score(self, step: Step) -> tuple[float | None, str]:
        """A step's metric, None if it has none that counts; and what to say of it."""
        found = self._found(step)
        if found is None:
            return None, "it has no metrics"
        if isinstance(found, Exception):
            return None, f"its metric cannot be had ({type(found).__name__}: {found})"
        if found != found:
            return None, "its metric is NaN, so it ranks last"
        return found, f"its metric is {found:g}"

    def _found(self, step: Step) -> float | Exception | None:
        """The metric of a step, or what was raised instead; None if it has no metrics."""
        if step.metrics is None:
            return None
        try:
            return float(self.metric(step.metrics))
        except Exception as error:  # what a user's function raises of one step must not cost the run
            return error

    def failures(self, steps: Sequence[Step]) -> dict[int, Exception]:
        """The steps of which the metric raises, and what."""
        every = {s.step: self._found(s) for s in steps}
        return {step: found for step, found in every.items() if isinstance(found, Exception)}

    def ranked(self, steps: Sequence[Step]) -> list[int]:
        """The measured steps, worst first; of equals the older one first."""
        sign = 1 if self.mode == "max" else -1
        scores = {s.step: f for s in steps if isinstance(f := self._found(s), float)}

        def rank(step: int) -> tuple[bool, float, int]:
            score = scores[step]
            counts = score == score
            return (counts, sign * score if counts else 0.0, step)

        return sorted(scores, key=rank)

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        if self.n is None:
            return KeepAll().decide_keep(steps, now)
        ranked = self.ranked(steps)
        measured = set(ranked)
        nothing_works = not ranked and any(s.metrics is not None for s in steps)
        unmeasured = [s.step for s in steps if s.step not in measured]
        if not self.keep_unmeasured:
            ranked = unmeasured + ranked
        best = _newest(ranked, self.n)
        decisions: Decisions = {}
        for step in steps:
            what = self.score(step)[1]
            if step.step in best:
                decisions[step.step] = Decision(True, f"it is among the best {self.n}: {what}")
            elif nothing_works and step.metrics is not None:
                decisions[step.step] = Decision(True, f"{what}, nor that of any other step, so all stay")
            elif step.step not in measured and self.keep_unmeasured:
                decisions[step.step] = Decision(True, f"{what}, and such steps are kept")
            else:
                decisions[step.step] = Decision(False, f"it is not among the best {self.n}: {what}")
        return decisions


@dataclass(frozen=True)
class AnyKeep:
    """Keep what one of the policies keeps."""

    policies: Sequence[KeepPolicy]

    def decide_keep(self, steps: Sequence[Step], now: float) -> Decisions:
        every = [policy.decide_keep(steps, now) for policy in self.policies]
        return {s.step: any_of([decisions[s.step] for decisions in every]) for s in steps}
