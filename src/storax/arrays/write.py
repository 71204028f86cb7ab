"""Staged arrays -> the values of a database: zarr metadata and chunks, without copying them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from storax.arrays import zarr
from storax.arrays.staging import OnDevice, StagedArray
from storax.ocdbt.writer import Deferred, Encoded, Value
from storax.plan import boxes

# The values of a chunk, or what fetches them.
_Chunk = np.ndarray | Callable[[], np.ndarray]


def values_of(arrays: Sequence[StagedArray], compression: str | None) -> list[Value]:
    """What goes into the database for these arrays, in any order."""
    return [value for array in arrays for value in _array_values(array, compression)]


def _array_values(array: StagedArray, compression: str | None) -> Iterator[Value]:
    def keys(key: str) -> tuple[bytes, ...]:
        return tuple(zarr.key_of(name, key).encode() for name in (array.leaf.name, *array.also))

    nbytes = math.prod(array.chunk_shape) * array.dtype.itemsize
    text = zarr.encode(array.shape, array.chunk_shape, array.dtype, compression)
    if array.described:
        own, *also = keys(zarr.METADATA_KEY)
        yield Value(own, text, checksum=False, also=tuple(also))
    for coordinates, chunk in _chunks(array):
        own, *also = keys(zarr.chunk_key(coordinates))
        if compression is None:
            yield Value(own, _rows(chunk, array.chunk_shape, nbytes), checksum=True, also=tuple(also))
        else:
            make = partial(_encoded, chunk, array.chunk_shape, compression)
            encoded = Encoded(nbytes, make)
            yield Value(own, encoded, checksum=False, also=tuple(also))


def _chunks(array: StagedArray) -> Iterator[tuple[tuple[int, ...], _Chunk]]:
    for box, data in array.parts:
        for coordinates in boxes.cells(box, array.chunk_shape):
            cell = boxes.cell_box(coordinates, array.chunk_shape)
            part = boxes.intersect(cell, box)
            if part is None:
                continue
            if isinstance(data, OnDevice):
                yield coordinates, partial(data.fetch, boxes.relative(part, box))
            else:
                index: Any = (*boxes.slices(part, box), ...)  # the dots: an array, also of 0-d data
                yield coordinates, data[index]


def _rows(chunk: _Chunk, shape: tuple[int, ...], nbytes: int) -> memoryview | Deferred:
    """The bytes of a chunk in C order: its own memory, or made when they are written."""
    if isinstance(chunk, np.ndarray) and chunk.shape == shape and chunk.flags.c_contiguous:
        return as_bytes(chunk)
    return Deferred(nbytes, lambda: as_bytes(_padded(_fetched(chunk), shape)))


def _fetched(chunk: _Chunk) -> np.ndarray:
    return chunk if isinstance(chunk, np.ndarray) else chunk()


def _padded(chunk: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A chunk at the upper edge of an array, as long as the others: zarr has no short chunks."""
    if chunk.shape == shape:
        return chunk
    padded = np.zeros(shape, chunk.dtype)
    padded[tuple(slice(0, n) for n in chunk.shape)] = chunk
    return padded


def as_bytes(array: np.ndarray) -> memoryview:
    """The memory of an array; a copy only if it is not one run."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _encoded(chunk: _Chunk, shape: tuple[int, ...], compression: str) -> bytes:
    return _compressed(_padded(_fetched(chunk), shape), compression)


def _compressed(chunk: np.ndarray, compression: str) -> bytes:
    """A chunk encoded by TensorStore, as the library has no compressor of its own."""
    import tensorstore as ts

    store: Any = ts.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "memory"},
            "metadata": {
                "shape": chunk.shape,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk.shape}},
                "data_type": chunk.dtype.name,
                "codecs": zarr.codecs(chunk.dtype, compression),
            },
            "store_data_equal_to_fill_value": True,
        },
        create=True,
        context=ts.Context(),
    ).result()
    store.write(chunk).result()
    return bytes(store.kvstore.read(zarr.chunk_key((0,) * chunk.ndim)).result().value)
