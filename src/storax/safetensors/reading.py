"""A tensor of a file as a source: boxes of it become runs of the file, read straight into their memory.

The format has no checksums, so nothing more can be checked than what the header says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storax.arrays.read import Wanted
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.runs import LOCAL_GAP, Run, blocks, pieces, position, spans
from storax.progress import advance
from storax.safetensors.dtypes import group, numpy_dtype, unpacked
from storax.safetensors.files import Placed
from storax.safetensors.header import BITS
from storax.store.reading import Segment

# Below this a copy costs less than a system call of its own.
_WORTH_A_CALL = 256 << 10
# What one thread reads in one go: straight into its place, or into memory that is copied from while
# the processor's cache still has it.
_STRAIGHT = 16 << 20
_THROUGH_MEMORY = 4 << 20


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A source: one tensor of a safetensors file.

    Attributes:
      gap: how many bytes are worth reading to save one request, where the file is.
    """

    placed: Placed
    gap: int = LOCAL_GAP

    @property
    def shape(self) -> tuple[int, ...]:
        return self.placed.tensor.shape

    @property
    def dtype(self) -> np.dtype:
        return numpy_dtype(self.placed.tensor.dtype)

    @property
    def atom(self) -> tuple[int, ...]:
        """The block that is best read whole: a row."""
        return (*(1 for _ in self.shape[:-1]), *self.shape[-1:])

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Segment]:
        """The runs of the file that hold the boxes: each once, however many boxes share it."""
        elements, nbytes = group(self.placed.tensor.dtype)
        gap = self.gap // nbytes * elements
        for span in spans([box for box, _ in wanted], self.shape, gap):
            yield from self._span(span, wanted)

    def _span(self, span: Run, wanted: Sequence[Wanted]) -> Iterator[Segment]:
        elements, nbytes = group(self.placed.tensor.dtype)
        if elements == 1 and len(users := _users(span, self.shape, wanted)) == 1:
            (box, memory) = users[0]
            length = (span[1] - span[0]) * nbytes
            if memory.flags.c_contiguous and length >= _WORTH_A_CALL and _inside(span, box, self.shape):
                for piece in pieces([span], _STRAIGHT // nbytes):
                    yield self._straight(piece, box, memory)
                return
        # Whole bytes at either end, also of elements that are narrower.
        begin, end = span[0] // elements, -(-span[1] // elements)
        for first, last in pieces([(begin, end)], _THROUGH_MEMORY // nbytes):
            yield self._through_memory((first * elements, last * elements), wanted)

    def _straight(self, run: Run, box: Box, memory: np.ndarray) -> Segment:
        itemsize = self.dtype.itemsize
        start = position(run[0], box, self.shape) * itemsize
        length = (run[1] - run[0]) * itemsize
        into = memory.reshape(-1).view(np.uint8)[start : start + length].data
        return Segment(
            str(self.placed.path),
            self._offset(run[0]),
            length,
            lambda _: advance(length),
            into=(into,),
            what=self.placed.tensor.name,
        )

    def _through_memory(self, run: Run, wanted: Sequence[Wanted]) -> Segment:
        dtype = self.placed.tensor.dtype
        offset = self._offset(run[0])
        length = self._offset(run[1]) - offset
        parts = list(_parts(run, self.shape, wanted))

        def deliver(data: memoryview) -> None:
            raw = np.frombuffer(data, np.uint8)
            values = raw.view(self.dtype) if BITS[dtype] >= 8 else unpacked(raw, dtype)
            for start, block, part, memory in parts:
                held = values[start : start + boxes.size(block)].reshape(boxes.box_shape(block))
                memory[...] = held[boxes.slices(part, block)]
            advance(sum(memory.nbytes for _, _, _, memory in parts))

        wants = sum(boxes.size(part) for _, _, part, _ in parts) * BITS[dtype] // 8
        return Segment(
            str(self.placed.path),
            offset,
            length,
            deliver,
            what=self.placed.tensor.name,
            unwanted=max(0, length - wants),
        )

    def _offset(self, element: int) -> int:
        return (
            self.placed.data_start + self.placed.tensor.start + element * BITS[self.placed.tensor.dtype] // 8
        )


def _parts(
    run: Run, shape: tuple[int, ...], wanted: Sequence[Wanted]
) -> Iterator[tuple[int, Box, Box, np.ndarray]]:
    """Of the blocks of a run: where each begins in it, the block, what of it is wanted, memory for that."""
    start = 0
    for block in blocks(run, shape):
        for box, memory in wanted:
            part = boxes.intersect(block, box)
            if part is not None:
                # The dots: a view, also of 0-d memory.
                index: Any = (*boxes.slices(part, box), ...)
                yield start, block, part, memory[index]
        start += boxes.size(block)


def _users(run: Run, shape: tuple[int, ...], wanted: Sequence[Wanted]) -> list[Wanted]:
    """Those of the boxes that have elements in a run."""
    found = list(blocks(run, shape))
    return [
        (box, memory) for box, memory in wanted if any(boxes.intersect(b, box) is not None for b in found)
    ]


def _inside(run: Run, box: Box, shape: tuple[int, ...]) -> bool:
    """Whether a box has all elements of a run: then they follow one another in its memory, too."""
    return all(boxes.intersect(block, box) == block for block in blocks(run, shape))
