"""A save in the background: one thread, owned by its handle, that the process waits for before it ends.

One save of a process runs at a time, whoever begins it: a save first waits for its *turn*, then
copies what must be copied, then writes, here or in a thread that gives the turn back at the end.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from storax.errors import BadOption, StoraxError, in_context


@dataclass(eq=False)
class SaveHandle:
    """A save that runs in the background. Make one with ``save_async``."""

    what: str
    # An event, and never a join: Ctrl+C during a join makes Python before 3.13 take the thread for ended,
    # and then the process ends without it.
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)
    _errors: list[BaseException] = field(default_factory=list, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def result(self, timeout: float | None = None) -> None:
        """Waits until the checkpoint is durable.

        Args:
          timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
          TimeoutError: it still runs after ``timeout`` seconds.
          BadOption: the save itself waits for itself, in a callback.
          Exception: what made the save fail, with its type.
        """
        if threading.current_thread() is self._thread and not self.done():
            raise BadOption(f"{self.what} cannot wait for itself; wait for it in another thread")
        if not self._ended.wait(timeout):
            raise TimeoutError(f"{self.what} still runs after {timeout} s")
        with contextlib.suppress(ValueError):
            _unasked.remove(self)
        if self._errors:
            raise self._errors[0]

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()


@dataclass(eq=False)
class Turn:
    """The right to save. ``nested`` if a save that has it already begins another one, in a callback."""

    nested: bool = False
    passed_on: bool = False


_changed = threading.Condition()
# The thread whose turn it is.
_holder: threading.Thread | None = None
# Saves that failed and whose result nobody has asked for.
_unasked: list[SaveHandle] = []


@contextlib.contextmanager
def turn() -> Iterator[Turn]:
    """Waits until no other save of this process runs, and holds others off; ``start`` may take it over."""
    global _holder
    me = threading.current_thread()
    if _holder is me:
        yield Turn(nested=True)
        return
    with _changed:
        _changed.wait_for(lambda: _holder is None)
        _holder = me
    mine = Turn()
    try:
        yield mine
    finally:
        if not mine.passed_on:
            _give_back()


def _give_back() -> None:
    global _holder
    with _changed:
        _holder = None
        _changed.notify_all()


def start(act: Callable[[], None], *, what: str, turn: Turn) -> SaveHandle:
    """Runs an act in a thread of its own, which the process waits for before it ends.

    Args:
      act: nobody else may keep it, so that what it holds is freed when it has ended.
      what: for messages.
      turn: handed over to the thread.
    """
    global _holder
    handle = SaveHandle(what)
    acts = [act]

    def run() -> None:
        try:
            acts.pop()()
        except BaseException as error:
            handle._errors.append(in_context(_without_frames(error), what))
            _unasked.append(handle)
        finally:
            if not turn.nested:
                _give_back()
            handle._ended.set()

    # Not a daemon: the interpreter joins it at the end, also after an exception or Ctrl+C.
    thread = handle._thread = threading.Thread(target=run, name="storax-save", daemon=False)
    if turn.nested or not threading.main_thread().is_alive():
        # In an exit handler nobody joins threads any more, so the save is over when this returns.
        turn.nested = True
        run()
        return handle
    with _changed:
        turn.passed_on = True
        _holder = thread
    try:
        thread.start()
    except BaseException:
        _give_back()
        raise
    return handle


def _without_frames(error: BaseException) -> BaseException:
    """The same error without the frames that it came through: they hold a copy of the state.

    Where it came from is kept as text, but for errors of our own, whose message says it all.
    """
    if not isinstance(error, StoraxError):
        lines = "".join(traceback.format_tb(error.__traceback__))
        error.add_note(f"storax: in the thread of the save:\n{lines}")
    todo: list[BaseException | None] = [error]
    met: set[int] = set()
    while todo:
        found = todo.pop()
        if found is not None and id(found) not in met:
            met.add(id(found))
            found.__traceback__ = None
            todo += [found.__cause__, found.__context__]
    return error


def report_at_exit() -> None:
    """The last chance to say that a save failed: the message, and exit code 1.

    An exception in an exit handler does not change the exit code, only ``os._exit`` does. It skips
    what the interpreter would do after this, so that is done here: the exit handlers of the
    standard library, and the flush of every file that is open.
    """
    with _changed:
        _changed.wait_for(lambda: _holder is None or _holder is threading.current_thread())
    if not _unasked:
        return
    for handle in _unasked:
        said = "".join(traceback.format_exception_only(handle._errors[0]))  # with its notes
        sys.stderr.write(f"storax: a save in the background failed. {said}")
    with contextlib.suppress(Exception):
        weakref.finalize._exitfunc()  # type: ignore[attr-defined]
    logging.shutdown()
    for thing in gc.get_objects():
        if isinstance(thing, io.IOBase):
            with contextlib.suppress(Exception):
                thing.flush()
    os._exit(1)


def _begin_anew() -> None:
    """In a forked child: the saves are the parent's, and so is the duty to report them."""
    global _changed, _holder
    _changed = threading.Condition()
    _holder = None
    _unasked.clear()


os.register_at_fork(after_in_child=_begin_anew)
