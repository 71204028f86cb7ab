"""Barriers that carry messages and errors: threads as processes, an injected clock, any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.processes.threads import Job

import storax
from storax.errors import DirectoryNotShared, ProcessesDisagree, ProcessFailed
from storax.processes import Joined, Message, Solo, check_same, wait_for_all


def run(
    count: int, act: Callable[[Joined], Any], absent: frozenset[int] = frozenset(), timeout: float = 60.0
) -> dict[int, Any]:
    return Job(count, absent, timeout).run(act)


def save(process: Joined, about: str) -> str:
    """Three barriers about one thing, as a save has them."""
    with process.gathering(about) as place:
        for word in ("created", "written", "published"):
            process.meet(f"{place}/{word}", {"about": about}, _same)
        return place


def _same(messages: Sequence[Message]) -> Message:
    check_same(messages, "about", "Save the same.")
    return {}


def _sum(messages: Sequence[Message]) -> Message:
    return {"sum": sum(message["n"] for message in messages)}


def test_every_process_gets_the_verdict_on_all() -> None:
    found = run(5, lambda p: p.meet("x/here", {"n": p.index}, _sum))
    assert found == {index: {"sum": 10} for index in range(5)}


def test_alone_there_is_nobody_to_wait_for() -> None:
    assert Solo().meet("x/here", {"n": 3}, _sum) == {"sum": 3}


def test_an_error_of_one_is_told_to_all_with_its_reason() -> None:
    def act(process: Joined) -> Message:
        if process.index == 2:
            error = storax.StoreError("disk full")
            assert process.fail("x/written", OSError("disk full")) is not None
            raise error
        return process.meet("x/written", {"n": 1}, _sum)

    found = run(4, act)
    assert type(found.pop(2)) is storax.StoreError
    assert sorted(found) == [0, 1, 3]
    assert {type(error) for error in found.values()} == {ProcessFailed}
    assert {str(error) for error in found.values()} == {"a process failed. process 2: OSError: disk full"}


def test_an_error_of_process_0_is_told_at_once() -> None:
    def act(process: Joined) -> Message:
        if process.index == 0:
            process.fail("x/written", storax.StoreError("no space"))
            raise storax.StoreError("no space")
        return process.meet("x/written", {"n": 1}, _sum)

    found = run(3, act, absent=frozenset({1}))
    assert type(found[2]) is storax.StoreError
    assert str(found[2]) == "a process failed. process 0: no space"


def test_those_who_do_not_come_are_named() -> None:
    def act(process: Joined) -> Message:
        with process.gathering("save run/7") as place:
            return process.meet(f"{place}/written", {"n": 1}, _sum)

    found = run(5, act, absent=frozenset({1, 3}), timeout=90)
    assert sorted(found) == [0, 2, 4]
    for error in found.values():
        assert isinstance(error, ProcessFailed)
        assert isinstance(error, TimeoutError)
        assert str(error) == "processes 1, 3 did not come to save run/7 (written) within 90 s."


def test_process_0_itself_may_be_missing() -> None:
    found = run(3, lambda p: save(p, "save 7"), absent=frozenset({0}), timeout=10)
    assert sorted(found) == [1, 2]
    assert all("process 0 did not come to save 7 (created)" in str(error) for error in found.values())


@pytest.mark.parametrize("kind", [ProcessesDisagree, DirectoryNotShared, storax.CheckpointExists])
def test_the_verdict_has_the_type_of_its_error(kind: type[storax.StoraxError]) -> None:
    def judge(_: Sequence[Message]) -> Message:
        raise kind("params.w differs")

    found = run(3, lambda p: p.meet("x/written", {"n": 1}, judge))
    assert [type(error) for error in found.values()] == [kind] * 3
    assert {str(error) for error in found.values()} == {"params.w differs"}


def test_an_error_of_another_kind_keeps_its_name() -> None:
    def judge(_: Sequence[Message]) -> Message:
        raise RuntimeError("no")

    found = run(2, lambda p: p.meet("x/written", {"n": 1}, judge))
    assert {str(error) for error in found.values()} == {"RuntimeError: no"}


def test_the_keys_of_a_save_are_gone_when_the_next_but_one_begins() -> None:
    job = Job(4)
    sizes = []
    for step in range(6):
        found = job.run(lambda p, step=step: save(p, f"save {step}"))
        assert set(found.values()) == {f"storax/saves/{step}"}
        sizes.append(len(job.keys.values))
    assert sizes == [15] * 6, "five keys at each of three barriers, of one save only"


def test_saves_of_different_steps_fail_at_once_on_all() -> None:
    job = Job(3)
    found = job.run(lambda p: save(p, f"save {100 + p.index // 2}"))
    assert {type(error) for error in found.values()} == {ProcessesDisagree}
    assert "processes 0, 1 mean save 100; process 2 means save 101. Save the same." in str(found[1])
    assert set(job.run(lambda p: save(p, "save 200")).values()) == {"storax/saves/1"}


def test_after_a_process_missed_a_save_the_next_one_finds_all_together() -> None:
    job = Job(3, timeout=10)
    job.keys.absent = {1}
    found = job.run(lambda p: save(p, "save 1"))
    assert [type(found[i]) for i in (0, 2)] == [ProcessFailed] * 2
    job.keys.absent = set()
    assert set(job.run(lambda p: save(p, "save 2")).values()) == {"storax/saves/1"}


def test_a_process_that_comes_late_to_its_save_is_told_so_and_keeps_up() -> None:
    job = Job(3, timeout=10)
    job.keys.absent = {1}
    job.run(lambda p: save(p, "save 1"))
    job.keys.absent = set()
    (late,) = job.run(lambda p: save(p, "save 1"), 1).values()
    assert isinstance(late, ProcessFailed)
    assert "process 1 came too late to save 1" in str(late)
    assert set(job.run(lambda p: save(p, "save 2")).values()) == {"storax/saves/1"}


def test_process_0_too_may_miss_a_save_and_keep_up() -> None:
    job = Job(3, timeout=10)
    job.keys.absent = {0}
    assert {type(error) for error in job.run(lambda p: save(p, "save 1")).values()} == {ProcessFailed}
    job.keys.absent = set()
    assert set(job.run(lambda p: save(p, "save 2")).values()) == {"storax/saves/1"}


def test_after_sigterm_nobody_waits_longer_than_the_grace_period() -> None:
    job = Job(3, frozenset({2}), timeout=600)
    job.keys.sigterm = True
    found = job.run(lambda p: save(p, "save 1"))
    assert job.clock.now == pytest.approx(30, abs=0.1)
    assert "process 2 did not come to save 1 (created) within 30 s after SIGTERM" in str(found[0])
    # A job that is not taken away after all goes on.
    job.clock.now += 1000
    job.keys.absent = set()
    assert set(job.run(lambda p: save(p, "save 2")).values()) == {"storax/saves/1"}


def test_a_barrier_alone() -> None:
    assert run(3, lambda p: wait_for_all(p, "warm up")) == dict.fromkeys(range(3))
    found = run(3, lambda p: wait_for_all(p, f"part {p.index // 2}"))
    assert {type(error) for error in found.values()} == {ProcessesDisagree}
    assert wait_for_all(Solo(), "warm up") is None
