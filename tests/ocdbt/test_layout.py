"""Where values go, and what the calls to the file system are."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ocdbt import judge

from storax.ocdbt.layout import BYTES_PER_FILE, LARGEST_INLINE, PACK_BYTES, SMALLEST_LARGE, file_mark, lay_out
from storax.ocdbt.wire import checksum
from storax.ocdbt.writer import Value, write_database
from storax.store import posix

MB = 1 << 20
sizes = st.integers(0, 2000) | st.integers(60 << 10, 70 << 10) | st.integers(0, 40 * MB)


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(sizes, max_size=200), st.integers(1, 8))
def test_every_value_has_one_place(sizes: list[int], workers: int) -> None:
    layout = lay_out(sizes, workers)
    seen = list(layout.inline)
    assert all(sizes[i] <= LARGEST_INLINE for i in layout.inline)
    assert len(layout.files) <= workers
    loads = []
    for pieces in layout.files:
        end = len(file_mark(""))
        for piece in pieces:
            length = sum(sizes[i] for i in piece.members)
            assert piece.offset % 4096 == 0 or length < SMALLEST_LARGE
            assert end <= piece.offset < end + 4096
            assert len(piece.members) == 1 or length <= PACK_BYTES
            assert len(piece.members) == 1 or all(sizes[i] < SMALLEST_LARGE for i in piece.members)
            end = piece.offset + length
            seen.extend(piece.members)
        loads.append(sum(sizes[i] for piece in pieces for i in piece.members))
    assert sorted(seen) == list(range(len(sizes)))
    assert len(loads) <= max(1, -(-sum(loads) // BYTES_PER_FILE))
    if loads:
        assert max(loads) - min(loads) <= max(*sizes, PACK_BYTES)


def test_the_order_of_durability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    syncing = os.fsync

    def fsync(fd: int) -> None:
        calls.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path))
        manifest = (tmp_path / "manifest.ocdbt").exists()
        assert manifest or calls[-1].startswith("d/")
        syncing(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    data = bytes(40 * MB)
    write_database(tmp_path, [Value(b"a", data, True), Value(b"b", data, True)], workers=2)
    assert [c.startswith("d/") for c in calls[:3]] == [True] * 3
    assert len(set(calls[:3])) == 3
    assert calls[3:] == ["manifest.ocdbt", "d", "."]


def test_views_of_any_shape(tmp_path: Path) -> None:
    floats = memoryview(bytes(range(96)) * 1000).cast("f", (4, 6000))
    empty = memoryview(bytearray(0)).cast("B")
    write_database(tmp_path, [Value(b"f", floats, True), Value(b"e", empty, True)], workers=1)
    wanted = {b"f": floats.tobytes() + checksum(floats.tobytes()), b"e": checksum(b"")}
    assert judge.read_all(tmp_path) == wanted


def test_the_error_of_a_worker_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    data = bytes(33 * MB)
    with pytest.raises(posix.StoreError) as caught:
        write_database(tmp_path, [Value(b"%d" % i, data, True) for i in range(3)], workers=3)
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "manifest.ocdbt").exists()
