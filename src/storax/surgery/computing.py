"""Sources whose values are computed from others, a block at a time.

A block is read into memory of its own, held under the budget of whoever reads, computed, and
delivered to all that want a part of it. Blocks are whole atoms of the inputs, so cutting an array
into blocks reads nothing twice.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storax.arrays.gather import Want, atom_of, gather
from storax.arrays.read import Source, Wanted
from storax.errors import BadOption
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.chunks import aligned_chunk_shape
from storax.store.reading import Act, Allocate, Read, Work
from storax.tree.dtypes import dtype_name

# Bytes of a block of the result: several are in flight at once.
_BLOCK = 8 << 20

Needs = list[tuple[Source, Box]]


class Computing(ABC):
    """What all computed sources share: the cutting into blocks."""

    __slots__ = ()

    @property
    @abstractmethod
    def inputs(self) -> tuple[Source, ...]: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def dtype(self) -> np.dtype: ...

    @property
    def atom(self) -> tuple[int, ...]:
        return atom_of(self.inputs[0])

    @property
    def needs_whole(self) -> bool:
        """Whether a block is computed whole even if only a part of it is wanted."""
        return False

    @abstractmethod
    def needs(self, box: Box) -> Needs:
        """The boxes of the inputs that a box of the result is computed from."""

    @abstractmethod
    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        """The box, given what it needs. May return one of them or a view."""

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Read]:
        block = aligned_chunk_shape(self.shape, atom_of(self), self.dtype.itemsize, _BLOCK)
        by_block: dict[Box, list[Wanted]] = defaultdict(list)
        for box, memory in wanted:
            for cell in boxes.cells(box, block) if memory.size else ():
                whole = boxes.cell_box(cell, block)
                if (part := boxes.intersect(whole, box)) is not None:
                    index: Any = (*boxes.slices(part, box), ...)
                    by_block[whole].append((part, memory[index]))
        for whole, parts in by_block.items():
            inside = boxes.intersect(whole, boxes.whole(self.shape))
            if self.needs_whole and inside is not None:
                yield self._work([(inside, parts)])
            else:
                yield self._work([(part[0], [part]) for part in parts])

    def _work(self, jobs: Sequence[tuple[Box, Sequence[Wanted]]]) -> Work:
        """Each job: a box to compute, and what its values go to."""
        nbytes = 0
        for box, _ in jobs:
            nbytes += boxes.size(box) * self.dtype.itemsize
            nbytes += sum(boxes.size(part) * source.dtype.itemsize for source, part in self.needs(box))

        def prepare(make: Allocate) -> tuple[list[Read], Act]:
            wants: list[Want] = []
            values: list[list[np.ndarray]] = []
            for box, _ in jobs:
                values.append([])
                for source, part in self.needs(box):
                    memory = make(boxes.box_shape(part), source.dtype)
                    values[-1].append(memory)
                    wants.append((source, (part, memory)))

            def then() -> None:
                for (box, parts), given in zip(jobs, values, strict=True):
                    result = self.compute(box, given)
                    for part, memory in parts:
                        memory[...] = result[boxes.slices(part, box)]

            return gather(wants), then

        return Work(nbytes, prepare)


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Computing):
    """An input in another dtype."""

    source: Source
    into: np.dtype

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype:
        return self.into

    def needs(self, box: Box) -> Needs:
        return [(self.source, box)]

    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        return values[0].astype(self.into)

    def __str__(self) -> str:
        return f"cast({self.source}; {dtype_name(self.into)})"


@dataclass(frozen=True, slots=True, eq=False)
class Scaled(Computing):
    """An input times a number, rounded once to the input's dtype."""

    source: Source
    factor: float

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    def needs(self, box: Box) -> Needs:
        return [(self.source, box)]

    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        result: np.ndarray = _wide(values[0]) * _wide_factor(values[0], self.factor)
        return result.astype(self.dtype)

    def __str__(self) -> str:
        return f"{self.factor} * {self.source}"


@dataclass(frozen=True, slots=True, eq=False)
class Added(Computing):
    """A base plus a number times a delta of the same shape, rounded once to the dtype of the base."""

    source: Source
    delta: Source
    scale: float

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source, self.delta)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    def needs(self, box: Box) -> Needs:
        return [(self.source, box), (self.delta, box)]

    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        base, delta = _wide(values[0]), _wide(values[1])
        result: np.ndarray = base + _wide_factor(base, self.scale) * delta
        return result.astype(self.dtype)

    def __str__(self) -> str:
        return f"{self.source} + {self.scale} * {self.delta}"


