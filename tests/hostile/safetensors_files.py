"""Safetensors files that are wrong, each in one way, and files that only look so.

`REFUSED` and `ACCEPTED` map a short name to the bytes of a file. The official library has the same verdict on
all of them but those in `STRICTER`.
"""

from __future__ import annotations

import json
from typing import Any


def file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with any header at all: an object, a text or bytes."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    size = len(header) if length is None else length
    return size.to_bytes(8, "little") + header + data


def entry(dtype: Any = "U8", shape: Any = (1,), start: Any = 0, stop: Any = 1, **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop], **more}


def _text(**fields: str) -> str:
    """A header with one tensor whose fields are spelled as given."""
    plain = {"dtype": '"U8"', "shape": "[1]", "data_offsets": "[0,1]", **fields}
    return '{"a":{' + ",".join(f'"{name}":{value}' for name, value in plain.items()) + "}}"


ACCEPTED: dict[str, bytes] = {
    "one byte": file({"a": entry()}, b"x"),
    "no tensor": file({}),
    "a scalar": file({"a": entry(shape=())}, b"x"),
    "no elements": file({"a": entry(shape=[0, 3], stop=0)}),
    "no elements, in the middle": file(
        {"b": entry("U8", [2], 0, 2), "z": entry("F32", [0, 2], 2, 2), "c": entry("U8", [1], 2, 3)}, b"xyz"
    ),
    "two without elements at one place": file(
        {"a": entry(shape=[0], stop=0), "b": entry(), "c": entry(shape=[0], stop=0)}, b"x"
    ),
    "not in the order of the bytes": file({"b": entry(start=1, stop=2), "a": entry()}, b"xy"),
    "spaces around": file(' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} \n', b"x"),
    "metadata": file({"__metadata__": {"format": "pt"}, "a": entry()}, b"x"),
    "metadata is null": file({"__metadata__": None, "a": entry()}, b"x"),
    "a field that nobody knows": file({"a": entry(more=[1, {"x": 1.5}])}, b"x"),
    "an empty name": file({"": entry()}, b"x"),
    "a name beyond the BMP": file('{"\\ud83d\\ude00":' + json.dumps(entry()) + "}", b"x"),
    "a zero in a name": file('{"a\\u0000":' + json.dumps(entry()) + "}", b"x"),
    "zero times huge": file({"a": entry(shape=[0, 1 << 63, 4], stop=0)}),
    "the largest length": file({"a": entry(shape=[0, (1 << 64) - 1], stop=0)}),
    "four bits": file({"a": entry("F4", [4], 0, 2)}, b"xx"),
    "six bits": file({"a": entry("F6_E2M3", [4], 0, 3)}, b"xxx"),
    "nested 125 deep": file(_text(more="[" * 125 + "]" * 125), b"x"),
}

