"""Whole or not at all: draft, publish, discard, and what dead processes leave behind.

A checkpoint is written into a *draft* directory beside its final name and renamed when every
byte and name in it is durable. So a reader sees the whole checkpoint or none.

A draft is called ``<name>.orbax-checkpoint-tmp-<attempt>``, which Orbax too takes for
temporary. Its writer holds a lock on the directory while it lives; the system gives the lock
back when the process dies. That is how a leftover is told from a draft that somebody is
writing: by its lock, not by its age.

Deleting and replacing go through the same kind of name: a checkpoint first leaves its place in
one atomic step, then its files are deleted at leisure.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storax.errors import CheckpointExists, CheckpointNotFound, StoreError
from storax.store import posix

DRAFT_SUFFIX = ".orbax-checkpoint-tmp"
_OUR_DRAFT = re.compile(re.escape(DRAFT_SUFFIX) + "-storax-[0-9a-f]{16}$")
_NO_LOCKS = (errno.ENOTSUP, errno.ENOLCK, errno.EBADF, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class Draft:
    """A directory being written by this process, and the name that it will get."""

    path: Path
    final: Path
    lock: int | None


def is_draft(path: Path) -> bool:
    """Whether a name is that of something unfinished, of storax or of Orbax."""
    return DRAFT_SUFFIX in path.name


def is_committed(path: Path) -> bool:
    """Whether a checkpoint is at a path: a directory with something in it, under a final name."""
    if is_draft(path):
        return False
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def begin(final: Path) -> Draft:
    """Makes the draft directory of a checkpoint, and the directories above it, and locks it."""
    posix.make_directories(final.parent)
    while True:
        path = _draft_name(final)
        posix.make_directory(path)
        with contextlib.suppress(FileNotFoundError):  # a cleaner came between: take another name
            locked, lock = _try_lock(path)
            if locked:
                return Draft(path, final, lock)


def _draft_name(final: Path) -> Path:
    return final.with_name(f"{final.name}{DRAFT_SUFFIX}-storax-{os.urandom(8).hex()}")


def _try_lock(path: Path) -> tuple[bool, int | None]:
    """Whether the directory is ours now, and the handle of its lock (None where there are no locks)."""
    try:
        lock = posix.lock_directory(path)
    except StoreError as error:
        if error.errno in _NO_LOCKS:
            return True, None
        raise
    if lock is None:
        return False, None
    if not os.path.lexists(path):
        posix.unlock(lock)
        raise FileNotFoundError(path)
    return True, lock


def publish(draft: Draft, *, overwrite: bool) -> None:
    """Gives a finished draft its final name, durably.

    Everything in the draft must be durable already. With ``overwrite`` a checkpoint that is
    there is swapped with the draft in one step, so at every instant the old or the new one is
    readable, and deleted afterwards.

    Raises:
      CheckpointExists: if the name is taken, also when another process took it just now.
      StoreError: if the file system cannot swap two directories.
    """
    posix.sync_directory(draft.path)
    try:
        posix.rename_to_new(draft.path, draft.final)
    except FileExistsError:
        if not overwrite:
            raise exists(draft.final) from None
        _replace(draft)
    posix.sync_directory(draft.final.parent)
    _let_go(draft)
    if overwrite:
        _delete_draft(draft.path)


def exists(path: Path, advice: str = "") -> CheckpointExists:
    advice = advice or "Save under another name, or replace it: save(..., overwrite=True)."
    return CheckpointExists(f"{path} is there already. {advice}")


def _replace(draft: Draft) -> None:
    try:
        posix.exchange(draft.path, draft.final)
    except StoreError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
        raise StoreError.of(
            OSError(error.errno, os.strerror(error.errno or 0)),
            "replacing",
            draft.final,
            "This file system cannot swap two directories in one step, so the old checkpoint stays. "
            "Save under another name and delete the old one afterwards.",
        ) from None


def discard(draft: Draft) -> None:
    """Deletes a draft that will not be published. Never raises: something else went wrong before."""
    with contextlib.suppress(OSError):
        posix.remove_tree(draft.path)
    _let_go(draft)


def _let_go(draft: Draft) -> None:
    if draft.lock is not None:
        posix.unlock(draft.lock)


def delete(path: Path) -> None:
    """Deletes a checkpoint: it leaves its name in one step, durably, and then its files go.

    Raises:
      CheckpointNotFound: if nothing is there.
    """
    if not os.path.lexists(path):
        raise CheckpointNotFound(f"{path} is not there.")
    leaving = _draft_name(path)
    posix.rename_to_new(path, leaving)
    posix.sync_directory(path.parent)
    _delete_draft(leaving)


def _delete_draft(path: Path) -> None:
    """Deletes something with a draft's name unless another process is at it."""
    with contextlib.suppress(FileNotFoundError):
        locked, lock = _try_lock(path)
        if locked:
            try:
                posix.remove_tree(path)
            finally:
                if lock is not None:
                    posix.unlock(lock)


def leftovers(parent: Path) -> Iterator[Path]:
    """The drafts in a directory whose writers are dead. Only drafts of storax: others hold no lock.

    Where the file system has no locks nothing is known to be dead, so nothing is listed.
    """
    with os.scandir(parent) as entries:
        candidates = sorted(entry.path for entry in entries if _OUR_DRAFT.search(entry.name))
    for candidate in map(Path, candidates):
        with contextlib.suppress(FileNotFoundError, StoreError):
            if (lock := posix.lock_directory(candidate)) is not None:
                posix.unlock(lock)
                yield candidate


def clean(parent: Path) -> list[Path]:
    """Deletes the drafts of dead processes in a directory; returns what was deleted."""
    dead = list(leftovers(parent))
    for path in dead:
        _delete_draft(path)
    return dead


def clean_foreign(parent: Path) -> None:
    """Deletes every draft in a directory that is not of storax: nobody can tell whether they are dead."""
    for path in sorted(parent.iterdir()):
        if is_draft(path) and not _OUR_DRAFT.search(path.name):
            posix.remove_tree(path)
