"""The table of data files at the front of a manifest or node, and places in those files. Pure.

A file is named by two strings, ``base`` and ``name``. The base is the directory of the
database that the file came from, relative to the database that refers to it: the names
inside a node of that file are relative to its base in turn. That is how TensorStore merges
databases without rewriting their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storax.ocdbt.wire import U64, Reader, varint, varints

# The longest path that TensorStore's format allows.
LONGEST_PATH = 65535

# All paths of one table together: far above any real one, far below what memory holds.
_MOST_PATH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file: where its database is, and its path in it."""

    base: str
    name: str

    @property
    def path(self) -> str:
        return self.base + self.name


def split(path: str) -> DataFile:
    """``"ocdbt.process_0/d/ab12"`` is the file ``d/ab12`` of the database ``ocdbt.process_0/``."""
    directory = path.rpartition("/")[0]
    base, _, last = directory.rpartition("/")
    if last == "d":
        base = base + "/" if base else ""
        return DataFile(base, path[len(base) :])
    return DataFile("", path)


def encode_table(files: Iterable[DataFile]) -> tuple[bytes, dict[DataFile, int]]:
    """The encoded table, and the number of each file in it."""
    ordered = sorted(set(files), key=lambda f: (f.base.encode(), f.name.encode()))
    shared, own, bases, tails = [], [], [], []
    previous = (b"", b"")
    for file in ordered:
        base, name = file.base.encode(), file.name.encode()
        # A prefix reaches beyond the base only if the bases are the same, else it could not be undone.
        common = len(base) + _common(previous[1], name) if base == previous[0] else _common(previous[0], base)
        whole = base + name
        shared.append(common)
        own.append(len(whole) - common)
        bases.append(len(base))
        tails.append(whole[common:])
        previous = (base, name)
    columns = [varint(len(ordered)), varints(shared[1:]), varints(own), varints(bases), *tails]
    return b"".join(columns), {file: i for i, file in enumerate(ordered)}


def _common(a: bytes, b: bytes) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def decode_table(reader: Reader, base: str) -> list[DataFile]:
    """Reads the table; ``base`` is that of the file the table was read from."""
    count = reader.count("data files", U64)
    shared = [0, *reader.varints(count - 1, "a shared path length", LONGEST_PATH)] if count else []
    own = reader.varints(count, "a path length", LONGEST_PATH)
    bases = reader.varints(count, "a base path length", LONGEST_PATH)
    if sum(own) > reader.left or sum(own) + sum(shared) + count * len(base) > _MOST_PATH_BYTES:
        reader.wrong("the paths of the data files do not fit")
    files = []
    previous, previous_base = b"", 0
    for common, length, base_length in zip(shared, own, bases, strict=True):
        if common > len(previous):
            reader.wrong("a path shares more than the previous one has")
        if common > min(previous_base, base_length) and base_length != previous_base:
            reader.wrong("a path shares bytes beyond a different base")
        path = previous[:common] + reader.take(length, "a path")
        if base_length > len(path) or len(path) + len(base) > LONGEST_PATH:
            reader.wrong("a path has a wrong length")
        files.append(_decode(reader, base, path, base_length))
        previous, previous_base = path, base_length
    return files


def _decode(reader: Reader, base: str, path: bytes, base_length: int) -> DataFile:
    try:
        file = DataFile(base + path[:base_length].decode(), path[base_length:].decode())
    except UnicodeDecodeError:
        reader.wrong(f"the path {path!r} of a data file is not UTF-8")
    # The empty path stands for the missing root of an empty database.
    if path and not _inside(file.path):
        reader.wrong(f"the path {file.path!r} of a data file leads out of the database")
    return file


def _inside(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
