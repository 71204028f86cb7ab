"""Transforms of the shape of single arrays; no value changes, and none but ``pad`` adds one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storax.arrays.read import Source
from storax.errors import BadOption
from storax.surgery.computing import Reread
from storax.surgery.contract import EachMatching, Run, Transform, axis_of, close_to, compiled
from storax.surgery.entries import Entries, Entry, made
from storax.surgery.memory import filled
from storax.surgery.reshaping import Reshaped, refined
from storax.surgery.views import Joined, Repeated, Sliced, Transposed


def _numbers(transform: object, what: str, numbers: Any) -> tuple[int, ...]:
    if isinstance(numbers, str) or not all(isinstance(n, int) for n in numbers):
        raise BadOption(f"{type(transform).__name__}: {what} is a list of numbers, not {numbers!r}")
    return tuple(numbers)


def reshape_source(source: Source, shape: tuple[int, ...]) -> Source:
    """An array in another shape of as many elements."""
    if not math.prod(shape):
        return filled(shape, source.dtype, 0)
    return (Reread if refined(source.shape, shape) is None else Reshaped)(source, shape)


@dataclass(frozen=True, repr=False)
class transpose(EachMatching):
    r"""Reorders the axes of arrays.

    Args:
      pattern: found anywhere in a name.
      axes: for each axis of the result, which it was; the reverse order if not given.

    Example:
      >>> transpose(r"\.kernel$", [1, 0])
      transpose(pattern='\\.kernel$', axes=(1, 0))
    """

    pattern: str
    axes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        if self.axes is not None:
            object.__setattr__(self, "axes", _numbers(self, "axes", self.axes))

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        ndim = len(source.shape)
        axes = tuple(range(ndim))[::-1] if self.axes is None else self.axes
        order = [axis_of(axis, ndim) for axis in axes]
        if len(order) != ndim or set(order) != set(range(ndim)):
            return f"it is {entry}; {list(axes)} does not order its {ndim} axes"
        return made(Transposed(source, tuple(axis or 0 for axis in order)), [entry], order)


@dataclass(frozen=True, repr=False)
class reshape(EachMatching):
    r"""Gives arrays another shape, with the elements in the same order.

    Args:
      pattern: found anywhere in a name.
      shape: the new shape; one length may be -1, and follows from the others.

    Example:
      >>> reshape(r"query\.kernel$", [-1, 8, 64])
      reshape(pattern='query\\.kernel$', shape=(-1, 8, 64))
    """

    pattern: str
    shape: Sequence[int]

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        object.__setattr__(self, "shape", _numbers(self, "shape", self.shape))
        if sum(n == -1 for n in self.shape) > 1 or any(n < -1 for n in self.shape):
            raise BadOption(f"reshape: {self.shape!r} is not a shape; one length may be -1")

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        shape, size = tuple(self.shape), math.prod(source.shape)
        known = math.prod(n for n in shape if n != -1)
        if -1 in shape:
            if known == 0 or size % known:
                return f"it is {entry}, which has no shape {list(shape)}"
            shape = tuple(size // known if n == -1 else n for n in shape)
        if math.prod(shape) != size:
            return f"it is {entry} of {size:,} elements; {list(shape)} has {math.prod(shape):,}"
        return made(reshape_source(source, shape), [entry], _same_axes(source.shape, shape))


def _same_axes(shape: Sequence[int], other: Sequence[int]) -> list[int | None]:
    """Which axes of the new shape are axes of the old one: those of the same length at both ends."""
    axes: list[int | None] = [None] * len(other)
    for i, (a, b) in enumerate(zip(shape, other, strict=False)):
        if a != b:
            break
        axes[i] = i
    for i in range(1, min(len(shape), len(other)) + 1):
        if shape[-i] != other[-i]:
            break
        axes[-i] = len(shape) - i
    return axes


@dataclass(frozen=True, repr=False)
class slice(EachMatching):
    r"""Keeps a range of one axis of arrays.

    Args:
      pattern: found anywhere in a name.
      start, stop: the range; None is the beginning, and the end. Negative ones count from the end.
      axis: of which.

    Example:
      >>> slice(r"embedding$", 0, 50257)
      slice(pattern='embedding$', start=0, stop=50257)
    """

    pattern: str
    start: int | None = None
    stop: int | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        axis = axis_of(self.axis, len(source.shape))
        if axis is None:
            return f"it is {entry} and has no axis {self.axis}"
        length = source.shape[axis]
        start = 0 if self.start is None else self.start + length * (self.start < 0)
        stop = length if self.stop is None else self.stop + length * (self.stop < 0)
        if not 0 <= start <= stop <= length:
            return f"it is {entry}; {self.start}:{self.stop} is not a range of its axis {self.axis}"
        box = tuple((start, stop) if i == axis else (0, n) for i, n in enumerate(source.shape))
        return made(Sliced(source, box), [entry], range(len(source.shape)))


@dataclass(frozen=True, repr=False)
class pad(EachMatching):
    r"""Adds rows to an axis of arrays, such as an embedding table whose vocabulary grew.

    Args:
      pattern: found anywhere in a name.
      before, after: how many at each end.
      to: the length that the axis shall have, instead of ``after``.
      value: of the new elements.
      axis: of which.

    Example:
      >>> pad(r"embedding$", to=50304)
      pad(pattern='embedding$', to=50304)
    """

    pattern: str
    before: int = 0
    after: int = 0
    to: int | None = None
    value: float = 0.0
    axis: int = 0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        if self.before < 0 or self.after < 0 or (self.to is not None and self.after):
            raise BadOption("pad: give before and after, none negative, or to; shorten with slice(...)")

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        axis = axis_of(self.axis, len(source.shape))
        if axis is None:
            return f"it is {entry} and has no axis {self.axis}"
        after = self.after if self.to is None else self.to - source.shape[axis] - self.before
        if after < 0:
            return f"it is {entry}; its axis {self.axis} is longer than {self.to} already"
        parts = [self._rows(source, axis, self.before), source, self._rows(source, axis, after)]
        whole = tuple(part for part in parts if part.shape[axis])
        return made(Joined(whole or (source,), axis), [entry], range(len(source.shape)))

    def _rows(self, source: Source, axis: int, count: int) -> Source:
        return filled((*source.shape[:axis], count, *source.shape[axis + 1 :]), source.dtype, self.value)


# --- repeat --------------------------------------------------------------------------------------


def _repeated(source: Source, entry: Entry, dimension: int, count: int) -> Entry | str:
    axis = axis_of(dimension, len(source.shape))
    if axis is None:
        return f"it is {entry} and has no axis {dimension}"
    return made(Repeated(source, axis, count), [entry], range(len(source.shape)))


def _check_count(transform: object, count: Any) -> None:
    if not isinstance(count, int) or count < 1:
        raise BadOption(f"{type(transform).__name__}: repeat_count is {count!r}; it is a number from 1 on")


@dataclass(frozen=True, repr=False)
class repeat_by_pattern(Transform):
    r"""Repeats each element of an axis, such as key and value heads that several queries share.

    Args:
      pattern: of the names, from their beginning.
      dimension: the axis.
      repeat_count: how often each element comes, one after another.

    Example:
      >>> repeat_by_pattern(r".*\.key\.kernel$", dimension=1, repeat_count=4)
      repeat_by_pattern(pattern='.*\\.key\\.kernel$', dimension=1, repeat_count=4)
    """

    pattern: str
    dimension: int
    repeat_count: int

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        _check_count(self, self.repeat_count)

    def apply(self, entries: Entries, run: Run) -> Entries:
        pattern = compiled(self, self.pattern)
        names = [name for name in entries if pattern.match(name)]
        if not names:
            run.note(self, "no name matches")
        return _repeat(self, entries, names, self.dimension, self.repeat_count, run)


@dataclass(frozen=True, repr=False)
class repeat_by_keys(Transform):
    """Repeats each element of an axis of named arrays.

    Args:
      target_keys: the names.
      dimension: the axis.
      repeat_count: how often each element comes, one after another.

    Example:
      >>> repeat_by_keys(["k", "v"], dimension=0, repeat_count=2)
      repeat_by_keys(target_keys=('k', 'v'), dimension=0, repeat_count=2)
    """

    target_keys: Sequence[str]
    dimension: int
    repeat_count: int

    def __post_init__(self) -> None:
        if isinstance(self.target_keys, str):
            raise BadOption(f"repeat_by_keys: target_keys is a list of names, not {self.target_keys!r}")
        object.__setattr__(self, "target_keys", tuple(self.target_keys))
        _check_count(self, self.repeat_count)

    def apply(self, entries: Entries, run: Run) -> Entries:
        for key in self.target_keys:
            if key not in entries:
                run.problem(self, key, "there is no such leaf" + close_to(key, entries))
        return _repeat(self, entries, self.target_keys, self.dimension, self.repeat_count, run)


def _repeat(
    transform: Transform, entries: Entries, names: Sequence[str], dimension: int, count: int, run: Run
) -> Entries:
    each = _Repeat(transform, dimension, count)
    chosen = set(names)
    return {name: each.changed(name, e, run) if name in chosen else e for name, e in entries.items()}


@dataclass(frozen=True, repr=False)
class _Repeat(EachMatching):
    """One repeat, in the name of the transform that wants it."""

    owner: Transform
    dimension: int
    count: int

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        return _repeated(source, entry, self.dimension, self.count)

    def __repr__(self) -> str:
        return repr(self.owner)


# --- interleave ----------------------------------------------------------------------------------


def _interleaved(source: Source, entry: Entry, layout: _Layout, *, back: bool) -> Entry | str:
    axis = axis_of(layout.axis, len(source.shape))
    if axis is None:
        return f"it is {entry} and has no axis {layout.axis}"
    length = source.shape[axis]
    of = layout.heads * layout.groups * layout.block
    if length % of:
        return f"it is {entry}; its axis {layout.axis} of {length} does not fall into pieces of {of}"
    counts = (layout.groups, length // of) if not back else (length // of, layout.groups)
    front, behind = source.shape[:axis], source.shape[axis + 1 :]
    cut = reshape_source(source, (*front, layout.heads, *counts, layout.block, *behind))
    n = len(front)
    order = (*range(n), n, n + 2, n + 1, n + 3, *range(n + 4, n + 4 + len(behind)))
    whole = reshape_source(Transposed(cut, order), source.shape)
    return made(whole, [entry], [i if i != axis else None for i in range(len(source.shape))])


@dataclass(frozen=True)
class _Layout:
    groups: int
    block: int
    heads: int
    axis: int

    def check(self, transform: object) -> None:
        for name in ("groups", "block", "heads"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                what = f"{name} is {getattr(self, name)!r}; it is a number from 1 on"
                raise BadOption(f"{type(transform).__name__}: {what}")


@dataclass(frozen=True, repr=False)
class interleave(EachMatching):
    r"""Takes an axis of groups one after another, ``a0 a1 b0 b1``, and deals them out: ``a0 b0 a1 b1``.

    With it, rotary halves become rotary pairs (``heads`` of them, each of its own), and ``q k v``
    becomes the ``q k v`` of each head (``groups=3``, ``block`` the size of a head).

    Args:
      pattern: found anywhere in a name.
      groups: how many there are.
      block: how many elements stay together.
      heads: how many times the axis has such groups, one after another.
      axis: of which.

    Example:
      >>> interleave(r"(query|key)\.kernel$", groups=2, heads=8, axis=1)
      interleave(pattern='(query|key)\\.kernel$', groups=2, heads=8, axis=1)
    """

    pattern: str
    groups: int
    block: int = 1
    heads: int = 1
    axis: int = 0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        self._layout.check(self)

    @property
    def _layout(self) -> _Layout:
        return _Layout(self.groups, self.block, self.heads, self.axis)

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        return _interleaved(source, entry, self._layout, back=False)


@dataclass(frozen=True, repr=False)
class deinterleave(EachMatching):
    r"""The inverse of ``interleave``: ``a0 b0 a1 b1`` becomes ``a0 a1 b0 b1``.

    Args:
      pattern: found anywhere in a name.
      groups: how many there are.
      block: how many elements stay together.
      heads: how many times the axis has such groups, one after another.
      axis: of which.

    Example:
      >>> deinterleave(r"qkv\.kernel$", groups=3, block=64, axis=1)
      deinterleave(pattern='qkv\\.kernel$', groups=3, block=64, axis=1)
    """

    pattern: str
    groups: int
    block: int = 1
    heads: int = 1
    axis: int = 0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        self._layout.check(self)

    @property
    def _layout(self) -> _Layout:
        return _Layout(self.groups, self.block, self.heads, self.axis)

    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        return _interleaved(source, entry, self._layout, back=True)
