"""Wrong bytes are ``Corrupt``, whatever they are: no other error, no hang, no huge allocation."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ocdbt import judge

from storax.errors import Corrupt
from storax.ocdbt import writer
from storax.ocdbt.files import DataFile
from storax.ocdbt.index import Index
from storax.ocdbt.manifest import Version, decode_manifest, encode_manifest, new_config
from storax.ocdbt.nodes import (
    Indirect,
    Inline,
    Interior,
    NodeReference,
    Statistics,
    decode_node,
    encode_interior,
    encode_leaf,
)
from storax.ocdbt.wire import BTREE_NODE, MANIFEST, CompressedNode, checksum, frame, varint, varints

Decode = Callable[[bytes], object]


def as_node(data: bytes) -> object:
    return decode_node(data, "part/", "d/x", 7)


def as_manifest(data: bytes) -> object:
    return decode_manifest(data, "m")


def reference(offset: int, length: int, name: str = "d/x") -> NodeReference:
    return NodeReference(DataFile("", name), offset, length, Statistics(3, 200, 5))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, Decode]]:
    """Valid structures, ours and TensorStore's."""
    source = random.Random(3)
    entries = [
        (b"layer.%d/c/%d" % (i // 10, i % 10), Inline(source.randbytes(i)) if i % 3 else place(i))
        for i in range(20, 60)
    ]
    children = [reference(i * 1000, 900 + i, "d/x" if i % 2 else "p/d/y") for i in range(12)]
    interior = Interior(2, [b"key%02d" % i for i in range(12)], [3] * 12, children)
    found: list[tuple[bytes, Decode]] = [
        (encode_leaf(entries), as_node),
        (encode_leaf([(b"", Inline(b""))]), as_node),
        (encode_interior(interior), as_node),
        (encode_manifest(new_config(), Version(1, 2, reference(5, 900), 1)), as_manifest),
        (encode_manifest(new_config(), Version(1, 0, None, 1)), as_manifest),
    ]
    directory = tmp_path_factory.mktemp("theirs") / "db"
    for commit in range(18):
        values = {b"k%d" % i: b"v" * (i * 9) for i in range(commit, commit + 20)}
        judge.write_theirs(directory, values, max_decoded_node_bytes=300)
    found.append(((directory / "manifest.ocdbt").read_bytes(), as_manifest))
    root = Index.open(directory).version.root
    assert root is not None
    stored = judge.fetch(directory, Indirect(root.file.path, root.offset, root.length))
    found.append((stored, as_node))
    return found


def place(i: int) -> Indirect:
    return Indirect("d/abc" if i % 2 else "ocdbt.process_0/d/abd", i * 100, i << 20)


def resealed(data: bytes) -> bytes:
    """With the length and the checksum that fit, so that what is inside gets looked at."""
    if len(data) < 18:
        return data
    head = data[:4] + len(data).to_bytes(8, "little") + data[12:-4]
    return head + checksum(head)


NASTY = [
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 12,
    b"\x80\x80\x04",
    b"\xff\xff\x03",
    b"\0",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
]


def mutated(data: bytes, source: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(source.choice([1, 1, 1, 2, 5])):
        kind = source.randrange(6)
        # Most fields are near the front; the header's own are checked elsewhere.
        at = source.randrange(12, max(13, len(out))) if source.random() < 0.5 else source.randrange(12, 120)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = source.randrange(256)
        elif kind == 2:
            out[at : at + source.randrange(4)] = source.choice(NASTY)
        elif kind == 3:
            del out[at : at + source.randrange(1, 30)]
        elif kind == 4:
            out[at:at] = source.randbytes(source.randrange(1, 30))
        else:
            del out[source.randrange(len(out) + 1) :]
    return resealed(bytes(out))


def attack(samples: list[tuple[bytes, Decode]], cases: int, seed: int) -> int:
    """Decodes so many mutated structures; returns how many were refused."""
    source = random.Random(seed)
    refused = nowhere = 0
    for case in range(cases):
        data, decode = samples[case % len(samples)]
        bad = source.randbytes(source.randrange(400)) if case % 50 == 49 else mutated(data, source)
        if case % 50 == 48:
            bad = resealed(data[:14] + source.randbytes(source.randrange(400)))
        start = time.perf_counter()
        try:
            decode(bad)
        except (Corrupt, CompressedNode) as error:
            refused += 1
            nowhere += "byte" not in str(error)
        assert time.perf_counter() - start < 2
    assert nowhere == 0
    return refused


def test_mutations(samples: list[tuple[bytes, Decode]]) -> None:
    assert attack(samples, 5_000, 1) > 3_000


@pytest.mark.slow
def test_very_many_mutations(samples: list[tuple[bytes, Decode]]) -> None:
    assert attack(samples, 100_000, 2) > 60_000


def test_every_flipped_bit_and_every_cut_is_found(samples: list[tuple[bytes, Decode]]) -> None:
    for data, decode in samples:
        for bit in range(0, len(data) * 8, max(1, len(data) // 100)):
            bad = bytearray(data)
            bad[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Corrupt):
                decode(bytes(bad))
        for end in range(0, len(data), max(1, len(data) // 200)):
            with pytest.raises(Corrupt):
                decode(data[:end])
        with pytest.raises(Corrupt):
            decode(data + b"\0")


HUGE = varint((1 << 64) - 1)
NO_FILES = varint(0)


def leaf(count: int, *columns: bytes, files: bytes = NO_FILES) -> bytes:
    return frame(BTREE_NODE, [b"\0", files, varint(count), *columns])


BOMBS: dict[str, bytes] = {
    "files": frame(BTREE_NODE, [b"\0", HUGE, b"\0" * 100]),
    "entries": frame(BTREE_NODE, [b"\0", NO_FILES, HUGE, b"\0" * 100]),
    "entries of 32 bits": leaf(0xFFFFFFFF, b"\0" * 100),
    "entries beyond the limit": leaf((1 << 20) + 1, b"\0" * (3 << 20)),
    "no entries": leaf(0),
    "long key": leaf(1, varint(65536), b"k" * 65536, b"\0\0"),
    "long key by a prefix": leaf(2, varint(65535), varints([65535, 1]), b"k" * 65536, b"\0\0\0\0"),
    "prefix of nothing": leaf(2, varint(5), varints([1, 1]), b"ab", b"\0\0\0\0"),
    "not ascending": leaf(2, varint(0), varints([1, 1]), b"ba", b"\0\0\0\0"),
    "equal keys": leaf(2, varint(1), varints([1, 0]), b"a", b"\0\0\0\0"),
    "keys that share much": leaf(
        60_000,
        varints([60_000 + i // 200 for i in range(59_999)]),
        varints([60_000] + [1] * 59_999),
        b"k" * 60_000 + b"k" * 59_999,
        b"\0" * 120_000,
    ),
    "inline value": leaf(1, varint(1), b"k", HUGE, b"\0"),
    "inline value of 2 MiB": leaf(1, varint(1), b"k", varint(2 << 20), b"\0", bytes(2 << 20)),
    "kind": leaf(1, varint(1), b"k", varint(1), b"\2", b"x"),
    "file number": leaf(1, varint(1), b"k", varint(1), b"\1", varint(0), varint(0)),
    "height without children": frame(BTREE_NODE, [b"\xff", NO_FILES, varint(1)]),
}


def table(*paths: tuple[bytes, int]) -> bytes:
    """A table that shares nothing, of paths and the lengths of their bases."""
    return b"".join(
        [
            varint(len(paths)),
            varints([0] * (len(paths) - 1)),
            varints([len(p) for p, _ in paths]),
            varints([b for _, b in paths]),
            *[p for p, _ in paths],
        ]
    )


def one_file(path: bytes, base: int = 0) -> bytes:
    return leaf(1, varint(1), b"k", varint(1), b"\1", b"\0\0", files=table((path, base)))


BOMBS |= {
    "path out of the database": one_file(b"../d/x"),
    "path out by the base": one_file(b"d/../../x", 2),
    "absolute path": one_file(b"/etc/passwd"),
    "path with a NUL": one_file(b"d/\0"),
    "path that is not UTF-8": one_file(b"d/\xff"),
    "path without a name": one_file(b""),
    "base longer than its path": one_file(b"d/x", 4),
    "paths that share much": leaf(
        1,
        b"\0" * 10,
        files=varint(2000)
        + varints([65_000] * 1999)
        + varints([65_000] + [1] * 1999)
        + varints([0] * 2000)
        + b"p" * 67_000,
    ),
    "offset and length": leaf(
        1, varint(1), b"k", HUGE, b"\1", varint(0), varint(1), files=table((b"d/x", 0))
    ),
}

MANIFEST_BOMBS = {
    "kind": frame(MANIFEST, [b"u" * 16, b"\7\0\0\4\0"]),
    "arity": frame(MANIFEST, [b"u" * 16, b"\0\0\0\x11\0"]),
    "no arity": frame(MANIFEST, [b"u" * 16, b"\0\0\0\0\0"]),
    "compression": frame(MANIFEST, [b"u" * 16, b"\0\0\0\4\2"]),
    "versions": frame(MANIFEST, [b"u" * 16, b"\0\0\0\4\0", NO_FILES, HUGE, b"\0" * 99]),
    "no version": frame(MANIFEST, [b"u" * 16, b"\0\0\0\4\0", NO_FILES, b"\0\0"]),
    "numbered with versions": frame(MANIFEST, [b"u" * 16, b"\1\0\0\4\0", NO_FILES]),
    "no file": frame(MANIFEST, [b"u" * 16, b"\0\0\0\4\0", NO_FILES, b"\1\1\0\0\0\1\0\0\0", b"t" * 8, b"\0"]),
}


@pytest.mark.parametrize(
    ("data", "decode"),
    [pytest.param(data, as_node, id=name) for name, data in BOMBS.items()]
    + [pytest.param(data, as_manifest, id=f"manifest: {name}") for name, data in MANIFEST_BOMBS.items()],
)
def test_made_to_hurt(data: bytes, decode: Decode) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match=r"^(d/x|m), byte \d+: "):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < (16 << 20) + 60 * len(data)
    finally:
        tracemalloc.stop()


def test_compressed_is_said_not_guessed() -> None:
    head = BTREE_NODE.to_bytes(4, "big") + (30).to_bytes(8, "little") + b"\0\1" + b"z" * 12
    with pytest.raises(CompressedNode):
        as_node(head + checksum(head))
    with pytest.raises(Corrupt, match="checksum"):
        as_node(head + b"\0\0\0\0")


def write_tree(directory: Path, encoded: list[bytes], height: int, root: int) -> Index:
    """A database of these nodes; each refers to others by ``at``."""
    (directory / "d").mkdir()
    (directory / "d" / "x").write_bytes(b"".join(encoded))
    offset = sum(map(len, encoded[:root]))
    version = Version(1, height, reference(offset, len(encoded[root])), 1)
    (directory / "manifest.ocdbt").write_bytes(encode_manifest(new_config(), version))
    return Index.open(directory)


def test_a_tree_with_more_keys_than_atoms(tmp_path: Path) -> None:
    nodes = [encode_leaf([(b"a", Inline(b"")), (b"b", Inline(b""))])]
    for height in range(1, 256):
        below = reference(sum(map(len, nodes[:-1])), len(nodes[-1]))
        nodes.append(encode_interior(Interior(height, [b"a", b"b"], [1, 1], [below, below])))
    index = write_tree(tmp_path, nodes, 255, 255)
    with pytest.raises(Corrupt, match="too often"):
        for _ in index.items():
            pass
    assert index.get(b"a" * 256) == Inline(b"")
    assert index.get(b"b" * 255) is None


@pytest.mark.parametrize("what", ["height", "low", "high", "itself", "outside", "empty"])
def test_nodes_that_do_not_fit_their_parent(tmp_path: Path, what: str) -> None:
    child = encode_leaf([(b"b", Inline(b"")), (b"d", Inline(b""))])
    first, height = reference(0, len(child)), 1
    keys = [b"b", b"e"]
    if what == "height":
        height = 2
    elif what == "low":
        keys = [b"c", b"e"]
    elif what == "high":
        keys = [b"b", b"d"]
    elif what == "itself":
        first = reference(len(child), 10_000)
    elif what == "outside":
        first = reference(1 << 63, len(child))
    elif what == "empty":
        first = reference(0, 0)
    top = encode_interior(Interior(height, keys, [0, 0], [first, first]))
    index = write_tree(tmp_path, [child, top], height, 1)
    with pytest.raises(Corrupt):
        list(index.items())
    with pytest.raises(Corrupt):
        index.get(keys[0])


def test_mutated_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any byte of a database on disk: what is read is right, or Corrupt."""
    monkeypatch.setattr(writer, "_NODE_BYTES", 500)
    entries = writer.write_database(
        tmp_path, [writer.Value(b"k%03d" % i, b"v" * (i % 90), True) for i in range(100)], workers=1
    )
    (nodes,) = (tmp_path / "d").iterdir()
    source = random.Random(5)
    for path in (nodes, tmp_path / "manifest.ocdbt"):
        whole = path.read_bytes()
        for _ in range(200):
            bad = bytearray(whole)
            bad[source.randrange(len(bad))] ^= 1 << source.randrange(8)
            path.write_bytes(bad if source.random() < 0.8 else whole[: source.randrange(len(whole))])
            with pytest.raises(Corrupt):
                list(Index.open(tmp_path).items())
            try:
                key, value = entries[source.randrange(len(entries))]
                assert Index.open(tmp_path).get(key) == value
            except Corrupt:
                pass
        path.write_bytes(whole)
    assert list(Index.open(tmp_path).items()) == entries
