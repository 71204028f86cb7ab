"""The main path down: a tree becomes a checkpoint, whole or not at all.

flatten, plan, stage      the caller waits
draft, write, publish     in the background, for ``save_async``
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storax.background import SaveHandle, start, turn
from storax.errors import BadOption
from storax.processes import DEFAULT_TIMEOUT, Processes, present
from storax.progress import Progress, watching
from storax.publishing import Items, refuse_taken, telling, write_checkpoint
from storax.staged import Compression, stage_tree
from storax.store.paths import resolve
from storax.tracing import recording, trace_file
from storax.tree.plain import encode_plain


def save(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    overwrite: bool = False,
    compression: Compression = None,
    custom_metadata: Mapping[str, Any] | None = None,
    progress: Progress = False,
    trace: str | os.PathLike[str] | None = None,
    barrier_timeout: float = DEFAULT_TIMEOUT,
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
      barrier_timeout: of a job of many processes, the seconds that one waits for the others.

    Raises:
      CheckpointExists: the path is taken, and ``overwrite`` is not set.
      UnsupportedLeaf: the tree holds something that cannot be saved; lists every such leaf.
      NameCollision: two leaves would have one name.
      StoreError: the file system refused. Nothing is left behind, nothing was changed.
      ProcessFailed, ProcessesDisagree, DirectoryNotShared: other processes of the job failed, did not
        come, save something else, or see another file system; names them. No step is visible.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.arange(3), "step": 7})
      >>> storax.load(where)
      {'step': 7, 'w': array([0, 1, 2])}
    """
    final, processes = resolve(path), present(barrier_timeout)
    with turn(), recording(trace, "save", checkpoint=str(final)), watching(progress, f"saving {final}"):
        with telling(final, processes):
            _refuse_alone(final, overwrite, processes)
            custom = check_json(custom_metadata, "custom_metadata")
            items: Items = {None: stage_tree(tree, hold=True, compression=compression, processes=processes)}
        write_checkpoint(final, items, processes=processes, overwrite=overwrite, custom=custom)


def save_async(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    overwrite: bool = False,
    compression: Compression = None,
    custom_metadata: Mapping[str, Any] | None = None,
    progress: Progress = False,
    trace: str | os.PathLike[str] | None = None,
    barrier_timeout: float = DEFAULT_TIMEOUT,
) -> SaveHandle:
    """Saves a tree in the background. Returns once the values are safe in host memory.

    After that the caller may donate, delete or overwrite its arrays. A second save waits for the
    first. The process does not end before the checkpoint is committed, and if the save fails and
    nobody asked for its result, the process ends with exit code 1 and says why.

    On the CPU, JAX may let a ``jax.Array`` made by ``device_put`` of a numpy array use that array's
    memory. Who overwrites the numpy array then changes the ``jax.Array`` itself, saved or not.

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
    final, processes = resolve(path), present(barrier_timeout)
    what, trace = f"saving {final}", trace_file(trace)
    with turn() as mine:
        with recording(trace, "stage", checkpoint=str(final)), telling(final, processes):
            _refuse_alone(final, overwrite, processes)
            custom = check_json(custom_metadata, "custom_metadata")
            items: Items = {None: stage_tree(tree, hold=False, compression=compression, processes=processes)}

        def act() -> None:
            with recording(trace, "save", checkpoint=str(final)), watching(progress, what):
                write_checkpoint(final, items, processes=processes, overwrite=overwrite, custom=custom)

        return start(act, what=what, turn=mine)


def check_json(value: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """A JSON object, as it will be read back. Raises ``BadOption`` for what JSON would change."""
    try:
        given = dict(value or {})
    except (TypeError, ValueError):
        raise BadOption(f"{what} is a {type(value).__name__}; give a dict") from None
    return dict(json.loads(encode_plain(given, what)))


def _refuse_alone(final: Path, overwrite: bool, processes: Processes) -> None:
    """Refuses early. Of many processes process 0 does it when they meet: none must stay away."""
    if processes.count == 1:
        refuse_taken(final, overwrite)
