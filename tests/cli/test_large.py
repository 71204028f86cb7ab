"""A checkpoint of 100,000 leaves."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import SOURCE, ok

import storax

LEAVES = 100_000
# Ten times what a quiet machine takes: what counts is which modules are imported, tested elsewhere.
SECONDS = 10.0


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "a"
    leaf = np.zeros((4, 8), np.float32)
    groups = {
        name: {f"layer{i:03}": {f"w{j:03}": leaf for j in range(333)} for i in range(100)} for name in "pmn"
    }
    rest = {f"r{i}": leaf for i in range(LEAVES - 3 * 100 * 333)}
    storax.save(path, {**groups, "rest": rest})
    return path


@pytest.mark.slow
@pytest.mark.parametrize("words", [["ls"], ["show", "--depth", "2"]])
def test_it_is_listed_and_shown_in_a_second(large: Path, words: list[str]):
    times = [_processor_seconds(*words, str(large)) for _ in range(5)]
    assert min(times) < SECONDS, times


@pytest.mark.slow
def test_it_is_shown_whole(large: Path):
    done = ok("show", large)
    assert len(done.rows) == 4 + 300 + LEAVES - 3 * 100 * 333
    assert f"{LEAVES:,} leaves" in done.err
    assert f"{LEAVES * 128:,} bytes" in done.err


def _processor_seconds(*words: str) -> float:
    """Of the processor, not of the clock: other tests run at the same time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "storax", *words]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONPATH": str(SOURCE)}, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
