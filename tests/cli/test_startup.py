"""The commands that only look must start at once: without JAX, and `ls` even without numpy."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import FIXTURES, SOURCE
from tests.cli.runs import make_run

# Ten times what a quiet machine takes: what counts is which modules are imported, tested elsewhere.
SECONDS = 4.0
HEAVY = {"jax", "jaxlib", "flax", "orbax", "optax", "grain", "scipy"}

_PROGRAM = """
import sys
from storax.cli import app
sys.argv = ["storax", *sys.argv[1:]]
code = app.run()
sys.stderr.write("modules: " + " ".join({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


def modules(*words: object) -> set[str]:
    """The packages that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE)},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("modules: ")[2].split())


@pytest.mark.parametrize("verb", ["ls", "show", "stats", "get", "doctor", "report", "verify", "plan"])
def test_a_command_that_looks_imports_no_jax(verb: str, tmp_path: Path):
    run = make_run(tmp_path / "run")
    words = {"get": ["params.w"], "report": ["-o", tmp_path / "r.html"]}.get(verb, [])
    assert not modules(verb, run, *words) & HEAVY


@pytest.mark.parametrize("kind", ["0.6.4/pytree", "0.12.8/pytree_noocdbt", "0.11.20/pytree_zarr3"])
def test_nor_does_it_for_what_orbax_wrote(kind: str):
    assert not modules("show", FIXTURES / kind) & HEAVY


def test_ls_does_without_numpy_and_tensorstore(tmp_path: Path):
    assert not modules("ls", make_run(tmp_path / "run")) & {*HEAVY, "numpy", "tensorstore"}


@pytest.mark.parametrize("verb", ["ls", "show"])
def test_it_starts_in_a_fraction_of_a_second(verb: str, tmp_path: Path):
    run = make_run(tmp_path / "run")
    times = [_processor_seconds(verb, run) for _ in range(5)]
    assert min(times) < SECONDS, times


def _processor_seconds(*words: object) -> float:
    """Of the processor, not of the clock: other tests run at the same time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "storax", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONPATH": str(SOURCE)}, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
