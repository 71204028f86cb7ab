"""Killed at any moment, nothing is lost: SIGKILL before every operation on the disk, and in every write.

Each death has a directory of its own, and what it left is read by storax and by Orbax, and then used by
the next manager.
"""

from __future__ import annotations

import functools
import os
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

pytestmark = pytest.mark.usefixtures("without_waiting")

Point = tuple[int, bool]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


def _undisturbed(warm: Warm, name: str, directory: Path) -> dict[str, Any]:
    """What a scenario does if nobody kills it."""
    directory.mkdir()
    SCENARIOS[name].prepare(directory)
    return warm.run(name, directory)


def _prepared(name: str, tmp_path: Path) -> Path:
    """What a scenario finds, made once."""
    directory = tmp_path / "prepared"
    directory.mkdir()
    SCENARIOS[name].prepare(directory)
    return directory


def _copy(prepared: Path, directory: Path) -> Path:
    """A directory with the same files: nobody ever changes one in memory."""
    shutil.copytree(prepared, directory, copy_function=os.link)
    return directory


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
    assert not verdicts.all, "\n".join([summary, *verdicts.all])


class _Sometimes:
    """Whether to look closely: always, or at the first kill point of each outcome."""

    def __init__(self, always: bool) -> None:
        self._always = always
        self._seen: set[object] = set()

    def now(self, outcome: object) -> bool:
        is_new = outcome not in self._seen
        self._seen.add(outcome)
        return self._always or is_new


@pytest.fixture(
    params=[pytest.param(False, id="each-outcome"), pytest.param(True, id="each", marks=pytest.mark.slow)]
)
def with_orbax(request: pytest.FixtureRequest) -> _Sometimes:
    """When Orbax restores everything; it lists at every kill point."""
    return _Sometimes(request.param)


@pytest.mark.parametrize("name", ["first use", "retention", "best", "deletion", "after a death"])
def test_a_manager_killed_at_any_moment_loses_nothing(
    name: str, with_orbax: _Sometimes, warm: Warm, memory: Path, record_property: Any
):
    scenario = SCENARIOS[name]
    found = _prepared(name, memory)
    undisturbed = _undisturbed(warm, name, memory / "undisturbed")
    operations = undisturbed["operations"]
    points = _points(operations)
    verdicts = Verdicts()
    for number, half in points:
        where = _describe(name, number, half, operations[number - 1])
        directory = _copy(found, memory / f"killed-{number}-{half}")
        run = directory / scenario.place
        with Strays(directory) as strays:
            died = warm.run(name, directory, die_at=number, half=half)
            assert died["signal"] == 9, where
            there = judges.storax_steps(run)
            if there not in undisturbed["states"] or max([-1, *there]) < max([-1, *died["told"]]):
                verdicts.lost.append(f"{where}: there are {there}; told of {died['told']}")
            left = len(list(run.glob("*-storax-*"))) if run.is_dir() else None
            closely = with_orbax.now((tuple(there), left, operations[number - 1]["kind"]))
            _judge(verdicts, where, run, there, scenario.composite, closely)
            verdicts.unclean += [f"{where}: touched {stray}" for stray in strays.damage()]
            if run == directory:
                extra = {path.name for path in run.iterdir() if not path.name.isdigit()} - strays.names
                verdicts.unclean += [f"{where}: left {extra}"] if extra - {"metadata"} else []
        shutil.rmtree(directory)
    _report(name, points, verdicts, record_property)


def _describe(name: str, number: int, half: bool, operation: dict[str, Any]) -> str:
    what = f"{operation['kind']} {'/'.join(Path(operation['path']).parts[-3:])}"
    return f"{name}, {'in' if half else 'before'} operation {number} ({what})"


def _judge(
    verdicts: Verdicts, where: str, run: Path, there: list[int], composite: bool, closely: bool
) -> None:
    """Reads all steps, then goes on where the dead process was, as the next one would."""
    if run.is_dir():
        _collect(verdicts.lost, where, lambda: assert_same(judges.orbax_steps(run), there))
    if run.is_dir() and closely:
        _collect(verdicts.lost, where, lambda: assert_same(judges.orbax_manager_steps(run), there))
    for step in there:
        check = functools.partial(judges.check_step_with_storax, run, step, composite)
        _collect(verdicts.unreadable, where, check)
        if closely:
            check = functools.partial(judges.check_step_with_orbax, run, step, composite)
            _collect(verdicts.unreadable, where, check)
    _collect(verdicts.unclean, where, lambda: _go_on(run, there))


