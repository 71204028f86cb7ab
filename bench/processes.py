"""Many processes, without having them: balance, time to plan and to merge, bytes to restore elsewhere.

python bench/processes.py            prints all tables
python bench/processes.py --docs     and puts them into docs/distributed.md
python bench/processes.py --quick    smaller ones, to see that it works
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "distributed.md"
CHIPS = 8

# Llama 3: layers, width, width between the two halves of a layer, width of keys and values, words.
MODELS = {
    "8B": (32, 4096, 14336, 1024, 128256),
    "70B": (80, 8192, 28672, 1024, 128256),
    "405B": (126, 16384, 53248, 1024, 128256),
}
# Axes of the mesh for so many chips, and of a matrix the axes of its rows and of its columns.
MESHES = {
    "FSDP": (lambda chips: {"fsdp": chips}, "fsdp", None),
    "FSDP x TP": (lambda chips: {"fsdp": chips // CHIPS, "model": CHIPS}, "fsdp", "model"),
    "DP x TP": (lambda chips: {"data": chips // CHIPS, "model": CHIPS}, None, "model"),
    "DP": (lambda chips: {"data": chips}, None, None),
}


def arrays(model: str, mesh: dict[str, int], rows: str | None, columns: str | None) -> list:
    """The parameters in float32, with both moments of AdamW."""
    from storax.plan import PlannedArray
    from storax.plan.spread import spec_of

    layers, width, between, keys, words = MODELS[model]
    shapes = {"embed": (words, width), "head": (width, words), "norm": (width,)}
    for layer in range(layers):
        shapes |= {
            f"{layer}.q": (width, width),
            f"{layer}.k": (width, keys),
            f"{layer}.v": (width, keys),
            f"{layer}.o": (width, width),
            f"{layer}.gate": (width, between),
            f"{layer}.up": (width, between),
            f"{layer}.down": (between, width),
            f"{layer}.norm1": (width,),
            f"{layer}.norm2": (width,),
        }
    found = []
    for kind in ("params", "mu", "nu"):
        for name, shape in shapes.items():
            axes = [rows, columns][: len(shape)]
            # As frameworks do: what an axis does not divide stays whole.
            fits = [a if a and n % mesh[a] == 0 else None for a, n in zip(axes, shape, strict=True)]
            spec = spec_of(fits if len(shape) > 1 else [None])
            found.append(PlannedArray(f"{kind}.{name}", shape, 4, spec))
    return [*found, PlannedArray("step", (), 8, None)]


def table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    return lines


def balance(hosts: Sequence[int]) -> list[str]:
    from storax.plan import simulate

    def rows() -> Iterator[Sequence[str]]:
        for model in MODELS:
            for name, (mesh_of, down, across) in MESHES.items():
                for count in hosts:
                    mesh = mesh_of(count * CHIPS)
                    made = arrays(model, mesh, down, across)
                    begun = time.perf_counter()
                    found = simulate(made, mesh, hosts=count, chips_per_host=CHIPS)
                    took = time.perf_counter() - begun
                    yield (
                        model,
                        name,
                        f"{count:,}",
                        f"{found.loads.mean / 2**30:,.2f}",
                        f"{found.loads.balance:.3f}",
                        f"{found.single_replica.balance:,.2f}",
                        f"{found.divided_replicas.balance:.3f}",
                        f"{max(found.chunks):,}",
                        f"{took:.2f}",
                    )

    header = "model,mesh,hosts,GiB a host,storax,single replica,divided replicas,most chunks,simulated in s"
    return table(header.split(","), rows())


def plan_time(hosts: Sequence[int]) -> list[str]:
    """A thousand arrays, a third of each kind: sharded over all, over a tenth of the hosts, and over none."""
    from storax.plan import PlannedArray, simulate
    from storax.plan.chunks import chunk_shape
    from storax.plan.ownership import Shared, plan
    from storax.plan.spread import spread

    def rows() -> Iterator[Sequence[str]]:
        import math

        import numpy as np

        for count in hosts:
            mesh = {"data": count // 10, "fsdp": 10 * CHIPS}
            specs = ((("data", "fsdp"),), (("fsdp",),), ())
            made = [
                PlannedArray(f"a{i}", (count * CHIPS, 64 * (1 + i % 7)), 4, specs[i % 3]) for i in range(1000)
            ]
            begun = time.perf_counter()
            simulate(made, mesh, hosts=count, chips_per_host=CHIPS)
            simulated = time.perf_counter() - begun
            begun = time.perf_counter()
            process_of = np.arange(count * CHIPS) // CHIPS
            spreads = {spec: spread(mesh, spec) for spec in specs}
            holders = {spec: known.holders(process_of) for spec, known in spreads.items()}
            shared = []
            for array in made:
                shard = spreads[array.spec].shard_shape(array.shape)
                chunk = chunk_shape(array.shape, shard, 4, 1 << 16)
                number = math.prod(-(-n // c) for n, c in zip(shard, chunk, strict=True))
                shared.append(Shared(holders[array.spec], number, 4 * math.prod(chunk)))
            plan(shared, count, count // 2)
            yield (
                f"{count:,}",
                f"{count * CHIPS:,}",
                f"{time.perf_counter() - begun:.3f}",
                f"{simulated:.3f}",
            )

    return table(["hosts", "chips", "plan of one process (s)", "simulation of all (s)"], rows())


def merging(databases: Sequence[int], keys: int) -> list[str]:
    """What process 0 does after all have written: opens every index, checks every key, writes one tree."""
    rows = [_in_a_child(count, keys) for count in databases]
    header = [
        "databases",
        "keys in all",
        "read and check (s)",
        "merge (s)",
        "peak memory (MiB)",
        "root nodes (MiB)",
    ]
    return table(header, iter(rows))


def _in_a_child(count: int, keys: int) -> Sequence[str]:
    """In a process of its own, for its peak of memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.write(writing, "|".join(_merge(count, keys)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as text:
        found = text.read()
    os.waitpid(child, 0)
    return found.split("|")


def _merge(count: int, keys: int) -> Sequence[str]:
    from storax.arrays import zarr
    from storax.ocdbt.index import Index
    from storax.ocdbt.merge import merge
    from storax.ocdbt.nodes import Indirect
    from storax.ocdbt.writer import write_nodes

    # The disk is not measured here.
    with tempfile.TemporaryDirectory() as where, mock.patch("os.fsync"):
        root = Path(where)
        for part in range(count):
            directory = root / f"ocdbt.process_{part}"
            (directory / "d").mkdir(parents=True)
            entries = sorted(
                (
                    zarr.key_of(f"layer{i}.w", f"c/{part}/0").encode(),
                    Indirect("d/" + "0" * 32, i * 4096, 4096),
                )
                for i in range(keys)
            )
            write_nodes(directory, entries)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        parts = {
            f"ocdbt.process_{p}": list(Index.open(root / f"ocdbt.process_{p}").items()) for p in range(count)
        }
        expected = {zarr.key_of(f"layer{i}.w", f"c/{p}/0"): i for i in range(keys) for p in range(count)}
        found = {key.decode() for entries in parts.values() for key, _ in entries}
        assert found == expected.keys()
        read = time.perf_counter() - begun
        begun = time.perf_counter()
        merge(root, parts)
        merged = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = sum(path.stat().st_size for path in (root / "d").iterdir())
        return (
            f"{count:,}",
            f"{count * keys:,}",
            f"{read:.2f}",
            f"{merged:.2f}",
            f"{peak / 1024:,.0f} ({(peak - before) / 1024:,.0f} more than before)",
            f"{size / 2**20:,.1f}",
        )


def resharding(rows_of: int, columns: int) -> list[str]:
    """One float32 array, saved on eight devices in one way, restored by eight processes in another."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import storax
    from storax.checkpoint import SavedTree
    from storax.plan import boxes
    from storax.store.reading import planned

    layouts = {
        "8 x 1": ((8, 1), PartitionSpec("x", "y")),
        "4 x 2": ((4, 2), PartitionSpec("x", "y")),
        "2 x 4": ((2, 4), PartitionSpec("x", "y")),
        "1 x 8": ((1, 8), PartitionSpec("x", "y")),
        "replicated": ((8, 1), PartitionSpec()),
    }
    shape = (rows_of, columns)

    def sharding(name: str) -> NamedSharding:
        mesh, spec = layouts[name]
        return NamedSharding(Mesh(np.array(jax.devices()).reshape(mesh), ("x", "y")), spec)

    def rows() -> Iterator[Sequence[str]]:
        value = np.zeros(shape, np.float32)
        with tempfile.TemporaryDirectory() as where:
            for saved in layouts:
                place = Path(where) / saved.replace(" ", "")
                storax.save(place, {"w": jax.device_put(value, sharding(saved))})
                (leaf,) = SavedTree.open(place).leaves()
                chunk = " x ".join(map(str, leaf.source.atom))
                cells = [saved, f"{chunk} ({np.prod(leaf.source.atom) * 4 / 2**20:.1f} MiB)"]
                for wanted in layouts:
                    ratios = []
                    for index in sharding(wanted).devices_indices_map(shape).values():
                        box = boxes.from_index(index, shape)
                        memory = np.empty(boxes.box_shape(box), np.float32)
                        read = planned(leaf.source.reads([(box, memory)])).read_bytes
                        ratios.append(read / memory.nbytes)
                    cells.append(f"{max(ratios):.2f}")
                yield cells

    return table(["saved as", "chunk", *(f"to {name}" for name in layouts)], rows())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    quick = chosen.quick
    # Merging first: its children are forked before JAX starts any thread.
    tables = {
        "merge": merging([10, 30] if quick else [10, 100, 1000], 100 if quick else 1000),
        "balance": balance([8] if quick else [8, 64, 256, 1024]),
        "plan": plan_time([10, 100] if quick else [10, 100, 1000, 10_000]),
        "resharding": resharding(1024, 1024) if quick else resharding(16384, 4096),
    }
    if chosen.docs:
        text = DOCUMENT.read_text()
        for name, lines in tables.items():
            begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
            made = "\n".join([begin, "", *lines, "", end])
            text = re.sub(
                f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, made=made: made, text, flags=re.DOTALL
            )
        DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
