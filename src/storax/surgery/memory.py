"""Arrays in memory, and arrays of one value, as sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from storax.arrays.read import Wanted
from storax.plan import boxes
from storax.store.reading import Act
from storax.tree.dtypes import dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class MemoryArray:
    """A numpy array, or a ``jax.Array`` of which only the shards that are wanted are fetched."""

    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.value.dtype
        return dtype.newbyteorder("=")

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Act]:
        for one in wanted:
            yield partial(self._copy, *one)

    def _copy(self, box: boxes.Box, memory: np.ndarray) -> None:
        if not isinstance(self.value, jax.Array):
            memory[...] = self.value[boxes.slices(box, boxes.whole(self.shape))]
            return
        done: set[boxes.Box] = set()
        for shard in self.value.addressable_shards:
            held = boxes.from_index(shard.index, self.shape)
            part = boxes.intersect(held, box)
            if part is not None and held not in done:
                done.add(held)
                index: Any = (*boxes.slices(part, box), ...)
                memory[index] = np.asarray(shard.data)[boxes.slices(part, held)]

    def __str__(self) -> str:
        return "(memory)"


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """An array of one value."""

    shape: tuple[int, ...]
    value: Any

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.value.dtype
        return dtype

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Act]:
        for _, memory in wanted:
            yield partial(memory.fill, self.value)

    def __str__(self) -> str:
        return f"fill({self.value}; {dtype_name(self.dtype)}{list(self.shape)})"


def filled(shape: tuple[int, ...], dtype: np.dtype, value: float) -> Filled:
    """An array of one number, rounded to a dtype as a cast does it."""
    return Filled(shape, np.asarray(value).astype(dtype)[()])
