"""The main path down: a tree becomes a checkpoint, whole or not at all.

flatten, plan, stage      the caller waits
draft, write, publish     in the background, for ``save_async``
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from storax import pytree
from storax.arrays.staging import StagedArray, stage, start_copies
from storax.arrays.write import values_of
from storax.errors import BadOption, in_context
from storax.ocdbt.merge import merge
from storax.ocdbt.writer import write_database
from storax.progress import Progress, watching
from storax.store import commit, posix
from storax.store.budget import WORKERS
from storax.store.paths import resolve
from storax.store.sealed import LIST_NAME, seal
from storax.tracing import recording, span
from storax.tree import documents
from storax.tree.leaves import Leaf

Compression = Literal["zstd"] | None

_PROCESS = 0


def save(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    overwrite: bool = False,
    compression: Compression = None,
    custom_metadata: Mapping[str, Any] | None = None,
    progress: Progress = False,
    trace: str | os.PathLike[str] | None = None,
) -> None:
    """Saves a tree to a path. When it returns, the checkpoint is whole and survives a power failure.

    Args:
      path: a directory that does not exist yet; those above it are made.
      tree: a pytree of arrays (``jax.Array``, numpy), numbers, ``str``, ``bytes`` and None.
      overwrite: replace a checkpoint that is there. At every instant the old or the new one is readable.
      compression: ``"zstd"`` makes files smaller and saving slower; by default bytes are kept as they are.
      custom_metadata: a JSON object to keep beside the tree; ``metadata`` shows it.
      progress: True shows a bar; or a callback with the bytes written and in all.
      trace: a file to add a trace of this save to, which ``storax timeline`` and Perfetto show.

    Raises:
      CheckpointExists: the path is taken, and ``overwrite`` is not set.
      UnsupportedLeaf: the tree holds something that cannot be saved; lists every such leaf.
      NameCollision: two leaves would have one name.
      StoreError: the file system refused. Nothing is left behind, nothing was changed.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.arange(3), "step": 7})
      >>> storax.load(where)
      {'step': 7, 'w': array([0, 1, 2])}
    """
    final = resolve(path)
    _refuse_taken(final, overwrite)
    custom = check_json(custom_metadata, "custom_metadata")
    wait_for_running()
    with recording(trace, "save", checkpoint=str(final)), watching(progress, f"saving {final}"):
        items: dict[str | None, StagedItem] = {None: stage_tree(tree, hold=True, compression=compression)}
        write_checkpoint(final, items, overwrite=overwrite, custom=custom)


def save_async(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    overwrite: bool = False,
    compression: Compression = None,
    custom_metadata: Mapping[str, Any] | None = None,
    progress: Progress = False,
    trace: str | os.PathLike[str] | None = None,
) -> SaveHandle:
    """Saves a tree in the background. Returns once the values are safe in host memory.

    After that the caller may donate, delete or overwrite its arrays. A second save waits for the
    first. The process does not end before the checkpoint is committed, and if the save fails and
    nobody asked for its result, the process ends with exit code 1 and says why.

    Args: as for ``save``.

    Returns:
      A handle; ``handle.result()`` waits until the checkpoint is durable and raises what went wrong.

    Raises:
      As ``save``, for everything that can be known before a byte is written.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/b"
      >>> handle = storax.save_async(where, {"w": np.arange(3)})
      >>> handle.result()
      >>> storax.load(where)["w"]
      array([0, 1, 2])
    """
    final = resolve(path)
    custom = check_json(custom_metadata, "custom_metadata")
    _refuse_taken(final, overwrite)
    wait_for_running()
    what = f"saving {final}"
    with recording(trace, "stage", checkpoint=str(final)):
        items: dict[str | None, StagedItem] = {None: stage_tree(tree, hold=False, compression=compression)}

    def act() -> None:
        with recording(trace, "save", checkpoint=str(final)), watching(progress, what):
            write_checkpoint(final, items, overwrite=overwrite, custom=custom)

    return start(act, what=what)


def check_json(value: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """A JSON object, as it will be read back. Raises ``BadOption`` for what JSON has no form for."""
    try:
        return dict(json.loads(json.dumps(dict(value or {}))))
    except (TypeError, ValueError) as error:
        raise BadOption(f"{what} cannot be written as JSON: {error}") from None


def _refuse_taken(final: Path, overwrite: bool) -> None:
    if not os.path.lexists(final):
        return
    if not overwrite:
        if not final.is_dir() or any(final.iterdir()):
            raise commit.exists(final)
        return
    names = set(os.listdir(final)) if final.is_dir() else None
    known = {documents.STEP_DOCUMENT, documents.TREE_DOCUMENT, documents.MARKER, "manifest.ocdbt"}
    if names is None or (names and not names & known):
        raise BadOption(
            f"{final} is there and is not a checkpoint, so it is not replaced. Choose another path."
        )


# --- staging -------------------------------------------------------------------------------------


class StagedItem(Protocol):
    """One item of a checkpoint, in host memory, ready to be written."""

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


@dataclass(frozen=True, slots=True)
class StagedTree:
    """A tree in host memory."""

    leaves: tuple[Leaf, ...]
    tuples: frozenset[str]
    arrays: tuple[StagedArray, ...]
    compression: Compression

    @property
    def handler(self) -> str:
        has_strings = any(leaf.value is not None for leaf in self.leaves)
        return documents.TREE_HANDLER_WITH_STRINGS if has_strings else documents.TREE_HANDLER

    def write(self, directory: Path) -> Mapping[str, bytes]:
        part = f"ocdbt.process_{_PROCESS}"
        posix.make_directory(directory / part)
        entries = write_database(directory / part, values_of(self.arrays, self.compression), workers=WORKERS)
        with span("merge"):
            merge(directory, {part: entries})
        return {
            documents.TREE_DOCUMENT: documents.TreeDocument(self.leaves, self.tuples).encode(),
            documents.SHARDING_DOCUMENT: documents.encode_shardings(self.leaves),
            f"{documents.ARRAY_DOCUMENTS}/process_{_PROCESS}": documents.encode_array_document(
                (array.leaf, array.shape, array.chunk_shape)
                for array in self.arrays
                if array.leaf.kind == "jax.Array"
            ),
            **({documents.STRINGS_DOCUMENT: text} if (text := documents.encode_strings(self.leaves)) else {}),
        }


def stage_tree(tree: Any, *, hold: bool, compression: Compression = None) -> StagedTree:
    """Flattens a tree and brings its values to host memory.

    Args:
      tree: the tree.
      hold: whether numpy memory may be used as it is, as the caller waits until all is written.
      compression: as for ``save``.
    """
    if compression not in (None, "zstd"):
        raise BadOption(f"compression is {compression!r}; it must be None or 'zstd'")
    with span("flatten"):
        pairs, structure = pytree.flatten(tree)
        leaves = pytree.describe(pairs)
        tuples = pytree.tuples(structure, [path for path, _ in pairs])
        values = [pytree.array_of(leaf, value) for leaf, (_, value) in zip(leaves, pairs, strict=True)]
    with span("stage"):
        start_copies(values)
        arrays = [
            stage(leaf, value, hold=hold)
            for leaf, value in zip(leaves, values, strict=True)
            if not leaf.is_in_document
        ]
    return StagedTree(tuple(leaves), tuples, tuple(arrays), compression)


# --- writing -------------------------------------------------------------------------------------


def write_checkpoint(
    final: Path,
    items: Mapping[str | None, StagedItem],
    *,
    overwrite: bool = False,
    custom: dict[str, Any] | None = None,
    init_ns: int | None = None,
) -> None:
    """Writes items as one checkpoint, atomically and durably.

    Args:
      final: where; an absolute path.
      items: by name; a single item called None goes straight into the directory.
      overwrite: whether to replace what is there.
      custom: a JSON object for the step's document.
      init_ns: when the save began, in nanoseconds since 1970.
    """
    init_ns = init_ns or time.time_ns()
    draft = commit.begin(final)
    own: Mapping[str, bytes] = {}
    try:
        for name, item in items.items():
            directory = draft.path if name is None else draft.path / name
            if name is not None:
                posix.make_directory(directory)
            texts = item.write(directory)
            if name is None:
                own = texts
            else:
                _write_documents(directory, texts, final / name)
        handlers: Any = {name: item.handler for name, item in items.items()}
        step = documents.StepDocument(
            item_handlers=handlers.get(None, handlers),
            init_ns=init_ns,
            commit_ns=time.time_ns(),
            custom=custom or {},
        )
        _write_documents(draft.path, {**own, documents.STEP_DOCUMENT: step.encode()}, final)
        with span("fsync", file=str(draft.path)):
            posix.sync_tree(draft.path)
        with span("publish"):
            commit.publish(draft, overwrite=overwrite)
    except BaseException:
        commit.discard(draft)
        raise


def _write_documents(directory: Path, texts: Mapping[str, bytes], final: Path) -> None:
    """Writes documents, the list of their checksums and, last, the marker."""
    for parent in sorted({str(Path(name).parent) for name in texts} - {"."}):
        posix.make_directory(directory / parent)
    marker = {documents.MARKER: documents.marker_text(str(final))}
    for name, text in {**texts, LIST_NAME: seal(texts), **marker}.items():
        posix.write_file(directory / name, text)


# --- the background ------------------------------------------------------------------------------


@dataclass(eq=False)
class SaveHandle:
    """A save that runs in the background. Make one with ``save_async``."""

    _thread: threading.Thread = field(repr=False)
    _errors: list[BaseException] = field(default_factory=list)
    _asked: bool = False

    def result(self, timeout: float | None = None) -> None:
        """Waits until the checkpoint is durable.

        Args:
          timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
          TimeoutError: it still runs after ``timeout`` seconds.
          Exception: what made the save fail, with its type.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the save still runs after {timeout} s")
        self._asked = True
        if self._errors:
            raise self._errors[0]

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()


