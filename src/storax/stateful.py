"""Objects that save and load themselves: data iterators, tokenizers, whatever has ``save`` and ``load``.

Such an object writes files of its own into a directory that it is given, and reads them from there.
Both methods may be coroutines, in the form that Grain 0.2 has: ``await object.save(directory)`` takes
the state and gives back another awaitable, which writes.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from storax.errors import BadOption
from storax.publishing import Staged
from storax.store import posix

# Files up to this size are checksummed like documents; larger ones are copied as they are.
_DOCUMENT_BYTES = 16 << 20
_CHUNK_BYTES = 16 << 20


@runtime_checkable
class Stateful(Protocol):
    """An object that saves and loads itself. Both methods may be coroutines."""

    def save(self, directory: Path) -> Any:
        """Writes its state into an empty directory."""
        ...

    def load(self, directory: Path) -> Any:
        """Takes its state from what ``save`` wrote."""
        ...


@dataclass(frozen=True, slots=True)
class StatefulSave:
    """A stateful object to be saved. Its state is taken before ``save`` of the manager returns.

    Args:
      item: an object with ``save(directory)``.
    """

    item: Any

    def stage(self) -> Staged:
        scratch = Scratch()
        later = settle(self.item.save(CreatedPath(scratch.path)))
        kind = type(self.item)
        return StagedFiles(scratch, f"{kind.__module__}.{kind.__qualname__}", later)


@dataclass(frozen=True, slots=True)
class StatefulRestore:
    """A stateful object to be loaded: the object itself, which takes the state and is returned.

    Args:
      item: an object with ``load(directory)``.
    """

    item: Any

    def load(self, directory: Path) -> Any:
        if not callable(getattr(self.item, "load", None)):
            raise BadOption(
                f"a {type(self.item).__name__} cannot load itself: it has no method load(directory)"
            )
        finish(settle(self.item.load(directory)))
        return self.item


class CreatedPath(type(Path())):  # type: ignore[misc]
    """A directory that exists, for those who would wait for it to be made."""

    async def await_creation(self) -> Path:
        """The directory."""
        return Path(self)

    @property
    def path(self) -> Path:
        """The directory."""
        return Path(self)


class Scratch:
    """A private directory for files that go into a checkpoint later. Vanishes with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="storax-item-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def files(self) -> Mapping[str, Path]:
        """All files in it, by their paths below it."""
        found = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        return {path.relative_to(self.path).as_posix(): path for path in found}


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Files in a scratch directory, and what still has to be waited for before they are complete."""

    scratch: Scratch
    handler: str
    later: Any = field(default=None)

    def write(self, directory: Path) -> Mapping[str, bytes]:
        finish(self.later)
        documents: dict[str, bytes] = {}
        for name, source in self.scratch.files().items():
            posix.make_directories((directory / name).parent)
            if source.stat().st_size <= _DOCUMENT_BYTES:
                documents[name] = source.read_bytes()
            else:
                _copy(source, directory / name)
        self.scratch.remove()
        return documents


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, posix.new_file(target) as writing:
        offset = 0
        while chunk := reading.read(_CHUNK_BYTES):
            offset += writing.write_at(offset, [chunk])
        writing.sync()


def settle(result: Any) -> Any:
    """What a call gave, awaited if it was a coroutine."""
    return finish(result) if inspect.isawaitable(result) else result


class Running:
    """An awaitable that runs in a thread of its own from now on."""

    def __init__(self, later: Awaitable[Any], name: str = "storax-await") -> None:
        self._outcome: list[Any] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(later,), name=name)
        self._thread.start()

    def _run(self, later: Awaitable[Any]) -> None:
        try:
            self._outcome.append(asyncio.run(_awaited(later)))
        except BaseException as error:
            self._errors.append(error)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for it, and gives what it gave. Raises what went wrong, or ``TimeoutError``."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"an item is still being written after {timeout} s")
        if self._errors:
            raise self._errors[0]
        return self._outcome[0]


def finish(later: Any) -> Any:
    """Runs an awaitable to its end, not in this thread: it may have a running event loop."""
    return Running(later).result() if inspect.isawaitable(later) else later


async def _awaited(later: Awaitable[Any]) -> Any:
    return await later
