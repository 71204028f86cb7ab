"""What we write TensorStore reads, and what it writes we read: the same keys and bytes."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ocdbt import judge

from storax.errors import BadOption, CheckpointNotFound, Corrupt, NameCollision
from storax.ocdbt import index as index_module
from storax.ocdbt import nodes, writer
from storax.ocdbt.index import Index
from storax.ocdbt.nodes import Indirect, Inline
from storax.ocdbt.wire import checksum
from storax.ocdbt.writer import Value, write_database, write_nodes

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True, database=None)

prefixes = st.sampled_from([b"", b"params.layer.", b"long/" * 300, "schlüssel.日本/".encode(), b"\xff\xff"])
keys = st.builds(lambda a, b: a + b, prefixes, st.binary(max_size=6) | st.text(max_size=4).map(str.encode))
sizes = st.sampled_from([0, 1, 99, 100, 101, 1020, 1021, 1024, 1025, 5000, 65531, 65532, 65536, 100_000])
databases = st.dictionaries(keys, sizes, max_size=40)


def fill(sizes: dict[bytes, int]) -> dict[bytes, bytes]:
    source = random.Random(1)
    return {key: source.randbytes(size) for key, size in sizes.items()}


@PROPERTY
@given(databases, st.integers(1, 3), st.data())
def test_theirs_reads_ours(sizes: dict[bytes, int], workers: int, data: st.DataObject) -> None:
    summed = data.draw(st.sets(st.sampled_from(sorted(sizes)))) if sizes else set()
    values = fill(sizes)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        written = write_database(
            directory, [Value(k, memoryview(v), k in summed) for k, v in values.items()], workers=workers
        )
        wanted = {k: v + checksum(v) if k in summed else v for k, v in values.items()}
        assert judge.read_all(directory) == wanted
        assert judge.read_ours(directory) == wanted
        assert list(Index.open(directory).items()) == written
        assert [k for k, _ in written] == sorted(values)
        check_statistics(directory)


def check_statistics(directory: Path) -> None:
    (version,) = judge.dump(directory)["versions"]
    root = version["root"]
    if "location" in root:
        assert judge.measure(directory, root["location"]) == root["statistics"]
    else:
        assert root["statistics"] == dict.fromkeys(root["statistics"], 0)


@PROPERTY
@given(databases, st.sampled_from([1, 200, 3000, 8 << 20]), st.sampled_from([0, 100, 1024]))
def test_ours_reads_theirs(sizes: dict[bytes, int], node_bytes: int, inline: int) -> None:
    values = fill(sizes)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "db"
        judge.write_theirs(
            directory, values, max_decoded_node_bytes=node_bytes, max_inline_value_bytes=inline
        )
        if not values:
            return
        assert judge.read_ours(directory) == values
        index = Index.open(directory)
        for key, data in values.items():
            found = index.get(key)
            assert found is not None
            assert judge.fetch(directory, found) == data
            assert index.get(key + b"\0") is None or key + b"\0" in values
            for prefix in (key[:-1], key[: len(key) // 2], key, key + b"\0"):
                wanted = sorted(k for k in values if k.startswith(prefix))
                assert [k for k, _ in index.items(prefix)] == wanted


@pytest.mark.parametrize("node_bytes", [300, 2000, 100_000])
def test_deep_trees_of_theirs_in_many_commits(tmp_path: Path, node_bytes: int) -> None:
    directory = tmp_path / "db"
    values: dict[bytes, bytes] = {}
    for commit in range(20):
        fresh = {b"layer_%d.w/c/%d" % (i * 7 % 10, i + commit * 50): b"%d" % i * (i % 90) for i in range(100)}
        judge.write_theirs(directory, fresh, max_decoded_node_bytes=node_bytes)
        values |= fresh
    assert len(judge.dump(directory)["version_tree_nodes"]) == 1
    assert judge.read_ours(directory) == values
    if node_bytes == 300:
        assert Index.open(directory).version.root_height >= 3


def test_a_leaf_is_theirs_to_the_byte(tmp_path: Path) -> None:
    values = fill({b"some.key/%d" % i: i * 3 for i in range(100)})
    judge.write_theirs(tmp_path / "db", values)
    index = Index.open(tmp_path / "db")
    root = index.version.root
    assert root is not None
    stored = judge.fetch(tmp_path / "db", Indirect(root.file.path, root.offset, root.length))
    assert nodes.encode_leaf(list(index.items())) == stored


@pytest.mark.parametrize("long", [False, True])
def test_trees_of_several_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    monkeypatch.setattr(writer, "_NODE_BYTES", 2000)
    lead = b"x" * 3000 if long else b""
    values = [Value(lead + b"k%05d" % (i * 7), b"v%d" % i, True) for i in range(5000)]
    write_database(tmp_path, values, workers=2)
    index = Index.open(tmp_path)
    assert index.version.root_height >= 2
    wanted = {v.key: bytes(v.data) + checksum(v.data) for v in values}
    assert judge.read_all(tmp_path) == wanted == judge.read_ours(tmp_path)
    check_statistics(tmp_path)
    assert index.get(lead + b"k00001") is None
    assert index.get(b"") is None
    assert index.get(b"zzz") is None
    assert len(list(index.items(lead + b"k000"))) == 15


def test_theirs_appends_to_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_NODE_BYTES", 2000)
    values = {b"a/%04d" % i: b"old" * (i % 700) for i in range(1500)}
    write_database(tmp_path, [Value(k, v, False) for k, v in values.items()], workers=2)
    for commit in range(20):
        fresh = {b"a/%04d" % i: b"new%d" % commit for i in range(commit, 1600, 97)}
        store = judge.open_database(tmp_path)
        for key, value in fresh.items():
            store[key] = value
        values |= fresh
    del store[b"a/0000"]
    del values[b"a/0000"]
    assert judge.read_all(tmp_path) == values
    assert judge.read_ours(tmp_path) == values


def test_a_hundred_thousand_keys(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "data").write_bytes(os.urandom(5000))
    entries = [(b"layer_%06d.kernel/c/0" % i, Indirect("d/data", i % 4000, 1000)) for i in range(100_000)]
    write_nodes(tmp_path, entries)
    assert list(Index.open(tmp_path).items()) == entries
    store = judge.open_database(tmp_path)
    assert sorted(store.list().result()) == [key for key, _ in entries]
    for key, value in entries[::9999]:
        assert store[key] == judge.fetch(tmp_path, value)
    check_statistics(tmp_path)
    # One key of many: the root and one leaf are decoded, and nothing else.
    index = Index.open(tmp_path)
    assert index.get(entries[70_000][0]) == entries[70_000][1]
    assert len(index._nodes) == 2


def test_the_longest_keys(tmp_path: Path) -> None:
    values = [Value(b"k" * 65_534 + bytes([i]), b"%d" % i, False) for i in range(200)]
    write_database(tmp_path, values, workers=1)
    wanted = {v.key: v.data for v in values}
    assert judge.read_all(tmp_path) == wanted == judge.read_ours(tmp_path)


def test_numbered_manifests(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    for i in range(5):
        judge.write_theirs(directory, {b"k%d" % i: b"v"}, manifest_kind="numbered")
    assert judge.read_ours(directory) == {b"k%d" % i: b"v" for i in range(5)}


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(NameCollision, match="same key b'a'"):
        write_database(tmp_path, [Value(b"a", b"", False), Value(b"a", b"", False)], workers=1)
    with pytest.raises(BadOption, match=r"65,536 bytes"):
        write_database(tmp_path, [Value(b"a" * 65536, b"", False)], workers=1)
    with pytest.raises(BadOption, match="ascending"):
        write_nodes(tmp_path, [(b"b", Inline(b"")), (b"a", Inline(b""))])
    assert os.listdir(tmp_path) == []


def test_no_database(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound):
        Index.open(tmp_path)
    with pytest.raises(CheckpointNotFound):
        Index.open(tmp_path / "missing")
    os.mkfifo(tmp_path / "manifest.ocdbt")
    with pytest.raises(Corrupt, match="regular"):
        Index.open(tmp_path)


def test_a_missing_or_short_node_file(tmp_path: Path) -> None:
    write_database(tmp_path, [Value(b"a", b"1", False)], workers=1)
    (node,) = (tmp_path / "d").iterdir()
    whole = node.read_bytes()
    node.write_bytes(whole[:-1])
    with pytest.raises(Corrupt, match="ends at"):
        Index.open(tmp_path).get(b"a")
    node.unlink()
    with pytest.raises(Corrupt, match="missing"):
        Index.open(tmp_path).get(b"a")


def test_nodes_are_forgotten_when_they_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_NODE_BYTES", 2000)
    monkeypatch.setattr(index_module, "_MOST_HELD_BYTES", 100_000)
    entries = write_database(tmp_path, [Value(b"%05d" % i, b"v", False) for i in range(3000)], workers=1)
    index = Index.open(tmp_path)
    assert list(index.items()) == entries
    assert all(index.get(key) == value for key, value in entries[::50])
    assert len(index._nodes) < 10
