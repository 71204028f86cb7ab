"""Items become one checkpoint: draft, write, merge, publish. One process does as many do.

created      process 0 makes the draft directory
written      every process has written its part, durably; all of them meant the same
published    process 0 has merged the parts and given the draft its name
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from storax.errors import BadOption, CheckpointExists, DirectoryNotShared, StoraxError, in_context
from storax.processes import Judge, Message, Processes, check_same, named, present
from storax.store import commit, layout, posix
from storax.store.commit import Draft
from storax.store.sealed import LIST_NAME, seal
from storax.tracing import span
from storax.tree import documents


class StagedItem(Protocol):
    """One item of a checkpoint, in host memory, ready to be written. Process 0 writes it."""

    @property
    def handler(self) -> str:
        """The class by which Orbax reads it."""
        ...

    def write(self, directory: Path) -> Mapping[str, bytes]:
        """Writes what is large into a directory, durably but for the names in the directories.

        Returns:
          The documents that belong beside it, by their paths below the directory.
        """
        ...


@runtime_checkable
class StagedParts(Protocol):
    """An item that every process writes a part of."""

    @property
    def handler(self) -> str:
        """The class by which Orbax reads it."""
        ...

    def write_part(self, directory: Path) -> Message:
        """Writes the part of this process; returns what process 0 must know of it."""
        ...

    def merge_parts(self, directory: Path, messages: Sequence[Message]) -> Mapping[str, bytes]:
        """Makes one of all parts, on process 0; returns the documents.

        Raises:
          ProcessesDisagree: the parts are not of one tree.
          Corrupt: something is missing from them.
        """
        ...


Staged = StagedItem | StagedParts
Items = Mapping[str | None, Staged]


def write_checkpoint(
    final: Path,
    items: Items,
    *,
    processes: Processes | None = None,
    overwrite: bool = False,
    custom: dict[str, Any] | None = None,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Writes items as one checkpoint, atomically and durably. Every process of a job calls this.

    Args:
      final: where; an absolute path, the same on every process.
      items: by name; a single item called None goes straight into the directory.
      processes: of the job; those that are running by default.
      overwrite: whether to replace what is there.
      custom: a JSON object for the step's document.
      then: called on process 0 when the checkpoint has its name; the others wait for it as well.

    Raises:
      Exception: what went wrong in this process.
      ProcessFailed: something went wrong in others; names them.
      ProcessesDisagree: they save different things.
      DirectoryNotShared: not all of them see the directory.
    """
    processes = processes or present()
    final = commit.behind_link(final)
    with processes.gathering(f"save {final}") as place:
        _Save(final, items, processes, place, overwrite, custom or {}, then).run()


class _Save:
    """One save, as one process takes part in it."""

    def __init__(
        self,
        final: Path,
        items: Items,
        processes: Processes,
        place: str,
        overwrite: bool,
        custom: dict[str, Any],
        then: Callable[[], None],
    ) -> None:
        self._final = final
        self._items = items
        self._processes = processes
        self._place = place
        self._overwrite = overwrite
        self._custom = custom
        self._then = then
        self._init_ns = time.time_ns()
        self._probe: Draft | None = None
        self._draft: Draft | None = None
        self._parts: list[Message] = []
        self._published = False

    def run(self) -> None:
        try:
            try:
                created = self._meet("created", self._means, self._create)
            finally:
                if self._probe is not None:
                    commit.discard(self._probe)
            _shared.add(self._final.parent)
            directory = self._final.with_name(created["draft"])
            parts = functools.partial(_write_parts, directory, self._items, self._processes)
            self._meet("written", parts, self._collect)
            self._meet("published", self._finish, lambda _: {})
        except BaseException as error:
            if self._draft is not None:
                commit.discard(self._draft)
            if self._published:
                in_context(error, f"{self._final} is saved, but not all went well")
            raise

    def _meet(self, word: str, work: Callable[[], Message], judge: Judge) -> Message:
        """Does the work of this process, then meets the others; they are told if it failed."""
        place = f"{self._place}/{word}"
        try:
            message = work()
        except BaseException as error:
            told = self._processes.fail(place, error)
            if told is not error:
                raise told from error
            raise
        with span("barrier", word=word):
            return self._processes.meet(place, message, judge)

    def _means(self) -> Message:
        if self._processes.index > 0 and self._final.parent not in _shared:
            # Lies where this process sees the directory, for process 0 to find; deleted like any draft.
            self._probe = commit.begin(self._final)
        items = ", ".join(map(str, self._items))
        words = f"{self._final} (items {items}{', overwrite' if self._overwrite else ''})"
        return {"saves": words, "probe": None if self._probe is None else self._probe.path.name}

    def _create(self, messages: Sequence[Message]) -> Message:
        """On process 0: the draft."""
        meant = [{"saves": message["saves"]} for message in messages]
        check_same(meant, "saves", "Call save with the same arguments, at the same steps, on all.")
        _check_shared(self._final, [message["probe"] for message in messages])
        refuse_taken(self._final, self._overwrite)
        self._draft = commit.begin(self._final)
        for name in self._items:
            if name is not None:
                posix.make_directory(self._draft.path / name)
        return {"draft": self._draft.path.name}

    def _collect(self, messages: Sequence[Message]) -> Message:
        # Only process 0 needs them: what each said of its part is not sent to all.
        self._parts = [message["parts"] for message in messages]
        return {}

    def _finish(self) -> Message:
        """On process 0: merges, publishes, and does what comes after."""
        draft = self._draft
        if draft is None:
            return {}
        _merge(draft, self._items, self._parts, self._custom, self._init_ns)
        with span("publish"):
            try:
                commit.publish(draft, overwrite=self._overwrite)
            except CheckpointExists:
                advice = (
                    "It was replaced while this save ran, and stays as it is now"
                    if self._overwrite
                    else "It was not when this save began: another process saved it meanwhile"
                )
                raise commit.exists(self._final, f"{advice}. {_JOIN}") from None
        self._draft = None
        self._published = True
        self._then()
        return {}


