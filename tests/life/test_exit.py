"""A program that ends right after an asynchronous save still commits it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import storax

SOURCE = Path(storax.__file__).resolve().parents[1]
PATIENCE = 120.0

# The save writes its first byte only when the main thread has ended: before that nothing can be committed.
_BEGIN = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
import storax
from storax.store import posix

place = Path(sys.argv[1])
write_at = posix.NewFile.write_at

def waits(self, *arguments):
    threading.main_thread().join()
    return write_at(self, *arguments)

def wait_for(name):
    deadline = time.monotonic() + 60
    while not (place / name).exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)

posix.NewFile.write_at = waits
tree = {"w": np.arange(50_000.0), "step": 3}
"""
_ASYNC = _BEGIN + 'handle = storax.save_async(place / "a", tree)\n'
_MANAGER = _BEGIN + (
    'manager = storax.CheckpointManager(place / "run")\n'
    "manager.save(3, args=storax.args.StandardSave(tree))\n"
)
_WRITER = {"save_async": (_ASYNC, "a"), "manager": (_MANAGER, "run/3")}


def _start(program: str, place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(place)],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it wrote to stderr."""
    try:
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    return process.returncode, errors


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _is_there(path: Path) -> None:
    assert storax.load(path)["step"] == 3
    assert [p.name for p in path.parent.iterdir() if "tmp" in p.name] == []


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        pytest.param("", 0, "", id="the last line"),
        pytest.param("raise LookupError('mine')", 1, "LookupError: mine", id="an exception"),
        pytest.param("sys.exit(3)", 3, "", id="sys.exit"),
    ],
)
@pytest.mark.parametrize("writer", ["save_async", "manager"])
def test_the_save_is_committed_when_the_program_ends_with(
    tmp_path: Path, writer: str, ending: str, code: int, says: str
):
    program, place = _WRITER[writer]
    assert not (tmp_path / place).exists()
    found, errors = _end(_start(program + ending, tmp_path))
    assert (found, says in errors) == (code, True), errors
    assert "storax" not in errors
    _is_there(tmp_path / place)


@pytest.mark.parametrize("writer", ["save_async", "manager"])
def test_the_save_is_committed_after_ctrl_c(tmp_path: Path, writer: str):
    program, place = _WRITER[writer]
    process = _start(program + '(place / "ready").touch()\nwait_for("never")', tmp_path)
    _wait_for(tmp_path / "ready", process)
    process.send_signal(signal.SIGINT)
    code, errors = _end(process)
    assert code == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors
    _is_there(tmp_path / place)


def test_the_save_is_committed_after_ctrl_c_in_the_middle_of_result(tmp_path: Path):
    program = _ASYNC + '(place / "ready").touch()\nhandle.result()'
    process = _start(program, tmp_path)
    _wait_for(tmp_path / "ready", process)
    process.send_signal(signal.SIGINT)
    code, errors = _end(process)
    assert code == -signal.SIGINT, errors
    _is_there(tmp_path / "a")


def test_a_second_ctrl_c_while_the_process_waits_for_the_save_does_not_lose_it(tmp_path: Path):
    program = _ASYNC.replace(
        "    return write_at", '    (place / "joining").touch()\n    wait_for("go")\n    return write_at'
    )
    process = _start(program, tmp_path)
    _wait_for(tmp_path / "joining", process)
    process.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    _, errors = _end(process)
    _is_there(tmp_path / "a")
    assert "storax:" not in errors


_FULL = """
import errno
def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.pwritev = full
posix.NewFile.write_at = write_at
"""
_BROKEN = """
def broken(*_):
    raise ZeroDivisionError("quite unexpected")
posix.NewFile.write_at = broken
"""


@pytest.mark.parametrize("ending", ["", "sys.exit(0)"])
@pytest.mark.parametrize(
    ("writer", "names"), [("save_async", "{place}/a"), ("manager", "step 3 in {place}/run")]
)
def test_a_failed_save_that_nobody_asked_about_fails_the_process(
    tmp_path: Path, writer: str, names: str, ending: str
):
    program = _WRITER[writer][0].replace(_BEGIN, _BEGIN + _FULL)
    code, errors = _end(_start(program + ending, tmp_path))
    assert code == 1
    assert "StoreError" in errors
    assert names.format(place=tmp_path) in errors
    assert "No space left on device" in errors
    assert "Traceback" not in errors
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_an_error_of_no_kind_of_ours_is_named_at_exit_with_its_step(tmp_path: Path):
    code, errors = _end(_start(_MANAGER.replace(_BEGIN, _BEGIN + _BROKEN), tmp_path))
    assert code == 1
    assert "ZeroDivisionError: quite unexpected" in errors
    assert "step 3" in errors


def test_a_failed_save_that_somebody_asked_about_is_not_told_again(tmp_path: Path):
    asks = "try:\n    handle.result()\nexcept storax.StoreError:\n    pass\n"
    code, errors = _end(_start(_ASYNC.replace(_BEGIN, _BEGIN + _FULL) + asks, tmp_path))
    assert (code, errors) == (0, "")
