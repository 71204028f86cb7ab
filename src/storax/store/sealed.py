"""Small files whose checksums are in a list beside them, so that no damaged document is believed.

JSON with one wrong bit is mostly still JSON. Every directory in which storax writes documents
therefore has a file ``storax.checksums``: the CRC-32C of each document, by its path, and one of the
list itself. Directories of other programs have none, and are read as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import crc32c

from storax.errors import Corrupt

LIST_NAME = "storax.checksums"


def seal(texts: Mapping[str, bytes], sums: Mapping[str, int] | None = None) -> bytes:
    """The list for documents, given by their paths below its directory, and for others by their checksums.

    >>> seal({"a": b"x"})
    b'{"crc32c": {"a": 2839306131}, "self": 765691540}'
    """
    every = {**(sums or {}), **{name: crc32c.crc32c(text) for name, text in texts.items()}}
    every = dict(sorted(every.items()))
    return json.dumps({"crc32c": every, "self": _own(every)}).encode()


def _own(sums: Mapping[str, int]) -> int:
    return crc32c.crc32c(json.dumps(dict(sorted(sums.items()))).encode())


class SealedDirectory:
    """The documents of a directory, each checked when it is read if there is a list.

    Args:
      path: the directory.
      unsealed: whether to do without the list if it is damaged itself.
    """

    def __init__(self, path: Path, *, unsealed: bool = False) -> None:
        self.path = path
        self._unsealed = unsealed

    @property
    def is_sealed(self) -> bool:
        """Whether the directory has a list."""
        return self._sums is not None

    @property
    def names(self) -> list[str]:
        """The documents that the list names."""
        return sorted(self._sums or ())

    def read(self, name: str) -> bytes | None:
        """A document, or None if there is none and the list names none.

        Raises:
          Corrupt: its bytes are not what was written, or it is gone.
        """
        text = _bytes(self.path / name)
        known = (self._sums or {}).get(name)
        if known is None:
            return text
        if text is None:
            raise Corrupt(f"{self.path / name} is missing; {LIST_NAME} names it")
        if crc32c.crc32c(text) != known:
            raise Corrupt(
                f"{self.path / name}: its checksum is not that in {LIST_NAME}: one of them was damaged"
            )
        return text

    @cached_property
    def _sums(self) -> dict[str, int] | None:
        path = self.path / LIST_NAME
        text = _bytes(path)
        if text is None:
            return None
        try:
            found = json.loads(text)
            sums = {str(name): int(value) for name, value in found["crc32c"].items()}
            intact = found["self"] == _own(sums)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            intact = False
        if not intact and self._unsealed:
            return None
        if not intact:
            raise Corrupt(f"{path} was damaged: its own checksum does not fit")
        return sums


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return None