def _go_on(run: Path, there: list[int]) -> None:
    """The next manager: it can be made, it saves at once, it leaves no draft."""
    metadata = {"project": "x", "seed": 3}
    with storax.CheckpointManager(run, metadata=metadata) as manager:
        assert manager.all_steps() == there
        assert manager.metadata() == metadata
        step = max(there, default=0) + 1
        assert manager.save(step, args=storax.args.StandardSave({"step": step}))
        manager.wait_until_finished()
        assert manager.all_steps() == [*there, step]
        assert manager.restore(step) == {"step": step}
    drafts = [path.name for path in run.glob("*.orbax-checkpoint-tmp-storax-????????????????")]
    assert all(name.startswith("77.") for name in drafts), drafts


def test_a_tree_being_replaced_is_the_old_or_the_new_one_at_any_moment(
    with_orbax: _Sometimes, warm: Warm, memory: Path, record_property: Any
):
    found = _prepared("overwrite", memory)
    undisturbed = _undisturbed(warm, "overwrite", memory / "undisturbed")
    operations = undisturbed["operations"]
    swaps = [n for n, done in enumerate(operations, 1) if done["kind"] == "exchange"]
    assert len(swaps) == 2
    points = _points(operations)
    verdicts = Verdicts()
    for number, half in points:
        where = _describe("overwrite", number, half, operations[number - 1])
        directory = _copy(found, memory / f"killed-{number}-{half}")
        with Strays(directory) as strays:
            died = warm.run("overwrite", directory, die_at=number, half=half)
            assert died["signal"] == 9, where
            now = sum(swap < number for swap in swaps)
            if died["told"] and died["told"][-1] > now:
                verdicts.lost.append(f"{where}: told of {died['told']}")
            path, wanted = directory / "tree", scenarios.tree(now)
            _collect(verdicts.lost, where, functools.partial(_check_tree, path, wanted))
            left = len(list(directory.glob("*-storax-*")))
            if with_orbax.now((now, left, operations[number - 1]["kind"])):
                check = functools.partial(judges.check_tree_with_orbax, path, wanted)
                _collect(verdicts.unreadable, where, check)
            _collect(verdicts.unclean, where, functools.partial(_replace_again, path))
            verdicts.unclean += [f"{where}: touched {stray}" for stray in strays.damage()]
        shutil.rmtree(directory)
    _report("overwrite", points, verdicts, record_property)


def _check_tree(path: Path, wanted: Any) -> None:
    assert_same(storax.load(path), wanted)


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
    every: int, warm: Warm, memory: Path, record_property: Any
):
    undisturbed = _undisturbed(warm, "arrays", memory / "undisturbed")
    operations = undisturbed["operations"]
    points = _points(operations)[::every]
    verdicts = Verdicts()
    for number, half in points:
        where = _describe("arrays", number, half, operations[number - 1])
        directory = memory / f"killed-{number}-{half}"
        directory.mkdir()
        died = warm.run("arrays", directory, die_at=number, half=half)
        assert died["signal"] == 9, where
        there = judges.storax_steps(directory)
        if there not in undisturbed["states"] or max([-1, *there]) < max([-1, *died["told"]]):
            verdicts.lost.append(f"{where}: there are {there}; told of {died['told']}")
        for step in there:
            wanted = scenarios.on_devices(step)
            for check in (_check_arrays, _check_arrays_with_orbax):
                _collect(verdicts.unreadable, where, functools.partial(check, directory, step, wanted))
        _collect(verdicts.unclean, where, functools.partial(_go_on, directory, there))
    _report("arrays", points, verdicts, record_property)


def _check_arrays(directory: Path, step: int, wanted: Any) -> None:
    assert_same(storax.load(directory / str(step)), wanted, shardings=True)


def _check_arrays_with_orbax(directory: Path, step: int, wanted: Any) -> None:
    import orbax.checkpoint as ocp
    from tests.same import abstract

    with ocp.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(read_only=True)) as manager:
        found = manager.restore(step, args=ocp.args.StandardRestore(abstract(wanted)))
    assert_same(found, wanted, shardings=True)
