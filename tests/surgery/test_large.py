"""Rewrites of models larger than the memory that they may take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import storax
from storax import streaming
from storax.surgery import cast, fuse_by_pattern, stack, transpose

STEPS = [
    fuse_by_pattern(r".*\.(gate|up)$", ["gate", "up"], "gate_up", axis=0),
    transpose(r"gate_up$", [1, 0]),
    stack(r"experts\.(\d+\.)"),
]


def sparse_model(path: Path, experts: int, rows: int, columns: int) -> int:
    """A safetensors file of zeros that takes no room on the disk, with a mark in each tensor; its bytes."""
    header, end, size = {}, 0, rows * columns * 2
    for i in range(experts):
        for part in ("gate", "up"):
            header[f"experts.{i}.{part}"] = {
                "dtype": "BF16",
                "shape": [rows, columns],
                "data_offsets": [end, end + size],
            }
            end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        for n in range(2 * experts):
            file.seek(8 + len(text) + n * size + 2 * n)
            file.write(b"\x80\x3f")  # 1.0, in the n-th place of the first row
    return end


def check_marks(path: Path, experts: int, rows: int) -> None:
    with storax.open(path) as found:
        whole = found["experts.gate_up"]
        assert whole.shape[0] == experts
        for i in {0, experts // 2, experts - 1}:
            for part in range(2):
                column = whole[i, :, part * rows]
                assert np.flatnonzero(np.asarray(column)).tolist() == [2 * i + part]


def test_extra_memory_does_not_grow_with_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "BATCH_BYTES", 16 << 20)
    peaks = []
    for experts in (8, 24):
        total = sparse_model(tmp_path / f"{experts}.safetensors", experts, 1024, 2048)
        tracemalloc.start()
        report = storax.rewrite(
            tmp_path / f"{experts}.safetensors", tmp_path / str(experts), transforms=STEPS
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        check_marks(tmp_path / str(experts), experts, 1024)
        assert report.read_bytes == total
    assert peaks[1] < 1.2 * peaks[0] < 80 << 20


def test_a_computed_rewrite_reads_each_byte_once(tmp_path):
    total = sparse_model(tmp_path / "a.safetensors", 4, 1024, 2048)
    steps = [*STEPS, cast("float32")]
    report = storax.rewrite(tmp_path / "a.safetensors", tmp_path / "b", transforms=steps)
    assert report.read_bytes == total


CHILD = """
import resource, sys, storax
from tests.surgery.test_large import STEPS
report = storax.rewrite(sys.argv[1], sys.argv[2], transforms=STEPS)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, report.read_bytes)
"""


@pytest.mark.slow
def test_sixteen_gigabytes_in_one(tmp_path):
    """All of the process, Python and JAX included, stays below 1 GB."""
    experts, rows, columns = 64, 8192, 8192
    free = shutil.disk_usage(tmp_path).free
    if free < 20 << 30:
        pytest.skip(f"17 GB are written, and {free >> 30} GB are free")
    total = sparse_model(tmp_path / "model.safetensors", experts, rows, columns)
    assert total == 16 << 30
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "model.safetensors"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.getcwd()])},
    )
    peak, read = map(int, done.stdout.split())
    assert peak < 1_000_000_000
    assert read == total
    check_marks(tmp_path / "out", experts, rows)
    shutil.rmtree(tmp_path / "out")
