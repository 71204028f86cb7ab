"""One kind of checkpoint to another, without ever holding a whole array: safetensors, storax, Orbax."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from storax.checkpoint import SavedLeaf, SavedTree, load_json, open_checkpoint
from storax.errors import BadOption, Corrupt, ItemNotFound, UnsupportedLeaf
from storax.items import StagedJson
from storax.opening import open_safetensors
from storax.plan import boxes
from storax.plan.chunks import MOST_BYTES
from storax.progress import Progress, expect, watching
from storax.publishing import Staged, refuse_taken, write_checkpoint
from storax.safetensors import files
from storax.safetensors.dtypes import format_dtype
from storax.safetensors.files import SUFFIX
from storax.safetensors.reading import TensorSource
from storax.safetensors.saving import write_model
from storax.safetensors.writing import Outgoing
from storax.staged import Compression
from storax.store import commit
from storax.store.paths import resolve
from storax.streaming import Stream, StreamedTree, compare, stream
from storax.tree.dtypes import dtype_named
from storax.tree.leaves import Leaf
from storax.tree.names import Key, display, leaf_name, path_text

Format = Literal["checkpoint", "safetensors"]
_MOST_LINES = 20


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    to: Format | None = None,
    subtree: str = "",
    dtype: str | None = None,
    compression: Compression = None,
    chunk_bytes: int = MOST_BYTES,
    max_shard_bytes: int | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
    verify: bool = False,
    progress: Progress = False,
) -> None:
    """Converts any checkpoint to one of storax, which Orbax reads too, or to safetensors.

    Values stream through a bounded part of memory. The result appears whole or not at all: if the
    conversion is stopped, there is nothing at ``dst``, and it is simply run again.

    Args:
      src: a checkpoint of storax or Orbax, or safetensors files; as for ``load``.
      dst: where to; a path that ends with ``.safetensors`` is one file.
      to: ``"checkpoint"`` or ``"safetensors"``. By default what ``dst`` ends with decides, and
        otherwise it becomes a checkpoint.
      subtree: convert only what is below this name, such as ``params``, and leave the name out. Of a
        checkpoint with several items, names begin with the item's. Safetensors take arrays only, so
        an optimizer's state or a step's JSON has to be left out in this way.
      dtype: of all floating-point arrays, such as ``bfloat16``; others stay as they are.
      compression, chunk_bytes: of a checkpoint: ``"zstd"`` or None, and bytes of a chunk at most.
      max_shard_bytes, metadata: of safetensors; as for ``save_safetensors``.
      overwrite: replace what is at ``dst``, if it is of the kind that is written.
      verify: read everything back and compare it bit for bit before it gets its name.
      progress: True shows a bar; or a callback with the bytes done and in all.

    Raises:
      CheckpointNotFound: nothing committed is at ``src``.
      CheckpointExists: ``dst`` is taken, and ``overwrite`` is not set.
      UnsupportedLeaf: safetensors cannot hold some leaves; lists them all.
      Corrupt: the source is damaged, or with ``verify`` the copy is not what was read.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp()
      >>> storax.save(where + "/a", {"params": {"w": np.ones((2, 3), np.float32)}, "step": 7})
      >>> storax.convert(where + "/a", where + "/w.safetensors", subtree="params", dtype="bfloat16")
      >>> str(storax.metadata(where + "/w.safetensors").item_metadata["w"])
      'bfloat16[2,3]'
    """
    source, final = resolve(src), resolve(dst)
    chosen = to or ("safetensors" if final.name.endswith(SUFFIX) else "checkpoint")
    if chosen not in ("checkpoint", "safetensors"):
        raise BadOption(f"to is {to!r}; it must be 'checkpoint' or 'safetensors'")
    if source == final:
        raise BadOption(
            f"{source} cannot be converted in place. Choose another path, and delete it afterwards."
        )
    with watching(progress, f"converting {source}"), commit.lease(source):
        found = _open(source)
        if subtree:
            found = replace(found, items={None: _below(found, subtree, source)})
        cast = _Cast(None if dtype is None else _float_dtype(dtype), chunk_bytes)
        if chosen == "safetensors":
            streams = _all_arrays(found, cast, source)
            expect(sum(one.nbytes for one in streams.values()))
            _to_safetensors(streams, final, max_shard_bytes, metadata, overwrite, verify)
        else:
            refuse_taken(final, overwrite)
            items = {name: _staged(item, cast, compression, verify) for name, item in found.items.items()}
            trees = [item for item in items.values() if isinstance(item, StreamedTree)]
            expect(sum(one.nbytes for tree in trees for one in tree.streams))
            write_checkpoint(final, items, overwrite=overwrite, custom=dict(found.custom))


# --- what is converted ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tree:
    leaves: Sequence[SavedLeaf]
    tuples: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Json:
    value: Any


@dataclass(frozen=True, slots=True)
class _Found:
    """What is at the source: its items by name, a single tree under None."""

    items: Mapping[str | None, _Tree | _Json]
    custom: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Cast:
    floats: np.dtype | None
    chunk_bytes: int

    def stream(self, found: SavedLeaf) -> Stream:
        leaf = found.leaf
        is_float = (
            leaf.prng is None
            and leaf.kind in ("jax.Array", "np.ndarray", "np.generic")
            and jnp.issubdtype(dtype_named(leaf.dtype or "uint8"), jnp.floating)
        )
        if leaf.kind == "jax.Array" and leaf.sharding is None and leaf.prng is None:
            # Orbax looks for the sharding of every jax.Array; this one never had any.
            found = replace(found, leaf=replace(leaf, kind="np.ndarray"))
        return stream(found, self.floats if is_float else None, self.chunk_bytes)


def _float_dtype(name: str) -> np.dtype:
    try:
        found = dtype_named(name)
    except Corrupt:
        found = np.dtype(np.uint8)
    if not jnp.issubdtype(found, jnp.floating):
        raise BadOption(
            f"dtype is {name!r}; it must be a floating-point one, such as 'bfloat16' or 'float32'"
        )
    return found


def _open(source: Path) -> _Found:
    if (tensors := open_safetensors(source)) is not None:
        return _Found({None: _Tree(tensors.leaves(), tensors.tuples)}, tensors.metadata)
    checkpoint = open_checkpoint(source)
    if (only := checkpoint.only_tree) is not None:
        return _Found({None: _tree(only)}, checkpoint.document.custom)
    items: dict[str | None, _Tree | _Json] = {
        name: _tree(path) if checkpoint.is_tree(name) else _Json(load_json(path))
        for name, path in checkpoint.items.items()
    }
    return _Found(items, checkpoint.document.custom)


def _tree(directory: Path) -> _Tree:
    saved = SavedTree.open(directory)
    return _Tree(saved.leaves(), saved.tuples)


def _below(found: _Found, subtree: str, source: Path) -> _Tree:
    """The tree below a name, without the name."""
    for item, tree in found.items.items():
        rest = subtree if item is None else _without(subtree, item)
        if rest is None or not isinstance(tree, _Tree):
            continue
        leaves = [
            replace(leaf, leaf=below) for leaf in tree.leaves if (below := _leaf_below(leaf.leaf, rest))
        ]
        if leaves:
            return _Tree(leaves, _tuples_below(tree, rest))
    names = sorted({_first_key(item, leaf) for item, tree in found.items.items() for leaf in _leaves(tree)})
    raise ItemNotFound(f"{source} has nothing below {subtree!r}; it has {', '.join(names[:_MOST_LINES])}.")


def _leaves(item: _Tree | _Json) -> Sequence[SavedLeaf]:
    return item.leaves if isinstance(item, _Tree) else ()


def _first_key(item: str | None, found: SavedLeaf) -> str:
    return item or found.leaf.name.split(".")[0]


def _without(name: str, prefix: str) -> str | None:
    """What follows a prefix in a name; None if it is not below it."""
    if not prefix or name == prefix:
        return name if not prefix else ""
    return name.removeprefix(f"{prefix}.") if name.startswith(f"{prefix}.") else None


def _leaf_below(leaf: Leaf, prefix: str) -> Leaf | None:
    rest = _without(leaf.name, prefix)
    if rest is None:
        return None
    for length in range(len(leaf.path) + 1):
        if leaf_name(leaf.path[:length]) == prefix:
            return replace(leaf, path=leaf.path[length:])
    return replace(leaf, path=(Key("key", rest),))  # the keys themselves have dots, as in safetensors


def _tuples_below(tree: _Tree, prefix: str) -> frozenset[str]:
    found = set()
    for path in (one.leaf.path for one in tree.leaves):
        lengths = [n for n in range(len(path) + 1) if leaf_name(path[:n]) == prefix]
        for start in lengths[:1]:
            found |= {
                path_text(path[start:end])
                for end in range(start, len(path) + 1)
                if path_text(path[:end]) in tree.tuples
            }
    return frozenset(found)


# --- what it becomes -----------------------------------------------------------------------------


def _staged(item: _Tree | _Json, cast: _Cast, compression: Compression, verify: bool) -> Staged:
    if isinstance(item, _Json):
        return StagedJson(json.dumps(item.value).encode())
    return StreamedTree(
        leaves=tuple(found.leaf for found in item.leaves if found.source is None),
        streams=tuple(cast.stream(found) for found in item.leaves if found.source is not None),
        order=tuple(found.leaf.name for found in item.leaves),
        tuples=item.tuples,
        compression=compression,
        verify=verify,
    )


def _all_arrays(found: _Found, cast: _Cast, source: Path) -> dict[str, Stream]:
    """All arrays by name. Raises ``UnsupportedLeaf`` for what safetensors cannot hold, listing all."""
    streams: dict[str, Stream] = {}
    problems = []
    for item, tree in found.items.items():
        if isinstance(tree, _Json):
            problems.append(f"{item}: JSON")
            continue
        for saved in tree.leaves:
            name = ".".join(part for part in (item, saved.leaf.name) if part)
            if saved.source is None or saved.leaf.prng or saved.leaf.kind in ("str", "bytes"):
                problems.append(f"{display(name)}: {saved.leaf}")
                continue
            streams[name] = cast.stream(saved)
            try:
                format_dtype(streams[name].wanted)
            except UnsupportedLeaf as error:
                problems.append(f"{display(name)}: {error}")
    if problems:
        more = [f"… and {len(problems) - _MOST_LINES} more"] if len(problems) > _MOST_LINES else []
        raise UnsupportedLeaf(
            f"{source} has leaves that cannot be in a safetensors file:\n  "
            + "\n  ".join([*problems[:_MOST_LINES], *more])
            + "\nConvert the arrays alone: convert(..., subtree='params'), or whatever they are below."
        )
    return streams


def _to_safetensors(
    streams: Mapping[str, Stream],
    final: Path,
    most_bytes: int | None,
    metadata: Mapping[str, str] | None,
    overwrite: bool,
    verify: bool,
) -> None:
    outgoing = {
        name: Outgoing(
            name,
            format_dtype(one.wanted),
            one.source.shape,
            ((boxes.whole(one.source.shape), one.as_source()),),
        )
        for name, one in streams.items()
    }

    def check(draft: Path) -> None:
        written = files.find(draft)
        tensors = {} if written is None else written.tensors
        compare([(one, TensorSource(tensors[name])) for name, one in streams.items()], str(final))

    write_model(
        final,
        outgoing,
        most_bytes=most_bytes,
        metadata=metadata,
        overwrite=overwrite,
        check=check if verify else None,
    )
