"""The examples do what they promise: killed and started again, they end as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import storax

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 120.0  # seconds, for what takes a few


def _start(directory: Path, *command: str) -> subprocess.Popen[bytes]:
    """An example as a user starts it, in a directory of its own; what it prints goes to output.txt."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(directory.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    directory.mkdir(exist_ok=True)
    with open(directory / "output.txt", "ab") as output:
        return subprocess.Popen(
            [sys.executable, str(EXAMPLES / command[0]), *command[1:]],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
        )


def _end_of(process: subprocess.Popen[bytes], directory: Path) -> str:
    """Lets an example run to its end, and returns all that was printed in its directory."""
    try:
        code = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    output = (directory / "output.txt").read_text()
    assert code == 0, output
    return output


def _kill_when(process: subprocess.Popen[bytes], file: Path, text: str) -> None:
    """SIGKILLs a process as soon as there is a text in a file."""
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if file.exists() and text in file.read_text():
                process.kill()
                assert process.wait() == -9
                return
            try:
                code = process.wait(0.002)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(f"it ended by itself with code {code}, before it wrote {text!r} to {file}")
        pytest.fail(f"it did not write {text!r} to {file}")
    finally:
        process.kill()
        process.wait()


def _leaves(tree: object) -> list[tuple[str, np.dtype, bytes]]:
    leaves = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        leaves.append((str(path), leaf.dtype, np.asarray(leaf).tobytes()))
    return leaves


def test_the_first_checkpoint_goes_on_after_a_kill_and_ends_the_same(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = _start(whole, "first_checkpoint.py")
    try:
        _kill_when(_start(killed, "first_checkpoint.py"), killed / "output.txt", "step 137 ")
        output = _end_of(_start(killed, "first_checkpoint.py"), killed)
    finally:
        _end_of(undisturbed, whole)

    assert "resumed from step 1" in output, "it began again"
    ends = []
    for directory in (whole, killed):
        with storax.CheckpointManager(directory / "runs" / "first") as mngr:
            assert mngr.latest_step() == 300
            ends.append(_leaves(mngr.restore(300, args=storax.args.StandardRestore())))
    assert len(ends[0]) == 3
    assert ends[0] == ends[1]


def _losses(directory: Path) -> dict[str, set[str]]:
    """By step, the losses that were logged for it: several if it was repeated with another result."""
    losses: dict[str, set[str]] = {}
    for line in (directory / "run" / "losses.txt").read_text().splitlines():
        step, loss = line.split()
        losses.setdefault(step, set()).add(loss)
    return losses


def test_the_resumable_training_ends_bit_for_bit_the_same_after_a_kill(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    # An epoch has 23 batches: the second process also shuffles a new epoch as the first would have.
    command = ("resumable_training.py", "--run-dir", "run", "--steps", "30", "--save-every", "5")
    expected = _end_of(_start(whole, *command), whole)

    _kill_when(_start(killed, *command), killed / "run" / "losses.txt", "\n19 ")
    resumed, *digests = _end_of(_start(killed, *command), killed).splitlines()

    assert resumed in {"resumed from step 10", "resumed from step 15"}
    assert [line.split()[:-1] for line in digests] == [
        ["parameters"],
        ["batch", "norm"],
        ["optimizer"],
        ["RNG"],
        ["data", "position"],
        ["test", "accuracy"],
    ]
    assert digests == expected.splitlines()
    assert all(len(losses) == 1 for losses in _losses(killed).values()), "a repeated step had another loss"
    assert _losses(killed) == _losses(whole)
