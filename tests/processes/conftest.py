"""Jobs of real processes, for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.processes.jobs import Jobs


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    with Jobs() as running:
        yield running
