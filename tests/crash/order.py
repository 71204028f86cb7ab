"""The rules of a durable save, judged on the list of operations that it made."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from tests.crash.watch import Operation


def violations(operations: Sequence[Operation], final: str) -> list[str]:
    """What is wrong with the order of a save to ``final``; its operations end where it returned.

    Before the rename: every file of the draft was synced after its last write, every directory of the
    draft after its last new name, and every directory above that the save made was synced into its
    parent. After the rename: the parent is synced, before another name changes and before what was
    replaced, which now has the draft's name, is deleted.
    """
    renames = [
        i
        for i, o in enumerate(operations)
        if o.kind in ("rename", "exchange") and final in (o.path, o.target)
    ]
    if not renames:
        return [f"nothing was ever renamed to {final}"]
    draft = operations[renames[0]].path
    at = [i for i in renames if operations[i].path == draft][-1]  # a rename is tried before the exchange
    before, after = operations[:at], operations[at + 1 :]
    return _before(before, draft) + _after(after, draft, posixpath.dirname(final))


def _before(operations: Sequence[Operation], draft: str) -> list[str]:
    wrong = []
    synced = _last(operations, ("sync",), lambda o: o.path)
    for path, i in _last(operations, ("create", "write"), lambda o: o.path).items():
        if _is_in(path, draft) and synced.get(path, -1) < i:
            wrong.append(f"{path} was not synced after its last write")
    for parent, i in _last(operations, ("mkdir", "create"), lambda o: posixpath.dirname(o.path)).items():
        if synced.get(parent, -1) < i and parent != posixpath.dirname(draft):
            wrong.append(f"{parent} was not synced after its last new name")
    if not any(_is_in(o.path, draft) and o.kind == "write" for o in operations):
        wrong.append(f"nothing was written into {draft}")
    return wrong


def _after(operations: Sequence[Operation], draft: str, parent: str) -> list[str]:
    synced = [i for i, o in enumerate(operations) if o.kind == "sync" and o.path == parent]
    if not synced:
        return [f"{parent} was not synced after the rename"]
    return [
        f"{o.kind} of {o.path} before {parent} was synced"
        for o in operations[: synced[0]]
        if o.kind in ("rename", "exchange") or (o.kind in ("unlink", "rmdir") and _is_in(o.path, draft))
    ]


def _last(operations: Sequence[Operation], kinds: tuple[str, ...], key) -> dict[str, int]:
    return {key(o): i for i, o in enumerate(operations) if o.kind in kinds}


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def deletions_are_durable_first(operations: Sequence[Operation]) -> list[str]:
    """A step that goes leaves its name, durably, before its first file goes."""
    wrong = []
    for i, operation in enumerate(operations):
        if operation.kind != "rename" or ".orbax-checkpoint-tmp" not in operation.target:
            continue
        leaving, parent = operation.target, posixpath.dirname(operation.path)
        for later in operations[i + 1 :]:
            if later.kind == "sync" and later.path == parent:
                break
            if later.kind in ("unlink", "rmdir") and _is_in(later.path, leaving):
                wrong.append(f"{later.path} was deleted before {parent} was synced")
    return wrong
