"""Files and directories: the only door to the operating system's calls that change a disk.

Every write of storax to a local file system is one of the functions below, and each
turns an ``OSError`` into a ``StoreError`` that says what was being done, to what, and
how many bytes were needed. Nothing here knows what a checkpoint is.

Durability follows POSIX: a file's bytes are durable after ``fsync`` of the file, its
*name* after ``fsync`` of its directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storax.errors import StoreError

Buffer = bytes | bytearray | memoryview

# Linux refuses more buffers than this in one pwritev (UIO_MAXIOV).
_MOST_BUFFERS = 1024

# How long a lock that somebody else holds is asked for again, and how often. Who holds one that stands
# in the way holds it for a moment only, as long as no program forgets it.
_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.002


@contextlib.contextmanager
def _explain(doing: str, path: Path, need: int = 0) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError.of(error, doing, path, _advice(error, path, need)) from error


def _advice(error: OSError, path: Path, need: int) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        # Plain os.statvfs: this runs while something already failed, so it must not fail too.
        try:
            usage = os.statvfs(path.parent)
            free = f"{usage.f_bavail * usage.f_frsize:,} bytes are free"
        except OSError:
            free = "how much is free could not be found out"
        wanted = f"It needs {need:,} bytes and {free}" if need else free.capitalize()
        return f"{wanted}. Make room, or save to another disk."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        wanted = f" ({need:,} bytes are to be written)" if need else ""
        return f"Make the directory writable, or save to another one{wanted}."
    return ""


def make_directory(path: Path) -> None:
    """Creates one directory, whose parent must exist. Raises ``FileExistsError`` if it is there."""
    try:
        with _explain("creating the directory", path):
            os.mkdir(path)
    except StoreError as error:
        if error.errno == errno.EEXIST:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        raise


def make_directories(path: Path) -> None:
    """Creates a directory and its missing parents, each durable before the next."""
    with _explain("looking for the directory", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            make_directory(directory)
        sync_directory(directory.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    with _explain("syncing the directory", path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_tree(path: Path) -> None:
    """Makes the names in a directory and in every directory below it durable, innermost first."""
    for directory, _, _ in os.walk(path, topdown=False):
        sync_directory(Path(directory))


def write_file(path: Path, data: Buffer) -> None:
    """Writes a whole new file, durably; its name is durable after its directory is synced."""
    with new_file(path) as file:
        file.write_at(0, [data])
        file.sync()


class NewFile:
    """A file being written, at any offsets. Use ``new_file``."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._written = 0

    def write_at(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Writes buffers one after another from an offset on; returns how many bytes."""
        rest = [memoryview(b).cast("B") for b in buffers if len(b)]
        total = sum(b.nbytes for b in rest)
        with _explain("writing", self._path, total):
            while rest:
                done = os.pwritev(self._fd, rest[:_MOST_BUFFERS], offset)
                offset += done
                while rest and done >= rest[0].nbytes:
                    done -= rest.pop(0).nbytes
                if done:
                    rest[0] = rest[0][done:]
        self._written += total
        return total

    def sync(self) -> None:
        """Makes the bytes written so far durable."""
        # A file system may notice only here that it is full.
        with _explain("syncing", self._path, self._written):
            os.fsync(self._fd)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """Creates a file that must not exist yet, open for writing."""
    with _explain("creating", path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        yield NewFile(path, fd)
    finally:
        os.close(fd)


def rename_to_new(source: Path, target: Path) -> None:
    """Renames a directory to a name that nothing has (but an empty directory): atomic, replaces nothing.

    Raises ``FileExistsError`` if the name is taken.
    """
    try:
        with _explain("renaming", source):
            os.rename(source, target)
    except StoreError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise FileExistsError(error.errno, os.strerror(errno.EEXIST), str(target)) from None
        raise


def rename_file_to_new(source: Path, target: Path) -> None:
    """Renames a file to a name that nothing has: atomic, replaces nothing.

    Raises ``FileExistsError`` if the name is taken.
    """
    with _explain("renaming", source):
        try:
            # Unlike a rename, a link does not replace what another process put there just now.
            os.link(source, target)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            if not os.path.lexists(target):
                os.rename(source, target)
                return
        else:
            os.unlink(source)
            return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))


def replace_file(source: Path, target: Path) -> None:
    """Renames a file to a name that another file may have: at every instant one of them has it."""
    with _explain("renaming", source):
        os.replace(source, target)


def exchange(one: Path, other: Path) -> None:
    """Swaps two directories in one atomic step: at every instant both names exist.

    Raises ``StoreError`` where the system or the file system has no such call.
    """
    with _explain("exchanging", one):
        _exchange(os.fsencode(one), os.fsencode(other))


def _exchange(one: bytes, other: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd = -100
    rename_exchange = 2
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(one, other, rename_exchange)  # RENAME_SWAP has the same value
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(at_cwd, one, at_cwd, other, rename_exchange)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def remove_tree(path: Path) -> None:
    """Deletes a directory and all that is in it; fine if it is gone already.

    Of a link, and of links in it, only the link goes, never what it points to.
    """
    with _explain("deleting", path), contextlib.suppress(FileNotFoundError):
        if os.path.islink(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)


def remove_file(path: Path) -> None:
    """Deletes one file; fine if it is gone already."""
    with _explain("deleting", path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def set_mode(path: Path, mode: int) -> None:
    """Sets who may do what with a directory, and with every directory below it."""
    with _explain("setting the mode of", path):
        for directory, _, _ in os.walk(path):
            os.chmod(directory, mode)


@dataclass(slots=True, eq=False)
class Handle:
    """An open directory, by its number; -1 once it is closed. It may have a lock."""

    fd: int


# Those that this process opened. A child that is forked inherits every one, and closes them at once.
_handles: set[Handle] = set()


def hold_directory(path: Path) -> Handle | None:
    """Keeps a directory's identity from being given to another, until ``let_go``; None if none is there."""
    try:
        return _open_directory(path)
    except OSError:
        return None


def lock_directory(path: Path, *, patient: bool = False) -> Handle | None:
    """Takes an exclusive lock on a directory, held until ``unlock`` or until this process dies.

    The lock belongs to the directory itself, so it survives a rename and leaves no file
    behind. Returns its handle, or None if another live process holds it.

    The system lets go of it when every copy of the handle is closed. A process that was forked
    has copies: those made by Python close them at once. ``unlock`` lets go whatever copies there are.

    Args:
      path: of the directory.
      patient: ask again for a moment if another process holds it.

    Raises:
      StoreError: if the file system has no such locks.
      FileNotFoundError: if the directory is gone.
    """
    try:
        handle = _open_directory(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError.of(error, "opening", path) from error
    try:
        return _locked(handle, fcntl.LOCK_EX, _PATIENCE_SECONDS if patient else 0.0)
    except OSError as error:
        raise StoreError.of(error, "locking", path) from error


def share_directory(path: Path) -> Handle | None:
    """Takes a shared lock on a directory; waits a moment, never long, for an exclusive one to be given back.

    Returns its handle, or None if the lock cannot be had: another process keeps an exclusive one, or
    the file system has no such locks.

    Raises:
      FileNotFoundError: if there is no such directory.
    """
    try:
        handle = _open_directory(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except OSError:
        return None
    try:
        return _locked(handle, fcntl.LOCK_SH, _PATIENCE_SECONDS)
    except OSError:
        return None


def unlock(handle: Handle) -> None:
    """Gives back a lock of ``lock_directory`` or ``share_directory``, once, whoever has a copy of it.

    In a process that was forked meanwhile it does nothing: the lock is its parent's.
    """
    if handle.fd >= 0:
        # Closing alone would leave it to a child that was forked behind Python's back.
        with contextlib.suppress(OSError):
            fcntl.flock(handle.fd, fcntl.LOCK_UN)
        let_go(handle)


def let_go(handle: Handle) -> None:
    """Closes a handle, once."""
    fd, handle.fd = handle.fd, -1
    _handles.discard(handle)
    if fd >= 0:
        os.close(fd)


def _open_directory(path: Path) -> Handle:
    handle = Handle(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    _handles.add(handle)
    return handle


def _locked(handle: Handle, operation: int, patience: float) -> Handle | None:
    """The handle, with its lock; closed, and None, if somebody else has one that stands in the way."""
    end = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(handle.fd, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    let_go(handle)
                    return None
                time.sleep(_PAUSE_SECONDS)
            else:
                return handle
    except BaseException:
        let_go(handle)
        raise


def _close_inherited() -> None:
    """In a forked child: closes its copies. Nothing is unlocked, as that would be for the parent, too."""
    for handle in list(_handles):
        with contextlib.suppress(OSError):
            let_go(handle)
    _handles.clear()


os.register_at_fork(after_in_child=_close_inherited)


def identity(path: Path | Handle) -> tuple[int, int]:
    """What stays the same while a name means the same directory. Raises ``FileNotFoundError``."""
    status = os.fstat(path.fd) if isinstance(path, Handle) else os.stat(path)
    return status.st_dev, status.st_ino


def state(path: Path) -> tuple[int, int, int]:
    """What changes when a directory, or what its name means, changes. Raises ``FileNotFoundError``.

    Its identity alone is not enough: that of a deleted directory is soon given to a new one.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_ctime_ns


def modified(path: Path) -> float:
    """When the names in a directory changed last, in seconds since 1970. Raises ``FileNotFoundError``."""
    return os.stat(path).st_mtime


def open_to_read(path: str) -> int:
    """Opens a file. Raises ``FileNotFoundError``, or ``StoreError`` for what else the system says."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError.of(error, "opening", path) from error


def read_into(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
    """Fills buffers from a file, from an offset on; returns how many bytes there were."""
    rest = list(buffers)
    total = 0
    try:
        while rest:
            done = os.preadv(fd, rest[:_MOST_BUFFERS], offset + total)
            if not done:
                break
            total += done
            while rest and done >= rest[0].nbytes:
                done -= rest.pop(0).nbytes
            if done:
                rest[0] = rest[0][done:]
    except OSError as error:
        raise StoreError.of(error, "reading", f"at offset {offset + total:,}") from error
    return total
