"""SIGTERM: this machine will be taken away soon.

The signal must be noticed also while the main thread is deep in compiled code, where no Python
runs, and it must be possible to begin watching from any thread. Python's own ``signal.signal``
can do neither. ``faulthandler.register`` can do both: its handler is C, writes a few bytes to a
file descriptor, and needs no Python to run. So it writes to a pipe, and a thread waits at the
other end.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable

from storax.processes import sigterm_is_caught

_log = logging.getLogger("storax")


class Preemption:
    """Whether SIGTERM came, and what is to be done when it comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._installed = False
        self._reached = threading.Event()
        self._acts: list[weakref.WeakMethod[Callable[[], None]]] = []

    def reached(self) -> bool:
        """Whether SIGTERM came since ``watch``."""
        return self._reached.is_set()

    def watch(self) -> None:
        """Begins to watch, from any thread. SIGTERM then no longer ends the process by itself."""
        with self._lock:
            if self._installed:
                return
            self._installed = True
            reading, writing = os.pipe()
            os.set_blocking(writing, False)
            # A handler that somebody else installed still runs. The default one would end the process.
            known = signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
            chain = known or sigterm_is_caught()
            faulthandler.register(signal.SIGTERM, file=writing, all_threads=False, chain=chain)
            threading.Thread(target=self._wait, args=(reading,), name="storax-sigterm", daemon=True).start()

    def call(self, act: Callable[[], None]) -> None:
        """Calls a method in a thread of its own when SIGTERM comes. Does not keep its object alive."""
        with self._lock:
            self._acts = [known for known in self._acts if known() is not None]
            self._acts.append(weakref.WeakMethod(act))

    def calls(self, act: Callable[[], None]) -> bool:
        """Whether ``call`` was called with this method."""
        with self._lock:
            return any(known() == act for known in self._acts)

    def _wait(self, reading: int) -> None:
        os.read(reading, 1 << 16)
        _log.warning("SIGTERM: this machine will be taken away")
        self._reached.set()
        with self._lock:
            acts = [act for known in self._acts if (act := known()) is not None]
        threads = [threading.Thread(target=act, name="storax-preempted", daemon=False) for act in acts]
        for thread in threads:
            thread.start()


process = Preemption()
"""That of this process; all managers share it."""
