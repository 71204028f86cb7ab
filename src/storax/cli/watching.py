"""The progress of a command: a bar on a terminal, a line per tenth in a log, nothing with ``--quiet``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from storax.cli.printing import manners
from storax.progress import settle, watching


@contextlib.contextmanager
def watched(what: str) -> Iterator[None]:
    """Shows how far the work within is."""
    with watching(not manners.quiet, what):
        yield
        settle()
