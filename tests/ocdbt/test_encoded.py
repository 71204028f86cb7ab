"""Values that are encoded while they are written: by several threads, and never all in memory."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest
from tests.ocdbt import judge

from storax.ocdbt.layout import BYTES_PER_FILE
from storax.ocdbt.writer import Encoded, Value, write_database


class Bytes(bytes):
    """Bytes that can be watched."""


def test_values_of_sizes_that_nobody_knows(tmp_path: Path) -> None:
    made = {b"%03d" % i: bytes([i]) * (i * i) for i in range(60)}
    encoded = [
        Value(key, Encoded(BYTES_PER_FILE, lambda data=data: data), i % 2 == 0, also=(b"x" + key,))
        for i, (key, data) in enumerate(made.items())
    ]
    plain = [Value(b"%03d.1" % i, b"p" * i, False) for i in range(60)]
    entries = write_database(tmp_path, [*encoded, *plain], workers=4)
    assert [key for key, _ in entries] == sorted(key for key, _ in entries)
    store = judge.open_database(tmp_path)
    for i, (key, data) in enumerate(made.items()):
        for name in (key, b"x" + key):
            found = bytes(store.read(name).result().value)
            assert found[: len(data)] == data
            assert len(found) == len(data) + (4 if i % 2 == 0 else 0)
        assert bytes(store.read(b"%03d.1" % i).result().value) == b"p" * i


def test_several_threads_encode_at_once(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def make() -> bytes:
        both.wait(60)  # breaks unless another thread encodes too
        return b"1" * 5000

    write_database(
        tmp_path, [Value(b"%d" % i, Encoded(BYTES_PER_FILE, make), False) for i in range(4)], workers=2
    )
    assert len(list((tmp_path / "d").iterdir())) == 3  # of each thread one, and the nodes


def test_what_is_encoded_is_not_kept(tmp_path: Path) -> None:
    lock, alive, most = threading.Lock(), weakref.WeakSet(), []  # type: ignore[var-annotated]

    class Watched(bytearray):
        __hash__ = object.__hash__

    def make() -> memoryview:
        data = Watched(5000)
        with lock:
            alive.add(data)
            most.append(len(alive))
        return memoryview(data)

    values = [Value(b"%03d" % i, Encoded(BYTES_PER_FILE, make), False) for i in range(50)]  # type: ignore[arg-type]
    write_database(tmp_path, values, workers=2)
    gc.collect()
    assert max(most) <= 4


def test_a_value_that_cannot_be_encoded_stops_the_others(tmp_path: Path) -> None:
    made = []

    def make(i: int) -> bytes:
        made.append(i)
        if i == 3:
            raise RuntimeError("no more")
        return b"1" * 5000

    values = [Value(b"%03d" % i, Encoded(BYTES_PER_FILE, partial(make, i)), False) for i in range(50)]
    with pytest.raises(RuntimeError, match="no more"):
        write_database(tmp_path, values, workers=1)
    assert made == [0, 1, 2, 3]
    assert not (tmp_path / "manifest.ocdbt").exists()
