"""Model surgery before it is done: where every leaf comes from, and what it costs. Reads headers only."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storax.arrays.gather import Want, gather, roots
from storax.arrays.place import local_boxes
from storax.checkpoint import SavedLeaf
from storax.errors import TreeMismatch
from storax.plan import boxes
from storax.rewriting import in_order, matched_leaves, open_transformed, streamed
from storax.store.budget import DEFAULT_BUDGET
from storax.store.reading import Read, Report, Segment, Work, planned, split, total
from storax.streaming import BATCH_BYTES, batches
from storax.surgery.computing import Computing
from storax.surgery.contract import Transform, Wanted
from storax.surgery.memory import Filled, MemoryArray
from storax.surgery.naming import wanted_leaves
from storax.surgery.report import SurgeryReport, how_made, reported, several
from storax.surgery.tree import TransformedTree
from storax.tree.leaves import Leaf
from storax.tree.names import display

# Of the origin of a leaf, in a listing.
_MOST_TEXT = 160


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one leaf comes from.

    Attributes:
      name: of the leaf.
      what: its dtype and shape.
      made: ``loaded`` (perhaps rearranged), ``computed``, ``filled`` or ``kept``.
      source: an expression over the names of saved leaves.
    """

    name: str
    what: str
    made: str
    source: str

    def __str__(self) -> str:
        text = self.source if len(self.source) <= _MOST_TEXT else self.source[: _MOST_TEXT - 1] + "…"
        return f"{display(self.name)}  {self.what}  {self.made}: {text}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A dry run. Print it.

    Attributes:
      leaves: where each comes from.
      report: what would be read, and what becomes of every leaf.
      nbytes: bytes of the values that would be loaded on this process, or written.
      needed_bytes: bytes of the saved values that these are made of.
      peak_bytes: memory that would be held at most, besides a loaded tree itself.
      mismatch: how the result differs from the target; None if it fits.
    """

    leaves: tuple[Origin, ...]
    report: SurgeryReport
    nbytes: int
    needed_bytes: int
    peak_bytes: int
    mismatch: TreeMismatch | None

    @property
    def fits(self) -> bool:
        """Whether it would work."""
        return self.mismatch is None

    def __str__(self) -> str:
        lines = [str(leaf) for leaf in self.leaves]
        if self.report.dropped:
            lines.append(f"dropped: {several(self.report.dropped)}")
        if self.report.unused:
            lines.append(f"unused: {several(self.report.unused)}")
        lines.append(str(self.report))
        ratio = self.report.read_bytes / self.needed_bytes if self.needed_bytes else 1
        lines.append(
            f"{self.nbytes:,} bytes of values; {ratio:.3f} bytes read for each that is needed; "
            f"at most {self.peak_bytes:,} bytes of memory"
        )
        return "\n".join(lines + ([] if self.mismatch is None else [str(self.mismatch)]))


def explain(
    src: Any,
    *,
    transforms: Sequence[Transform] = (),
    target: Any = None,
    partial: bool = False,
    cast: bool = False,
) -> Explanation:
    """What ``load`` or ``rewrite`` would do with transforms. Reads documents and headers, no values.

    Args:
      src: as for ``rewrite``: a path, several by prefix, or a tree.
      transforms: the list.
      target: as for ``load``: then it is the load into this target's shardings that is explained.
        Without one it is the rewrite.
      partial, cast: as for ``load``.

    Raises:
      TransformMismatch: the transforms do not fit; lists all that does not.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> from storax.surgery import rename_by_regex
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.ones((2, 3), np.float32)})
      >>> found = storax.explain(where, transforms=[rename_by_regex([("w", "kernel")])])
      >>> print(found.leaves[0])
      kernel  float32[2,3]  loaded: w
    """
    wanted = None if target is None else wanted_leaves(target)
    tree = open_transformed(src, transforms, wanted)
    mismatch: TreeMismatch | None = None
    chosen: list[tuple[SavedLeaf, Leaf | None]] = []
    try:
        chosen = matched_leaves(tree, wanted, partial=partial, cast=cast)
    except TreeMismatch as error:
        mismatch = error
        names = set(wanted or ())
        chosen = [(found, None) for found in tree.found if found.leaf.name in names]
    used = {found.leaf.name for found, _ in chosen}
    costs = _rewriting(chosen) if wanted is None else _loading(tree, chosen, wanted)
    return Explanation(
        tuple(_origin(tree, found) for found, _ in chosen),
        reported(tree, used).with_reading(costs.reading),
        costs.nbytes,
        costs.needed,
        costs.peak,
        mismatch,
    )


def _origin(tree: TransformedTree, found: SavedLeaf) -> Origin:
    made = how_made(tree, found)
    source = "the target's value" if made == "kept" else str(found.source)
    if found.source is None and made == "loaded":
        source = "the documents"
    return Origin(found.leaf.name, str(found.leaf), made, source)


# --- what it costs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Costs:
    reading: Report
    nbytes: int
    needed: int
    peak: int


def _rewriting(chosen: Sequence[tuple[SavedLeaf, Leaf | None]]) -> _Costs:
    streams = in_order([streamed(found, want) for found, want in chosen if found.source is not None])
    make = _Memory()
    reports: list[Report] = []
    needed = most = extra = 0
    for batch in batches(streams):
        wants = [(one.source, (box, make(boxes.box_shape(box), one.source.dtype))) for one, box in batch]
        reads = gather(wants)
        reports.append(_planned(reads))
        needed += needed_bytes(wants)
        most = max(most, sum(memory.nbytes for _, (_, memory) in wants))
        extra = max(extra, _extra(reads))
    nbytes = sum(one.nbytes for one in streams)
    return _Costs(total(reports), nbytes, needed, most + min(extra, BATCH_BYTES))


def _loading(
    tree: TransformedTree, chosen: Sequence[tuple[SavedLeaf, Leaf | None]], wanted: dict[str, Wanted]
) -> _Costs:
    make = _Memory()
    wants: list[Want] = []
    for found, _ in chosen:
        source = found.source
        if source is None or found.leaf.name in tree.kept:
            continue
        sharding = getattr(wanted[found.leaf.name].value, "sharding", None)
        for box in local_boxes(source.shape, sharding):
            wants.append((source, (box, make(boxes.box_shape(box), source.dtype))))
    reads = gather(wants)
    nbytes = sum(memory.nbytes for _, (_, memory) in wants)
    return _Costs(_planned(reads), nbytes, needed_bytes(wants), min(_extra(reads), DEFAULT_BUDGET))


def needed_bytes(wants: Iterable[Want]) -> int:
    """Bytes of saved values that some boxes are made of; what is needed twice is counted once."""
    found: dict[tuple[int, boxes.Box], int] = {}
    waiting = list(wants)
    make = _Memory()
    while waiting:
        for root, (box, _) in roots(*waiting.pop()):
            if isinstance(root, Computing):
                needs = root.needs(box)
                waiting += [(one, (part, make(boxes.box_shape(part), one.dtype))) for one, part in needs]
            elif not isinstance(root, (MemoryArray, Filled)):
                found[id(root), box] = boxes.size(box) * root.dtype.itemsize
    return sum(found.values())


class _Memory:
    """Makes arrays that nobody writes: addresses without memory behind them, all the same ones."""

    def __init__(self) -> None:
        self._region = mmap.mmap(-1, mmap.PAGESIZE)

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if nbytes > len(self._region):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
            self._region = mmap.mmap(-1, nbytes, flags=flags)
        memory: np.ndarray = np.frombuffer(self._region, np.uint8, nbytes).view(dtype).reshape(shape)
        return memory


def _planned(reads: Iterable[Read]) -> Report:
    """What reading would read, with all that computing needs."""
    segments, others = split(reads)
    make = _Memory()
    inner = [_planned(other.prepare(make)[0]) for other in others if isinstance(other, Work)]
    return total([planned(segments), *inner])


def _extra(reads: Iterable[Read]) -> int:
    """Memory that reading would take besides the final one, if it were all done at once."""
    return sum(_held(read) for read in reads)


def _held(read: Read) -> int:
    if isinstance(read, Segment):
        return 0 if read.into else read.length
    if not isinstance(read, Work):
        return 0
    inner = max((_held(one) for one in read.prepare(_Memory())[0]), default=0)
    return read.nbytes + inner
