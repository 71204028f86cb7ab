"""When to save, and why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storax.errors import BadOption
from storax.manager import ManagerOptions
from storax.plan import cadence
from storax.plan.cadence import AnySave, Moment, decide_save, watches_preemption
from storax.plan.steps import Step

STEPS = st.sets(st.integers(0, 30), max_size=12)


@given(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40)), st.integers(1, 9), STEPS)
def test_when_to_save(step: int, latest: int | None, interval: int, on: set[int]) -> None:
    expected = (latest is None or step > latest) and (latest is None or step % interval == 0 or step in on)
    policy = ManagerOptions(save_interval_steps=interval, save_on_steps=frozenset(on)).saving()
    assert decide_save(policy, Moment(step, latest)).yes == expected


def test_a_function_is_asked_only_for_newer_steps() -> None:
    asked: list[tuple[int, int | None]] = []

    def rule(step: int, latest: int | None) -> bool:
        asked.append((step, latest))
        return step % 2 == 1

    policy = ManagerOptions(save_interval_steps=100, save_on_steps=(4,), should_save_fn=rule).saving()
    assert [bool(decide_save(policy, Moment(step, 2))) for step in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        False,
    ]
    assert asked == [(3, 2), (4, 2)]


def test_seconds_count_from_the_newest_save() -> None:
    history = [Step(1, 50.0), Step(2, 100.0)]
    at_most = cadence.AtMostEvery(10)
    assert not at_most.decide_save(Moment(3, 2, 109.0, history=lambda: history))
    assert at_most.decide_save(Moment(3, 2, 110.0, history=lambda: history))
    assert at_most.decide_save(Moment(3)).reason == "nothing was saved before"


def test_continuous_saves_when_no_save_runs() -> None:
    history = [Step(1, 100.0)]
    assert cadence.Continuous().decide_save(Moment(2, 1))
    assert not cadence.Continuous().decide_save(Moment(2, 1, saving=True))
    assert not cadence.Continuous(5).decide_save(Moment(2, 1, 104.0, history=lambda: history))
    assert cadence.Continuous(5).decide_save(Moment(2, 1, 105.0, history=lambda: history))


def test_only_policies_that_ask_read_the_history() -> None:
    def fail() -> Any:
        raise AssertionError("the history was read")

    policy = AnySave(
        [cadence.First(), cadence.EveryNSteps(5), cadence.OnPreemption(), cadence.SpecificSteps({7})]
    )
    for step in range(1, 12):
        decide_save(policy, Moment(step, 0, history=fail))


def test_the_reasons() -> None:
    policy = AnySave([cadence.EveryNSteps(5), cadence.SpecificSteps({7}), cadence.OnPreemption()])
    assert decide_save(policy, Moment(4, 0)).reason == (
        "it is not a multiple of 5; it is not one of the steps named; "
        "the machine was not told to stop (SIGTERM)"
    )
    assert decide_save(policy, Moment(7, 0)).reason == "it is one of the steps named"
    assert (
        decide_save(policy, Moment(4, 0, preempted=True)).reason == "the machine was told to stop (SIGTERM)"
    )
    assert decide_save(policy, Moment(5, 5)).reason == "it is not newer than step 5, which is saved already"


def test_which_policies_watch_for_sigterm() -> None:
    assert watches_preemption(AnySave([cadence.First(), AnySave([cadence.OnPreemption()])]))
    assert not watches_preemption(AnySave([cadence.First()]))


def test_an_interval_that_cannot_be() -> None:
    with pytest.raises(BadOption, match="interval"):
        cadence.EveryNSteps(0)
