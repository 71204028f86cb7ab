"""A save in the background: one thread, owned by its handle, that the process waits for before it ends."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from storax.errors import in_context


@dataclass(eq=False)
class SaveHandle:
    """A save that runs in the background. Make one with ``save_async``."""

    # An event, and never a join: Ctrl+C during a join makes Python before 3.13 take the thread for ended,
    # and then the process ends without it.
    _ended: threading.Event = field(repr=False)
    _errors: list[BaseException] = field(default_factory=list)
    _asked: bool = False

    def result(self, timeout: float | None = None) -> None:
        """Waits until the checkpoint is durable.

        Args:
          timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
          TimeoutError: it still runs after ``timeout`` seconds.
          Exception: what made the save fail, with its type.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the save still runs after {timeout} s")
        self._asked = True
        if self._errors:
            raise self._errors[0]

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()


# The newest save, and those that failed and whose result nobody has asked for.
_lock = threading.Lock()
_running: SaveHandle | None = None
_failed: list[SaveHandle] = []


def start(act: Callable[[], None], *, what: str) -> SaveHandle:
    """Runs an act in a thread of its own, which the process waits for before it ends."""
    global _running
    with _lock:
        if _running is None:
            atexit.register(_report_at_exit)
        errors: list[BaseException] = []
        ended = threading.Event()
        acts = [act]

        def run() -> None:
            try:
                acts.pop()()  # nobody else has it: the staged values are freed before the save has ended
            except BaseException as error:
                errors.append(in_context(error, what))
                _failed.append(handle)
            finally:
                ended.set()

        # Not a daemon: the interpreter joins it at the end, also after an exception or Ctrl+C.
        thread = threading.Thread(target=run, name="storax-save", daemon=False)
        handle = SaveHandle(ended, errors)
        thread.start()
        _running = handle
        return handle


def wait_for_running() -> None:
    """Waits for the newest save of this process, whatever becomes of it."""
    with _lock:
        running = _running
    if running is not None:
        running._ended.wait()


def _report_at_exit() -> None:
    """The last chance to say that a save failed: the message, and exit code 1."""
    wait_for_running()
    unasked = [handle for handle in _failed if not handle._asked]
    if not unasked:
        return
    for handle in unasked:
        said = "".join(traceback.format_exception_only(handle._errors[0]))  # with its notes
        sys.stderr.write(f"storax: a save in the background failed. {said}")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # An exception in an exit handler does not change the exit code; only this does.
    os._exit(1)
