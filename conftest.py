"""Which files pytest looks into.

``--doctest-modules`` makes pytest import every Python file that it passes. Those in ``src`` are modules, and
their examples are tests. In ``tests``, only ``test_*.py`` are: the others are programs that tests start, and
modules that tests share.
"""

from __future__ import annotations

from pathlib import Path

_TESTS = Path(__file__).parent / "tests"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    is_shared = (
        collection_path.suffix == ".py"
        and not collection_path.name.startswith("test_")
        and collection_path.is_relative_to(_TESTS)
    )
    return True if is_shared else None
