"""Files by the official library, for every dtype of the format, from the raw bytes of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import safetensors

# The dtypes of the format by the names that the official library writes them under.
NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32",
    "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip


def encode(tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """What the official library writes. Four-bit numbers have a byte each here and are packed by hand."""
    keep, specs = [], {}
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        dtype, shape = values.dtype.name, list(values.shape)
        if dtype == "float4_e2m1fn":
            raw = (raw[::2] | raw[1::2] << 4).astype(np.uint8)
            dtype, shape = "float4_e2m1fn_x2", [*shape[:-1], shape[-1] // 2]
        keep.append(raw)
        specs[name] = safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=raw.ctypes.data, data_len=raw.nbytes
        )
    return bytes(safetensors.serialize(specs, metadata=metadata))


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> Path:
    path.write_bytes(encode(tensors, metadata))
    return path


def write_shards(directory: Path, shards: list[Mapping[str, np.ndarray]]) -> Path:
    """A directory as Hugging Face has it."""
    directory.mkdir(parents=True, exist_ok=True)
    places = {}
    for i, tensors in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors"
        write(directory / name, tensors, {"format": "pt"})
        places |= dict.fromkeys(tensors, name)
    index = {
        "metadata": {"total_size": sum(t.nbytes for s in shards for t in s.values())},
        "weight_map": places,
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def decode(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """What the official library reads: dtype, shape and bytes of each tensor."""
    return {
        name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in safetensors.deserialize(data)
    }
