"""What strace saw, as the operations that ``watch`` sees: from below Python, so nothing can pass unseen."""

from __future__ import annotations

import posixpath
import re

from tests.crash.watch import Operation

CALLS = (
    "mkdir,mkdirat,open,openat,creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,fsync,fdatasync,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir"
)
_LINE = re.compile(r"^(?P<pid>\d+) +(?P<rest>.*)$")
_CALL = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)(?P<path><[^>]*>)?.*$")
_AT = re.compile(r"^(?:AT_FDCWD|\d+)<(?P<directory>[^>]*)>$")
_WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate"}


def operations(text: str, below: str) -> list[Operation]:
    """The operations that succeeded, on paths below a directory, from ``strace -f -y -o``.

    A call that another thread interrupts in the trace counts where it ended, but a sync, a rename or
    a deletion counts where it began: the order is judged at its worst.
    """
    found: list[tuple[int, Operation]] = []
    begun: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines()):
        matched = _LINE.match(line)
        if not matched:
            continue
        pid, rest = matched["pid"], matched["rest"]
        place = number
        if rest.endswith("<unfinished ...>"):
            begun[pid] = (number, rest.removesuffix("<unfinished ...>").rstrip())
            continue
        if rest.startswith("<... ") and pid in begun:
            start, head = begun.pop(pid)
            rest = head + rest.partition("resumed>")[2]
            place = start if not _is_new(rest) else number
        operation = _operation(rest)
        if operation is not None and operation.path.startswith(below):
            found.append((place, operation))
    return [operation for _, operation in sorted(found, key=lambda pair: pair[0])]


def _is_new(call: str) -> bool:
    return call.startswith(("mkdir", "open", "creat", "write", "pwrite"))


def _operation(call: str) -> Operation | None:
    matched = _CALL.match(call)
    if not matched or int(matched["result"]) < 0:
        return None
    name, arguments = matched["name"], matched["arguments"].split(", ")
    if name in ("fsync", "fdatasync"):
        return Operation("sync", _of_handle(arguments[0]))
    if name in _WRITES:
        return Operation("write", _of_handle(arguments[0]))
    if name in ("open", "openat", "creat"):
        return Operation("create", (matched["path"] or "<>")[1:-1]) if "O_CREAT" in call else None
    paths = list(_paths(arguments))
    if name.startswith("rename"):
        return Operation("exchange" if "RENAME_EXCHANGE" in call else "rename", *paths)
    if name.startswith("mkdir"):
        return Operation("mkdir", paths[0])
    if name == "rmdir" or "AT_REMOVEDIR" in call:
        return Operation("rmdir", paths[0])
    return Operation("unlink", paths[0]) if name.startswith("unlink") else None


def _of_handle(argument: str) -> str:
    return argument.partition("<")[2].removesuffix(">")


def _paths(arguments: list[str]):
    directory = ""
    for argument in arguments:
        if at := _AT.match(argument):
            directory = at["directory"]
        elif argument.startswith('"'):
            yield posixpath.join(directory, argument.strip('"'))
