"""Several databases under one root."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorstore as ts
from tests.ocdbt import judge

from storax.errors import Corrupt
from storax.ocdbt.files import DataFile, split
from storax.ocdbt.index import Index
from storax.ocdbt.merge import merge
from storax.ocdbt.nodes import Entry
from storax.ocdbt.writer import Value, write_database


def write_part(root: Path, name: str, values: list[Value]) -> list[Entry]:
    (root / name).mkdir()
    return write_database(root / name, values, workers=2)


def test_theirs_reads_the_merged_root(tmp_path: Path) -> None:
    parts = {}
    wanted = {}
    for process in range(3):
        values = [Value(b"w%d/c/%d" % (i, process), bytes([process]) * (i * 100), False) for i in range(50)]
        wanted |= {v.key: v.data for v in values}
        name = f"ocdbt.process_{process}"
        parts[name] = write_part(tmp_path, name, values)
    merge(tmp_path, parts)
    assert judge.read_all(tmp_path) == wanted
    assert judge.read_ours(tmp_path) == wanted
    assert len(list((tmp_path / "d").iterdir())) == 1
    places = {
        place.file.split("/d/")[0] for _, place in Index.open(tmp_path).items() if hasattr(place, "file")
    }
    assert places == set(parts)


def test_the_parts_may_be_read_from_disk(tmp_path: Path) -> None:
    for name in ("a", "b"):
        values = {f"{name}/{i}".encode(): name.encode() * i for i in range(300)}
        judge.write_theirs(tmp_path / name, values, max_decoded_node_bytes=500)
    merge(tmp_path, {name: list(Index.open(tmp_path / name).items()) for name in ("a", "b")})
    wanted = {f"{n}/{i}".encode(): n.encode() * i for n in "ab" for i in range(300)}
    assert judge.read_all(tmp_path) == wanted


def test_nothing_to_merge(tmp_path: Path) -> None:
    merge(tmp_path, {"p": write_part(tmp_path, "p", [])})
    assert judge.read_all(tmp_path) == {}


def test_a_key_in_two_parts(tmp_path: Path) -> None:
    parts = {name: write_part(tmp_path, name, [Value(b"k", b"1", False)]) for name in ("one", "two")}
    with pytest.raises(Corrupt, match="both one and two have the key b'k'"):
        merge(tmp_path, parts)
    assert not (tmp_path / "manifest.ocdbt").exists()


def test_ours_reads_what_theirs_merged(tmp_path: Path) -> None:
    """As Orbax does it: nodes of the parts are referred to in place, with their own base path."""
    context = ts.Context()
    config = {"compression": None, "max_decoded_node_bytes": 1000}
    wanted = {}
    for process in range(2):
        values = {b"p%d/%d" % (process, i): b"v" * (i % 200) for i in range(400)}
        judge.write_theirs(tmp_path / f"ocdbt.process_{process}", values, **config)
        wanted |= values
    spec = {"driver": "ocdbt", "config": config}
    root = ts.KvStore.open({**spec, "base": judge.base(tmp_path)}, context=context).result()
    transaction = ts.Transaction(atomic=True)
    for process in range(2):
        place = judge.base(tmp_path / f"ocdbt.process_{process}")
        part = ts.KvStore.open({**spec, "base": place}, context=context).result()
        part.experimental_copy_range_to(root.with_transaction(transaction)).result()
    transaction.commit_sync()
    index = Index.open(tmp_path)
    assert judge.read_ours(tmp_path) == wanted
    assert {name[0] for name in index._nodes} <= {"", "ocdbt.process_0/", "ocdbt.process_1/"}


def test_a_zarr_array_of_ours_opens(tmp_path: Path) -> None:
    data = np.arange(24_000, dtype=np.float32).reshape(4, 6000)
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 6000],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 6000]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
    }
    values = [
        Value(b"x/zarr.json", json.dumps(metadata).encode(), False),
        Value(b"x/c/0/0", memoryview(data[:2]), True),
        Value(b"x/c/1/0", memoryview(data[2:]), True),
    ]
    merge(tmp_path, {"ocdbt.process_0": write_part(tmp_path, "ocdbt.process_0", values)})
    kvstore = {"driver": "ocdbt", "base": judge.base(tmp_path), "path": "x/"}
    read = ts.open({"driver": "zarr3", "kvstore": kvstore}).result().read().result()
    np.testing.assert_array_equal(read, data)

    place = Index.open(tmp_path).get(b"x/c/1/0")
    assert place is not None
    with open(tmp_path / place.file, "r+b") as file:
        file.seek(place.offset + 100)
        file.write(b"!")
    with pytest.raises(ValueError, match="Digest mismatch"):
        ts.open({"driver": "zarr3", "kvstore": kvstore}).result().read().result()


@pytest.mark.parametrize(
    ("path", "base", "name"),
    [
        ("d/ab", "", "d/ab"),
        ("ocdbt.process_0/d/ab", "ocdbt.process_0/", "d/ab"),
        ("a/b/d/ab", "a/b/", "d/ab"),
        ("a/b/ab", "", "a/b/ab"),
        ("ab", "", "ab"),
    ],
)
def test_the_base_of_a_path(path: str, base: str, name: str) -> None:
    assert split(path) == DataFile(base, name)