@dataclass(frozen=True, slots=True, eq=False)
class LowRank(Computing):
    """``W + scale * (B @ A)``: a block needs the same rows of B and the same columns of A."""

    source: Source
    b: Source
    a: Source
    scale: float

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source, self.b, self.a)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    def needs(self, box: Box) -> Needs:
        *outer, rows, columns = box
        rank = (0, self.a.shape[-2])
        return [(self.source, box), (self.b, (*outer, rows, rank)), (self.a, (*outer, rank, columns))]

    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        base, b, a = map(_wide, values)
        result: np.ndarray = base + _wide_factor(base, self.scale) * (b @ a)
        return result.astype(self.dtype)

    def __str__(self) -> str:
        return f"{self.source} + {self.scale} * {self.b} @ {self.a}"


@dataclass(frozen=True, slots=True, eq=False)
class Reread(Computing):
    """An input in another shape where no boxes correspond: the run of rows that holds a block is read."""

    source: Source
    into: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.into

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    @property
    def atom(self) -> tuple[int, ...]:
        return (*(1 for _ in self.into[:-1]), *self.into[-1:])

    def needs(self, box: Box) -> Needs:
        inner = self.source.shape
        row = math.prod(inner[1:])
        first, last = self._flat(box)
        return [(self.source, ((first // row, last // row + 1), *boxes.whole(inner[1:])))]

    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        row = math.prod(self.source.shape[1:])
        flat = values[0].reshape(-1)[self._flat(box)[0] % row :]
        strides = [step * self.dtype.itemsize for step in self._strides()]
        return np.lib.stride_tricks.as_strided(flat, boxes.box_shape(box), strides)

    def _strides(self) -> list[int]:
        return [math.prod(self.into[axis + 1 :]) for axis in range(len(self.into))]

    def _flat(self, box: Box) -> tuple[int, int]:
        """The places of a box's first and last elements among all."""
        steps = self._strides()
        first = sum(start * step for (start, _), step in zip(box, steps, strict=True))
        last = sum((stop - 1) * step for (_, stop), step in zip(box, steps, strict=True))
        return first, last

    def __str__(self) -> str:
        return f"reshape({self.source}; {', '.join(map(str, self.into))})"


@dataclass(frozen=True, slots=True, eq=False)
class Applied(Computing):
    """What a function makes of whole inputs; it is called once per reading."""

    sources: tuple[Source, ...]
    function: Callable[..., Any]
    made_shape: tuple[int, ...]
    made_dtype: np.dtype
    what: str

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.sources

    @property
    def shape(self) -> tuple[int, ...]:
        return self.made_shape

    @property
    def dtype(self) -> np.dtype:
        return self.made_dtype

    @property
    def atom(self) -> tuple[int, ...]:
        return self.made_shape

    @property
    def needs_whole(self) -> bool:
        return True

    def needs(self, box: Box) -> Needs:
        return [(source, boxes.whole(source.shape)) for source in self.sources]

    def compute(self, box: Box, values: Sequence[np.ndarray]) -> np.ndarray:
        result = np.asarray(self.function(*values))
        if result.shape != self.made_shape or dtype_name(result.dtype) != dtype_name(self.made_dtype):
            raise wrong_result(self.what, result, self.made_shape, self.made_dtype)
        return result

    def __str__(self) -> str:
        return f"{self.what}({', '.join(map(str, self.sources))})"


def wrong_result(what: str, result: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> Exception:
    """A function did not keep to what was declared."""
    made = f"{dtype_name(result.dtype)}{list(result.shape)}"
    return BadOption(
        f"{what} returned {made}, and {dtype_name(dtype)}{list(shape)} was declared. "
        "Declare what it returns: apply(..., shape=..., dtype=...)."
    )


def _wide(values: np.ndarray) -> np.ndarray:
    """Values in a dtype to compute in: float32 for all narrower floats."""
    return (
        values
        if dtype_name(values.dtype) in ("float64", "complex64", "complex128")
        else values.astype(np.float32)
    )


def _wide_factor(values: np.ndarray, factor: float) -> Any:
    dtype = values.dtype if dtype_name(values.dtype) in ("float64", "complex128") else np.dtype(np.float32)
    return np.asarray(factor).astype(dtype)
