"""``storax.test_utils``."""

from __future__ import annotations

import os
from pathlib import Path

from storax.store import posix


def erase_and_create_empty(directory: str | os.PathLike[str]) -> Path:
    """An empty directory at a path; what was there is deleted."""
    path = Path(directory)
    posix.remove_tree(path)
    posix.make_directories(path)
    return path
