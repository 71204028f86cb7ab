"""Whole or not at all: draft, publish, discard, and what dead processes leave behind.

A checkpoint is written into a *draft* directory beside its final name and renamed when every
byte and name in it is durable. So a reader sees the whole checkpoint or none.

A draft is called ``<name>.orbax-checkpoint-tmp-<attempt>``, which Orbax too takes for
temporary. Its writer holds a lock on the directory while it lives; the system gives the lock
back when the process dies, and the children that it forked have let go of their copies, as those
of Python's ``os.fork`` and ``multiprocessing`` do at once. That is how a leftover is told from a
draft that somebody is writing: by its lock, not by its age.

Deleting and replacing go through the same kind of name: a checkpoint first leaves its place in
one atomic step, then its files are deleted at leisure.

Where the name is a link to a directory, replacing puts the new checkpoint where the link points to;
deleting removes the link, and nothing that it points to.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storax.errors import BadOption, CheckpointExists, CheckpointInUse, CheckpointNotFound, StoreError
from storax.store import posix
from storax.store.paths import MOST_IN_A_NAME
from storax.tree import documents

_log = logging.getLogger("storax")

DRAFT_SUFFIX = ".orbax-checkpoint-tmp"
_OUR_DRAFT = re.compile(re.escape(DRAFT_SUFFIX) + "-storax-[0-9a-f]{16}$")
_NO_LOCKS = (errno.ENOTSUP, errno.ENOLCK, errno.EBADF, errno.ENOSYS, errno.EINVAL)


@dataclass(slots=True)
class Draft:
    """A directory being written by this process, and the name that it will get.

    Attributes:
      path: of the directory.
      final: the name that it will get.
      lock: the handle of its lock, None where there are no locks and once it is given back.
      seen: the identity of what had the final name when the draft began, None if nothing had.
      held: what keeps that identity from being given to another directory meanwhile.
    """

    path: Path
    final: Path
    lock: posix.Handle | None
    seen: tuple[int, int] | None = None
    held: posix.Handle | None = None


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
    """Makes the draft directory of a checkpoint, and the directories above it, and locks it.

    Raises:
      BadOption: the name is too long for a draft of it.
    """
    final = behind_link(final)
    check_name(final)
    posix.make_directories(final.parent)
    while True:
        path = draft_name(final)
        posix.make_directory(path)
        try:
            locked, lock = _try_lock(path)
        except FileNotFoundError:
            continue  # a cleaner came between: take another name
        except StoreError:
            with contextlib.suppress(StoreError):
                posix.remove_tree(path)
            raise
        if locked:
            held = posix.hold_directory(final)
            return Draft(path, final, lock, _identity(final if held is None else held), held)


def behind_link(final: Path) -> Path:
    """Where a checkpoint is saved under a name: what a link points to, so that the link stays one."""
    return Path(os.path.realpath(final)) if os.path.islink(final) else final


def check_name(final: Path) -> None:
    """Raises ``BadOption`` if the draft of a checkpoint would have too long a name."""
    more = len(draft_name(final).name) - len(final.name)
    size = len(os.fsencode(final.name))
    if size + more > MOST_IN_A_NAME:
        raise BadOption(
            f"the name {final.name[:40]!r}… has {size} bytes; a checkpoint's may have "
            f"{MOST_IN_A_NAME - more}, since its draft's is longer by {more} ({DRAFT_SUFFIX}-…). "
            "Choose a shorter one."
        )


def draft_name(final: Path) -> Path:
    """A new name for something unfinished beside a final name."""
    return final.with_name(f"{final.name}{DRAFT_SUFFIX}-storax-{os.urandom(8).hex()}")


def _identity(path: Path | posix.Handle) -> tuple[int, int] | None:
    try:
        return posix.identity(path)
    except OSError:
        return None


def _try_lock(path: Path) -> tuple[bool, posix.Handle | None]:
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
    readable, and deleted afterwards. Only what was there when the draft began is replaced: of two
    that replace the same at the same time the first wins, and the other is told.

    Raises:
      CheckpointExists: if the name is taken, also when another process took it just now; with
        ``overwrite``, if another process replaced it since the draft began.
      StoreError: if the file system cannot swap two directories.
    """
    posix.sync_directory(draft.path)
    replaces = False
    try:
        posix.rename_to_new(draft.path, draft.final)
    except FileExistsError:
        if not overwrite:
            raise exists(draft.final) from None
        _replace(draft)
        replaces = True
    try:
        posix.sync_directory(draft.final.parent)
    except StoreError:
        _take_back(draft, replaces)
        raise
    _let_go(draft)
    if overwrite:
        _delete_draft(draft.path)
        # And what earlier saves could not delete, as they died or a reader had it open.
        for path in leftovers(draft.final.parent):
            if path.name.startswith(f"{draft.final.name}{DRAFT_SUFFIX}"):
                _delete_if_possible(path)


