"""The header of a safetensors file <-> values. No I/O, no arrays.

A file is 8 bytes (little-endian: how long the header is), the header (a JSON object), and then
the bytes of all tensors, one after another without a gap. The header has for each tensor its
dtype, its shape and where its bytes begin and end, counted from the end of the header; under
``__metadata__`` it may have a dict of strings.

Source of the format: https://huggingface.co/docs/safetensors and the official library, whose
verdict on a file is ours, with one exception: names that come twice are an error here, as the
format's description has it; the library takes the last of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storax.errors import BadOption, Corrupt

# Bits per element. The official library writes the tensors of a file in the reverse of this order.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
_ORDER = {name: -i for i, name in enumerate(BITS)}

PREFIX_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
_LARGEST = (1 << 64) - 1
_ALIGNMENT = 8
# The official library's parser stops at 128 levels; an entry of the header is the third.
_MOST_LEVELS = 125
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file.

    Attributes:
      dtype: as the format calls it, such as ``BF16``.
      start, stop: its bytes, counted from the end of the header.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself.

    Attributes:
      tensors: in the order of their bytes.
      data_start: where the bytes of the tensors begin in the file.
    """

    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str]
    data_start: int

    @property
    def file_bytes(self) -> int:
        """How long the file is."""
        return self.data_start + (self.tensors[-1].stop if self.tensors else 0)


# --- reading -------------------------------------------------------------------------------------


def header_bytes(prefix: bytes, file_bytes: int, file: str) -> int:
    """How long the header is, from the first 8 bytes of a file.

    Args:
      prefix: the first 8 bytes, or all that there are.
      file_bytes: how long the file is.
      file: its name, for messages.

    Raises:
      Corrupt: the file is shorter than its header, or the header longer than the format allows.

    >>> header_bytes(bytes([2, 0, 0, 0, 0, 0, 0, 0]), 10, "a.safetensors")
    2
    """
    if len(prefix) < PREFIX_BYTES:
        raise Corrupt(f"{file} has {len(prefix)} bytes; a safetensors file has at least {PREFIX_BYTES}.")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > MOST_HEADER_BYTES:
        raise Corrupt(
            f"{file}: the header has {length:,} bytes by its own account; the format allows "
            f"{MOST_HEADER_BYTES:,}. It is no safetensors file, or its beginning is damaged."
        )
    if PREFIX_BYTES + length > file_bytes:
        raise Corrupt(
            f"{file}: the header has {length:,} bytes by its own account, the file {file_bytes:,} in all. "
            "The file was cut off; fetch it again."
        )
    return length


def parse(text: bytes, file_bytes: int, file: str) -> Header:
    """Reads a header and checks all that can be known before a tensor is touched.

    Args:
      text: the header, without the 8 bytes before it.
      file_bytes: how long the file is.
      file: its name, for messages.

    Raises:
      Corrupt: lists everything that is wrong with the tensors.

    >>> text = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
    >>> parse(text, 8 + len(text) + 24, "a.safetensors").tensors
    (Tensor(name='w', dtype='F32', shape=(2, 3), start=0, stop=24),)
    """
    entries = _parse_json(text, file)
    metadata = _parse_metadata(entries.pop(METADATA, None), file)
    problems: list[str] = []
    tensors = []
    for name, entry in entries.items():
        found = _parse_tensor(name, entry)
        if isinstance(found, Tensor):
            tensors.append(found)
        else:
            problems.append(f"{name!r} {found}")
    if problems:
        raise _wrong(file, problems)
    tensors.sort(key=lambda tensor: (tensor.start, tensor.stop))
    problems = [f"{t.name!r} {p}" for t in tensors if (p := _wrong_size(t))]
    problems += _wrong_places(tensors)
    if problems:
        raise _wrong(file, problems)
    header = Header(tuple(tensors), metadata, PREFIX_BYTES + len(text))
    if header.file_bytes != file_bytes:
        raise Corrupt(
            f"{file} has {file_bytes:,} bytes, by its header {header.file_bytes:,}. It was cut off or "
            "something was appended; fetch it again."
        )
    return header


def _wrong(file: str, problems: Sequence[str]) -> Corrupt:
    more = f"\n  … and {len(problems) - _MOST_LINES} more" if len(problems) > _MOST_LINES else ""
    return Corrupt(
        f"{file}: the header is wrong:\n  "
        + "\n  ".join(problems[:_MOST_LINES])
        + more
        + "\nNothing was read. Fetch the file again, or write it anew."
    )


class _Duplicate(ValueError):
    pass


def _parse_json(text: bytes, file: str) -> dict[str, Any]:
    try:
        found = json.loads(
            text.decode(),
            object_pairs_hook=_distinct,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_not_json,
        )
    except _Duplicate as error:
        raise Corrupt(f"{file}: the header has {error} twice. Write the file anew.") from None
    except UnicodeDecodeError as error:
        raise Corrupt(f"{file}: the header is not UTF-8 at byte {PREFIX_BYTES + error.start:,}") from None
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{file}: the header is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Corrupt(f"{file}: the header is a JSON {type(found).__name__}, not an object")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Duplicate(", ".join(sorted({repr(name) for name in names if names.count(name) > 1})))
    for name in found:
        _check_text(name)
    return found


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the string {text!r} has half of a surrogate pair") from None


def _integer(text: str) -> int | float:
    # JSON's -0 is a float to the official library, so no length.
    return -0.0 if text == "-0" else int(text)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is out of range")
    return value


