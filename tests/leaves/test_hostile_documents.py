"""Damaged documents of a real checkpoint: an error of storax or a value, and never another exception.

Chance damage shows in the checksums; here these are made to fit, so that every parser sees the damage.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.devices import on_mesh, plain
from tests.resealed import reseal
from tests.same import abstract, assert_same

import storax

TREE = {
    "mesh": on_mesh(np.arange(32, dtype=np.float32).reshape(8, 4), "data", "model"),
    "one": plain(np.arange(3, dtype=np.int16)),
    "keys": jax.random.split(jax.random.key(0), 3),
    "numpy": [np.arange(4.0), np.arange(3, dtype=">i4"), np.float32(2)],
    "values": (1, 0.5, True, 2j, 10**40, "text", b"bytes", None, "\ud800"),
    "empty": [{}, [], ()],
    5: {"int": 1},
}
TREE = {"tree": {key: TREE[key] for key in TREE if key != 5}, "ints": {5: TREE[5]}}
TARGET = abstract(TREE)
DOCUMENTS = ["_METADATA", "_sharding", "_CHECKPOINT_METADATA", "_strings.json", "array_metadatas/process_0"]
ODD = [
    *[None, True, False, 0, 1, -1, 2**70, 1.5, float("nan"), "", "a", "jax.Array", "np.ndarray", "string"],
    *["scalar", "None", "Dict", "int", "float32", "float64", "uint8", "int9", "\ud800", "0x", "é" * 50],
    *[[], {}, [[]], [1], {"a": 1}, [None], {"key": 0}, "bytes", "str", "bool", "complex", "np.generic"],
]
CASES = 150


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in pairs for found in [(value, key), *places(child)]]


def mutated(text: bytes, source: random.Random) -> bytes:
    if source.random() < 0.2:
        return _damaged(bytearray(text), source)
    value = json.loads(text)
    for _ in range(source.choice([1, 1, 2, 5])):
        found = places(value)
        if not found:
            break
        container, key = source.choice(found)
        match source.randrange(5):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[source.choice(["a", "", "tree.one", "YQ==", "('a',)"])] = container.pop(key)
            case 2 if isinstance(container[key], str) and container[key].startswith("{"):
                inner = json.loads(container[key])  # the shardings are JSON inside JSON
                deeper, at = source.choice(places(inner) or [([0], 0)])
                deeper[at] = source.choice(ODD)
                container[key] = json.dumps(inner)
            case 3:
                other, at = source.choice(places(value))
                container[key] = json.loads(json.dumps(other[at]))
            case _:
                container[key] = source.choice(ODD)
    return json.dumps(value).encode()


def _damaged(text: bytearray, source: random.Random) -> bytes:
    at = source.randrange(len(text))
    match source.randrange(4):
        case 0:
            return bytes(text[:at])
        case 1:
            text[at] ^= 1 << source.randrange(8)
        case 2:
            text[at:at] = source.randbytes(3)
        case _:
            del text[at : at + source.randrange(1, 9)]
    return bytes(text)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "a"
    storax.save(path, TREE)
    return path


def read(path: Path, what: Callable[[], Any], text: bytes) -> Any:
    """What a read gives, or None after an error of storax."""
    try:
        return what()
    except storax.StoraxError:
        return None
    except BaseException as error:
        error.add_note(f"{path} was {text!r}")
        raise


@contextlib.contextmanager
def restored(path: Path) -> Iterator[None]:
    """Puts all documents back afterwards."""
    texts = {
        file: file.read_bytes() for file in path.rglob("*") if file.is_file() and "ocdbt" not in str(file)
    }
    try:
        yield
    finally:
        for file, text in texts.items():
            file.write_bytes(text)
        assert_same(storax.load(path), TREE, shardings=True)


def check(path: Path, document: str, text: bytes) -> None:
    """Reads a checkpoint, one of whose documents is another one, in every way."""
    file = path / document
    read(file, lambda: storax.metadata(path), text)
    found = read(file, lambda: storax.load(path), text)
    wanted = read(file, lambda: storax.load(path, TARGET), text)
    read(file, lambda: storax.load(path, {"tree": {"one": ...}}, partial=True), text)
    if document == "_sharding" and found is not None:
        assert_same(found, TREE)  # wrong places perhaps, never wrong values
    if document not in ("_METADATA", "_strings.json") and wanted is not None:
        assert_same(wanted, TREE, shardings=True)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_forged_document(document: str, saved: Path) -> None:
    file = saved / document
    text = file.read_bytes()
    source = random.Random(document)
    with restored(saved):
        for _ in range(CASES):
            wrong = mutated(text, source)
            file.write_bytes(wrong)
            reseal(saved)
            check(saved, document, wrong)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_damaged_document_is_corrupt(document: str, saved: Path) -> None:
    file = saved / document
    text = file.read_bytes()
    source = random.Random(document)
    with restored(saved):
        for _ in range(20):
            wrong = _damaged(bytearray(text), source)
            if wrong != text:
                file.write_bytes(wrong)
                with pytest.raises(storax.Corrupt, match=re.escape(document)):
                    storax.load(saved)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_missing_document_is_corrupt(document: str, saved: Path) -> None:
    with restored(saved):
        (saved / document).unlink()
        with pytest.raises(storax.Corrupt, match=re.escape(document)):
            storax.load(saved)
        reseal(saved)
        check(saved, document, b"")
