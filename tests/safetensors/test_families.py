"""Models laid out as published, in several files with an index, under the shardings that people use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from tests.safetensors import official
from tests.safetensors.families import FAMILIES, shards, tensors
from tests.same import bits

import storax

P = PartitionSpec


def fsdp(name: str, shape: tuple[int, ...]) -> PartitionSpec:
    """Every array is cut along its first dimension that all devices divide."""
    for axis, extent in enumerate(shape):
        if extent % 8 == 0:
            return P(*[None] * axis, ("data", "model"))
    return P()


_COLUMNS = re.compile(
    r"(q_proj|k_proj|v_proj|gate_proj|up_proj|w1|w3|fc1|query|key|value|intermediate\.dense)\.weight$"
)
_ROWS = re.compile(r"(o_proj|down_proj|w2|fc2|out_proj|output\.dense)\.weight$")


def tensor_parallel(name: str, shape: tuple[int, ...]) -> PartitionSpec:
    """Torch's weights are (out, in): column-parallel ones are cut along out, row-parallel ones along in."""
    if name.endswith(("c_attn.weight", "c_fc.weight")) or _ROWS.search(name):
        return P("data", "model")  # GPT-2's are (in, out)
    if _COLUMNS.search(name) or name.endswith(("embed_tokens.weight", "lm_head.weight", "wte.weight")):
        return P("model", "data")
    return P()


def strided_devices() -> Mesh:
    devices = np.array(jax.devices()).reshape(2, 4).T[::-1]
    return Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


MESHES = {"in order": lambda: jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2),
          "strided": strided_devices}  # fmt: skip


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("rule", [fsdp, tensor_parallel])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_layout_lands_sharded_and_is_read_once(
    family: str, rule: Any, mesh: str, tmp_path: Path
) -> None:
    model = tensors(family)
    directory = official.write_shards(tmp_path / family, shards(model, 3))
    with jax.set_mesh(MESHES[mesh]()) as current:
        found, report = storax.load(directory, sharding=rule, report=True)
    assert list(found) == sorted(model)
    assert {name: bits(value) for name, value in found.items()} == {
        name: ("jax.Array", value.dtype, value.shape, value.tobytes()) for name, value in model.items()
    }
    for name, value in found.items():
        assert value.sharding == NamedSharding(MESHES[mesh](), rule(name, value.shape)), current
    needed = sum(value.nbytes for value in model.values())
    assert report.wanted_bytes == report.read_bytes == needed
    assert sorted(report.files) == sorted(str(p) for p in directory.glob("*.safetensors"))


def test_orbax_agrees_on_files_and_shardings(tmp_path: Path) -> None:
    import orbax.checkpoint.experimental.v1 as ocp

    model = tensors("llama")
    directory = official.write_shards(tmp_path / "llama", shards(model, 2))
    mesh = MESHES["strided"]()
    for rule in (fsdp, tensor_parallel):
        target = {
            name: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=NamedSharding(mesh, rule(name, v.shape)))
            for name, v in model.items()
        }
        with ocp.Context(checkpoint_layout=ocp.options.CheckpointLayout.SAFETENSORS):
            theirs = ocp.load(directory, target)
        ours = storax.load(directory, target)
        assert {n: bits(v) for n, v in ours.items()} == {n: bits(v) for n, v in theirs.items()}
        assert {n: v.sharding for n, v in ours.items()} == {n: v.sharding for n, v in theirs.items()}
        for name in model:
            pairs = zip(ours[name].addressable_shards, theirs[name].addressable_shards, strict=True)
            assert all(a.device == b.device and bits(a.data) == bits(b.data) for a, b in pairs)
