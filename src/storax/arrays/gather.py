"""Wants of many sources, some of them mere views of others, into one list of reads.

A *view* has no bytes of its own: each box of it is boxes of its inputs, and the memory wanted
for it is handed on in pieces. So nothing is copied on the way, and all that is wanted of one
array, by whichever leaf, is read together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from storax.arrays.read import Source, Wanted
from storax.store.reading import Read

Want = tuple[Source, Wanted]


class View(ABC):
    """A source whose boxes are boxes of other sources."""

    __slots__ = ()

    @property
    @abstractmethod
    def inputs(self) -> tuple[Source, ...]: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype:
        return self.inputs[0].dtype

    @abstractmethod
    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        """What is wanted of the inputs, for one wanted box; the memory is parts of the one given."""

    def reads(self, wanted: Sequence[Wanted]) -> list[Read]:
        return gather((self, one) for one in wanted)


def gather(wants: Iterable[Want]) -> list[Read]:
    """The reads that fill all of them; each array that is no view is asked once, for all its boxes."""
    asked: dict[int, tuple[Source, list[Wanted]]] = {}
    for source, wanted in wants:
        for root, part in roots(source, wanted):
            asked.setdefault(id(root), (root, []))[1].append(part)
    return [read for root, parts in asked.values() for read in root.reads(parts)]


def roots(source: Source, wanted: Wanted) -> Iterator[Want]:
    """What is wanted of sources that are no views, in the order in which it is stored where that is one."""
    if not wanted[1].size:
        return
    if isinstance(source, View):
        for inner in source.pulls(wanted):
            yield from roots(*inner)
    else:
        yield source, wanted


def atom_of(source: Source) -> tuple[int, ...]:
    """The block of a source that is best read whole: a chunk of a database, a row of a file.

    Boxes that are whole numbers of atoms are read without reading anything else.
    """
    atom: Sequence[int] | None = getattr(source, "atom", None)
    if atom is not None:
        return tuple(max(1, min(a, n)) for a, n in zip(atom, source.shape, strict=True))
    return (*(1 for _ in source.shape[:-1]), *source.shape[-1:])
