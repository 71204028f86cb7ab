"""Model surgery run: a new checkpoint or a new tree out of transforms, never holding a whole model."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal

from storax.arrays.place import sharding_text
from storax.checkpoint import SavedLeaf
from storax.errors import BadOption, CheckpointChanged
from storax.loading import Options, load_transformed
from storax.processes import Processes, present
from storax.progress import Progress, expect, watching
from storax.publishing import refuse_taken, telling, write_checkpoint
from storax.saving import check_json
from storax.staged import Compression
from storax.store import commit, posix
from storax.store.paths import resolve
from storax.store.reading import total
from storax.streaming import Stream, StreamedTree, stream
from storax.surgery.contract import Transform, Wanted, listed
from storax.surgery.inputs import opened, paths_of
from storax.surgery.naming import wanted_leaves
from storax.surgery.report import SurgeryReport, reported
from storax.surgery.tree import TransformedTree, files_of, origins, transformed
from storax.tree.dtypes import dtype_named
from storax.tree.leaves import Leaf
from storax.tree.match import match

Missing = Literal["error", "keep"]


def rewrite(
    src: Any,
    dst: str | os.PathLike[str],
    *,
    transforms: Sequence[Transform] = (),
    target: Any = None,
    partial: bool = False,
    cast: bool = False,
    overwrite: bool = False,
    compression: Compression = None,
    custom_metadata: Mapping[str, Any] | None = None,
    verify: bool = False,
    progress: Progress = False,
) -> SurgeryReport:
    """Writes a new checkpoint with what transforms make of one or several others.

    Values stream through a bounded part of memory, however large the model is. The new checkpoint
    is there whole or not at all, like every other. Of several processes, all of which call this,
    each reads and writes a share.

    Args:
      src: the path of a checkpoint or of safetensors files; or a dict of such paths by prefix, whose
        names then begin with the prefix and a dot; or a tree in memory.
      dst: where to.
      transforms: the list, in order; see ``storax.surgery``.
      target: a tree that the result must match by names and shapes; it gives dtypes and shardings.
      partial: leave out what comes out of the transforms and the target does not have.
      cast: allow casts to the target's dtypes that can lose values.
      overwrite: replace a checkpoint that is at ``dst``.
      compression, custom_metadata: as for ``save``.
      verify: read everything back and compare it before it gets its name.
      progress: True shows a bar; or a callback with the bytes done and in all.

    Returns:
      What was read, and what became of every leaf.

    Raises:
      TransformMismatch: the transforms do not fit; lists all that does not. Nothing was read.
      TreeMismatch: the result and the target differ; lists every difference. Nothing was read.
      CheckpointExists: ``dst`` is taken, and ``overwrite`` is not set.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> from storax.surgery import stack
      >>> where = tempfile.mkdtemp()
      >>> storax.save(where + "/a", {"layers": [{"w": np.ones(2)}, {"w": np.zeros(2)}]})
      >>> report = storax.rewrite(where + "/a", where + "/b", transforms=[stack(r"layers\\.(\\d+)\\.")])
      >>> report.loaded, storax.load(where + "/b")["layers"]["w"].tolist()
      (('layers.w',), [[1.0, 1.0], [0.0, 0.0]])
    """
    final = resolve(dst)
    if final in paths_of(src):
        raise BadOption(
            f"{final} cannot be rewritten in place. Choose another path, and delete it afterwards."
        )
    refuse_taken(final, overwrite)
    custom = check_json(custom_metadata, "custom_metadata")
    processes = present()
    with watching(progress, f"rewriting to {final}"), ExitStack() as held:
        with telling(final, processes):
            for path in paths_of(src):
                held.enter_context(commit.lease(path))
            wanted = None if target is None else wanted_leaves(target)
            tree = open_transformed(src, transforms, wanted)
            chosen = matched_leaves(tree, wanted, partial=partial, cast=cast)
            item = _item(src, tree, chosen, processes, compression, verify)
        expect(item.local_bytes)
        write_checkpoint(final, {None: item}, processes=processes, overwrite=overwrite, custom=custom)
    return reported(tree, item.order).with_reading(total(item.reports))


def _item(
    src: Any,
    tree: TransformedTree,
    chosen: Collection[tuple[SavedLeaf, Leaf | None]],
    processes: Processes,
    compression: Compression,
    verify: bool,
) -> StreamedTree:
    streams = in_order([streamed(found, want) for found, want in chosen if found.source is not None])
    return StreamedTree(
        leaves=tuple(found.leaf for found, _ in chosen if found.source is None),
        streams=streams,
        order=tuple(found.leaf.name for found, _ in chosen),
        tuples=tree.tuples,
        compression=compression,
        verify=verify,
        processes=processes,
        check_sources=watched(src, streams),
    )


def transform(
    tree: Any,
    transforms: Sequence[Transform],
    target: Any = None,
    *,
    partial: bool = False,
    missing: Missing = "error",
    cast: bool = False,
) -> Any:
    """What transforms make of a tree in memory: ``load`` without a checkpoint.

    Args:
      tree: of numpy arrays, ``jax.Array`` (of which only the shards that are needed are fetched),
        numbers, strings and None.
      transforms, target, partial, missing, cast: as for ``load``.

    Returns:
      The new tree. Without a target, arrays keep their sharding where their new shape allows it.

    Example:
      >>> import storax, numpy as np
      >>> from storax.surgery import fuse_by_keys
      >>> storax.transform({"q": np.zeros(1), "k": np.ones(2)}, [fuse_by_keys(["q", "k"], "qk")])
      {'qk': array([0., 1., 1.])}
    """
    options = Options(partial=partial, missing=missing, cast=cast, transforms=listed(transforms))
    return load_transformed(tree, target, options)


def open_transformed(
    src: Any, transforms: Sequence[Transform], wanted: Mapping[str, Wanted] | None
) -> TransformedTree:
    """What comes out of transforms. Reads documents and headers."""
    entries, where, tuples = opened(src)
    return transformed(entries, transforms, where=where, tuples=tuples, target=wanted)


def matched_leaves(
    tree: TransformedTree,
    wanted: Mapping[str, Wanted] | None,
    *,
    partial: bool,
    cast: bool,
) -> list[tuple[SavedLeaf, Leaf | None]]:
    """The leaves to write, each as the target has it, and what it wants."""
    if wanted is None:
        return [(found, None) for found in tree.found]
    by_name = {found.leaf.name: found for found in tree.found}
    found = match(
        [one.leaf for one in tree.found],
        [want.leaf for want in wanted.values()],
        where=str(tree.directory),
        partial=partial,
        cast=cast,
    )
    return [(_as_wanted(by_name[saved.name], want, wanted), want) for saved, want in found.pairs]


def _as_wanted(found: SavedLeaf, want: Leaf, wanted: Mapping[str, Wanted]) -> SavedLeaf:
    kind = found.leaf.kind if want.kind == "any" else want.kind
    sharding = getattr(wanted[want.name].value, "sharding", None)
    text = found.leaf.sharding if sharding is None else sharding_text(sharding)
    return SavedLeaf(replace(found.leaf, path=want.path, kind=kind, sharding=text), found.source)


def streamed(found: SavedLeaf, want: Leaf | None) -> Stream:
    """How one leaf is written."""
    leaf = found.leaf
    if leaf.kind == "jax.Array" and leaf.sharding is None and leaf.prng is None:
        # Orbax looks for the sharding of every jax.Array; this one has none any more.
        found = replace(found, leaf=replace(leaf, kind="np.ndarray"))
    dtype = None if want is None or want.dtype is None or want.prng else dtype_named(want.dtype)
    return stream(found, dtype)


def in_order(streams: Collection[Stream]) -> tuple[Stream, ...]:
    """Arrays made of the same ones next to each other, so that what they share is read once."""
    return tuple(sorted(streams, key=lambda one: min(origins(one.source), default="")))


def watched(src: Any, streams: Collection[Stream]) -> Callable[[], None]:
    """What raises ``CheckpointChanged`` if a checkpoint or a file was replaced since this call."""
    files = {label for one in streams for label in files_of(one.source)}
    before = {path: posix.identity(path) for path in {*paths_of(src), *files}}

    def check() -> None:
        for path, identity in before.items():
            try:
                same = posix.identity(path) == identity
            except (FileNotFoundError, NotADirectoryError):
                same = False
            if not same:
                raise CheckpointChanged(
                    f"{path} was replaced or deleted while it was rewritten. Run it again."
                )

    return check
