"""Reads everything of a checkpoint once and lists what is wrong with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from storax.arrays.foreign import ForeignArray
from storax.arrays.read import DatabaseArray
from storax.checkpoint import OpenCheckpoint, SavedLeaf, SavedTree, open_checkpoint
from storax.errors import Corrupt, StoraxError
from storax.ocdbt.index import Index
from storax.plan import boxes
from storax.store.budget import Budget
from storax.store.paths import resolve
from storax.store.reading import Act, Segment, read_all
from storax.store.sealed import SealedDirectory
from storax.tree import documents
from storax.tree.names import display


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
      leaf: the leaf that it spoils; None if it is not known, or if it spoils none.
      file: the file that it is in.
      what: what is wrong, with the offset where there is one.
      spoils: what cannot be used because of it.
    """

    leaf: str | None
    file: str
    what: str
    spoils: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What ``verify`` found.

    Attributes:
      path: the checkpoint.
      faults: everything that is wrong; empty if it is whole.
      leaves, chunks: how many were read.
      read_bytes: how much was read.
      unchecked_bytes: of these, bytes that no checksum covers, as other programs write them.
    """

    path: Path
    faults: tuple[Fault, ...]
    leaves: int
    chunks: int
    read_bytes: int
    unchecked_bytes: int

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.faults


Progress = Callable[[int, int], None]


def verify(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Verification:
    """Reads every byte of a checkpoint and checks it: documents, database, chunks.

    Checkpoints of Orbax are checked as far as they carry checks: their documents by being read,
    their chunks by being decoded.

    Args:
      path: as for ``load``.
      progress: called with the bytes done and the bytes in all.

    Returns:
      What is wrong, with leaf, file and offset. A damaged checkpoint is no exception.

    Raises:
      CheckpointNotFound: nothing committed is there.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.arange(3)})
      >>> found = storax.verify(where)
      >>> found.ok, found.leaves, found.faults
      (True, 1, ())
    """
    directory = resolve(path)
    findings = _Findings()
    checkpoint = _opened(directory, findings)
    if checkpoint is not None:
        trees = {None: directory} if checkpoint.bare else checkpoint.items
        for item in trees.values():
            _check_documents(item, findings)
            if checkpoint.bare or checkpoint.is_tree(item.name):
                _check_tree(item, findings, progress)
        if not checkpoint.bare:
            _check_documents(directory, findings)
            _check_documents(directory / documents.METRICS_ITEM, findings)
    return Verification(
        directory,
        tuple(findings.faults),
        findings.leaves,
        findings.chunks,
        findings.chunk_bytes + findings.document_bytes,
        findings.unchecked_bytes,
    )


@dataclass(slots=True)
class _Findings:
    """What was found so far."""

    faults: list[Fault] = field(default_factory=list)
    leaves: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    document_bytes: int = 0
    unchecked_bytes: int = 0

    def count(self, check: _Check) -> None:
        self.chunks += 1
        self.chunk_bytes += check.nbytes
        self.unchecked_bytes += 0 if check.checked else check.nbytes

    def add(self, error: Exception, file: Path | str, leaf: str | None, spoils: str) -> None:
        fault = Fault(leaf, str(file), str(error), spoils)
        if fault not in self.faults:
            self.faults.append(fault)


def _opened(directory: Path, findings: _Findings) -> OpenCheckpoint | None:
    try:
        checkpoint = open_checkpoint(directory)
    except Corrupt as error:
        findings.add(error, directory / documents.STEP_DOCUMENT, None, "the whole checkpoint")
        return None
    try:
        checkpoint.every_item()
    except Corrupt as error:
        findings.add(error, directory, None, "the items that are gone")
    return checkpoint


def _check_documents(directory: Path, findings: _Findings) -> None:
    texts = SealedDirectory(directory)
    try:
        names = texts.names
    except Corrupt as error:
        findings.add(error, directory, None, "everything in this directory")
        return
    for name in names:
        try:
            findings.document_bytes += len(texts.read(name) or b"")
        except Corrupt as error:
            findings.add(error, directory / name, None, "everything in this directory")


def _check_tree(directory: Path, findings: _Findings, progress: Progress | None) -> None:
    try:
        saved = SavedTree.open(directory)
        leaves, lost = saved.sound_leaves()
    except StoraxError as error:
        findings.add(error, directory, None, "every leaf of the tree")
        return
    for name, damage in lost.items():
        findings.add(damage, directory, name, f"the leaf {display(name)}")
    findings.leaves += len(leaves)
    _check_databases(directory, findings)
    reads = list(_reads(leaves, findings))
    _read(reads, findings, progress)


def _check_databases(directory: Path, findings: _Findings) -> None:
    """Walks every node of the merged database and of those that it was merged from."""
    for database in (directory, *sorted(directory.glob("ocdbt.process_*"))):
        if database == directory and not (directory / "manifest.ocdbt").is_file():
            continue
        try:
            for _ in Index.open(database).items():
                pass
        except StoraxError as error:
            spoils = "every leaf of the tree" if database == directory else "nothing that is read by load"
            findings.add(error, database, None, spoils)


@dataclass(frozen=True, slots=True)
class _Check:
    """One chunk to read: the leaf, its bytes, whether a checksum covers them, and the read."""

    leaf: str
    nbytes: int
    checked: bool
    read: Segment | Act


def _reads(leaves: Iterable[SavedLeaf], findings: _Findings) -> Iterator[_Check]:
    for saved in leaves:
        source, name = saved.source, saved.leaf.name
        if isinstance(source, DatabaseArray):
            nbytes = source.chunk_bytes
            for cell in boxes.cells(boxes.whole(source.shape), source.atom):
                try:
                    yield _Check(name, nbytes, source.array.codec == "crc32c", source.chunk(cell))
                except Corrupt as error:
                    findings.add(error, source.where, name, f"the leaf {display(name)}")
        elif isinstance(source, ForeignArray):
            for box in _foreign_boxes(source):
                memory = int(boxes.size(box)) * source.dtype.itemsize
                yield _Check(name, memory, False, _foreign_read(source, box))


def _foreign_boxes(source: ForeignArray) -> Iterator[boxes.Box]:
    whole = boxes.whole(source.shape)
    for cell in boxes.cells(whole, source.atom):
        box = boxes.intersect(boxes.cell_box(cell, source.atom), whole)
        if box is not None:
            yield box


def _foreign_read(source: ForeignArray, box: boxes.Box) -> Act:
    def run() -> None:
        for act in source.reads([(box, np.empty(boxes.box_shape(box), source.dtype))]):
            act()

    return run


def _read(checks: Sequence[_Check], findings: _Findings, progress: Progress | None) -> None:
    total = sum(check.nbytes for check in checks)
    lock = threading.Lock()
    segments: list[Segment] = []
    acts: list[Act] = []
    owners: dict[int, _Check] = {}

    def finished(check: _Check) -> None:
        with lock:
            findings.count(check)
            if progress is not None:
                progress(findings.chunk_bytes, total)

    def failed(check: _Check, error: Corrupt, file: str) -> None:
        with lock:
            findings.add(error, file, check.leaf, f"the leaf {display(check.leaf)}")

    def watched(check: _Check, read: Segment) -> Segment:
        def then(value: memoryview) -> None:
            read.then(value)
            finished(check)

        return replace(read, then=then)

    def guarded(check: _Check, act: Act) -> Act:
        def run() -> None:
            try:
                act()
            except Corrupt as error:
                failed(check, error, "the database")
            else:
                finished(check)

        return run

    for check in checks:
        if isinstance(check.read, Segment):
            segments.append(watched(check, check.read))
            owners[id(segments[-1])] = check
        else:
            acts.append(guarded(check, check.read))
    read_all(
        segments,
        acts,
        budget=Budget(),
        on_fault=lambda segment, error: failed(owners[id(segment)], error, segment.path),
    )


# --- what is whole -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SoundTree:
    """The leaves of a damaged tree that are whole, as an opened tree, and why the others are not.

    Attributes:
      lost: what is wrong, by the name of the leaf.
    """

    directory: Path
    tuples: frozenset[str]
    found: tuple[SavedLeaf, ...]
    lost: Mapping[str, str]

    def leaves(self, names: Collection[str] | None = None) -> list[SavedLeaf]:
        """All that are whole."""
        return list(self.found)


def sound_tree(directory: Path) -> SoundTree:
    """Reads everything of one tree and keeps what is whole.

    Raises:
      Corrupt: the document with the names of the tree is damaged, so that nothing can be told.
    """
    saved = SavedTree.open(directory, unsealed=True)
    leaves, damaged = saved.sound_leaves()
    findings = _Findings()
    _read(list(_reads(leaves, findings)), findings, None)
    lost = {name: str(error) for name, error in damaged.items()}
    lost |= {fault.leaf: fault.what for fault in findings.faults if fault.leaf is not None}
    whole = tuple(found for found in leaves if found.leaf.name not in lost)
    return SoundTree(directory, saved.tuples, whole, lost)
