"""Of two processes one dies at every operation on the disk, in every write, and at every barrier."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.processes.jobs import Jobs

TIMEOUT = 1.5


def _say(outcome: Any, key: str) -> list[Any]:
    return [said[key] for said in outcome.said if isinstance(said, dict) and key in said]


@pytest.mark.parametrize("victim", [1, 0])
@pytest.mark.parametrize(
    "every", [pytest.param(41, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_one_of_two_dies_anywhere(
    jobs: Jobs, tmp_path: Path, victim: int, every: int, record_property: Any
) -> None:
    def run(directory: Path, at: int, half: bool = False) -> list[Any]:
        directory.mkdir()
        arguments = {"directory": directory, "victim": victim, "at": at, "half": half, "timeout": TIMEOUT}
        return jobs.outcomes("troubles.die_somewhere", 2, apart=True, limit=20, **arguments)

    undisturbed = run(tmp_path / "undisturbed", 0)
    assert [_say(one, "result") for one in undisturbed] == [[None], [None]]
    operations = _say(undisturbed[victim], "operations")[0]
    points = [(n, False) for n in range(1, len(operations) + 1)]
    points += [(n, True) for n, what in enumerate(operations, 1) if what.startswith("write")]
    problems = []
    for number, half in points[::every]:
        where = f"process {victim} dies {'in' if half else 'at'} operation {number}, {operations[number - 1]}"
        directory = tmp_path / f"{number}-{half}"
        ended = run(directory, number, half)
        survivor = ended[1 - victim]
        steps = sorted(int(name) for name in os.listdir(directory) if name.isdigit())
        told = [step for one in ended for step in _say(one, "told")]
        if ended[victim].signal != 9 or survivor.signal or survivor.overdue:
            problems.append(f"{where}: {ended}")
            continue
        (result,) = _say(survivor, "result")
        if result is not None and (result[0] != "ProcessFailed" or f"process {victim} " not in result[1]):
            problems.append(f"{where}: the other one was told {result}")
        if result is None and number <= len(operations) - 3 and 2 not in steps:
            problems.append(f"{where}: the other one was told nothing, and there are {steps}")
        if steps not in ([], [1], [1, 2], [2]) or max(told, default=0) > max(steps, default=0):
            problems.append(f"{where}: there are {steps}; told of {told}")
        for process in jobs.run("troubles.go_on", 2, directory=directory):
            new = max(steps, default=0) + 1
            if not process["good"] or process["before"] != steps or process["after"] != [*steps, new]:
                problems.append(f"{where}: then {process}")
            if process["there"] != sorted(map(str, [*steps, new])):
                problems.append(f"{where}: left {process['there']}")
    summary = (
        f"process {victim}: {len(points[::every])} of {len(points)} kill points, {len(problems)} problems"
    )
    print(summary)
    record_property("kill points", summary)
    assert not problems, "\n".join([summary, *problems[:10]])
