"""The garbage collector, held off while thousands of small objects are made that all stay.

A tree of 5,000 leaves makes some hundred thousand of them, and the collector walks them again and
again to find nothing: a third of the time of such a save or load.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No automatic collection inside; for short work that makes no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
