"""What the processes of a job run with a ``CheckpointManager``."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from tests.processes.programs import Say, attempt, small
from tests.processes.troubles import same

import storax
from storax.manager import CheckpointManager, ManagerOptions
from storax.plan import cadence
from storax.processes import present, wait_for_all


def _save(manager: CheckpointManager, step: int, **more: Any) -> bool:
    saved = manager.save(step, args=storax.args.StandardSave(small(step)), **more)
    manager.wait_until_finished()
    return saved


def manage(say: Say, index: int, directory: str) -> None:
    """Retention, metrics, deletion, pins and the run's own metadata, as every process sees them."""
    run = Path(directory)
    options = ManagerOptions(max_to_keep=2, barrier_timeout=20)
    with CheckpointManager(run / "newest", options=options, metadata={"seed": 3}) as manager:
        for step in (1, 2, 3):
            _save(manager, step)
            say([manager.all_steps(), manager.latest_step()])
        manager.pin(2, "the paper's")
        _save(manager, 4)
        _save(manager, 5)
        say(manager.all_steps())
        manager.unpin(2)
        manager.delete(4)
        say(manager.all_steps())
        say(attempt(lambda: manager.delete(9)))
        say(attempt(lambda: manager.delete(5 if index else 2)))
        say([manager.apply_retention(), manager.metadata()])
        say(same(manager.restore(args=storax.args.StandardRestore(small(0))), small(5)))
    best = ManagerOptions(
        max_to_keep=1, best_fn=lambda m: m["loss"], best_mode="min", keep_newest=False, barrier_timeout=20
    )
    with CheckpointManager(run / "best", options=best) as manager:
        for step, loss in enumerate((3.0, 1.0, 2.0)):
            _save(manager, step, metrics={"loss": loss})
            say([manager.all_steps(), manager.best_step()])


def decide(say: Say, index: int, directory: str) -> None:
    """Policies that ask for the time and for what runs: the processes' clocks differ by an hour."""
    options = ManagerOptions(
        save_policy=cadence.AnySave([cadence.AtMostEvery(1790), cadence.OnPreemption()]), barrier_timeout=20
    )
    now = [time.time() + 3600 * index]
    with CheckpointManager(directory, options=options, clock=lambda: now[0]) as manager:
        for step in range(6):
            say(_save(manager, step))
            now[0] += 600
        say(attempt(lambda: manager.should_save(100 + index)))
        say(manager.all_steps())


def miscount(say: Say, index: int, directory: str) -> None:
    """Process 1 saves every third step and process 0 every second; then both every step."""
    options = ManagerOptions(save_interval_steps=2 + index, barrier_timeout=1)
    with CheckpointManager(directory, options=options) as manager:
        _save(manager, 0)
        for step in (1, 2, 3, 4):
            result = attempt(lambda step=step: _save(manager, step))
            wait_for_all(present(room="test"), f"step {step}")
            say(result)
    after = ManagerOptions(barrier_timeout=20)
    with CheckpointManager(directory, options=after) as manager:
        say([_save(manager, 6), manager.all_steps()])


def preempted(say: Say, index: int, directory: str) -> None:
    """SIGTERM comes to process 1 alone; all leave the loop at the same step, and it is saved."""
    pause = threading.Event()
    options = ManagerOptions(save_interval_steps=1000, grace_seconds=20)
    with CheckpointManager(directory, options=options) as manager:
        for step in range(1, 3000):
            if step == 5 and index == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            if manager.reached_preemption(step):
                manager.save(step, args=storax.args.StandardSave(small(step)), force=True)
                break
            pause.wait(0.005)
    found = manager.restore(step, args=storax.args.StandardRestore(small(0)))
    say([step, manager.latest_step(), same(found, small(step))])