def publish_file(draft: Draft, file: Path, *, overwrite: bool) -> None:
    """Gives the one file of a draft the final name, durably, and deletes the draft. Raises as ``publish``."""
    posix.sync_directory(draft.path)
    if overwrite:
        posix.replace_file(file, draft.final)
    else:
        try:
            posix.rename_file_to_new(file, draft.final)
        except FileExistsError:
            raise exists(draft.final) from None
    posix.sync_directory(draft.final.parent)
    discard(draft)


def exists(path: Path, advice: str = "") -> CheckpointExists:
    advice = advice or "Save under another name, or replace it: save(..., overwrite=True)."
    return CheckpointExists(f"{path} is there already. {advice}")


def _replace(draft: Draft) -> None:
    with _alone_in(draft.final.parent):
        if _identity(draft.final) != draft.seen:
            raise exists(draft.final, _REPLACED)
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
        if _identity(draft.path) != draft.seen:
            # Somebody came between who does not ask for the lock, or there are no locks.
            posix.exchange(draft.path, draft.final)
            raise exists(draft.final, _REPLACED)


_REPLACED = "It was replaced while this save ran, and stays as it is now. Save again to replace that."


@contextlib.contextmanager
def _alone_in(parent: Path) -> Iterator[None]:
    """While the block runs, no other process of storax replaces anything in a directory, if it has locks."""
    lock = None
    with contextlib.suppress(StoreError, FileNotFoundError):
        lock = posix.lock_directory(parent, patient=True)
    try:
        yield
    finally:
        if lock is not None:
            posix.unlock(lock)


def _take_back(draft: Draft, replaces: bool) -> None:
    """Undoes a rename that could not be made durable: a save that fails has changed nothing."""
    with contextlib.suppress(StoreError, FileExistsError):
        if replaces:
            posix.exchange(draft.path, draft.final)
        else:
            posix.rename_to_new(draft.final, draft.path)


def discard(draft: Draft) -> None:
    """Deletes a draft that will not be published. Never raises: something else went wrong before."""
    with contextlib.suppress(OSError):
        posix.remove_tree(draft.path)
    _let_go(draft)


def _let_go(draft: Draft) -> None:
    lock, draft.lock = draft.lock, None
    if lock is not None:
        posix.unlock(lock)
    held, draft.held = draft.held, None
    if held is not None:
        posix.let_go(held)


def delete(path: Path) -> None:
    """Deletes a checkpoint: it leaves its name in one step, then its files go. Raises as ``retire``.

    Of a link only the link is deleted.
    """
    _delete_draft(retire(path))


def retire(path: Path) -> Path:
    """Takes a checkpoint off its name, durably, in one step; its files stay, under the name returned.

    That is the name of a draft of a dead process: if nobody deletes the files, the next ``clean`` does.
    A link is removed at once, and what it points to stays where it is.

    Raises:
      CheckpointNotFound: if nothing is there.
      CheckpointInUse: if a reader holds it open.
    """
    leaving = draft_name(path)
    with _not_in_use(path):
        if path.is_symlink():
            posix.remove_file(path)
        else:
            posix.rename_to_new(path, leaving)
        posix.sync_directory(path.parent)
    return leaving


def move(path: Path, target: Path) -> Path:
    """Moves a checkpoint to another name on the same file system. Raises as ``retire``.

    Returns:
      Where it is now: the target, or if that name is taken, it with a number after it.
    """
    posix.make_directories(target.parent)
    with _not_in_use(path):
        for number in itertools.count(2):
            try:
                posix.rename_to_new(path, target)
                break
            except FileExistsError:
                target = target.with_name(f"{path.name}.{number}")
        posix.sync_directory(target.parent)
        posix.sync_directory(path.parent)
    return target


