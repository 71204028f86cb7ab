"""Real processes of one job: each reads its own bytes of the files, and no more."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.safetensors import official

READER = Path(__file__).with_name("reader.py")
ROWS, COLUMNS = 2048, 1024  # float32: rows of 4 KiB
SMALL = 40  # bytes, read whole by every process
PATIENCE = 120


def job(processes: int, model: Path) -> list[list[dict[str, Any]]]:
    """What each process of a job says of loading by rows and by columns, each with two devices of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    running = [
        subprocess.Popen(
            [sys.executable, str(READER), coordinator, str(processes), str(i), str(model)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    try:
        ended = [process.communicate(timeout=PATIENCE) for process in running]
    finally:
        for process in running:
            process.kill()
    assert all(process.returncode == 0 for process in running), "\n".join(error for _, error in ended)
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


@pytest.mark.parametrize("processes", [2, 4])
def test_each_process_reads_its_own_bytes_only(processes: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    one = {
        "w": chance.integers(0, 1 << 30, (ROWS, COLUMNS), np.int32),
        "small": np.arange(SMALL // 4, dtype=np.int32),
    }
    two = {"v": chance.integers(0, 1 << 30, (ROWS, COLUMNS), np.int32)}
    model = official.write_shards(tmp_path / "model", [one, two])
    values = one | two
    for axis, told in enumerate(zip(*job(processes, model), strict=True)):
        check(told, values, axis)


def check(told: Sequence[dict[str, Any]], values: dict[str, np.ndarray], axis: int) -> None:
    processes = len(told)
    boxes = set()
    for process in told:
        assert set(process["shards"]) == set(values)
        for name, shards in process["shards"].items():
            for *box, digest in shards:
                boxes.add((name, str(box)))
                part = values[name][tuple(slice(*ends) for ends in box)]
                assert hashlib.sha256(part.tobytes()).hexdigest() == digest
    assert len(boxes) == 2 * 2 * processes + 1, "every device has another part of the large ones"

    share = ROWS * COLUMNS * 4 // processes
    for process in told:
        wanted = {Path(file).name: traffic for file, traffic in process["files"].items()}
        first, second = (wanted[name] for name in sorted(wanted))
        assert (first[0], second[0]) == (share + SMALL, share)
        if axis == 0:  # runs: exactly the bytes that are needed
            assert (first[1], second[1]) == (share + SMALL, share)
            assert first[3] == second[3] == 0
        else:  # rows of 4 KiB: a whole span is cheaper than 2,048 reads
            most = ROWS * COLUMNS * 4
            assert most - 4096 <= second[1] <= most
            assert second[3] == second[2]


def test_processes_that_want_the_same_file_need_no_word_of_each_other(tmp_path: Path) -> None:
    """The plan of a process depends on its own shards alone, so its bytes add up to the file exactly once."""
    from storax.plan.runs import spans

    found = [run for i in range(4) for run in spans([((i * 512, (i + 1) * 512), (0, 8))], (2048, 8), 0)]
    assert found == [(i * 4096, (i + 1) * 4096) for i in range(4)]
