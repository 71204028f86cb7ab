"""SIGTERM: the last step of a real run is there, whenever the signal comes."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import storax
from storax.manager import wait_for_new_checkpoint

TRAINING = Path(__file__).parent / "training.py"


@contextlib.contextmanager
def start(directory: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """The training script; when the block ends it is dead, also after a test that failed."""
    run = subprocess.Popen(
        [sys.executable, str(TRAINING), str(directory), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        bufsize=0,
    )
    try:
        yield run
    finally:
        run.kill()
        run.wait()
        for pipe in (run.stdout, run.stderr):
            assert pipe is not None
            pipe.close()


def read_steps(run: subprocess.Popen[bytes], count: int) -> bytes:
    assert run.stdout is not None
    text = b""
    while text.count(b"\n") < count:
        more = run.stdout.read(1 << 12)
        assert more, run.communicate()[1].decode()
        text += more
    return text


def stop_at_a_random_moment(directory: Path, how: str, seed: int) -> None:
    draw = random.Random(seed)
    with start(directory, how) as run:
        text = read_steps(run, draw.randrange(1, 60))
        select.select([], [], [], draw.random() * 0.05)
        run.send_signal(signal.SIGTERM)
        rest, errors = run.communicate(timeout=100)
        assert run.returncode == 0, errors.decode()
    last = int((text + rest).split()[-1])
    mngr = storax.CheckpointManager(directory, options=storax.CheckpointManagerOptions(read_only=True))
    assert mngr.latest_step() == last
    assert int(mngr.restore(last)["step"]) == last
    assert storax.verify(directory / str(last)).ok


@pytest.mark.parametrize(("how", "seed"), [("policy", 1), ("policy", 2), ("thread", 3)])
def test_the_last_step_is_there(tmp_path: Path, how: str, seed: int) -> None:
    stop_at_a_random_moment(tmp_path, how, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_last_step_is_there_every_time(tmp_path: Path, seed: int) -> None:
    stop_at_a_random_moment(tmp_path, ("policy", "thread")[seed % 2], seed)


def test_the_last_step_is_there_though_the_run_compiles_until_it_is_killed(tmp_path: Path) -> None:
    with start(tmp_path, "compile") as run:
        read_steps(run, 5)
        run.send_signal(signal.SIGTERM)
        assert wait_for_new_checkpoint(tmp_path, timeout=60, seconds_to_sleep=0.05) == 5
        assert run.poll() is None  # it still compiles: the step was saved meanwhile
    assert int(storax.load(tmp_path / "5")["step"]) == 5


_OTHERS = """
import os, signal, socket, sys, threading
ours, theirs = socket.socketpair()
theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno())
signal.signal(signal.SIGTERM, lambda *_: print("theirs", flush=True))
signal.signal(signal.SIGUSR1, lambda *_: None)
from storax.manager.preemption import Preemption
watching = Preemption()
if sys.argv[1] == "main":
    watching.watch()
else:
    thread = threading.Thread(target=watching.watch)
    thread.start()
    thread.join()
os.kill(os.getpid(), signal.SIGUSR1)
assert ours.recv(1) == bytes([signal.SIGUSR1])
assert not watching.reached()
os.kill(os.getpid(), signal.SIGTERM)
watching._reached.wait(30)
print(watching.reached(), ours.recv(1) == bytes([signal.SIGTERM]), flush=True)
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_handlers_and_wakeups_of_others_still_work(where: str) -> None:
    done = subprocess.run([sys.executable, "-c", _OTHERS, where], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["theirs", "True", "True"], done.stderr


_BUSY_IN_C = """
import ctypes, os, signal, threading
from storax.manager.preemption import Preemption
watching = Preemption()

def other_thread():
    watching.watch()
    os.kill(os.getpid(), signal.SIGTERM)
    assert watching._reached.wait(30)
    print(watching.reached(), flush=True)
    os._exit(0)

threading.Thread(target=other_thread).start()
ctypes.CDLL(None).sleep(60)  # no Python runs in the main thread
"""


def test_another_thread_watches_though_the_main_thread_never_runs_python() -> None:
    done = subprocess.run([sys.executable, "-c", _BUSY_IN_C], capture_output=True, text=True, timeout=50)
    assert done.stdout.split() == ["True"], done.stderr


def test_nothing_is_installed_unless_it_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, numpy as np, storax\n"
        "mngr = storax.CheckpointManager(sys.argv[1])\n"
        "mngr.save(0, args=storax.args.StandardSave({'w': np.ones(2)}))\n"
        "mngr.wait_until_finished()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == b""
