"""Tensors into the places that a header planned for them: straight from their memory where that is one run.

A process writes the boxes that it has, and nothing else: several can write one file at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from storax.arrays.gather import atom_of, gather
from storax.arrays.read import Source
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.runs import Run, blocks, pieces, position, spans
from storax.progress import advance, watching
from storax.safetensors.dtypes import group, numpy_dtype, packed
from storax.safetensors.header import BITS, Header, Tensor
from storax.store.budget import WORKERS, Budget, run_all
from storax.store.posix import NewFile
from storax.store.reading import Act, read_all, split

# What one thread copies and writes in one go, and what it may read at once so that no chunk is read twice.
_PIECE_BYTES = 16 << 20
_MOST_PIECE_BYTES = 64 << 20
# Host memory of arrays that are on devices, unless one alone is larger.
_BATCH_BYTES = 256 << 20

Values = np.ndarray | jax.Array | Source
# A box of a tensor and its values; a source has those of the whole tensor.
Part = tuple[Box, Values]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A tensor to be written: what this process has of it.

    Attributes:
      dtype: as the format calls it.
      shape: of the whole tensor.
      parts: in any order, without overlap.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


def write_tensors(file: NewFile, found: Header, outgoing: Mapping[str, Outgoing], budget: Budget) -> None:
    """Writes what this process has of the tensors of one file into their places. Not durable yet."""
    for batch in _batches([tensor for tensor in found.tensors if tensor.name in outgoing], outgoing):
        acts: list[Act] = []
        for tensor in batch:
            parts = [(box, _on_host(values)) for box, values in outgoing[tensor.name].parts]
            acts += _acts(file, found.data_start, tensor, parts, budget)
        run_all(acts, workers=WORKERS)


def _batches(tensors: Sequence[Tensor], outgoing: Mapping[str, Outgoing]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    size = 0
    for tensor in tensors:
        nbytes = sum(
            boxes.size(box) * values.dtype.itemsize
            for box, values in outgoing[tensor.name].parts
            if isinstance(values, jax.Array)
        )
        if batch and size + nbytes > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(tensor)
        size += nbytes
    if batch:
        yield batch


def _on_host(values: Values) -> np.ndarray | Source:
    return np.asarray(values) if isinstance(values, jax.Array) else values


def _acts(
    file: NewFile,
    data_start: int,
    tensor: Tensor,
    parts: list[tuple[Box, np.ndarray | Source]],
    budget: Budget,
) -> Iterator[Act]:
    offset = data_start + tensor.start
    for run in spans([box for box, _ in parts], tensor.shape, 0):
        for piece in pieces([run], _piece_elements(tensor, [values for _, values in parts])):
            yield partial(_write_piece, file, offset, tensor, piece, parts, budget)


def _piece_elements(tensor: Tensor, values: Sequence[np.ndarray | Source]) -> int:
    """How many elements to write at once: whole bytes, and whole chunks of what they are read from."""
    elements, nbytes = group(tensor.dtype)
    least = elements
    for source in values:
        if not isinstance(source, np.ndarray) and tensor.shape:
            rows = atom_of(source)[0] * math.prod(tensor.shape[1:])
            if rows // elements * nbytes <= _MOST_PIECE_BYTES:
                least = math.lcm(elements, rows)
    return least * max(1, _PIECE_BYTES // max(1, least // elements * nbytes))


def _write_piece(
    file: NewFile,
    offset: int,
    tensor: Tensor,
    piece: Run,
    parts: Sequence[tuple[Box, np.ndarray | Source]],
    budget: Budget,
) -> None:
    at = offset + piece[0] * BITS[tensor.dtype] // 8
    if (straight := _straight(tensor, piece, parts)) is not None:
        done = file.write_at(at, [straight])
    else:
        dtype = numpy_dtype(tensor.dtype)
        count = piece[1] - piece[0]
        with budget.holding(count * dtype.itemsize):
            values = np.empty(count, dtype)
            _fill(values, tensor, piece, parts, budget)
            stored = values if BITS[tensor.dtype] >= 8 else packed(values, tensor.dtype)
            done = file.write_at(at, [stored.view(np.uint8).data])
    advance(done)


def _straight(
    tensor: Tensor, piece: Run, parts: Sequence[tuple[Box, np.ndarray | Source]]
) -> memoryview | None:
    """The memory that has exactly the bytes of a piece, if there is one."""
    for box, values in parts:
        if not isinstance(values, np.ndarray) or values.dtype != numpy_dtype(tensor.dtype):
            continue
        inside = all(boxes.intersect(block, box) == block for block in blocks(piece, tensor.shape))
        if inside and values.flags.c_contiguous and BITS[tensor.dtype] >= 8:
            start = position(piece[0], box, tensor.shape)
            return values.reshape(-1)[start : start + piece[1] - piece[0]].view(np.uint8).data
    return None


def _fill(
    memory: np.ndarray,
    tensor: Tensor,
    piece: Run,
    parts: Sequence[tuple[Box, np.ndarray | Source]],
    budget: Budget,
) -> None:
    """The values of a piece, from all parts that have some of them."""
    start = 0
    wants = []
    for block in blocks(piece, tensor.shape):
        held = memory[start : start + boxes.size(block)].reshape(boxes.box_shape(block))
        start += boxes.size(block)
        for box, values in parts:
            part = boxes.intersect(block, box)
            if part is None:
                continue
            # The dots: a view, also of 0-d memory.
            place: Any = (*boxes.slices(part, block), ...)
            if isinstance(values, np.ndarray):
                taken: Any = (*boxes.slices(part, box), ...)
                held[place] = values[taken]
            else:
                wants.append((values, (part, held[place].view(values.dtype))))
    segments, acts = split(gather(wants))
    with watching(_nobody):
        read_all(segments, acts, budget=budget, workers=1)


def _nobody(_done: int, _total: int) -> None:
    """What is read to be written counts once, when it is written."""
