"""Sources read box by box, for comparison with numpy on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from storax.arrays.gather import gather
from storax.arrays.read import Source, Wanted
from storax.plan import boxes
from storax.store.budget import Budget
from storax.store.reading import read_all, split


@dataclass(eq=False)
class Chunked:
    """An array in memory that is read in chunks, and counts them."""

    value: np.ndarray
    chunk: tuple[int, ...]
    read: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def atom(self) -> tuple[int, ...]:
        return self.chunk

    def reads(self, wanted: Sequence[Wanted]):
        found: dict[tuple[int, ...], list[Wanted]] = {}
        for box, memory in wanted:
            assert memory.shape == boxes.box_shape(box)
            assert memory.dtype == self.value.dtype
            assert all(0 <= p < q <= n for (p, q), n in zip(box, self.shape, strict=True))
            for cell in boxes.cells(box, self.chunk):
                found.setdefault(cell, []).append((box, memory))
        for cell, wants in found.items():
            yield partial(self._deliver, cell, wants)

    def _deliver(self, cell: tuple[int, ...], wants: Sequence[Wanted]) -> None:
        self.read.append(cell)
        chunk = boxes.cell_box(cell, self.chunk)
        for box, memory in wants:
            part = boxes.intersect(chunk, box)
            if part is not None:
                index: Any = (*boxes.slices(part, box), ...)
                memory[index] = self.value[boxes.slices(part, boxes.whole(self.shape))]


def fill(wants: Sequence[tuple[Source, Wanted]], memory: int = 1 << 20) -> None:
    segments, acts = split(gather(wants))
    read_all(segments, acts, budget=Budget(memory), workers=1)


def read(source: Source, box: boxes.Box | None = None) -> np.ndarray:
    """A box of a source, or all of it."""
    box = boxes.whole(source.shape) if box is None else box
    memory = np.zeros(boxes.box_shape(box), source.dtype)
    fill([(source, (box, memory))])
    return memory
