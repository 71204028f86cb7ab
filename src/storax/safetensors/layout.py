"""Which tensors go into which file, and which bytes a process writes: from shapes alone, without a message.

Every process of a job plans the same files, so each can write its own bytes into their final
places. On a bucket, where an object is written whole or not at all, whole files are dealt out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from storax.plan.boxes import Box
from storax.plan.runs import spans
from storax.safetensors import header
from storax.safetensors.header import BITS, Header

# (name, dtype as the format calls it, shape)
Planned = tuple[str, str, tuple[int, ...]]


def lay_out(
    tensors: Iterable[Planned], most_bytes: int | None, metadata: Mapping[str, str]
) -> dict[str, Header]:
    """The files of a model, by name: one, or as many as it takes, called as Hugging Face does.

    Args:
      tensors: in any order; they are dealt out in the order of their names.
      most_bytes: of the tensors of one file; a tensor that is larger gets a file of its own.
      metadata: goes into every file.

    >>> list(lay_out([("a", "U8", (3,)), ("b", "U8", (3,))], 4, {}))
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    >>> list(lay_out([("a", "U8", (3,)), ("b", "U8", (3,))], None, {}))
    ['model.safetensors']
    """
    groups: list[list[Planned]] = [[]]
    size = 0
    for tensor in sorted(tensors):
        nbytes = tensor_bytes(tensor)
        if groups[-1] and most_bytes is not None and size + nbytes > most_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += nbytes
    count = len(groups)
    names = [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    return {
        name: header.plan(group, metadata)
        for name, group in zip(names if count > 1 else ["model.safetensors"], groups, strict=True)
    }


def tensor_bytes(tensor: Planned) -> int:
    return math.prod(tensor[2]) * BITS[tensor[1]] // 8


def encode_index(files: Mapping[str, Header]) -> bytes:
    """The text of a ``model.safetensors.index.json``, as Hugging Face writes it."""
    places = {tensor.name: name for name, found in files.items() for tensor in found.tensors}
    total = sum(found.file_bytes - found.data_start for found in files.values())
    document = {"metadata": {"total_size": total}, "weight_map": places}
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def owned_runs(found: Header, boxes: Mapping[str, Sequence[Box]]) -> Iterator[tuple[int, int]]:
    """The bytes of a file that a process writes, as (offset, length), from the boxes that it owns.

    The bytes before the first tensor are those of the process that makes the file.

    Args:
      found: the header of the file.
      boxes: by the name of the tensor.

    >>> found = header.plan([("w", "F32", (2, 4))])
    >>> [(offset - found.data_start, n) for offset, n in owned_runs(found, {"w": [((0, 2), (0, 1))]})]
    [(0, 4), (16, 4)]
    """
    for tensor in found.tensors:
        start = found.data_start + tensor.start
        bits = BITS[tensor.dtype]
        for first, last in spans(boxes.get(tensor.name, ()), tensor.shape, 0):
            yield start + first * bits // 8, (last - first) * bits // 8


def deal(files: Mapping[str, int], processes: int) -> list[list[str]]:
    """Deals whole files out to processes, the largest first, each to the one that has least so far.

    >>> deal({"a": 5, "b": 4, "c": 3}, 2)
    [['a'], ['b', 'c']]
    """
    loads = [0] * processes
    dealt: list[list[str]] = [[] for _ in range(processes)]
    for name in sorted(files, key=lambda file: (-files[file], file)):
        process = loads.index(min(loads))
        loads[process] += files[name]
        dealt[process].append(name)
    return dealt
