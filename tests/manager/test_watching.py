"""Evaluators: waiting for steps that another process saves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import storax
from storax.manager import checkpoints_iterator, wait_for_new_checkpoint
from storax.store import commit


class Clock:
    """Seconds that pass only while somebody pauses; what is due meanwhile happens."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, int]] = []
        self.directory = Path()

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        while self.due and self.due[0][0] <= self.now:
            save(self.directory, self.due.pop(0)[1])


def save(directory: Path, step: int) -> None:
    with storax.CheckpointManager(directory) as mngr:
        mngr.save(step, args=storax.args.StandardSave({"w": np.full(2, step)}), force=True)


def test_the_newest_step_comes_each_time_and_is_held_open(tmp_path: Path) -> None:
    clock = Clock()
    clock.directory = tmp_path
    clock.due = [(3.0, 1), (5.0, 2), (5.0, 3), (20.0, 4)]
    seen = []
    steps = checkpoints_iterator(tmp_path, timeout=30, clock=clock, pause=clock.pause)
    for step in steps:
        seen.append((step, clock.now))
        assert commit.is_leased(tmp_path / str(step))
    assert seen == [(1, 3.0), (3, 5.0), (4, 20.0)]
    assert not commit.is_leased(tmp_path / "4")


def test_steps_do_not_come_too_fast(tmp_path: Path) -> None:
    clock = Clock()
    clock.directory = tmp_path
    save(tmp_path, 1)
    clock.due = [(1.0, 2), (2.0, 3)]
    found = [
        (step, clock.now)
        for step in checkpoints_iterator(
            tmp_path, min_interval_secs=10, timeout=1, clock=clock, pause=clock.pause
        )
    ]
    assert found == [(1, 0.0), (3, 10.0)]


def test_the_caller_decides_what_a_timeout_means(tmp_path: Path) -> None:
    clock = Clock()
    asked = []

    def timeout_fn() -> bool:
        asked.append(clock.now)
        return len(asked) == 3

    step = wait_for_new_checkpoint(
        tmp_path / "not yet", timeout=5, timeout_fn=timeout_fn, clock=clock, pause=clock.pause
    )
    assert step == -1
    assert len(asked) == 3


def test_a_step_that_is_new_enough_is_waited_for(tmp_path: Path) -> None:
    clock = Clock()
    clock.directory = tmp_path
    save(tmp_path, 1)
    clock.due = [(4.0, 7)]
    assert wait_for_new_checkpoint(tmp_path, until_step=5, clock=clock, pause=clock.pause) == 7


_SAVER = """
import sys, numpy as np, storax
mngr = storax.CheckpointManager(sys.argv[1])
for line in sys.stdin:
    mngr.save(int(line), args=storax.args.StandardSave({"w": np.full(2, int(line))}))
    mngr.wait_until_finished()
    print(line.strip(), flush=True)
"""


def test_a_reader_sees_the_steps_of_another_process_at_once(tmp_path: Path) -> None:
    reader = storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(read_only=True))
    with subprocess.Popen(
        [sys.executable, "-c", _SAVER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as saver:
        assert saver.stdin is not None
        assert saver.stdout is not None
        for step in (1, 4):
            saver.stdin.write(f"{step}\n")
            saver.stdin.flush()
            assert saver.stdout.readline() == f"{step}\n"
            assert reader.latest_step() == step
            assert reader.restore(step)["w"].tolist() == [step, step]
        saver.stdin.close()
