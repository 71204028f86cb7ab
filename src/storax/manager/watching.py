"""Waiting for steps that another process saves: what an evaluator needs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

from storax.manager.options import NumberedSteps, StepNames
from storax.manager.steps import StepDirectory
from storax.store import commit
from storax.store.paths import resolve


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def wait_for_new_checkpoint(
    checkpoint_dir: str | os.PathLike[str],
    *,
    until_step: int | None = None,
    seconds_to_sleep: float = 1.0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    step_prefix: str | None = None,
    step_format_fixed_length: int | None = None,
    step_names: StepNames | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = _pause,
) -> int:
    """Waits for a step of another process, and returns its number, or -1 if none came in time.

    Args:
      checkpoint_dir: the run's directory; it may not exist yet.
      until_step: the step must be at least this.
      seconds_to_sleep: between two looks at the directory.
      timeout: seconds to wait; None waits for ever, unless ``timeout_fn`` ends it.
      timeout_fn: asked when the time is over; True ends the waiting, otherwise it goes on.
      step_prefix, step_format_fixed_length, step_names: as for ``CheckpointManager``.
      clock, pause: the time, in seconds, and how to wait.
    """
    names = step_names or NumberedSteps(step_prefix, step_format_fixed_length)
    steps = StepDirectory(resolve(checkpoint_dir), names)
    begun = clock()
    while True:
        latest = max(steps.paths(), default=None)
        if latest is not None and (until_step is None or latest >= until_step):
            return latest
        over = timeout is not None and clock() + seconds_to_sleep > begun + timeout
        if over:
            if timeout_fn is None or timeout_fn():
                return -1
            begun = clock()
        pause(seconds_to_sleep)


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    *,
    min_interval_secs: float = 0,
    seconds_to_sleep: float = 1.0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    step_prefix: str | None = None,
    step_format_fixed_length: int | None = None,
    step_names: StepNames | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = _pause,
) -> Iterator[int]:
    """The newest step, again and again as newer ones come; steps in between are passed over.

    While the body of the loop runs, no manager on this file system deletes the step.

    Args:
      checkpoint_dir: the run's directory; it may not exist yet.
      min_interval_secs: the least time between two steps.
      timeout: seconds to wait for a step; when none comes, the loop ends.
      timeout_fn: asked when the time is over; True ends the loop, otherwise it goes on.
      seconds_to_sleep, step_prefix, step_format_fixed_length, step_names, clock, pause: as for
        ``wait_for_new_checkpoint``.
    """
    names = step_names or NumberedSteps(step_prefix, step_format_fixed_length)
    steps = StepDirectory(resolve(checkpoint_dir), names)
    until: int | None = None
    while True:
        step = wait_for_new_checkpoint(
            checkpoint_dir,
            until_step=until,
            seconds_to_sleep=seconds_to_sleep,
            timeout=timeout,
            timeout_fn=timeout_fn,
            step_names=names,
            clock=clock,
            pause=pause,
        )
        if step == -1:
            return
        begun = clock()
        path = steps.paths().get(step)
        if path is None:
            continue  # deleted just now; there is a newer one, or there will be
        with commit.lease(path):
            if not commit.is_committed(path):
                continue
            yield step
        until = step + 1
        if (left := begun + min_interval_secs - clock()) > 0:
            pause(left)
