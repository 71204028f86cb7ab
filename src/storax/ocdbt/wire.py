"""The bytes below every OCDBT structure: varints, columns, and the frame with its CRC-32C. Pure.

A column is one field of all entries, one value after another. Most columns hold small
numbers, whose varints are one byte each: such a column is decoded by one ``list(bytes)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import crc32c

from storax.errors import Corrupt

MANIFEST = 0x0CDB3A2A
BTREE_NODE = 0x0CDB20DE
VERSION_NODE = 0x0CDB1234

U64 = (1 << 64) - 1

# Magic, length, version, compression, and the checksum at the end.
_SMALLEST_FRAME = 4 + 8 + 1 + 1 + 4
_TAIL = 4


class CompressedNode(NotImplementedError):
    """The structure is zstd-compressed, which this reader does not decode: read it with TensorStore."""


def checksum(data: bytes | memoryview) -> bytes:
    """The CRC-32C of data, as the four bytes that OCDBT and zarr store."""
    return crc32c.crc32c(data).to_bytes(4, "little")


def varint(value: int) -> bytes:
    """One unsigned number, seven bits a byte, the low ones first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varints(values: list[int]) -> bytes:
    """A column of unsigned numbers."""
    if not values or max(values) < 0x80:
        return bytes(values)
    out = bytearray()
    append = out.append
    for value in values:
        while value >= 0x80:
            append(value & 0x7F | 0x80)
            value >>= 7
        append(value)
    return bytes(out)


def frame(magic: int, body: Iterable[bytes]) -> bytes:
    """Puts the header before and the checksum behind the parts of an uncompressed structure."""
    content = b"".join(body)
    length = _SMALLEST_FRAME + len(content)
    head = magic.to_bytes(4, "big") + length.to_bytes(8, "little") + b"\0\0"
    framed = head + content
    return framed + checksum(framed)


class Reader:
    """Reads one structure from front to back; whatever does not fit is ``Corrupt``, with file and offset.

    Nothing is allocated for a count before it is known that so many bytes are there.
    """

    def __init__(self, data: bytes, file: str, origin: int, start: int, end: int) -> None:
        self._data = data
        self._file = file
        self._origin = origin
        self._at = start
        self._end = end

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return self._end - self._at

    def wrong(self, what: str) -> NoReturn:
        """Raises ``Corrupt`` for the place that was reached."""
        raise Corrupt(f"{self._file}, byte {self._origin + self._at}: {what}.")

    def take(self, count: int, what: str) -> bytes:
        """The next bytes."""
        if count > self.left:
            self.wrong(f"{what} needs {count:,} bytes, {self.left:,} are left")
        start = self._at
        self._at = start + count
        return self._data[start : self._at]

    def byte(self, what: str) -> int:
        """The next byte."""
        return self.take(1, what)[0]

    def varint(self, what: str, most: int = U64) -> int:
        """One number that must not exceed ``most``."""
        return self.varints(1, what, most)[0]

    def count(self, what: str, most: int) -> int:
        """How many entries follow. Each takes a byte at least, so more than are left is a lie."""
        count = self.varint(f"the number of {what}", most)
        if count > self.left:
            self.wrong(f"{count:,} {what} cannot be in {self.left:,} bytes")
        return count

    def varints(self, count: int, what: str, most: int = U64) -> list[int]:
        """A column of numbers, none of which may exceed ``most``."""
        if count > self.left:
            self.wrong(f"{what}: {count:,} numbers cannot be in {self.left:,} bytes")
        column = self._data[self._at : self._at + count]
        if column.isascii():
            self._at += count
            values = list(column)
        else:
            values = self._long_varints(count, what)
        if values and max(values) > most:
            self.wrong(f"{what} is {max(values):,}, more than the {most:,} that there can be")
        return values

    def _long_varints(self, count: int, what: str) -> list[int]:
        data, at, end = self._data, self._at, self._end
        values: list[int] = []
        append = values.append
        for _ in range(count):
            value = shift = 0
            while True:
                if at >= end or shift > 63:
                    self._at = min(at, end)
                    self.wrong(f"{what}: a number does not end")
                byte = data[at]
                at += 1
                if byte < 0x80:
                    break
                value |= (byte & 0x7F) << shift
                shift += 7
            append(value | byte << shift)
        self._at = at
        return values

    def finish(self) -> None:
        """Everything must have been read."""
        if self.left:
            self.wrong(f"{self.left:,} bytes too many")


def unframe(data: bytes, magic: int, file: str, origin: int) -> Reader:
    """Checks the frame of a structure and its checksum; returns a reader of its body.

    Args:
      data: exactly the bytes of the structure.
      magic: what it must start with.
      file, origin: where the bytes come from, for messages.

    Raises:
      Corrupt: if the bytes are not such a structure.
      CompressedNode: if they are, but compressed.
    """
    reader = Reader(data, file, origin, 0, len(data))
    if len(data) < _SMALLEST_FRAME:
        reader.wrong(f"{len(data)} bytes are too few for a database structure")
    found = int.from_bytes(reader.take(4, "the magic number"), "big")
    if found != magic:
        reader.wrong(f"it starts with {found:08x} instead of {magic:08x}")
    length = int.from_bytes(reader.take(8, "the length"), "little")
    if length != len(data):
        reader.wrong(f"its length is {len(data):,}, its header says {length:,}")
    if checksum(memoryview(data)[:-_TAIL]) != data[-_TAIL:]:
        reader.wrong("its checksum is wrong")
    body = Reader(data, file, origin, 12, len(data) - _TAIL)
    version = body.varint("the version")
    if version != 0:
        body.wrong(f"version {version} of the format is unknown")
    compression = body.varint("the compression")
    if compression == 1:
        raise CompressedNode(f"{file}, byte {origin}: compressed with zstd")
    if compression != 0:
        body.wrong(f"compression {compression} is unknown")
    return body
