"""Trees to safetensors files: one, or a directory of shards with its index, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from storax import pytree
from storax.arrays.lazy import LazyArray
from storax.errors import BadOption, UnsupportedLeaf
from storax.plan import boxes
from storax.plan.ownership import owners
from storax.progress import Progress, expect, watching
from storax.safetensors import header
from storax.safetensors.dtypes import format_dtype
from storax.safetensors.files import INDEX_NAME, INDEX_SUFFIX, SUFFIX
from storax.safetensors.header import Header
from storax.safetensors.layout import encode_index, lay_out, tensor_bytes
from storax.safetensors.writing import Outgoing, Part, write_tensors
from storax.store import commit, posix
from storax.store.budget import Budget
from storax.store.paths import resolve
from storax.tree.names import check_distinct, display, leaf_name

_BUDGET_BYTES = 256 << 20
_MOST_LINES = 20


def save_safetensors(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    max_shard_bytes: int | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress = False,
) -> None:
    """Saves a tree of arrays as safetensors. When it returns, the files are whole and survive a power cut.

    The bytes are those that the official library writes for the same tensors. Nothing is gathered:
    each part of a sharded array goes from where it is to its place in the file.

    Args:
      path: a file (``….safetensors``), or a directory, which gets ``model.safetensors`` or shards
        ``model-00001-of-00003.safetensors`` with their ``model.safetensors.index.json``.
      tree: a pytree of arrays (``jax.Array``, numpy, or those of ``storax.open``, which are read
        as they are written) and numbers, or what ``storax.open`` returns. The keys of nested
        containers are joined with dots.
      max_shard_bytes: bytes of tensors in one file at most (a larger tensor gets its own), for
        directories. None writes one file.
      metadata: strings by name, for the header of each file. Hugging Face transformers wants
        ``{"format": "pt"}``.
      overwrite: replace what is there, if it is safetensors and nothing else. A reader sees the old
        files or the new ones.
      progress: True shows a bar; or a callback with the bytes written and in all.

    Raises:
      CheckpointExists: the path is taken, and ``overwrite`` is not set.
      UnsupportedLeaf: the tree holds what the format cannot; lists every such leaf.
      NameCollision: two leaves would have one name.
      StoreError: the file system refused. Nothing is left behind, nothing was changed.

    Source of the format: https://huggingface.co/docs/safetensors

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/model.safetensors"
      >>> storax.save_safetensors(where, {"embed": {"weight": np.ones((2, 3), np.float16)}})
      >>> storax.metadata(where).item_metadata["embed.weight"].shape
      (2, 3)
    """
    final = resolve(path)
    outgoing = outgoing_tensors(tree)
    with watching(progress, f"saving {final}"):
        expect(sum(tensor_bytes((t.name, t.dtype, t.shape)) for t in outgoing.values()))
        write_model(final, outgoing, most_bytes=max_shard_bytes, metadata=metadata, overwrite=overwrite)


def write_model(
    final: Path,
    outgoing: Mapping[str, Outgoing],
    *,
    most_bytes: int | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Writes tensors as one file or a directory, atomically and durably.

    Args:
      final, most_bytes, metadata, overwrite: as for ``save_safetensors``.
      outgoing: the tensors by name.
      check: called with the path of the draft, a file or a directory, before it gets its name.
    """
    if most_bytes is not None and most_bytes < 1:
        raise BadOption(f"max_shard_bytes is {most_bytes}; it must be positive")
    as_file = final.name.endswith(SUFFIX)
    if as_file and most_bytes is not None:
        raise BadOption(
            f"{final} is one file, so max_shard_bytes cannot be kept. "
            f"Save to a directory: save_safetensors({str(final.with_suffix(''))!r}, ...)."
        )
    _refuse_taken(final, as_file, overwrite)
    planned = [(t.name, t.dtype, t.shape) for t in outgoing.values()]
    files = lay_out(planned, most_bytes, metadata or {})
    draft = commit.begin(final)
    try:
        for name, found in files.items():
            write_file(draft.path / name, found, outgoing)
        if len(files) > 1:
            posix.write_file(draft.path / INDEX_NAME, encode_index(files))
        (only, *_) = files
        if check is not None:
            check(draft.path / only if as_file else draft.path)
        if as_file:
            commit.publish_file(draft, draft.path / only, overwrite=overwrite)
        else:
            commit.publish(draft, overwrite=overwrite)
    except BaseException:
        commit.discard(draft)
        raise


