"""How far a long work is, in bytes: for a callback, a bar on a terminal, or lines in a log.

Who does the work says ``expect`` and ``advance``; who wants to know says ``watching``. In between
there may be threads: they inherit the watcher (see ``store/budget.py``).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

Callback = Callable[[int, int], None]
Progress = bool | Callback
"""Whether to show a bar, or what to call with the bytes done and the bytes in all."""

_REDRAW_SECONDS = 0.1
# What ends sooner needs no progress.
_QUIET_SECONDS = 0.5
_WIDTH = 28


class _Meter:
    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._done = 0
        self._total = 0

    def change(self, done: int, total: int) -> None:
        with self._lock:
            self._done += done
            self._total += total
            self._callback(self._done, self._total)

    def settle(self) -> None:
        with self._lock:
            self._done = self._total
            self._callback(self._done, self._total)


_meter: ContextVar[_Meter | None] = ContextVar("storax_progress", default=None)


@contextlib.contextmanager
def watching(progress: Progress, what: str = "") -> Iterator[None]:
    """Lets somebody watch the work within.

    Args:
      progress: False for nobody, which leaves a watcher further out in place; True for a bar on
        ``sys.stderr``; or a callback with the bytes done and in all, called on any thread, one at a time.
      what: is done; a bar shows it.
    """
    if progress is False:
        yield
        return
    bar = Bar(what) if progress is True else None
    before = _meter.set(_Meter(bar or progress))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _meter.reset(before)
        if bar is not None:
            bar.close()


def expect(nbytes: int) -> None:
    """So many more bytes are to be done."""
    if (meter := _meter.get()) is not None:
        meter.change(0, nbytes)


def advance(nbytes: int) -> None:
    """So many more bytes are done."""
    if (meter := _meter.get()) is not None:
        meter.change(nbytes, 0)


def settle() -> None:
    """All that was expected so far is done, also what nobody counted."""
    if (meter := _meter.get()) is not None:
        meter.settle()


# --- showing it ----------------------------------------------------------------------------------


class Bar:
    """A callback that draws: on a terminal one line that changes, elsewhere a line per tenth."""

    def __init__(self, what: str, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self._what = what
        self._out: Any = out or sys.stderr
        self._clock = clock
        self._began = clock()
        self._drawn = -1.0
        self._tenth = 0
        self._last = (0, 0)
        self._is_terminal = bool(self._out.isatty())

    def __call__(self, done: int, total: int) -> None:
        self._last = done, total
        now = self._clock()
        if now - self._began < _QUIET_SECONDS:
            return
        if not self._is_terminal:
            self._log(done, total, now)
        elif now - self._drawn >= _REDRAW_SECONDS:
            self._draw(done, total, now)

    def close(self) -> None:
        """The last state, and the end of the line."""
        if self._is_terminal and self._drawn >= 0:
            self._draw(*self._last, self._clock())
            self._out.write("\n")
            self._out.flush()

    def _log(self, done: int, total: int, now: float) -> None:
        tenth = 10 * done // total if total else 0
        if tenth > self._tenth:
            self._tenth = tenth
            self._out.write(f"{self._what}: {10 * tenth}%, {self._amounts(done, total, now)}\n")
            self._out.flush()

    def _draw(self, done: int, total: int, now: float) -> None:
        self._drawn = now
        full = round(_WIDTH * done / total) if total else 0
        bar = "━" * full + "─" * (_WIDTH - full)
        percent = 100 * done // total if total else 0
        self._out.write(f"\r\x1b[2K{self._what} {bar} {percent:3}% {self._amounts(done, total, now)}")
        self._out.flush()

    def _amounts(self, done: int, total: int, now: float) -> str:
        seconds = max(now - self._began, 1e-9)
        return f"{readable(done)} of {readable(total)}, {readable(done / seconds)}/s"


def readable(nbytes: float) -> str:
    """Bytes as people read them.

    >>> readable(512), readable(1536), readable(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if nbytes < 1024:
        return f"{nbytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        nbytes /= 1024
        if nbytes < 1024 or unit == "TiB":
            break
    return f"{nbytes:.1f} {unit}" if nbytes < 100 else f"{nbytes:.0f} {unit}"
