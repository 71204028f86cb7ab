"""SIGTERM: this machine will be taken away soon.

The signal must be noticed also while the main thread is deep in compiled code, where no Python
runs. Python's C handler writes a byte to the *wakeup descriptor* at once, in whichever thread the
signal comes, so that is a pipe here, and a thread waits at its other end.

It must be possible to begin watching from any thread, and only the main thread may install such
a handler. So another thread asks the main thread to do it as soon as that runs Python again. Until
then ``faulthandler``, which any thread may use, writes a few bytes to a second pipe when the
signal comes.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import select
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType

from storax.processes import present, sigterm_is_caught

_log = logging.getLogger("storax")


class Preemption:
    """Whether SIGTERM came, and what is to be done when it comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watching = False
        self._reached = threading.Event()
        self._acts: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._signals = (-1, -1)
        self._previous_descriptor = -1
        self._previous_handler: Callable[[int, FrameType | None], object] | None = None
        # Kept alive: the interpreter calls it later, in the main thread.
        self._in_main_thread = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._install)

    def reached(self) -> bool:
        """Whether SIGTERM came since ``watch``."""
        return self._reached.is_set()

    def watch(self) -> None:
        """Begins to watch, from any thread. SIGTERM then no longer ends the process by itself."""
        with self._lock:
            if self._watching:
                return
            self._watching = True
        if present().count > 1 and sigterm_is_caught():
            return  # by JAX, for all processes of the job, and it must stay so: see ``sigterm_came``
        self._signals = _pipe()
        pipes = [self._signals[0]]
        if threading.current_thread() is threading.main_thread():
            self._install(None)
        else:
            reading, writing = _pipe()
            pipes.append(reading)
            chain = signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
            faulthandler.register(signal.SIGTERM, file=writing, all_threads=False, chain=chain)
            ctypes.pythonapi.Py_AddPendingCall(self._in_main_thread, None)
        threading.Thread(target=self._wait, args=(pipes,), name="storax-sigterm", daemon=True).start()

    def call(self, act: Callable[[], None]) -> None:
        """Calls a method in a thread of its own when SIGTERM comes. Does not keep its object alive."""
        with self._lock:
            self._acts = [known for known in self._acts if known() is not None]
            self._acts.append(weakref.WeakMethod(act))

    def calls(self, act: Callable[[], None]) -> bool:
        """Whether ``call`` was called with this method."""
        with self._lock:
            return any(known() == act for known in self._acts)

    def _install(self, _: object) -> int:
        """Runs in the main thread."""
        previous = signal.signal(signal.SIGTERM, self._handle)
        self._previous_handler = previous if callable(previous) else None
        self._previous_descriptor = signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        return 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Runs in the main thread when it comes to it; the waiting thread mostly knows already."""
        _write(self._signals[1], bytes([number]))  # in case somebody else took the wakeup descriptor
        if self._previous_handler is not None:
            self._previous_handler(number, frame)

    def _wait(self, pipes: list[int]) -> None:
        while True:
            for reading in select.select(pipes, [], [])[0]:
                found = os.read(reading, 1 << 16)
                if reading != self._signals[0] or signal.SIGTERM in found:
                    self._reach()
                if reading == self._signals[0] and self._previous_descriptor != -1:
                    _write(self._previous_descriptor, found)

    def _reach(self) -> None:
        if self._reached.is_set():
            return
        _log.warning("SIGTERM: this machine will be taken away")
        self._reached.set()
        with self._lock:
            acts = [act for known in self._acts if (act := known()) is not None]
        for act in acts:
            threading.Thread(target=act, name="storax-preempted", daemon=False).start()


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    return reading, writing


def _write(descriptor: int, data: bytes) -> None:
    try:
        os.write(descriptor, data)
    except OSError as error:
        _log.debug("a signal is not passed on: %s", error)


process = Preemption()
"""That of this process; all managers share it."""
