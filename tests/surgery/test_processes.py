"""Two real processes with four devices each: each loads and rewrites its own part, and reads no other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import storax

PROGRAM = """
import json, sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]), initialization_timeout=60)
import numpy as np
import storax
from storax.surgery import cast, stack
where = sys.argv[3]
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("expert",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("expert"))
target = {"experts.w": jax.ShapeDtypeStruct((64, 512, 512), "float32", sharding=sharding)}
steps = [stack(r"experts\\.(\\d+\\.)")]
found, loaded = storax.load(where + "/a", target, transforms=steps, report=True)
experts = {s.index[0].start + i: float(row[0, 0])
           for s in found["experts.w"].addressable_shards for i, row in enumerate(np.asarray(s.data))}
written = storax.rewrite(where + "/a", where + "/b", transforms=[*steps, cast("bfloat16")], verify=True)
print(json.dumps([loaded.read_bytes, written.read_bytes, experts]))
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    where = tmp_path_factory.mktemp("two")
    tree = {f"experts.{i}.w": np.full((512, 512), i, np.float32) for i in range(64)}
    storax.save(where / "a", tree)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(index), str(where)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        done = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0, 0], done
    return where, [json.loads(out.splitlines()[-1]) for out, _ in done]


def test_each_process_reads_half_of_the_experts_and_has_them(reports):
    _, found = reports
    half = 32 * (512 * 512 * 4 + 4)
    assert [loaded for loaded, _, _ in found] == [half, half]
    held = [{int(i): value for i, value in experts.items()} for _, _, experts in found]
    assert held == [{i: float(i) for i in range(32)}, {i: float(i) for i in range(32, 64)}]


def test_each_process_rewrites_half_and_the_result_is_whole(reports):
    where, found = reports
    whole = 64 * (512 * 512 * 4 + 4)
    shares = [written for _, written, _ in found]
    assert sum(shares) == whole
    assert max(shares) < 0.6 * whole
    rows = np.asarray(storax.load(where / "b")["experts.w"])
    assert rows[:, 0, 0].astype(int).tolist() == list(range(64))
    assert (rows == rows[:, :1, :1]).all()
    storax.verify(where / "b")
