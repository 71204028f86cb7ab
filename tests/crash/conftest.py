"""Where the crash tests write: much, and nothing that a power failure could show."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where the system has one: some tests make a hundred thousand files."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="storax-tests-") as directory:
        yield Path(directory)


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ``fsync``: a dead process loses nothing that is in the page cache."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
