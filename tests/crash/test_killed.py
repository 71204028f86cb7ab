"""Killed at any moment, nothing is lost: SIGKILL before every operation on the disk, and in every write.

Each death has a directory of its own, and what it left is read by storax and by Orbax, and then used by
the next manager.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash import judges, scenarios
from tests.crash.judges import Verdicts
from tests.crash.scenarios import SCENARIOS
from tests.crash.strays import Strays
from tests.crash.warm import Warm
from tests.same import assert_same

import storax

Point = tuple[int, bool]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


def _operations(warm: Warm, name: str, directory: Path) -> list[dict[str, Any]]:
    """What a scenario does if nobody kills it."""
    directory.mkdir()
    SCENARIOS[name].prepare(directory)
    return warm.run(name, directory)["operations"]


def _points(operations: list[dict[str, Any]]) -> list[Point]:
    """Every operation, and every write once more, to die in the middle of it."""
    numbers = range(1, len(operations) + 1)
    return [(n, False) for n in numbers] + [
        (n, True) for n in numbers if operations[n - 1]["kind"] == "write"
    ]


def _collect(problems: list[str], where: str, check: Callable[[], object]) -> None:
    try:
        check()
    except Exception as error:
        problems.append(f"{where}: {type(error).__name__}: {str(error)[:300]}")


def _report(name: str, points: list[Point], verdicts: Verdicts, record_property: Any) -> None:
    summary = f"{name}: {len(points)} kill points, {verdicts}"
    print(summary)
    record_property("kill points", summary)
    assert points, summary
    assert not verdicts.all, "\n".join([summary, *verdicts.all[:20]])


@pytest.mark.parametrize("name", ["first use", "retention", "best", "deletion", "after a death"])
def test_a_manager_killed_at_any_moment_loses_nothing(
    name: str, warm: Warm, tmp_path: Path, record_property: Any
):
    scenario = SCENARIOS[name]
    operations = _operations(warm, name, tmp_path / "undisturbed")
    points = _points(operations)
    verdicts = Verdicts()
    for number, half in points:
        where = f"{name}, {'in' if half else 'before'} operation {number}, {operations[number - 1]}"
        directory = tmp_path / f"killed-{number}-{half}"
        directory.mkdir()
        scenario.prepare(directory)
        with Strays(directory) as strays:
            died = warm.run(name, directory, die_at=number, half=half)
            assert died["signal"] == 9, where
            _judge(
                verdicts, where, directory / scenario.place, scenario, died, operations[number - 1]["steps"]
            )
            if scenario.place == "":
                names = {path.name for path in directory.iterdir()}
                extra = {n for n in names - strays.names if not n.isdigit()}
                verdicts.unclean += [f"{where}: left over: {sorted(extra)}"] if extra else []
            verdicts.unclean += [f"{where}: touched {stray}" for stray in strays.damage()]
        shutil.rmtree(directory)
    _report(name, points, verdicts, record_property)


def _judge(
    verdicts: Verdicts, where: str, run: Path, scenario: Any, died: dict[str, Any], wanted: list[int]
) -> None:
    """Reads all steps, then goes on where the dead process was, as the next one would."""
    there = judges.storax_steps(run)
    if there != wanted or (died["told"] and died["told"][-1] not in there):
        verdicts.lost.append(f"{where}: there are {there}, not {wanted}; told of {died['told']}")
    if run.is_dir():
        _collect(verdicts.lost, where, lambda: assert_same(judges.orbax_steps(run), there))
    for step in there:
        for check in (judges.check_step_with_storax, judges.check_step_with_orbax):
            _collect(verdicts.unreadable, where, functools.partial(check, run, step, scenario.composite))
    _collect(verdicts.unclean, where, lambda: _go_on(run, there))


def _go_on(run: Path, there: list[int]) -> None:
    """The next manager: it can be made, it saves at once, it leaves no draft."""
    with storax.CheckpointManager(run, metadata={"project": "x"}) as manager:
        assert manager.all_steps() == there
        assert manager.metadata().get("project", "x") == "x"
        step = max(there, default=0) + 1
        assert manager.save(step, args=storax.args.StandardSave(scenarios.tree(step)))
        manager.wait_until_finished()
        assert manager.all_steps() == [*there, step]
        assert_same(manager.restore(step), scenarios.tree(step))
    judges.check_step_with_orbax(run, step, False) if there == [] else None
    drafts = [path.name for path in run.glob("*.orbax-checkpoint-tmp-storax-????????????????")]
    assert all(name.startswith("77.") for name in drafts), drafts


def test_a_tree_being_replaced_is_the_old_or_the_new_one_at_any_moment(
    warm: Warm, tmp_path: Path, record_property: Any
):
    operations = _operations(warm, "overwrite", tmp_path / "undisturbed")
    swaps = [n for n, done in enumerate(operations, 1) if done["kind"] == "exchange"]
    assert len(swaps) == 2
    points = _points(operations)
    verdicts = Verdicts()
    for number, half in points:
        where = f"overwrite, {'in' if half else 'before'} operation {number}, {operations[number - 1]}"
        directory = tmp_path / f"killed-{number}-{half}"
        directory.mkdir()
        SCENARIOS["overwrite"].prepare(directory)
        with Strays(directory) as strays:
            died = warm.run("overwrite", directory, die_at=number, half=half)
            assert died["signal"] == 9, where
            now = sum(swap < number for swap in swaps)
            if died["told"] and died["told"][-1] > now:
                verdicts.lost.append(f"{where}: told of {died['told']}")
            path, wanted = directory / "tree", scenarios.tree(now)
            _collect(verdicts.lost, where, lambda: assert_same(storax.load(path), wanted))
            _collect(verdicts.unreadable, where, lambda: judges.check_tree_with_orbax(path, wanted))
            _collect(verdicts.unclean, where, lambda: _replace_again(path))
            verdicts.unclean += [f"{where}: touched {stray}" for stray in strays.damage()]
        shutil.rmtree(directory)
    _report("overwrite", points, verdicts, record_property)


def _replace_again(path: Path) -> None:
    storax.save(path, scenarios.tree(5), overwrite=True)
    assert_same(storax.load(path), scenarios.tree(5))
    # Whoever cleans the directory, such as a manager, finds what the dead process left.
    storax.CheckpointManager(path.parent).close()
    assert [p.name for p in path.parent.glob("tree.orbax*")] == []


@pytest.mark.parametrize(
    "every", [pytest.param(16, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_arrays_on_devices_killed_at_any_moment_are_not_lost(
    every: int, warm: Warm, tmp_path: Path, record_property: Any
):
    operations = _operations(warm, "arrays", tmp_path / "undisturbed")
    points = _points(operations)[::every]
    verdicts = Verdicts()
    for number, half in points:
        where = f"arrays, {'in' if half else 'before'} operation {number}, {operations[number - 1]}"
        directory = tmp_path / f"killed-{number}-{half}"
        directory.mkdir()
        died = warm.run("arrays", directory, die_at=number, half=half)
        assert died["signal"] == 9, where
        there = judges.storax_steps(directory)
        if there != operations[number - 1]["steps"]:
            verdicts.lost.append(f"{where}: there are {there}")
        for step in there:
            wanted = scenarios.on_devices(step)
            _collect(
                verdicts.unreadable,
                where,
                lambda: assert_same(storax.load(directory / str(step)), wanted, shardings=True),
            )
            _collect(verdicts.unreadable, where, lambda: _check_arrays_with_orbax(directory, step, wanted))
        _collect(verdicts.unclean, where, lambda: _go_on(directory, there))
    _report("arrays", points, verdicts, record_property)


def _check_arrays_with_orbax(directory: Path, step: int, wanted: Any) -> None:
    import orbax.checkpoint as ocp
    from tests.same import abstract

    with ocp.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(read_only=True)) as manager:
        found = manager.restore(step, args=ocp.args.StandardRestore(abstract(wanted)))
    assert_same(found, wanted, shardings=True)
