"""The step that a run offered last and the policy declined: it is saved if SIGTERM comes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from storax.errors import StoraxError
from storax.manager import preemption
from storax.processes import present

_log = logging.getLogger("storax")


class LastOffer:
    """Remembers what ``save`` was given last, while SIGTERM is watched for.

    Args:
      begin: begins a save, from what ``remember`` was given.
      grace: how long this machine has after SIGTERM, in seconds.
    """

    def __init__(self, begin: Callable[..., None], grace: float) -> None:
        # Held while a save begins: on SIGTERM another thread may begin one.
        self.lock = threading.RLock()
        self._begin = begin
        self._patience = grace / 10
        self._offer: tuple[Any, ...] | None = None
        self._came = threading.Event()

    def watch(self) -> None:
        """Begins to watch for SIGTERM, from any thread."""
        preemption.process.watch()
        preemption.process.call(self._told)

    def is_watching(self) -> bool:
        """Whether ``watch`` was called."""
        return preemption.process.calls(self._told)

    def remember(self, *offer: Any) -> None:
        """Keeps what was declined; nothing if nobody watches, as it may be large."""
        self._offer = offer if self.is_watching() else None

    def forget(self) -> None:
        """Lets go what was kept."""
        self._offer = None

    def run_is_here(self) -> None:
        """Says that the run came by itself, so nothing needs to be done for it."""
        self._came.set()

    def save(self) -> None:
        """Begins to save what was kept, if there is something."""
        with self.lock:
            offer, self._offer = self._offer, None
            if offer is not None:
                self._begin(*offer)

    def _told(self) -> None:
        """After SIGTERM, in a thread of its own: saves what was kept, unless the run comes first."""
        if present().count > 1:
            return  # one of many processes alone cannot save; all do when reached_preemption says so
        self._came.clear()
        if not self._came.wait(self._patience):
            try:
                self.save()
            except (StoraxError, RuntimeError) as error:
                # Its arrays went into a step that runs now: the run will offer that one.
                _log.warning("what the run offered last is not saved at SIGTERM: %s", error)
