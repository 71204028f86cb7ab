"""The processes of one job, and how they agree: a few barriers that carry messages and errors.

A save has three of them. At each, every process hands in a short message, process 0 looks at all of
them and gives one verdict, which every process gets. They go through the coordination service of
``jax.distributed``, which needs no device, so a thread in the background may wait in them.

A process that fails hands in its error instead; one that never comes is found missing after a while.
Either way every survivor gets an error that names the processes and their reasons.

Meetings are numbered, and every process counts them for itself. One that missed a meeting finds that
it is over, and counts on; so after a failure the next save finds all processes together again.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from storax import errors
from storax.errors import ProcessFailed, StoraxError
from storax.processes.contract import DEFAULT_GRACE, DEFAULT_TIMEOUT, MOST_NAMED, Judge, Message, named

# A wait is cut into pieces of this length, so that a signal can end it.
_SLICE = 1.0


class Service(Protocol):
    """What is needed of a coordination service: keys that are set once and can be waited for."""

    def set(self, key: str, value: str) -> None: ...

    def wait(self, key: str, seconds: float) -> str | None:
        """The value of a key, or None if it has none after so many seconds."""
        ...

    def below(self, directory: str) -> list[str]:
        """The values of all keys that begin with a name and a slash."""
        ...

    def delete(self, directory: str) -> None:
        """Deletes all keys that begin with a name and a slash."""
        ...

    def warned(self) -> bool:
        """Whether a process of the job was told to stop (SIGTERM)."""
        ...


@dataclass(eq=False)
class Attendance:
    """How far a process has come: which meeting is its next one, and which were cleared away."""

    turn: threading.RLock = field(default_factory=threading.RLock)
    next: int = 0
    cleared: int = 0
    about: str = ""
    warned: float | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Processes joined by a coordination service.

    Attributes:
      timeout: seconds that a barrier waits for the last process.
      grace: seconds that it waits at most, when SIGTERM has come to one of the processes.
      clock: seconds, as ``time.monotonic``.
      attendance: of this process in the room; the same for all that are made in it.
      room: what meets in one room waits for one another; what must not wait has a room of its own.
    """

    index: int
    count: int
    service: Service
    timeout: float = DEFAULT_TIMEOUT
    grace: float = DEFAULT_GRACE
    clock: Callable[[], float] = time.monotonic
    attendance: Attendance = field(default_factory=Attendance)
    room: str = "saves"

    @contextlib.contextmanager
    def gathering(self, about: str) -> Iterator[str]:
        attendance = self.attendance
        with attendance.turn:
            while True:
                place = self._place(attendance.next)
                attendance.next += 1
                attendance.about = about
                over = [json.loads(text) for text in self.service.below(f"{place}/over")]
                for known in over:
                    if known["about"] == about:
                        raise ProcessFailed(
                            f"process {self.index} came too late to {about}: {known['error']} Save again."
                        )
                if not over:
                    break
            yield place

    def meet(self, place: str, message: Message, judge: Judge) -> Message:
        begun = self.attendance.next - 1
        self._hand_in(place, {"message": dict(message), "begun": begun})
        if self.index == 0:
            verdict = self._verdict(place, judge)
            self.service.set(f"{place}/verdict", json.dumps(verdict))
        else:
            verdict = self._wait_for_verdict(place)
        if "error" in verdict:
            raise _error(verdict)
        found: Message = verdict["message"]
        return found

    def fail(self, place: str, error: BaseException) -> BaseException:
        told = {"error": _reason(error), "kind": type(error).__name__}
        with contextlib.suppress(StoraxError):
            self._hand_in(place, told)
            if self.index == 0:
                text = f"a process failed. process 0: {told['error']}"
                self.service.set(f"{place}/verdict", json.dumps({**told, "error": text}))
            elif isinstance(error, Exception) and (known := self.service.wait(f"{place}/verdict", 0.01)):
                verdict = json.loads(known)
                if "error" in verdict:
                    return _error(verdict)
        return error

    def _hand_in(self, place: str, told: Message) -> None:
        self.service.set(f"{place}/{self.index}", json.dumps(told))

    def _wait_for_verdict(self, place: str) -> dict[str, Any]:
        word = self._called(place)
        if self._wait(f"{place}/0", self.timeout) is None:
            raise self._give_up(
                place, f"process 0 did not come to {word} {self._in_time()}: it died, hangs, or does "
                "something else."
            )  # fmt: skip
        # It may now wait as long for the last of the others, and then needs a moment to judge.
        text = self._wait(f"{place}/verdict", self.timeout + max(_SLICE, self.timeout / 10))
        if text is None:
            raise self._give_up(place, f"process 0 came to {word} and gave no verdict: it died or hangs.")
        verdict: dict[str, Any] = json.loads(text)
        return verdict

    def _give_up(self, place: str, error: str) -> ProcessFailed:
        self._mark_over(place, error)
        return ProcessFailed(error)

    def _mark_over(self, place: str, error: str) -> None:
        known = {"about": self.attendance.about, "error": error}
        gathering = place.rpartition("/")[0]
        self.service.set(f"{gathering}/over/{place.rpartition('/')[2]} {self.index}", json.dumps(known))

    def _called(self, place: str) -> str:
        """A barrier, as messages call it."""
        return f"{self.attendance.about} ({place.rpartition('/')[2]})"

    def _verdict(self, place: str, judge: Judge) -> dict[str, Any]:
        deadline = self.clock() + self.timeout
        told: dict[int, dict[str, Any]] = {}
        missing = []
        for index in range(self.count):
            text = self._wait(f"{place}/{index}", max(0.0, deadline - self.clock()))
            if text is None:
                missing.append(index)
            else:
                told[index] = json.loads(text)
        failed = {index: one for index, one in told.items() if "error" in one}
        if missing:
            error = f"{named(missing)} did not come to {self._called(place)} {self._in_time()}."
            if failed:
                error = f"{error} And {_reasons(failed)}."
            self._mark_over(place, error)
            return {"error": error}
        if failed:
            kinds = {one["kind"] for one in failed.values()}
            kind = kinds.pop() if len(kinds) == 1 else None
            return {"error": f"a process failed. {_reasons(failed)}", "kind": kind}
        self._clear(min(one["begun"] for one in told.values()))
        try:
            return {"message": dict(judge([told[index]["message"] for index in range(self.count)]))}
        except Exception as error:
            return {"error": _reason(error), "kind": type(error).__name__}

    def _clear(self, begun: int) -> None:
        """Deletes the keys of meetings that every process has left: a service keeps all it is given."""
        while self.attendance.cleared < begun:
            self.service.delete(self._place(self.attendance.cleared))
            self.attendance.cleared += 1

    def _in_time(self) -> str:
        if self.attendance.warned is not None:
            return f"within {self.grace:,.0f} s after SIGTERM came to the job"
        return f"within {self.timeout:,.0f} s"

    def _place(self, number: int) -> str:
        return f"storax/{self.room}/{number}"

    def _wait(self, key: str, seconds: float) -> str | None:
        begun = self.clock()
        while True:
            left = self._end(begun, seconds) - self.clock()
            value = self.service.wait(key, max(0.01, min(_SLICE, left)))
            if value is not None or self.clock() >= self._end(begun, seconds):
                return value

    def _end(self, begun: float, seconds: float) -> float:
        """When a wait ends: sooner, if the machines are about to be taken away."""
        attendance = self.attendance
        if attendance.warned is None and self.service.warned():
            attendance.warned = self.clock()
        if attendance.warned is None:
            return begun + seconds
        return min(begun + seconds, max(begun, attendance.warned) + self.grace)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, StoraxError) else f"{type(error).__name__}: {error}"


def _reasons(failed: Mapping[int, Message]) -> str:
    shown = [f"process {index}: {one['error']}" for index, one in list(failed.items())[:MOST_NAMED]]
    return "; ".join(shown) + (f"; and {len(failed) - len(shown)} more" if len(failed) > len(shown) else "")


def _error(verdict: Message) -> StoraxError:
    """The error of a verdict, of the same type on every process."""
    kind = getattr(errors, str(verdict.get("kind")), None)
    if isinstance(kind, type) and issubclass(kind, StoraxError):
        return kind(verdict["error"])
    return ProcessFailed(verdict["error"])
