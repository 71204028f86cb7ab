"""Reading what somebody may replace or delete meanwhile: all of the old one or all of the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storax.errors import CheckpointChanged
from storax.store import commit, posix

T = TypeVar("T")


def unchanged(directory: Path, read: Callable[[], T]) -> T:
    """Reads, and once more if the checkpoint was replaced meanwhile: half of each is never returned.

    No manager deletes the checkpoint while it is read, where the file system has locks.

    Raises:
      CheckpointChanged: it was deleted, or replaced again and again.
      Exception: what ``read`` raises, if nothing had changed.
    """
    with commit.lease(directory):
        for _ in range(3):
            before = _identity(directory)
            error: Exception | None = None
            try:
                value = read()
            except Exception as raised:
                error = raised
            after = _identity(directory)
            if before == after:
                if error is not None:
                    raise error
                return value
            if after is None:
                raise CheckpointChanged(f"{directory} was deleted while it was read.") from error
    raise CheckpointChanged(f"{directory} was replaced again and again while it was read. Try again.")


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        return posix.identity(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
