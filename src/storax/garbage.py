"""The garbage collector, held off while thousands of small objects are made that all stay.

A tree of 5,000 leaves makes some hundred thousand of them, and the collector walks them again and
again to find nothing: a third of the time of such a save or load.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_inside = 0
_was_enabled = False


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No automatic collection inside. Only for a fraction of a second of pure Python that makes no cycles.

    Threads may be inside at the same time; the last one out puts back what the first one found.
    """
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_enabled:
                gc.enable()
