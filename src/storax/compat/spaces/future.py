"""``storax.future``: what asynchronous handlers give back."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from storax.stateful import Running


class Future(Protocol):
    """Something to be waited for."""

    def result(self, timeout: float | None = None) -> Any:
        """Waits for it. Raises what went wrong."""
        ...


class CommitFutureAwaitingContractedSignals(Running):
    """A coroutine that runs in a thread from now on. No signal is awaited: the directory is there."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, **_: Any) -> None:
        super().__init__(coro, name or "storax-item")


CommitFuture = CommitFutureAwaitingContractedSignals


class NoopFuture:
    """Nothing to be waited for."""

    def result(self, timeout: float | None = None) -> None:
        """Returns at once."""


class ChainedFuture:
    """Several futures as one; afterwards ``cb`` is called."""

    def __init__(self, futures: Any, cb: Any = lambda: None) -> None:
        self._futures = list(futures)
        self._cb = cb

    def result(self, timeout: float | None = None) -> None:
        """Waits for all. Raises what went wrong."""
        for future in self._futures:
            future.result(timeout)
        self._cb()
