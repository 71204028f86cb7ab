"""Orbax in some processes writes what storax in others restores, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes.jobs import Jobs
from tests.processes.programs import ARRAYS


@pytest.fixture(scope="module")
def both() -> Iterator[Jobs]:
    with Jobs("tests.processes.others") as running:
        yield running


def test_what_two_processes_of_orbax_wrote_is_restored_by_one_two_and_four(
    both: Jobs, tmp_path: Path
) -> None:
    place = tmp_path / "orbax"
    both.run("others.save", 2, devices=4, directory=place, mesh=[2, 4])
    only = [name for name in ARRAYS if name != "empty"]
    for count, mesh in ((1, [4, 2]), (2, [2, 4]), (4, [8, 1])):
        found = both.run(
            "programs.restore",
            count,
            devices=8 // count,
            joined=count > 1,
            directory=place,
            mesh=mesh,
            only=only,
        )
        assert [process["wrong"] for process in found] == [[]] * count


def test_what_two_processes_of_storax_wrote_is_restored_by_orbax(both: Jobs, tmp_path: Path) -> None:
    place = tmp_path / "storax"
    both.run("programs.save", 2, devices=4, directory=place, mesh=[2, 4])
    for count, mesh in ((1, [2, 4]), (2, [4, 2])):
        found = both.run(
            "others.restore", count, devices=8 // count, joined=count > 1, directory=place, mesh=mesh
        )
        assert found == [[]] * count
