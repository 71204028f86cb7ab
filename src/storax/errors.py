"""What can go wrong, as one tree.

    StoraxError
    ├── Misuse                 the call cannot work as written; nothing was touched
    │   ├── UnsupportedLeaf    the tree holds something that cannot be saved
    │   ├── NameCollision      two leaves would have one name on disk
    │   ├── TreeMismatch       the checkpoint and the target differ
    │   ├── TransformMismatch  transforms that do not fit what is saved
    │   ├── CheckpointExists   the path is taken
    │   ├── BadOption          an argument that no checkpoint can satisfy
    │   └── ProcessesDisagree  the processes of a job save different things
    └── WorldFailed            the call was right, the world was not
        ├── CheckpointNotFound nothing (committed) is there
        │   └── ItemNotFound   the checkpoint has no item of that name
        ├── Corrupt            bytes are there and wrong
        ├── CheckpointChanged  it was replaced or deleted while being read
        ├── ProcessFailed      another process of the job failed or did not come
        ├── DirectoryNotShared not every process of the job sees the directory
        ├── CheckpointInUse    it is to be deleted, and a reader holds it open
        └── StoreError         the file system said no: full, read-only, permission

Each class also inherits the builtin that people already catch, and carries the
exit code that the command line uses for it.
"""

from __future__ import annotations

import os


class StoraxError(Exception):
    """Every error that storax raises on purpose."""

    exit_code = 1


class Misuse(StoraxError):
    """The call cannot work as it is written. Nothing was read or written."""

    exit_code = 2


class WorldFailed(StoraxError):
    """The call was right, but a disk, a process or a file failed it."""

    exit_code = 1


class UnsupportedLeaf(Misuse, TypeError, ValueError):
    """The tree holds leaves that no checkpoint can hold. The message lists all of them."""

    exit_code = 3


class NameCollision(Misuse, ValueError):
    """Two leaves of one tree would share a name on disk."""

    exit_code = 4


class TreeMismatch(Misuse, ValueError):
    """The saved tree and the target differ. Every difference is an attribute and in the message.

    Attributes:
      only_saved: names that only the checkpoint has.
      only_wanted: names that only the target has.
      differ: ``(name, what)`` for leaves that are on both sides and do not fit.
    """

    exit_code = 5

    def __init__(
        self,
        message: str,
        *,
        only_saved: tuple[str, ...] = (),
        only_wanted: tuple[str, ...] = (),
        differ: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.only_saved = only_saved
        self.only_wanted = only_wanted
        self.differ = differ


class TransformMismatch(Misuse, ValueError):
    """Transforms of a model that do not fit its leaves. Every problem is an attribute and in the message.

    Attributes:
      problems: (transform, name of the leaf, what does not fit).
    """

    exit_code = 5

    def __init__(self, message: str, *, problems: tuple[tuple[str, str, str], ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


# ValueError too: code written for Orbax catches that when a path is taken.
class CheckpointExists(Misuse, FileExistsError, ValueError):
    """A checkpoint is already there."""

    exit_code = 6


class BadOption(Misuse, ValueError):
    """An argument has a value that cannot work."""

    exit_code = 2


class ProcessesDisagree(Misuse, ValueError):
    """The processes of a job save different trees, shardings, options or steps. Names where they differ."""

    exit_code = 12


class ProcessFailed(WorldFailed, TimeoutError):
    """Another process of the job failed, died, or did not come in time. Names it and its reason."""

    exit_code = 13


class DirectoryNotShared(WorldFailed, OSError):
    """Some processes of the job do not see the directory that process 0 made. Names them."""

    exit_code = 14

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CheckpointNotFound(WorldFailed, FileNotFoundError):
    """No committed checkpoint, step or item is at that place."""

    exit_code = 7


class ItemNotFound(CheckpointNotFound, KeyError):
    """The checkpoint is there, the item asked for is not. The message names those that are."""


class Corrupt(WorldFailed, ValueError):
    """Bytes were read that are not what was written. Names the file and, where known, the offset."""

    exit_code = 8


class CheckpointChanged(WorldFailed, RuntimeError):
    """The checkpoint was replaced or deleted while it was being read."""

    exit_code = 9


class CheckpointInUse(WorldFailed, BlockingIOError):
    """The checkpoint was to be deleted, and a reader holds it open."""

    exit_code = 11


class StoreError(WorldFailed, OSError):
    """The file system refused: no space, read-only, no permission, an I/O error.

    ``errno`` and ``filename`` are those of the system's own error.
    """

    exit_code = 10

    @classmethod
    def of(cls, error: OSError, doing: str, path: object, advice: str = "") -> StoreError:
        reason = os.strerror(error.errno) if error.errno else str(error)
        made = cls(f"{reason} while {doing} {path}." + (f" {advice}" if advice else ""))
        made.errno = error.errno
        made.filename = str(path)
        return made

    def __str__(self) -> str:
        # OSError would show errno and file name only, and lose the advice.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


def in_context(error: BaseException, context: str) -> BaseException:
    """The same error, of the same type, whose message says what was being done."""
    if isinstance(error, StoraxError) and len(error.args) == 1:
        error.args = (f"{context}: {error.args[0]}",)
    else:
        error.add_note(f"storax: {context}")
    return error
