"""How much memory saving and loading take, measured in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# VmHWM and not ru_maxrss: Linux hands the latter on from the process that started this one.
_PRELUDE = """
import json, os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax, numpy as np, storax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))

def forget_the_peak():
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")

mesh = Mesh(np.array(jax.devices()), ("x",))
"""


def run(program: str, *arguments: str) -> dict[str, int]:
    """The JSON that a program prints last."""
    command = [sys.executable, "-c", _PRELUDE + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return result


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux's /proc to measure"
)

_MB = 1 << 20


def test_a_load_takes_its_values_and_its_budget(tmp_path: Path) -> None:
    """512 MB in shards along the inner dimension: every chunk goes through memory that the budget has."""
    storax_saved = run(
        """
storax.save(sys.argv[1], {f"w{i}": np.ones((4096, 8192), np.float32) for i in range(4)})
print(json.dumps({}))
""",
        str(tmp_path / "a"),
    )
    assert storax_saved == {}
    measured = run(
        """
sharding = NamedSharding(mesh, PartitionSpec(None, "x"))
target = {f"w{i}": jax.ShapeDtypeStruct((4096, 8192), np.float32, sharding=sharding) for i in range(4)}
jax.block_until_ready(jax.device_put(np.zeros(8, np.float32), NamedSharding(mesh, PartitionSpec("x"))))
forget_the_peak()
before = memory("VmRSS")
found = storax.load(sys.argv[1], target, read_budget_bytes=40 << 20)
print(json.dumps({"extra": memory("VmHWM") - before - sum(x.nbytes for x in found.values())}))
""",
        str(tmp_path / "a"),
    )
    assert measured["extra"] < 100 * _MB  # the budget, and what Python, threads and the placing take


def test_thirty_saves_in_a_row_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    measured = run(
        """
import shutil
state = {"jax": jax.device_put(np.ones((8, 1 << 20), np.float32), NamedSharding(mesh, PartitionSpec("x"))),
         "numpy": np.ones(8 << 20, np.float32)}
sizes = []
for i in range(30):
    storax.save_async(f"{sys.argv[1]}/{i}", state).result()
    shutil.rmtree(f"{sys.argv[1]}/{i}")
    sizes.append(memory("VmRSS"))
print(json.dumps({"grown": max(sizes[5:]) - max(sizes[:5])}))
""",
        str(tmp_path),
    )
    assert measured["grown"] < 16 * _MB


def test_a_save_takes_no_copy_of_what_it_can_use_as_it_is(tmp_path: Path) -> None:
    measured = run(
        """
state = {"jax": jax.device_put(np.ones((8, 8 << 20), np.float32), NamedSharding(mesh, PartitionSpec("x"))),
         "numpy": np.ones(64 << 20, np.float32), "columns": np.ones((8192, 8192), np.float32).T}
forget_the_peak()
before = memory("VmRSS")
storax.save(sys.argv[1], state)
print(json.dumps({"extra": memory("VmHWM") - before}))
""",
        str(tmp_path / "a"),
    )
    assert measured["extra"] < 120 * _MB  # of 768 MB; columns are turned into rows a chunk at a time
