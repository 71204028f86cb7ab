"""Zarr metadata of one array <-> values.

Specification: zarr v3 core (`zarr.json`) with the codecs ``bytes``, ``zstd`` and ``crc32c``, and
zarr v2 (`.zarray`), as TensorStore reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from storax.errors import Corrupt
from storax.tree.dtypes import dtype_name, dtype_named

METADATA_KEY = "zarr.json"
METADATA_KEY_2 = ".zarray"
# The level of zstd: 1 is three times as fast as 3 and hardly larger on weights.
_ZSTD_LEVEL = 1
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """Shape, dtype and chunk grid of an array on disk.

    Attributes:
      codec: ``crc32c`` when chunks are raw bytes and a checksum (what storax writes), ``raw`` when
        they are raw bytes alone; storax reads both itself. ``other`` is all that TensorStore decodes.
      version: of zarr.
    """

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: np.dtype
    codec: Literal["crc32c", "raw", "other"]
    version: Literal[2, 3] = 3

    @property
    def checksum_bytes(self) -> int:
        """How many bytes follow the values of a chunk."""
        return 4 if self.codec == "crc32c" else 0

    def chunk_key(self, coordinates: Sequence[int]) -> str:
        """The key of a chunk below the array's own."""
        return chunk_key(coordinates) if self.version == 3 else ".".join(map(str, coordinates)) or "0"


def key_of(name: str, key: str) -> str:
    """Where a key of the array of a leaf is in the database; the whole tree of a bare array has no name.

    >>> key_of("params.w", "zarr.json"), key_of("", "c/0")
    ('params.w/zarr.json', 'c/0')
    """
    return f"{name}/{key}" if name else key


def chunk_key(coordinates: Sequence[int]) -> str:
    """The key of a chunk below the array's own.

    >>> chunk_key((0, 1)), chunk_key(())
    ('c/0/1', 'c')
    """
    return "/".join(("c", *map(str, coordinates)))


def codecs(dtype: np.dtype, compression: str | None) -> list[dict[str, Any]]:
    """The codec chain that storax writes: little-endian bytes, perhaps zstd, always a CRC-32C."""
    one_byte = dtype.itemsize == 1
    to_bytes = {"name": "bytes"} if one_byte else {"name": "bytes", "configuration": {"endian": "little"}}
    zstd = {"name": "zstd", "configuration": {"level": _ZSTD_LEVEL, "checksum": False}}
    return [to_bytes, *([zstd] if compression == "zstd" else []), {"name": "crc32c"}]


@lru_cache(maxsize=4096)
def encode(
    shape: tuple[int, ...], chunk_shape: tuple[int, ...], dtype: np.dtype, compression: str | None
) -> bytes:
    """The ``zarr.json`` of an array."""
    return json.dumps(
        {
            "chunk_grid": {"configuration": {"chunk_shape": chunk_shape}, "name": "regular"},
            "chunk_key_encoding": {"name": "default"},
            "codecs": codecs(dtype, compression),
            "data_type": dtype_name(dtype),
            "fill_value": _zero(dtype),
            "node_type": "array",
            "shape": shape,
            "zarr_format": 3,
        },
        separators=(",", ":"),
    ).encode()


def _zero(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return False
    if dtype.kind == "c":
        return [0.0, 0.0]
    if dtype_name(dtype) == "float8_e8m0fnu":
        return "NaN"  # it has no zero
    return 0 if dtype.kind in "iu" or dtype_name(dtype).startswith(("int", "uint")) else 0.0


# Thousands of leaves have a handful of different shapes, so their documents are parsed once each.
@lru_cache(maxsize=4096)
def parse(text: bytes) -> ZarrArray:
    """Reads a ``zarr.json``. Raises ``Corrupt`` if it is not one."""
    try:
        raw = json.loads(text)
        shape = tuple(_count(n) for n in raw["shape"])
        chunk = tuple(_count(n) for n in raw["chunk_grid"]["configuration"]["chunk_shape"])
        names = [codec["name"] for codec in raw["codecs"]]
        big_endian = raw["codecs"][0].get("configuration", {}).get("endian") == "big"
        plain = raw["chunk_grid"]["name"] == "regular" and raw["chunk_key_encoding"] == {"name": "default"}
        dtype = dtype_named(raw["data_type"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Corrupt(f"this is not the metadata of a zarr array: {error!r}") from None
    _check_grid(shape, chunk)
    codec = _CODECS.get(tuple(names)) if plain and not big_endian else None
    return ZarrArray(shape, chunk, dtype, codec or "other")


_CODECS: dict[tuple[str, ...], Literal["crc32c", "raw"]] = {("bytes", "crc32c"): "crc32c", ("bytes",): "raw"}


@lru_cache(maxsize=4096)
def parse_2(text: bytes) -> ZarrArray:
    """Reads a ``.zarray``. Raises ``Corrupt`` if it is not one."""
    try:
        raw = json.loads(text)
        shape = tuple(_count(n) for n in raw["shape"])
        chunk = tuple(_count(n) for n in raw["chunks"])
        plain = raw["compressor"] is None and not raw["filters"] and raw["order"] == "C"
        plain = plain and raw.get("dimension_separator", ".") == "."
        name = str(raw["dtype"])
        # Numpy's names have the byte order in front; those of ml_dtypes are names.
        dtype = np.dtype(name) if name[:1] in "<>|" else dtype_named(name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(f"this is not the metadata of a zarr array: {error!r}") from None
    _check_grid(shape, chunk)
    return ZarrArray(shape, chunk, dtype, "raw" if plain and name[:1] != ">" else "other", 2)


def _check_grid(shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
    if len(shape) != len(chunk) or len(shape) > _MOST_DIMENSIONS or 0 in chunk:
        raise Corrupt(f"chunks of shape {list(chunk)} cannot tile an array of shape {list(shape)}")


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a length")
    return value
