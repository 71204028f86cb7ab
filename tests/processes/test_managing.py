"""A ``CheckpointManager`` in many processes: one decision, carried out once, the same for all."""

from __future__ import annotations

import os
from pathlib import Path

from tests.processes.jobs import Jobs


def test_all_see_the_same_steps_and_process_0_lets_go_the_old_ones(jobs: Jobs, tmp_path: Path) -> None:
    one, other = jobs.run("runs.manage", 2, directory=tmp_path)
    assert one == other
    *newest, gone, disagree, applied, restored, first, second, third = one
    assert newest == [[[1], 1], [[1, 2], 2], [[2, 3], 3], [2, 4, 5], [2, 5]]
    assert gone[0] == "CheckpointNotFound"
    assert disagree[0] == "ProcessesDisagree"
    assert "process 0 means delete step 2" in disagree[1]
    assert "process 1 means delete step 5" in disagree[1]
    assert applied == [[], {"seed": 3}]
    assert restored is True
    assert (first, second, third) == ([[0], 0], [[1], 1], [[1], 1]), "the best loss stays"
    assert sorted(os.listdir(tmp_path / "newest")) == ["2", "5", "metadata"]


def test_what_depends_on_a_clock_is_decided_by_one(jobs: Jobs, tmp_path: Path) -> None:
    one, other = jobs.run("runs.decide", 2, directory=tmp_path)
    assert one == other
    *saved, disagree, steps = one
    # By the clock of process 1 every step would be saved.
    assert saved == [True, False, False, True, True, True]
    assert steps == [0, 3, 4, 5]
    assert disagree[0] == "ProcessesDisagree"


def test_a_save_that_only_some_come_to_is_an_error_and_the_run_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    one, other = jobs.run("runs.miscount", 2, directory=tmp_path)
    assert [one[0], one[2]] == [False, False]
    assert [other[0], other[1], other[3]] == [False, False, False]
    for error, missing, step in ((one[1], 1, 2), (one[3], 1, 4), (other[2], 0, 3)):
        assert error[0] == "ProcessFailed"
        assert f"process {missing} did not come to save {tmp_path / str(step)} (created)" in error[1]
    assert one[4] == other[4] == [True, [0, 6]]
    assert sorted(os.listdir(tmp_path)) == ["0", "6"]


def test_sigterm_to_one_makes_all_save_the_same_step_and_leave(jobs: Jobs, tmp_path: Path) -> None:
    one, other = jobs.run("runs.preempted", 2, directory=tmp_path)
    step, latest, good = one
    assert one == other
    assert (latest, good) == (step, True)
    assert os.listdir(tmp_path) == [str(step)]
