"""Work on a few threads with nothing left behind, and a limit on the bytes that are in flight."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

# Enough to keep a disk busy while checksums are computed; more threads only take turns.
WORKERS = max(2, min(8, os.cpu_count() or 1))


# What reads and copies may hold besides their final memory, unless the caller says otherwise.
DEFAULT_BUDGET = 1 << 30


class Budget:
    """Bytes that may be in flight at once.

    One that is larger than the whole budget still goes ahead, alone: otherwise it never could.
    A thread that holds some already does not wait for more: others may be waiting for it.
    """

    def __init__(self, nbytes: int = DEFAULT_BUDGET) -> None:
        self._most = nbytes
        self._held = 0
        self._changed = threading.Condition()
        self._mine = threading.local()

    @contextlib.contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """Waits until there is room for so many bytes, and holds them."""
        before = getattr(self._mine, "held", 0)
        with self._changed:
            if not before:
                self._changed.wait_for(lambda: not self._held or self._held + nbytes <= self._most)
            self._held += nbytes
        self._mine.held = before + nbytes
        try:
            yield
        finally:
            self._mine.held = before
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()


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
            # Whoever watches or traces this work (progress.py, tracing.py) does so on every thread.
            within = contextvars.copy_context().run
            thread = threading.Thread(target=within, args=(work,), name="storax-worker")
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
