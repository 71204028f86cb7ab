"""Transforms that compute new values, a block at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from storax.arrays.read import Source
from storax.errors import BadOption
from storax.surgery.computing import Added, Applied, Cast, LowRank, Scaled
from storax.surgery.contract import EachMatching, Run, Transform, array_of, compiled
from storax.surgery.entries import BROKEN, Entries, Entry, made
from storax.surgery.filling import checked_dtype
from storax.tree.dtypes import castable, dtype_name, dtype_named


@dataclass(frozen=True, repr=False)
class cast(EachMatching):
    r"""Changes the dtype of arrays.

    Args:
      dtype: the new one.
      pattern: found anywhere in a name; every array if not given, but those of integers and booleans.
      lossy: whether a cast may lose values, as from float to int.

    Example:
      >>> cast("bfloat16", r"\.kernel$")
      cast(dtype='bfloat16', pattern='\\.kernel$')
    """

    follows: ClassVar[bool] = False

    dtype: str
    pattern: str = ""
    lossy: bool = False

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        object.__setattr__(self, "dtype", checked_dtype(self, self.dtype))

    def changed(self, name: str, entry: Entry, run: Run) -> Entry:
        # Of every leaf, only the weights: strings, counters and keys stay what they are.
        if not self.pattern and (entry.source is None or entry.leaf.prng or not _is_float(entry.source)):
            return entry
        return super().changed(name, entry, run)

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        dtype = dtype_named(self.dtype)
        if dtype_name(source.dtype) == self.dtype:
            return entry
        if not self.lossy and not castable(source.dtype, dtype):
            return (
                f"it is {entry}, and {self.dtype} can lose values. Cast all the same: cast(..., lossy=True)"
            )
        return made(Cast(source, dtype), [entry], range(len(source.shape)))


def _is_float(source: Source) -> bool:
    return bool(jnp.issubdtype(source.dtype, jnp.floating))


def _is_number(source: Source) -> bool:
    """Whether arithmetic on it keeps its dtype without losing what is after the point."""
    return bool(jnp.issubdtype(source.dtype, jnp.inexact))


@dataclass(frozen=True, repr=False)
class scale(EachMatching):
    r"""Multiplies arrays by a number, in float32 at least, and rounds once.

    Args:
      pattern: found anywhere in a name.
      factor: the number.

    Example:
      >>> scale(r"embedding$", 0.5)
      scale(pattern='embedding$', factor=0.5)
    """

    follows: ClassVar[bool] = False

    pattern: str
    factor: float

    def __post_init__(self) -> None:
        compiled(self, self.pattern)

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        if not _is_number(source):
            return f"it is {entry}; only floats and complex numbers can be scaled"
        return made(Scaled(source, self.factor), [entry], range(len(source.shape)))


@dataclass(frozen=True, repr=False)
class apply(EachMatching):
    r"""Applies a function to whole arrays, one leaf after another.

    Args:
      pattern: found anywhere in a name.
      function: takes a numpy array and returns an array.
      shape, dtype: what it returns; those of the leaf if not given.

    Example:
      >>> import numpy as np
      >>> apply(r"norm\.scale$", np.exp).pattern
      'norm\\.scale$'
    """

    follows: ClassVar[bool] = False

    pattern: str
    function: Callable[[Any], Any]
    shape: Sequence[int] | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        if not callable(self.function):
            raise BadOption(f"apply: {self.function!r} is not a function")
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(self.shape))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", checked_dtype(self, self.dtype))

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        shape = source.shape if self.shape is None else tuple(self.shape)
        dtype = source.dtype if self.dtype is None else dtype_named(self.dtype)
        what = getattr(self.function, "__name__", type(self.function).__name__)
        axes = range(len(shape)) if shape == source.shape else None
        return made(Applied((source,), self.function, shape, dtype, what), [entry], axes)


@dataclass(frozen=True, repr=False)
class overlay(Transform):
    r"""Lays a delta over base arrays: ``W + scale * D``, or ``W + scale * (B @ A)`` as LoRA has it.

    The result has the dtype of the base; it is computed in float32 at least, block by block. The
    leaves of the delta are used up. A base for which there is none stays as it is.

    Args:
      pattern: found anywhere in the name of a base.
      delta: the name of its delta; ``\1`` is the first group of the pattern.
      b, a: instead, the names of two matrices whose product is the delta.
      scale: the number, such as alpha / rank.

    Example:
      >>> overlay(r"^(.*)\.kernel$", b=r"\1.lora_b", a=r"\1.lora_a", scale=2.0)
      overlay(pattern='^(.*)\\.kernel$', b='\\1.lora_b', a='\\1.lora_a', scale=2.0)
    """

    follows: ClassVar[bool] = False

    pattern: str
    delta: str | None = None
    b: str | None = None
    a: str | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        low_rank = (self.b is not None, self.a is not None)
        if low_rank not in ((True, True), (False, False)) or low_rank[0] == (self.delta is not None):
            raise BadOption("overlay: give either delta, or both b and a, the names of what is laid over")

    def apply(self, entries: Entries, run: Run) -> Entries:
        pattern = compiled(self, self.pattern)
        result = dict(entries)
        used: set[str] = set()
        for name, entry in entries.items():
            found = pattern.search(name)
            names = [] if found is None else self._names(found)
            there = [part for part in names if part in entries]
            if name in there or not there:
                continue
            if len(there) < len(names):
                lost = ", ".join(part for part in names if part not in entries)
                run.problem(self, name, f"there is {', '.join(there)}, and no {lost}")
                result[name] = BROKEN
            else:
                result[name] = self._laid(name, entry, [(part, entries[part]) for part in names], run)
            used.update(there)
        if not used:
            run.note(self, "no name matches that has a delta")
        return {name: entry for name, entry in result.items() if name not in used}

    def _names(self, found: re.Match[str]) -> list[str]:
        try:
            return [found.expand(text) for text in (self.delta, self.b, self.a) if text is not None]
        except (re.error, IndexError) as error:
            raise BadOption(f"overlay: a name does not fit the pattern {self.pattern!r}: {error}") from None

    def _laid(self, name: str, entry: Entry, over: Sequence[tuple[str, Entry]], run: Run) -> Entry:
        base = array_of(self, name, entry, run)
        parts = [array_of(self, part, given, run) for part, given in over]
        sources = [source for source in (base, *parts) if source is not None]
        if len(sources) <= len(parts):
            return BROKEN
        wrong = [
            str(n) for n, s in zip((name, *(n for n, _ in over)), sources, strict=True) if not _is_number(s)
        ]
        shapes = [source.shape for source in sources]
        what = ", ".join(f"{part} {given}" for part, given in over)
        if wrong or not _fit(shapes):
            reason = f"only floats can be added, not {', '.join(wrong)}" if wrong else "shapes do not fit"
            run.problem(self, name, f"it is {entry}, over it {what}: {reason}")
            return BROKEN
        axes = range(len(sources[0].shape))
        if self.delta is not None:
            return made(Added(sources[0], sources[1], self.scale), [entry], axes)
        return made(LowRank(sources[0], sources[1], sources[2], self.scale), [entry], axes)


def _fit(shapes: Sequence[tuple[int, ...]]) -> bool:
    if len(shapes) == 2:
        return shapes[0] == shapes[1]
    base, b, a = shapes
    if not len(base) == len(b) == len(a) >= 2:
        return False
    return base[:-2] == b[:-2] == a[:-2] and (b[-2], a[-1]) == base[-2:] and b[-1] == a[-2]
