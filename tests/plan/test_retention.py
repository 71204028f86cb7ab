"""What to keep, and why, against a naive model."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storax.errors import BadOption
from storax.plan import retention
from storax.plan.ownership import owners
from storax.plan.retention import AnyKeep, BestN, LatestN, explain
from storax.plan.steps import Step

STEPS = st.sets(st.integers(0, 30), max_size=12)
SCORES = st.dictionaries(
    st.integers(0, 30), st.one_of(st.none(), st.integers(-3, 3).map(float), st.just(math.nan)), max_size=12
)


def kept(policy: Any, steps: Any, **more: Any) -> set[int]:
    known = [step if isinstance(step, Step) else Step(step) for step in steps]
    return {verdict.step for verdict in explain(policy, known, **more) if verdict.keep}


def newest_and_periodic(count: int | None, period: int | None) -> Any:
    if count is None:
        return retention.KeepAll()
    periodic = [retention.EveryNSteps(period)] if period else []
    return AnyKeep([LatestN(count), *periodic])


@given(STEPS, st.one_of(st.none(), st.integers(0, 5)), st.one_of(st.none(), st.integers(1, 6)))
def test_the_newest_stay_and_the_periodic_ones(
    steps: set[int], count: int | None, period: int | None
) -> None:
    found = kept(newest_and_periodic(count, period), steps)
    if count is None:
        assert found == steps
        return
    newest = sorted(steps)[-max(count, 1) :] if steps else []
    assert found == set(newest) | {s for s in steps if period and s % period == 0}


def measured(scores: dict[int, float | None]) -> list[Step]:
    return [Step(step, metrics=None if score is None else {"m": score}) for step, score in scores.items()]


@given(SCORES, st.integers(0, 5), st.sampled_from(["max", "min"]), st.booleans(), STEPS)
def test_the_best_stay_and_the_newest(
    scores: dict[int, float | None], count: int, mode: Any, keep_unmeasured: bool, pinned: set[int]
) -> None:
    policy = BestN(lambda m: m["m"], mode, count, keep_unmeasured)
    steps = set(scores)
    verdicts = explain(policy, measured(scores), pinned=dict.fromkeys(pinned, "x"))
    assert [verdict.step for verdict in verdicts] == sorted(steps)

    def worth(step: int) -> tuple[bool, float, int]:
        score = scores[step]
        assert score is not None
        if math.isnan(score):
            return False, 0.0, step
        return True, score if mode == "max" else -score, step

    order = sorted((s for s in steps if scores[s] is not None), key=worth)
    assert policy.ranked(measured(scores)) == order
    unmeasured = sorted(s for s in steps if scores[s] is None)
    line = order if keep_unmeasured else [*unmeasured, *order]
    best = set(line[len(line) - min(count, len(line)) :]) | (set(unmeasured) if keep_unmeasured else set())
    assert set(verdicts.dropped) == steps - best - pinned - ({max(steps)} if steps else set())


@given(STEPS, st.one_of(st.none(), st.integers(0, 4)))
def test_what_stays_would_stay_again(steps: set[int], count: int | None) -> None:
    policy = newest_and_periodic(count, 7)
    assert kept(policy, kept(policy, steps)) == kept(policy, steps)


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 50), max_size=12), st.integers(1, 9))
def test_steps_some_seconds_apart_stay(times: dict[int, int], apart: int) -> None:
    steps = [Step(step, float(time)) for step, time in sorted(times.items())]
    expected: list[Step] = []
    for step in steps:
        if not expected or step.time - expected[-1].time >= apart:
            expected.append(step)
    found = kept(retention.EverySeconds(apart), steps, keep_newest=False)
    assert found == {step.step for step in expected}


def test_what_is_young_stays_and_what_came_after_it() -> None:
    steps = [Step(1, 10), Step(2, 95), Step(3, 20), Step(4, 99)]
    policy = retention.YoungerThan(10)
    assert kept(policy, steps, now=100, keep_newest=False) == {2, 3, 4}
    assert kept(policy, steps, now=1000, keep_newest=False) == set()
    assert kept(policy, steps, now=1000) == {4}


def test_the_nearest_to_each_multiple_stays() -> None:
    steps = [0, 95, 104, 130, 199, 203, 250]
    assert kept(retention.ClosestToEveryN(100), steps) == {0, 104, 199, 250}
    assert kept(retention.ClosestToEveryN(100, max_to_keep=2), steps) == {199, 250}


def test_steps_some_steps_apart_and_only_so_many_of_them() -> None:
    steps = [1, 3, 4, 8, 9, 13]
    assert kept(retention.EveryNSteps(4, exact_interval=False), steps, keep_newest=False) == {1, 8, 13}
    assert kept(retention.EveryNSteps(4, max_to_keep=1), steps, keep_newest=False) == {8}
    assert kept(retention.KeepSteps([3, 99]), steps, keep_newest=False) == {3}


def test_every_verdict_says_why() -> None:
    steps = [
        Step(1, metrics={"loss": 0.1}),
        Step(2, metrics={"loss": math.nan}),
        Step(3, metrics={}),
        Step(4),
        Step(5, metrics={"loss": 0.5}),
        Step(6, metrics={"loss": 0.9}),
    ]
    policy = AnyKeep([BestN(lambda m: m["loss"], "min", 1, False), retention.KeepSteps([3])])
    verdicts = explain(policy, steps, pinned={4: "for the paper"}, leased={2, 5})
    assert str(verdicts).splitlines() == [
        "         1  keep    it is among the best 1: its metric is 0.1",
        "         2  keep    a reader holds it open; it goes afterwards (it is not among the best 1: "
        "its metric is NaN, so it ranks last; it is not one of the steps named)",
        "         3  keep    it is one of the steps named",
        "         4  keep    it is pinned: for the paper",
        "         5  keep    a reader holds it open; it goes afterwards (it is not among the best 1: "
        "its metric is 0.5; it is not one of the steps named)",
        "         6  keep    it is the newest (it is not among the best 1: its metric is 0.9; "
        "it is not one of the steps named)",
    ]
    assert verdicts.dropped == []
    assert explain(policy, steps, keep_newest=False).dropped == [2, 4, 5, 6]


def test_a_step_of_which_the_metric_raises_counts_as_not_measured() -> None:
    steps = [Step(1, metrics={}), Step(2, metrics={"loss": 3.0}), Step(3, metrics={"loss": 1.0})]
    policy = BestN(lambda m: m["loss"], "min", 1)
    verdicts = explain(policy, steps)
    assert verdicts.dropped == [2]
    assert "KeyError: 'loss'" in verdicts[0].reason
    assert list(policy.failures(steps)) == [1]
    assert explain(BestN(lambda m: m["loss"], "min", 1, False), steps).dropped == [1, 2]


@pytest.mark.parametrize("keep_unmeasured", [False, True])
def test_a_metric_that_raises_of_every_step_costs_none(keep_unmeasured: bool) -> None:
    steps = [Step(n, metrics={"acc": 0.5}) for n in range(5)]
    policy = BestN(lambda m: m["accuracy"], n=2, keep_unmeasured=keep_unmeasured)
    assert explain(policy, steps, keep_newest=False).dropped == []
    assert policy.ranked(steps) == []


def test_no_steps_give_no_verdicts() -> None:
    assert explain(AnyKeep([]), []) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: LatestN(-1),
        lambda: retention.EveryNSteps(0),
        lambda: retention.EveryNSteps(3, max_to_keep=-1),
        lambda: retention.ClosestToEveryN(-3),
        lambda: BestN(float, n=-1),
        lambda: BestN(float, mode="best"),
    ],
)
def test_policies_that_cannot_be(wrong: Any) -> None:
    with pytest.raises(BadOption):
        wrong()


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 3).map(lambda n: ((n, n + 1),))))
def test_every_box_has_one_owner_that_holds_it(held: dict[int, Any]) -> None:
    found = owners(held)
    assert set(found) == set(held.values())
    for box, device in found.items():
        assert device == min(d for d, b in held.items() if b == box)
