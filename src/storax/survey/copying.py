"""Copying a checkpoint as it is: every file, durably, and the new name last."""

from __future__ import annotations

import os
from pathlib import Path

from storax import progress
from storax.store import commit, posix

_BLOCK = 8 << 20


def files_of(source: Path) -> list[tuple[Path, int]]:
    """The files of a checkpoint by their paths below it, and their sizes, in a fixed order."""
    if source.is_file():
        return [(Path(source.name), source.stat().st_size)]
    found = [
        (Path(parent) / name).relative_to(source) for parent, _, names in os.walk(source) for name in names
    ]
    return [(path, (source / path).stat().st_size) for path in sorted(found)]


def copy_checkpoint(source: Path, final: Path, *, overwrite: bool = False) -> int:
    """Copies a checkpoint to a place that does not have one yet; returns the bytes.

    Args:
      source: the directory of a committed checkpoint, or a safetensors file.
      final: the new one; those above it are made.
      overwrite: replace a checkpoint that is there, at the very end and in one step.

    Raises:
      CheckpointExists: the place is taken.
      StoreError: the file system refused; nothing is left behind.
    """
    if not overwrite and os.path.lexists(final):
        raise commit.exists(final, "Copy to another place, or replace it: --overwrite.")
    files = files_of(source)
    draft = commit.begin(final)
    try:
        if source.is_file():
            _copy(source, draft.path / source.name)
            commit.publish_file(draft, draft.path / source.name, overwrite=overwrite)
            return files[0][1]
        for parent in sorted({path.parent for path, _ in files} | _directories(source)):
            posix.make_directories(draft.path / parent)
        for path, _ in files:
            _copy(source / path, draft.path / path)
        posix.sync_tree(draft.path)
        commit.publish(draft, overwrite=overwrite)
    except BaseException:
        commit.discard(draft)
        raise
    return sum(size for _, size in files)


def _directories(source: Path) -> set[Path]:
    return {
        (Path(parent) / name).relative_to(source) for parent, names, _ in os.walk(source) for name in names
    }


def _copy(source: Path, target: Path) -> None:
    fd = posix.open_to_read(os.fspath(source))
    try:
        memory = memoryview(bytearray(_BLOCK))
        offset = 0
        with posix.new_file(target) as file:
            while got := posix.read_into(fd, [memory], offset):
                file.write_at(offset, [memory[:got]])
                offset += got
                progress.advance(got)
            file.sync()
    finally:
        os.close(fd)