@contextlib.contextmanager
def _not_in_use(path: Path) -> Iterator[None]:
    try:
        locked, lock = _try_lock(path)
    except FileNotFoundError:
        raise CheckpointNotFound(f"{path} is not there.") from None
    if not locked:
        raise CheckpointInUse(f"{path} is open in a reader (or being deleted). Try again when it is closed.")
    try:
        yield
    finally:
        if lock is not None:
            posix.unlock(lock)


@contextlib.contextmanager
def lease(path: Path) -> Iterator[None]:
    """Keeps a checkpoint, or the one that an item is in, from being deleted by storax for a while.

    A lease is a shared lock on the directory: the system gives it back when the process dies.
    Where there is nothing, or no locks, it does nothing. If another process keeps the lock, it goes
    on without a lease after a moment: a reader never hangs, and notices if the checkpoint is deleted.
    """
    handles = []
    for directory in (path.parent, path):
        if is_draft(directory) or not (directory == path or (directory / documents.STEP_DOCUMENT).is_file()):
            continue
        with contextlib.suppress(FileNotFoundError):
            if (handle := posix.share_directory(directory)) is not None:
                handles.append(handle)
    try:
        yield
    finally:
        for handle in handles:
            posix.unlock(handle)


def is_leased(path: Path) -> bool:
    """Whether a reader holds a checkpoint open now."""
    try:
        locked, lock = _try_lock(path)
    except FileNotFoundError:
        return False
    if lock is not None:
        posix.unlock(lock)
    return not locked


def delete_retired(path: Path, pause: Callable[[], bool] = lambda: True) -> bool:
    """Deletes what ``retire`` left, file by file.

    Args:
      path: what ``retire`` returned.
      pause: called before each file; False stops, and the rest stays for another time.

    Returns:
      Whether all of it is gone.
    """
    for directory, _, files in () if path.is_symlink() else os.walk(path, topdown=False):
        for name in files:
            if not pause():
                return False
            posix.remove_file(Path(directory) / name)
    _delete_draft(path)
    return True


def _delete_draft(path: Path) -> None:
    """Deletes something with a draft's name unless another process is at it."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink():  # never a draft: somebody linked a checkpoint
            posix.remove_file(path)
            return
        locked, lock = _try_lock(path)
        if locked:
            try:
                posix.remove_tree(path)
            finally:
                if lock is not None:
                    posix.unlock(lock)


def _delete_if_possible(path: Path) -> bool:
    """Deletes something with a draft's name; what cannot be deleted stays, and the log says why."""
    try:
        _delete_draft(path)
    except StoreError as error:
        _log.warning("%s is left over and cannot be deleted: %s", path, error)
        return False
    return True


def _unfinished(parent: Path) -> list[Path]:
    """What has a draft's name in a directory; nothing, and a line in the log, if nobody lets us look."""
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(entry.path) for entry in entries if DRAFT_SUFFIX in entry.name)
    except PermissionError as error:
        _log.warning("%s cannot be looked through for what is left over: %s", parent, error)
        return []


def leftovers(parent: Path) -> Iterator[Path]:
    """The drafts in a directory whose writers are dead. Only drafts of storax: others hold no lock.

    Where the file system has no locks nothing is known to be dead, so nothing is listed.
    """
    for candidate in _unfinished(parent):
        if not _OUR_DRAFT.search(candidate.name):
            continue
        with contextlib.suppress(FileNotFoundError, StoreError):
            if candidate.is_symlink():
                yield candidate
            elif (lock := posix.lock_directory(candidate)) is not None:
                posix.unlock(lock)
                yield candidate


def clean(parent: Path) -> list[Path]:
    """Deletes the drafts of dead processes in a directory; returns what was deleted.

    What cannot be deleted, as it is another user's, stays; the log says why.
    """
    return [path for path in list(leftovers(parent)) if _delete_if_possible(path)]


def clean_foreign(parent: Path) -> None:
    """Deletes every draft in a directory that is not of storax: nobody can tell whether they are dead.

    What cannot be deleted stays; the log says why.
    """
    for path in _unfinished(parent):
        if path.is_dir() and not _OUR_DRAFT.search(path.name):
            try:
                posix.remove_tree(path)
            except StoreError as error:
                _log.warning("%s is left over and cannot be deleted: %s", path, error)