REFUSED: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": b"\1\0\0\0\0\0\0",
    "header beyond the file": file("{}", length=3),
    "header beyond memory": file("{}", length=(1 << 64) - 1),
    "header beyond the cap": file("{}", length=100_000_001),
    "header empty": file(""),
    "header blank": file("   "),
    "not UTF-8": file(b'{"a\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "a byte order mark": file("\ufeff" + _text(), b"x"),
    "not JSON": file("hello"),
    "cut JSON": file(_text()[:-1], b"x"),
    "JSON and more": file(_text() + "}", b"x"),
    "a comma too many": file(_text()[:-1] + ",}", b"x"),
    "a list": file("[]"),
    "a number": file("3"),
    "null": file("null"),
    "NaN": file(_text(more="NaN"), b"x"),
    "a number out of range": file(_text(more="1e999"), b"x"),
    "half of a surrogate pair": file('{"\\ud800":' + json.dumps(entry()) + "}", b"x"),
    "a control character": file('{"a\1":' + json.dumps(entry()) + "}", b"x"),
    "nested 100,000 deep": file("[" * 100_000),
    "nested 126 deep": file(_text(more="[" * 126 + "]" * 126), b"x"),
    "metadata twice": file('{"__metadata__":{},"__metadata__":{}}'),
    "metadata is a list": file({"__metadata__": []}),
    "metadata with a number": file({"__metadata__": {"a": 1}}),
    "metadata with half of a pair": file('{"__metadata__":{"a":"\\udc00"}}'),
    "an entry that is a number": file({"a": 3}),
    "an entry that is null": file({"a": None}),
    "no dtype": file({"a": {"shape": [1], "data_offsets": [0, 1]}}, b"x"),
    "no shape": file({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"x"),
    "no offsets": file({"a": {"dtype": "U8", "shape": [1]}}, b"x"),
    "a field twice": file('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "an unknown dtype": file({"a": entry("U4", [2], 0, 1)}, b"x"),
    "a dtype in lower case": file({"a": entry("u8")}, b"x"),
    "a dtype that is a number": file({"a": entry(8)}, b"x"),
    "a negative length": file({"a": entry(shape=[-1])}, b"x"),
    "minus zero": file(_text(shape="[-0]", data_offsets="[0,0]")),
    "a length that is a float": file({"a": entry(shape=[1.0])}, b"x"),
    "a length that is a bool": file({"a": entry(shape=[True])}, b"x"),
    "a length that is a text": file({"a": entry(shape=["1"])}, b"x"),
    "a length of 65 bits": file({"a": entry(shape=[0, 1 << 64], stop=0)}),
    "a length of 5,000 digits": file(_text(shape="[0," + "9" * 5000 + "]", data_offsets="[0,0]")),
    "a shape that is a number": file({"a": entry(shape=1)}, b"x"),
    "elements overflow": file({"a": entry(shape=[1 << 32, 1 << 32], stop=0)}),
    "elements overflow before a zero": file({"a": entry(shape=[1 << 63, 4, 0], stop=0)}),
    "bits overflow": file({"a": entry("F64", [1 << 60], 0, 0)}),
    "three offsets": file({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, b"x"),
    "one offset": file({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}, b"x"),
    "offsets reversed": file({"a": entry(start=1, stop=0)}, b"x"),
    "offsets negative": file({"a": entry(start=-1, stop=0)}, b"x"),
    "offsets that are floats": file({"a": entry(start=0.0, stop=1.0)}, b"x"),
    "offsets beyond the file": file({"a": entry(stop=2, shape=[2])}, b"x"),
    "offsets of 64 bits": file({"a": entry(start=(1 << 64) - 1, stop=(1 << 64) - 1, shape=[0])}),
    "a span unlike the shape": file({"a": entry("F32", [2], 0, 4)}, b"xxxx"),
    "a gap at the beginning": file({"a": entry(start=1, stop=2)}, b"xx"),
    "a gap between": file({"a": entry(), "b": entry(start=2, stop=3)}, b"xxx"),
    "bytes after the last": file({"a": entry()}, b"xx"),
    "bytes and no tensor": file({}, b"x"),
    "overlapping": file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"xxx"),
    "the same bytes twice": file({"a": entry(), "b": entry()}, b"x"),
    "one inside another": file({"a": entry("U8", [4], 0, 4), "b": entry(start=1, stop=2)}, b"xxxx"),
    "no elements, inside another": file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [0], 1, 1)}, b"xx"),
    "truncated": file({"a": entry("F32", [4], 0, 16)}, b"x" * 15),
    "no data": file({"a": entry()}),
    "half a byte": file({"a": entry("F4", [3], 0, 2)}, b"xx"),
}

# The format's description forbids duplicate names; the official library takes the last. It also takes tensors
# written as JSON lists, which no writer writes.
STRICTER: dict[str, bytes] = {
    "a name twice": file('{"a":' + json.dumps(entry()) + ',"a":' + json.dumps(entry()) + "}", b"x"),
    "a name of the metadata twice": file('{"__metadata__":{"a":"b","a":"c"}}'),
    "an entry that is a list": file('{"a":["U8",[1],[0,1]]}', b"x"),
}
