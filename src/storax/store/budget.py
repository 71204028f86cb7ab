"""Doing independent pieces of work on a few threads, with nothing left behind."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

# Enough to keep a disk busy while checksums are computed; more threads only take turns.
WORKERS = max(2, min(8, os.cpu_count() or 1))


def run_all(tasks: Sequence[Callable[[], None]], workers: int) -> None:
    """Runs each task once, on up to ``workers`` threads, of which the caller's is one.

    Returns when all threads have ended. After a task has failed no further one is started,
    and the first exception is raised again here.

    These are plain threads and no executor, since an executor refuses work while the
    interpreter shuts down, when a save may still be running. Where no thread can be started,
    the caller does the work alone.
    """
    waiting = deque(tasks)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not failed:
                try:
                    task = waiting.popleft()
                except IndexError:
                    return
                task()
        except BaseException as error:
            failed.append(error)

    threads: list[threading.Thread] = []
    try:
        for _ in range(min(workers, len(tasks)) - 1):
            thread = threading.Thread(target=work, name="storax-worker")
            try:
                thread.start()
            except RuntimeError:
                break
            threads.append(thread)
        work()
    finally:
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