# The newest save, and those that failed and whose result nobody has asked for.
_lock = threading.Lock()
_running: SaveHandle | None = None
_failed: list[SaveHandle] = []


def start(act: Callable[[], None], *, what: str) -> SaveHandle:
    """Runs an act in a thread of its own, which the process waits for before it ends."""
    global _running
    with _lock:
        if _running is None:
            atexit.register(_report_at_exit)
        errors: list[BaseException] = []

        # A closure that nobody keeps: the staged values are freed as soon as the thread ends.
        def run() -> None:
            try:
                act()
            except BaseException as error:
                errors.append(in_context(error, what))
                _failed.append(handle)

        # Not a daemon: the interpreter joins it at the end, also after an exception or Ctrl+C.
        thread = threading.Thread(target=run, name="storax-save", daemon=False)
        handle = SaveHandle(thread, errors)
        _running = handle
        thread.start()
        return handle


def wait_for_running() -> None:
    """Waits for the newest save of this process, whatever becomes of it."""
    with _lock:
        running = _running
    if running is not None:
        running._thread.join()


def _report_at_exit() -> None:
    """The last chance to say that a save failed: the message, and exit code 1."""
    wait_for_running()
    unasked = [handle for handle in _failed if not handle._asked]
    if not unasked:
        return
    for handle in unasked:
        error = handle._errors[0]
        sys.stderr.write(f"storax: a save in the background failed. {type(error).__name__}: {error}\n")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # An exception in an exit handler does not change the exit code; only this does.
    os._exit(1)
