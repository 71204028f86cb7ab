"""What a path means: one safetensors file, several in a directory, or an index. Reads only headers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storax.errors import Corrupt
from storax.safetensors import header
from storax.safetensors.header import Header, Tensor
from storax.store import posix

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".index.json"
INDEX_NAME = f"model{SUFFIX}{INDEX_SUFFIX}"
# More than any index of a published model by far; one that is larger is no index.
_MOST_INDEX_BYTES = 1 << 30
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class TensorFile:
    """One file and its header."""

    path: Path
    header: Header


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and the file that it is in."""

    tensor: Tensor
    path: Path
    data_start: int


@dataclass(frozen=True, slots=True)
class Collection:
    """All tensors at a path.

    Attributes:
      path: what was opened.
      tensors: by name, sorted.
      metadata: the strings of all headers, those of later files first.
      files: what is read.
    """

    path: Path
    tensors: Mapping[str, Placed]
    metadata: Mapping[str, str]
    files: tuple[Path, ...] = field(default=())


def find(path: Path) -> Collection | None:
    """The tensors at a path, or None if it is no safetensors file, index or directory of them.

    Raises:
      Corrupt: it is one, and something is wrong with it; no tensor was read.
    """
    if path.is_dir():
        indexes = [found for found in _with_suffix(path, SUFFIX + INDEX_SUFFIX) if found.is_file()]
        if len(indexes) > 1:
            raise Corrupt(
                f"{path} has {len(indexes)} indexes: {', '.join(p.name for p in indexes)}. "
                f"Load one of them: load({str(indexes[0])!r})."
            )
        if indexes:
            return _from_index(indexes[0], path)
        files = [found for found in _with_suffix(path, SUFFIX) if found.is_file()]
        return _collected(path, [read_file(file) for file in files], {}) if files else None
    if path.name.endswith(INDEX_SUFFIX) and path.is_file():
        return _from_index(path, path)
    if path.is_file() and (path.name.endswith(SUFFIX) or _looks_like_one(path)):
        return _collected(path, [read_file(path)], {})
    return None


def read_file(path: Path) -> TensorFile:
    """Reads the header of one file. Raises ``Corrupt`` if anything in it is wrong."""
    fd = posix.open_to_read(str(path))
    try:
        file_bytes = os.fstat(fd).st_size
        prefix = _read(fd, min(header.PREFIX_BYTES, file_bytes), 0)
        length = header.header_bytes(prefix, file_bytes, str(path))
        text = _read(fd, length, header.PREFIX_BYTES)
    finally:
        os.close(fd)
    return TensorFile(path, header.parse(text, file_bytes, str(path)))


def _read(fd: int, nbytes: int, offset: int) -> bytes:
    data = bytearray(nbytes)
    got = posix.read_into(fd, [memoryview(data)], offset)
    return bytes(data[:got])


def _looks_like_one(path: Path) -> bool:
    """Whether a file of another name is one: a length that fits, and a JSON object after it."""
    fd = posix.open_to_read(str(path))
    try:
        start = _read(fd, header.PREFIX_BYTES + 1, 0)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    length = int.from_bytes(start[: header.PREFIX_BYTES], "little")
    return start[header.PREFIX_BYTES :] == b"{" and header.PREFIX_BYTES + length <= size


def _with_suffix(directory: Path, suffix: str) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.endswith(suffix))


# --- several files -------------------------------------------------------------------------------


def _from_index(index: Path, path: Path) -> Collection:
    places = _parse_index(index)
    files = sorted(set(places.values()))
    lost = [name for name in files if not (index.parent / name).is_file()]
    if lost:
        raise Corrupt(
            f"{index} names files that are not there: {', '.join(lost[:_MOST_LINES])}. "
            "Fetch them, or the whole model again."
        )
    opened = [read_file(index.parent / name) for name in files]
    found = {name: {t.name for t in file.header.tensors} for name, file in zip(files, opened, strict=True)}
    absent = [f"{name!r} in {file}" for name, file in places.items() if name not in found[file]]
    if absent:
        raise Corrupt(
            f"{index} names tensors that are not in their files:\n  {_lines(absent)}\n"
            "Fetch the whole model again."
        )
    return _collected(path, opened, {name: index.parent / file for name, file in places.items()})


def _parse_index(index: Path) -> dict[str, str]:
    """The file of each tensor, by name."""
    if index.stat().st_size > _MOST_INDEX_BYTES:
        raise Corrupt(f"{index} has {index.stat().st_size:,} bytes; it is no index of safetensors files.")
    try:
        parsed: Any = json.loads(index.read_bytes().decode(), object_pairs_hook=_distinct)
        places = parsed["weight_map"]
        if not isinstance(places, dict):
            raise TypeError("weight_map is no object")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(f"{index} is not an index of safetensors files: {error!r}") from None
    outside = [f"{name!r}: {file!r}" for name, file in places.items() if not _is_inside(file)]
    if outside:
        raise Corrupt(
            f"{index} points outside of its directory:\n  {_lines(outside)}\n"
            "Only files beside it, or in directories below, can be read."
        )
    return places


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"names that come twice: {twice[:_MOST_LINES]}")
    return found


def _is_inside(file: Any) -> bool:
    if not isinstance(file, str) or not file or "\0" in file or "\\" in file:
        return False
    parts = file.split("/")
    return not any(part in ("", ".", "..") for part in parts)


def _collected(path: Path, files: Sequence[TensorFile], chosen: Mapping[str, Path]) -> Collection:
    """All tensors of some files. One that is in several is taken from where the index says."""
    tensors: dict[str, Placed] = {}
    twice: list[str] = []
    for placed in _placed(files):
        name = placed.tensor.name
        if name in chosen and chosen[name] != placed.path:
            continue
        if name in tensors:
            twice.append(f"{name!r} in {tensors[name].path.name} and {placed.path.name}")
        tensors[name] = placed
    if twice:
        raise Corrupt(
            f"{path}: tensors that are in two files, and no index that says which counts:\n  {_lines(twice)}"
            f"\nLoad one of the files: load({str(files[0].path)!r})."
        )
    metadata = {key: text for file in reversed(files) for key, text in file.header.metadata.items()}
    return Collection(path, dict(sorted(tensors.items())), metadata, tuple(file.path for file in files))


def _placed(files: Sequence[TensorFile]) -> Iterator[Placed]:
    for file in files:
        for tensor in file.header.tensors:
            yield Placed(tensor, file.path, file.header.data_start)


def _lines(found: Sequence[str]) -> str:
    more = [f"… and {len(found) - _MOST_LINES} more"] if len(found) > _MOST_LINES else []
    return "\n  ".join([*found[:_MOST_LINES], *more])
