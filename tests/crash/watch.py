"""Sees every operation by which storax changes a disk: counts it, lets it pass, fails it, or dies before it.

Nothing in storax knows of this: the functions of the ``os`` module that ``store/posix.py`` calls are
replaced in this process, and so is its call of renameat2.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storax.store import posix


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of a disk: mkdir, create, write, sync, rename, exchange, unlink or rmdir."""

    kind: str
    path: str
    target: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


# Is told of an operation before it happens. The second argument writes half of it, where that can be.
Hook = Callable[[Operation, Callable[[], None] | None], None]


def die() -> None:
    """As by ``kill -9``: no handler runs, no buffer is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def watched(hook: Hook) -> Iterator[None]:
    """While it lasts, the hook is told of every operation of this process, one at a time."""
    real = {name: getattr(os, name) for name in "mkdir open pwritev fsync rename unlink rmdir".split()}
    real_exchange = posix._exchange
    paths: dict[int, str] = {}
    one_at_a_time = threading.RLock()

    def tell(kind: str, path: str, target: str = "", half: Callable[[], None] | None = None) -> None:
        with one_at_a_time:
            hook(Operation(kind, path, target), half)

    def place(path: Any, dir_fd: int | None) -> str:
        text = os.fsdecode(path)
        return text if dir_fd is None else os.path.join(paths[dir_fd], text)

    def mkdir(path: Any, *rest: Any, **more: Any) -> None:
        tell("mkdir", os.fsdecode(path))
        real["mkdir"](path, *rest, **more)

    def open_(path: Any, flags: int, *rest: Any, dir_fd: int | None = None, **more: Any) -> int:
        where = place(path, dir_fd)
        if flags & os.O_CREAT:
            tell("create", where)
        fd: int = real["open"](path, flags, *rest, dir_fd=dir_fd, **more)
        paths[fd] = where
        return fd

    def pwritev(fd: int, buffers: Sequence[Any], offset: int) -> int:
        whole = b"".join(buffers)
        half = len(whole) // 2
        tell("write", paths[fd], half=lambda: _write_all(real["pwritev"], fd, whole[:half], offset))
        written: int = real["pwritev"](fd, buffers, offset)
        return written

    def fsync(fd: int) -> None:
        # Without its effect, which only a power failure could show: the dead lose no page of the cache.
        tell("sync", paths[fd])

    def rename(source: Any, target: Any) -> None:
        tell("rename", os.fsdecode(source), os.fsdecode(target))
        real["rename"](source, target)

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        tell("unlink", place(path, dir_fd))
        real["unlink"](path, dir_fd=dir_fd)

    def rmdir(path: Any, *, dir_fd: int | None = None) -> None:
        tell("rmdir", place(path, dir_fd))
        real["rmdir"](path, dir_fd=dir_fd)

    def exchange(one: bytes, other: bytes) -> None:
        tell("exchange", os.fsdecode(one), os.fsdecode(other))
        real_exchange(one, other)

    replaced = (mkdir, pwritev, fsync, rename, unlink, rmdir)
    try:
        for function in replaced:
            setattr(os, function.__name__, function)
        os.open = open_
        posix._exchange = exchange
        yield
    finally:
        posix._exchange = real_exchange
        for name, function in real.items():
            setattr(os, name, function)


def _write_all(pwritev: Any, fd: int, data: bytes, offset: int) -> None:
    while data:
        done = pwritev(fd, [data], offset)
        data, offset = data[done:], offset + done


def dying_at(number: int, *, half: bool = False) -> Hook:
    """A hook that kills this process before the n-th operation, or in the middle of it."""
    count = 0

    def hook(operation: Operation, write_half: Callable[[], None] | None) -> None:
        nonlocal count
        count += 1
        if count == number:
            if half and write_half is not None:
                write_half()
            die()

    return hook


def failing_at(number: int, code: int, *, half: bool = False) -> Hook:
    """A hook that makes the n-th operation, and no other, fail with an ``errno``."""
    count = 0

    def hook(operation: Operation, write_half: Callable[[], None] | None) -> None:
        nonlocal count
        count += 1
        if count == number:
            if half and write_half is not None:
                write_half()
            raise OSError(code, os.strerror(code), operation.path)

    return hook


def recording(into: list[Operation]) -> Hook:
    """A hook that lets everything pass and writes it down."""
    return lambda operation, _: into.append(operation)