def _not_json(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _parse_metadata(value: Any, file: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Corrupt(f"{file}: {METADATA} is a JSON {type(value).__name__}, not an object of strings")
    wrong = [f"{name!r} is {text!r}" for name, text in value.items() if not isinstance(text, str)]
    if wrong:
        raise Corrupt(f"{file}: {METADATA} must hold strings, but {', '.join(wrong[:_MOST_LINES])}")
    try:
        for text in value.values():
            _check_text(text)
    except ValueError as error:
        raise Corrupt(f"{file}: {METADATA}: {error}") from None
    return value


def _parse_tensor(name: str, entry: Any) -> Tensor | str:
    """A tensor, or what is wrong with its entry."""
    if not isinstance(entry, dict):
        return f"is {_short(entry)}; an object with dtype, shape and data_offsets is needed"
    if missing := sorted(_FIELDS - entry.keys()):
        return f"has no {' and no '.join(missing)}"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        return f"has the dtype {_short(dtype)}; the format has {', '.join(BITS)}"
    if not isinstance(shape, list) or not all(map(_is_length, shape)):
        return f"has the shape {_short(shape)}; a list of lengths is needed"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_length, offsets)):
        return f"has the data_offsets {_short(offsets)}; two offsets are needed"
    if any(_levels(value) > _MOST_LEVELS for key, value in entry.items() if key not in _FIELDS):
        return "is nested too deeply"
    return Tensor(name, dtype, tuple(shape), offsets[0], offsets[1])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_length(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _levels(value: Any) -> int:
    """How deeply lists and objects are nested; stops soon after there are too many."""
    levels, layer = 0, [value]
    while layer and levels <= _MOST_LEVELS:
        layer = [
            child
            for node in layer
            if isinstance(node, (list, dict))
            for child in (node.values() if isinstance(node, dict) else node)
        ] + [None for node in layer if node in ([], {})]
        levels += bool(layer)
    return levels


def _wrong_size(tensor: Tensor) -> str | None:
    count = 1
    for length in tensor.shape:
        count *= length
        if count > _LARGEST:
            return f"has the shape {list(tensor.shape)}, more elements than 64 bits count"
    bits = count * BITS[tensor.dtype]
    if bits > _LARGEST:
        return f"has {count:,} elements of {tensor.dtype}, more bits than 64 bits count"
    if bits % 8:
        return f"has {count:,} elements of {tensor.dtype}: {bits:,} bits are not whole bytes"
    if tensor.stop - tensor.start != bits // 8:
        return (
            f"has the data_offsets [{tensor.start}, {tensor.stop}], {tensor.stop - tensor.start:,} bytes; "
            f"{tensor.dtype}{list(tensor.shape)} has {bits // 8:,}"
        )
    return None


def _wrong_places(tensors: Sequence[Tensor]) -> list[str]:
    """What overlaps, and what nobody owns."""
    problems = []
    end = 0
    for tensor in tensors:
        if tensor.start < end:
            problems.append(f"{tensor.name!r} begins at {tensor.start:,}, where another one is until {end:,}")
        elif tensor.start > end:
            problems.append(
                f"{tensor.name!r} begins at {tensor.start:,}; no tensor has the bytes from {end:,}"
            )
        end = max(end, tensor.stop)
    return problems


# --- writing -------------------------------------------------------------------------------------


def plan(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> Header:
    """The header of a file with these tensors: their order and places follow from names and shapes alone.

    So every process of a job makes the same header without a message. The order is that of the
    official library: wide dtypes first, so that everything is aligned, then by name.

    Args:
      tensors: (name, dtype as the format calls it, shape).
      metadata: strings by name. The official library writes several in a random order; here they
        keep the order that they have.

    Raises:
      BadOption: a name or the metadata cannot be written; lists all.

    >>> plan([("b", "U8", (2,)), ("a", "F32", (1,))]).tensors[1]
    Tensor(name='b', dtype='U8', shape=(2,), start=4, stop=6)
    """
    wanted = sorted(tensors, key=lambda tensor: (_ORDER[tensor[1]], tensor[0]))
    metadata = dict(metadata or {})
    _check_writable(wanted, metadata)
    found = []
    end = 0
    for name, dtype, shape in wanted:
        nbytes = math.prod(shape) * BITS[dtype] // 8
        found.append(Tensor(name, dtype, shape, end, end + nbytes))
        end += nbytes
    length = len(_json(found, metadata))
    if length > MOST_HEADER_BYTES:
        raise BadOption(
            f"the header would have {length:,} bytes for {len(found):,} tensors; the format allows "
            f"{MOST_HEADER_BYTES:,}. Write several files: save_safetensors(..., max_shard_bytes=...)."
        )
    return Header(tuple(found), metadata, PREFIX_BYTES + length)


def encode(header: Header) -> bytes:
    """The bytes of a file before its first tensor.

    >>> encode(plan([("w", "U8", (1,))]))[8:]
    b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   '
    """
    text = _json(header.tensors, header.metadata)
    return len(text).to_bytes(PREFIX_BYTES, "little") + text


def _json(tensors: Sequence[Tensor], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {METADATA: metadata} if metadata else {}
    for tensor in tensors:
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (tensor.start, tensor.stop),
        }
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)


def _check_writable(tensors: Sequence[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> None:
    problems = []
    names = [name for name, _, _ in tensors]
    for text in (*names, *metadata, *metadata.values()):
        try:
            if not isinstance(text, str):
                raise ValueError(f"{text!r} is a {type(text).__name__}; names and metadata are strings")
            _check_text(text)
        except ValueError as error:
            problems.append(str(error))
    problems += [f"the name {METADATA} is the format's own"] * (METADATA in names)
    problems += [
        f"the name {name!r} comes twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    problems += [
        f"{name!r}: {math.prod(shape):,} elements of {dtype} are not whole bytes; pad the last dimension"
        for name, dtype, shape in tensors
        if math.prod(shape) * BITS[dtype] % 8
    ]
    if problems:
        raise BadOption("a safetensors file cannot hold this:\n  " + "\n  ".join(problems))