def write_file(path: Path, found: Header, outgoing: Mapping[str, Outgoing]) -> None:
    """Writes one new file, durably; its name is durable after its directory is synced."""
    with posix.new_file(path) as file:
        file.write_at(0, [header.encode(found)])
        write_tensors(file, found, outgoing, Budget(_BUDGET_BYTES))
        file.sync()


def _refuse_taken(final: Path, as_file: bool, overwrite: bool) -> None:
    if not os.path.lexists(final):
        return
    if as_file and final.is_dir():
        raise BadOption(f"{final} is a directory, and a file was to be written. Choose another path.")
    if not as_file and not final.is_dir():
        raise BadOption(f"{final} is a file, and a directory was to be written. End its name with {SUFFIX}.")
    names = [] if as_file else sorted(os.listdir(final))
    if not overwrite and (as_file or names):
        raise commit.exists(final, "Save under another name, or save_safetensors(..., overwrite=True).")
    others = [name for name in names if not name.endswith((SUFFIX, SUFFIX + INDEX_SUFFIX))]
    if others:
        raise BadOption(
            f"{final} also holds {', '.join(others[:_MOST_LINES])}, which would be lost, so it is not "
            "replaced. Choose another path."
        )


# --- what is written -----------------------------------------------------------------------------


def outgoing_tensors(tree: Any) -> dict[str, Outgoing]:
    """The tensors of a tree by name.

    Raises:
      UnsupportedLeaf: lists every leaf that the format cannot hold.
      NameCollision: lists all leaves that would share a name.
    """
    # An opened checkpoint is a mapping, and no node of a pytree.
    plain = dict(tree) if isinstance(tree, Mapping) and not isinstance(tree, dict) else tree
    pairs, _ = pytree.flatten(plain)
    check_distinct(path for path, _ in pairs)
    found: dict[str, Outgoing] = {}
    problems = []
    for path, value in pairs:
        name = leaf_name(path)
        outgoing = _outgoing(name, value)
        if isinstance(outgoing, Outgoing):
            found[name] = outgoing
        else:
            problems.append(f"  {display(name)}: {outgoing}")
    if problems:
        more = [f"  … and {len(problems) - _MOST_LINES} more"] if len(problems) > _MOST_LINES else []
        raise UnsupportedLeaf(
            f"{len(problems)} of {len(pairs)} leaves cannot be in a safetensors file:\n"
            + "\n".join([*problems[:_MOST_LINES], *more])
            + "\nThe format holds arrays of numbers. Take the others out of the tree, or use storax.save."
        )
    return found


def _outgoing(name: str, value: Any) -> Outgoing | str:
    """A tensor, or why the value cannot be one."""
    if not name:
        return "a bare array has no name; save {'name': array}"
    if isinstance(value, (bool, int, float, complex)):
        value = np.asarray(value)
    if not isinstance(value, (jax.Array, np.ndarray, np.generic, LazyArray)):
        return "nothing" if value is None else f"a {type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return "typed PRNG keys; save jax.random.key_data(keys)"
    try:
        dtype = format_dtype(np.dtype(value.dtype))
    except UnsupportedLeaf as error:
        return str(error)
    if isinstance(value, jax.Array):
        if isinstance(value, jax.core.Tracer):
            return "a tracer; save outside of jit, grad and vmap"
        if value.is_deleted():
            return "an array that was deleted or donated"
        if not value.is_fully_addressable:
            return "an array spread over several processes, which this release cannot save"
        return Outgoing(name, dtype, value.shape, owned_parts(value))
    whole = boxes.whole(value.shape)
    if isinstance(value, LazyArray):
        return Outgoing(name, dtype, value.shape, ((whole, value.source),))
    return Outgoing(name, dtype, value.shape, ((whole, np.asarray(value)),))


def owned_parts(value: jax.Array) -> tuple[Part, ...]:
    """The boxes of a sharded array that this process writes, each with one device's copy of it."""
    if len(value.sharding.device_set) == 1:
        return ((boxes.whole(value.shape), value),)
    shards = {shard.device.id: shard.data for shard in value.addressable_shards}
    everywhere: Mapping[Any, Any] = value.sharding.devices_indices_map(value.shape)
    held = {device.id: boxes.from_index(index or (), value.shape) for device, index in everywhere.items()}
    return tuple((box, shards[device]) for box, device in owners(held).items() if device in shards)
