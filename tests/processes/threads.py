"""Threads as the processes of a job: a clock that stands still, a service in memory, any order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import storax
from storax.processes import Attendance, Joined


class Clock:
    """Time passes only while somebody waits in vain."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Keys:
    """The coordination service, in memory. Waiting for who will not come takes no time."""

    def __init__(self, absent: frozenset[int], clock: Clock) -> None:
        self.values: dict[str, str] = {}
        self.absent = set(absent)
        self.sigterm = False
        # Of a key below a gathering, such as "written/1", which other one is set before it.
        self.after: dict[str, str] = {}
        self._changed = threading.Condition()
        self._clock = clock

    def set(self, key: str, value: str) -> None:
        with self._changed:
            first = self.after.get(key.partition("/")[2].partition("/")[2].partition("/")[2])
            if first is not None:
                assert self._changed.wait_for(lambda: any(k.endswith(first) for k in self.values), timeout=20)
            assert key not in self.values, "a key is set once"
            self.values[key] = value
            self._changed.notify_all()

    def wait(self, key: str, seconds: float) -> str | None:
        who = key.rpartition("/")[2]
        index = 0 if who == "verdict" else int(who)
        with self._changed:
            assert self._changed.wait_for(lambda: key in self.values or index in self.absent, timeout=20)
            if key not in self.values:
                self._clock.now += seconds
            return self.values.get(key)

    def leave(self, index: int) -> None:
        """From now on a process does not come any more."""
        with self._changed:
            self.absent.add(index)
            self._changed.notify_all()

    def below(self, directory: str) -> list[str]:
        with self._changed:
            return [value for key, value in self.values.items() if key.startswith(directory + "/")]

    def delete(self, directory: str) -> None:
        with self._changed:
            self.values = {k: v for k, v in self.values.items() if not k.startswith(directory + "/")}

    def warned(self) -> bool:
        return self.sigterm


class Job:
    """Threads as the processes of one job."""

    def __init__(self, count: int, absent: frozenset[int] = frozenset(), timeout: float = 60.0) -> None:
        self.clock = Clock()
        self.keys = Keys(absent, self.clock)
        self._all = [
            Joined(i, count, self.keys, timeout, 30.0, self.clock, Attendance()) for i in range(count)
        ]

    def run(self, act: Callable[[Joined], Any], *only: int) -> dict[int, Any]:
        """What each process that takes part gets, or the error that it gets."""
        found: dict[int, Any] = {}

        def one(process: Joined) -> None:
            try:
                found[process.index] = act(process)
            except storax.StoraxError as error:
                found[process.index] = error

        there = [p for p in self._all if p.index not in self.keys.absent and (not only or p.index in only)]
        threads = [threading.Thread(target=one, args=(process,)) for process in there]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found
