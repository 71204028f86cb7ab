"""Deleting steps in the background: each leaves its name at once, its files go as slowly as is asked.

A step that has left its name has the name of a dead draft, so what a crash or the end of the
process leaves of it, the next manager deletes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from storax.store import commit

_log = logging.getLogger("storax")


class Pace:
    """At most so many files a second.

    Args:
      per_second: None sets no limit.
      clock: seconds, as ``time.monotonic``.
      wait: waits for so many seconds, or less if it is woken.
    """

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object],
    ) -> None:
        self._apart = 0.0 if per_second is None else 1.0 / per_second
        self._clock = clock
        self._wait = wait
        self._next = clock()

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self._apart > 0

    def pause(self) -> None:
        """Waits until the next file may go."""
        if not self._apart:
            return
        if (left := self._next - self._clock()) > 0:
            self._wait(left)
        self._next = max(self._next, self._clock()) + self._apart


class Deletion:
    """Deletes what ``commit.retire`` left, in a thread that lives while there is something to do.

    Args:
      per_second: how many files at most in a second; None sets no limit.
    """

    def __init__(self, per_second: float | None = None) -> None:
        self._hurry = threading.Event()
        self._pace = Pace(per_second, wait=self._wait)
        self._lock = threading.Lock()
        self._waiting: deque[Path] = deque()
        self._thread: threading.Thread | None = None

    def add(self, retired: Path) -> None:
        """Lets the files of a step go; returns at once."""
        with self._lock:
            self._waiting.append(retired)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="storax-delete", daemon=False)
                self._thread.start()

    def finish(self) -> None:
        """Waits until all is deleted, from now on without a limit."""
        self._hurry.set()
        while (thread := self._thread) is not None:
            thread.join()
        self._hurry.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                path = self._waiting.popleft()
            try:
                commit.delete_retired(path, self._may_go_on)
            except Exception as error:
                # The step is gone from its name already; the next manager tries again.
                _log.warning("%s is not deleted yet: %s", path, error)

    def _may_go_on(self) -> bool:
        if not self._hurry.is_set():
            self._pace.pause()
        return self._hurry.is_set() or not self._leaving()

    def _leaving(self) -> bool:
        """Whether the process ends and a limit is set: then the rest is left to the next manager."""
        return self._pace.limited and not threading.main_thread().is_alive()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._leaving():
            if self._hurry.wait(min(left, 0.2)):
                return
