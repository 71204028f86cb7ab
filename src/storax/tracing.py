"""Where a save or a load spends its time: spans, written as a trace that Perfetto opens.

Off unless somebody asks, with ``trace=path`` or the variable ``STORAX_TRACE``; a span then costs a
look-up. A trace is a JSON array of events in the Chrome trace event format. Many saves, loads and
processes may add to one file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any

VARIABLE = "STORAX_TRACE"

_log = logging.getLogger("storax")
_END = b"\n]\n"


class _Recorder:
    """The events of one save or load, in this process."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.threads: dict[int, str] = {}
        # Spans are measured with the steady clock, and put where the wall clock said that we began,
        # so that the processes of a job line up.
        self._began = time.time_ns() - time.perf_counter_ns()

    def add(self, name: str, begin_ns: int, what: dict[str, Any]) -> None:
        now = time.perf_counter_ns()
        thread = threading.get_native_id()
        self.threads.setdefault(thread, threading.current_thread().name)
        event = {
            "name": name,
            "cat": "storax",
            "ph": "X",
            "ts": (self._began + begin_ns) / 1e3,
            "dur": (now - begin_ns) / 1e3,
            "pid": os.getpid(),
            "tid": thread,
        }
        if what:
            event["args"] = what
        self.events.append(event)

    def named_threads(self) -> list[dict[str, Any]]:
        return [
            {"name": "thread_name", "ph": "M", "pid": os.getpid(), "tid": tid, "args": {"name": name}}
            for tid, name in self.threads.items()
        ]


class _Span:
    def __init__(self, recorder: _Recorder, name: str, what: dict[str, Any]) -> None:
        self._recorder = recorder
        self._name = name
        self._what = what

    def __enter__(self) -> None:
        self._begin = time.perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._what = {**self._what, "failed": kind.__name__}
        self._recorder.add(self._name, self._begin, self._what)


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()
_recorder: ContextVar[_Recorder | None] = ContextVar("storax_trace", default=None)


def span(name: str, **what: Any) -> _Span | _Nothing:
    """Something that takes time, in a ``with`` statement.

    Args:
      name: one of a few words, such as ``write``.
      what: numbers and texts that the trace shows beside it.
    """
    recorder = _recorder.get()
    return _NOTHING if recorder is None else _Span(recorder, name, what)


@contextlib.contextmanager
def recording(path: str | os.PathLike[str] | None, name: str, **what: Any) -> Iterator[None]:
    """Records what happens within, on all threads that it starts, and adds it to a file at the end.

    Within another recording it is one more span of that one.

    Args:
      path: of the file; None is the file that ``STORAX_TRACE`` names, if it is set. A relative path
        is below the directory that is the current one when the recording begins.
      name, what: as for ``span``.
    """
    chosen = trace_file(path)
    if chosen is None or _recorder.get() is not None:
        with span(name, **what):
            yield
        return
    recorder = _Recorder()
    before = _recorder.set(recorder)
    try:
        with span(name, **what):
            yield
    finally:
        _recorder.reset(before)
        _append(chosen, recorder)


def trace_file(path: str | os.PathLike[str] | None) -> str | None:
    """The absolute path of the file to write a trace to, as things are now; None if nobody asks for one.

    What records later, in the background, is given this: the current directory may change until then.
    """
    chosen = path or os.environ.get(VARIABLE)
    return os.path.abspath(os.path.expanduser(chosen)) if chosen else None


def _append(path: str, recorder: _Recorder) -> None:
    """Adds events to a file, so that it is a whole JSON array at any time that nobody holds its lock."""
    events = [*recorder.named_threads(), *recorder.events]
    text = ",\n".join(json.dumps(event, default=str) for event in events).encode() + _END
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            if size > len(_END):
                file.seek(size - len(_END))
                if file.read() != _END:
                    raise ValueError("it is there and is not a trace")
                file.seek(size - len(_END))
            file.write((b",\n" if size else b"[\n") + text)
    except (OSError, ValueError) as error:
        # What was traced went well or badly on its own account.
        _log.warning("the trace %s was not written: %s", path, error)