_JOIN = (
    "If several processes of one job save it, call jax.distributed.initialize() in each of them first; "
    "otherwise save under another name."
)

# A message names at most so many entries of a directory.
_MOST_SHOWN = 20

# The directories that all processes of the job see, as far as this one knows.
_shared: set[Path] = set()


@contextlib.contextmanager
def telling(final: Path, processes: Processes) -> Iterator[None]:
    """What comes before a save in this process: if it raises, the others are told and need not wait."""
    try:
        yield
    except BaseException as error:
        if processes.count > 1:
            with contextlib.suppress(StoraxError), processes.gathering(f"save {final}") as place:
                processes.fail(f"{place}/created", error)
        raise


def _check_shared(final: Path, probes: Sequence[str | None]) -> None:
    unseen = [
        index for index, name in enumerate(probes) if name is not None and not (final.parent / name).is_dir()
    ]
    if unseen:
        raise DirectoryNotShared(
            f"what {named(unseen)} put into {final.parent} is not there for process 0: these processes have "
            "another directory of that name. Save to a file system that all processes of the job share."
        )


def _write_parts(directory: Path, items: Items, processes: Processes) -> Message:
    if not directory.is_dir():
        raise DirectoryNotShared(
            f"{directory}, which process 0 made, is not there for process {processes.index}. Save to a file "
            "system that all processes of the job share."
        )
    parts: dict[str, Message] = {}
    for name, item in items.items():
        if isinstance(item, StagedParts):
            parts[str(name)] = item.write_part(_directory(directory, name))
    return {"parts": parts}


def _directory(draft: Path, name: str | None) -> Path:
    return draft if name is None else draft / name


def _merge(
    draft: Draft, items: Items, parts: Sequence[Message], custom: dict[str, Any], init_ns: int
) -> None:
    """On process 0: merges the parts, writes all documents, and makes every name in the draft durable."""
    own: Mapping[str, bytes] = {}
    own_sums: Mapping[str, int] = {}
    for name, item in items.items():
        directory = _directory(draft.path, name)
        if isinstance(item, StagedParts):
            with span("merge"):
                texts = item.merge_parts(directory, [part[str(name)] for part in parts])
        else:
            texts = item.write(directory)
        sums = {k: v for part in parts for k, v in part.get(str(name), {}).get("sums", {}).items()}
        if name is None:
            own, own_sums = texts, sums
        else:
            _write_documents(directory, texts, draft.final / name, sums)
    handlers: Any = {name: item.handler for name, item in items.items()}
    step = documents.StepDocument(
        item_handlers=handlers.get(None, handlers),
        init_ns=init_ns,
        commit_ns=time.time_ns(),
        custom=custom,
    )
    _write_documents(draft.path, {**own, documents.STEP_DOCUMENT: step.encode()}, draft.final, own_sums)
    with span("fsync", file=str(draft.path)):
        posix.sync_tree(draft.path)


def _write_documents(
    directory: Path, texts: Mapping[str, bytes], final: Path, sums: Mapping[str, int]
) -> None:
    """Writes documents, the list of their checksums (and those of others) and, last, the marker."""
    for parent in sorted({str(Path(name).parent) for name in texts} - {"."}):
        with contextlib.suppress(FileExistsError):
            posix.make_directory(directory / parent)
    marker = {documents.MARKER: documents.marker_text(str(final))}
    for name, text in {**texts, LIST_NAME: seal(texts, sums), **marker}.items():
        posix.write_file(directory / name, text)


def refuse_taken(final: Path, overwrite: bool) -> None:
    """Raises ``CheckpointExists`` or ``BadOption`` if a checkpoint cannot be put at a path."""
    commit.check_name(final)
    if os.path.isfile(final.parent / documents.STEP_DOCUMENT):
        raise BadOption(
            f"{final.parent} is a checkpoint, so nothing is saved inside it: it would be lost when that is "
            "replaced or deleted. Choose a path beside it."
        )
    if not os.path.lexists(final):
        return
    if not overwrite:
        if not final.is_dir() or any(final.iterdir()):
            raise commit.exists(final)
        return
    names = set(os.listdir(final)) if final.is_dir() else None
    known = {documents.STEP_DOCUMENT, documents.TREE_DOCUMENT, documents.MARKER, layout.MANIFEST_NAME}
    if names is None or (names and not names & known):
        raise BadOption(
            f"{final} is there and is not a checkpoint, so it is not replaced. Choose another path."
        )
    if names and (others := layout.strangers(final)):
        shown = ", ".join(others[:_MOST_SHOWN]) + (", …" if len(others) > _MOST_SHOWN else "")
        raise BadOption(
            f"{final} is not replaced, as it also holds what is not of the checkpoint and would be lost: "
            f"{shown}. Move that out first, or choose another path."
        )
