"""Model surgery, beside the same in memory with Orbax's experimental module. Each in a process of its own.

The model has 2 layers of 16 experts (1.2 GB of float32). Names are changed, gate and up fused, experts
and layers stacked. Peak memory is what the process had at most beyond what it had before, loaded tree
included. Bytes read are those that the process asked the system for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
from common import Row, Setting

LAYERS, EXPERTS, WIDTH, HIDDEN = 2, 16, 1024, 3072
RENAME = [(r"^model\.", ""), (r"_proj\.weight$", ".kernel")]
FUSE = {"pattern": r".*\.(gate|up)\.kernel$", "unique_parts": ["gate", "up"], "fused_unique_part": "gate_up"}
STACKS = [r"experts\.(\d+\.)", r"^layers\.(\d+\.)"]

CASES = {
    "rewrite": "checkpoint to checkpoint",
    "load": "safetensors into shards on 8 devices",
}
NAMES = {"storax": "storax", "orbax": "Orbax: all in memory, model_surgery"}


def run(setting: Setting) -> list[Row]:
    rows = []
    source = setting.fresh("surgery")
    needed = int(_child_process("prepare", "storax", source)["read"])
    for case, title in CASES.items():
        found: dict[str, list[dict[str, float]]] = {who: [] for who in NAMES}
        for _ in range(max(2, setting.slow_repeats)):
            for who, results in found.items():
                results.append(_child_process(case, who, source))
        for who, results in found.items():
            seconds = [result["seconds"] for result in results]
            rows.append(Row(f"surgery, {title}: 1.2 GB", NAMES[who], seconds, needed))
        for who, results in found.items():
            peak = min(result["peak"] for result in results) / needed
            read = results[-1]["read"] / needed
            text = f"{peak:.2f}, {read:.3f}" if read else f"{peak:.2f}, the file is mapped"
            rows.append(Row(f"  peak memory / model, bytes read / needed: {title}", NAMES[who], text=text))
    common.remove(source)
    rows += _out_of_core(setting, 16 if setting.full else 4)
    return rows


def _out_of_core(setting: Setting, gigabytes: int) -> list[Row]:
    """A sparse file, so that reading costs nothing but the copy; what is written is written."""
    source = setting.fresh("sparse")
    result = _child_process(f"sparse{gigabytes}", "storax", source)
    common.remove(source)
    case = f"surgery, out of core: {gigabytes} GB, stack, fuse and transpose"
    text = f"{result['rss'] / 1e6:,.0f} MB, {result['read'] / (gigabytes << 30):.3f}"
    return [
        Row(case, "storax", [result["seconds"]], gigabytes << 30),
        Row("  memory of the whole process, bytes read / needed: out of core", "storax", text=text),
    ]


def _child_process(case: str, who: str, source: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, case, who, str(source)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _status(field: str, file: str = "status") -> int:
    for line in Path(f"/proc/self/{file}").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * (1024 if file == "status" else 1)
    raise KeyError(field)


# --- in the child --------------------------------------------------------------------------------


def _model() -> dict[str, Any]:
    shapes = {"gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
    return {
        f"model.layers.{i}.mlp.experts.{j}.{name}_proj.weight": common.normal(shape, i * EXPERTS + j)
        for i in range(LAYERS)
        for j in range(EXPERTS)
        for name, shape in shapes.items()
    }


def _ours() -> list[Any]:
    from storax.surgery import fuse_by_pattern, rename_by_regex, stack, unflatten

    return [rename_by_regex(RENAME), fuse_by_pattern(**FUSE), *map(stack, STACKS), unflatten()]


def _theirs(tree: Any) -> Any:
    from orbax.checkpoint.experimental.model_surgery.transformations import (
        fusing,
        nesting,
        renaming,
        stacking,
    )

    tree = fusing.fuse_by_pattern(**FUSE)(renaming.rename_by_regex(RENAME)(tree))
    for pattern in STACKS:
        tree = stacking.stack(pattern, inplace=True)(tree)
    return nesting.unflatten()(tree)


def _prepare(source: Path) -> int:
    import storax

    tree = _model()
    source.mkdir(parents=True)
    storax.save(source / "checkpoint", tree)
    storax.save_safetensors(source / "model.safetensors", tree)
    return sum(value.nbytes for value in tree.values())


def _rewrite(who: str, source: Path) -> None:
    import storax

    if who == "storax":
        storax.rewrite(source / "checkpoint", source / "out", transforms=_ours())
        return
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(source / "out", _theirs(checkpointer.restore(source / "checkpoint")))


def _load(who: str, source: Path) -> Any:
    import jax

    import storax

    spec = jax.sharding.PartitionSpec(None, "x")
    sharding = jax.sharding.NamedSharding(common.mesh(), spec)
    if who == "storax":
        shapes = {"down": (WIDTH, HIDDEN), "gate_up": (2 * HIDDEN, WIDTH)}
        experts = {
            name: {"kernel": jax.ShapeDtypeStruct((LAYERS, EXPERTS, *shape), "float32", sharding=sharding)}
            for name, shape in shapes.items()
        }
        target = {"layers": {"mlp": {"experts": experts}}}
        return storax.load(source / "model.safetensors", target, transforms=_ours())
    from safetensors.numpy import load_file

    return jax.device_put(_theirs(load_file(source / "model.safetensors")), sharding)


def _sparse(gigabytes: int, source: Path) -> int:
    """A model of experts of 256 MB, rewritten; the bytes that were read."""
    import storax
    from storax.surgery import fuse_by_pattern, stack, transpose

    rows = columns = 8192
    header, end = {}, 0
    for i in range(gigabytes * 4):
        for part in ("gate", "up"):
            offsets = [end, end + rows * columns * 2]
            header[f"experts.{i}.{part}"] = {
                "dtype": "BF16",
                "shape": [rows, columns],
                "data_offsets": offsets,
            }
            end = offsets[1]
    text = json.dumps(header).encode()
    source.mkdir(parents=True)
    with open(source / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    steps = [
        fuse_by_pattern(r".*\.(gate|up)$", ["gate", "up"], "gate_up"),
        transpose("gate_up$", [1, 0]),
        stack(r"experts\.(\d+\.)"),
    ]
    report = storax.rewrite(source / "model.safetensors", source / "out", transforms=steps)
    assert report.loaded == ("experts.gate_up",)
    return int(report.read_bytes)


def _child(case: str, who: str, source: Path) -> dict[str, float]:
    common.eight_devices()
    import jax

    import storax

    # What is made once, on a tiny tree.
    storax.transform({"a": jax.numpy.ones(2)}, [])
    if case == "prepare":
        return {"read": _prepare(source)}
    if who == "orbax":
        _theirs({"a": jax.numpy.ones(2)})
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    asked = _status("rchar", "io")
    started = time.perf_counter()
    if case.startswith("sparse"):
        read = _sparse(int(case.removeprefix("sparse")), source)
    else:
        result = _load(who, source) if case == "load" else _rewrite(who, source)
        jax.block_until_ready(result)
        read = _status("rchar", "io") - asked
    seconds = time.perf_counter() - started
    peak = _status("VmHWM")
    if case == "rewrite":
        tree = storax.load(source / "out")["layers"]["mlp"]["experts"]
        assert tree["gate_up"]["kernel"].shape == (LAYERS, EXPERTS, 2 * HIDDEN, WIDTH)
        common.remove(source / "out")
    return {"seconds": seconds, "peak": peak - before, "rss": peak, "read": read}


if __name__ == "__main__":
    print(json.dumps(_child(sys.argv[1], sys.argv[2], Path(sys.argv[3]))), flush=True)
    os._exit(0)
