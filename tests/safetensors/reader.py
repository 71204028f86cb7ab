"""One process of a job: loads a model sharded over all devices, by rows and by columns, and tells.

reader.py COORDINATOR PROCESSES INDEX MODEL
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import storax


def load(path: str, axis: int) -> dict[str, Any]:
    mesh = Mesh(np.array(jax.devices()), ("all",))

    def rule(name: str, shape: tuple[int, ...]) -> Any:
        spec: list[str | None] = [None] * len(shape)
        if name != "small":
            spec[axis] = "all"
        return NamedSharding(mesh, PartitionSpec(*spec))

    found, report = storax.load(path, sharding=rule, report=True)
    shards = {
        name: [shard_of(s, value.shape) for s in value.addressable_shards] for name, value in found.items()
    }
    files = {file: [t.wanted_bytes, t.read_bytes, t.reads, t.across] for file, t in report.files.items()}
    return {"shards": shards, "files": files}


def shard_of(shard: Any, shape: tuple[int, ...]) -> list[Any]:
    """Where a shard is, and the digest of its values."""
    box = [[s.start or 0, n if s.stop is None else s.stop] for s, n in zip(shard.index, shape, strict=True)]
    return [*box, hashlib.sha256(np.asarray(shard.data).tobytes()).hexdigest()]


if __name__ == "__main__":
    coordinator, processes, index, path = sys.argv[1:]
    jax.distributed.initialize(coordinator, int(processes), int(index))
    print(json.dumps([load(path, axis) for axis in (0, 1)]))
