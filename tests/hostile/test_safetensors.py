"""Wrong safetensors files: a typed error before a tensor is touched, and the official verdict."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hostile.safetensors_files import ACCEPTED, REFUSED, STRICTER, entry, file

import safetensors
import storax
from storax.safetensors import header


def is_accepted(data: bytes) -> bool:
    """The verdict of storax, which may only be a header or a ``Corrupt``."""
    try:
        length = header.header_bytes(data[:8], len(data), "x.safetensors")
        header.parse(data[8 : 8 + length], len(data), "x.safetensors")
    except storax.Corrupt:
        return False
    return True


def is_officially_accepted(data: bytes) -> bool:
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return False
    return True


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_is_refused_before_a_tensor_is_touched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(REFUSED[name])

    def touched(*_: Any) -> None:
        raise AssertionError("a tensor was read")

    monkeypatch.setattr("storax.safetensors.reading.TensorSource.reads", touched)
    for read in (storax.load, storax.metadata, storax.open):
        with pytest.raises(storax.Corrupt, match=r"model\.safetensors"):
            read(path)
    assert not is_officially_accepted(REFUSED[name])


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_odd_but_right_file_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(ACCEPTED[name])
    official = {tensor: found["shape"] for tensor, found in safetensors.deserialize(ACCEPTED[name])}
    leaves = storax.metadata(path).item_metadata
    assert {tensor: list(leaf.shape) for tensor, leaf in leaves.items()} == official


@pytest.mark.parametrize("name", STRICTER)
def test_storax_is_stricter_in_three_ways_and_only_these(name: str) -> None:
    assert not is_accepted(STRICTER[name])
    assert is_officially_accepted(STRICTER[name])


def test_all_that_is_wrong_is_in_one_message(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file({"a": entry("X9"), "b": entry(shape=[-1]), "c": 3, "d": entry()}, b"x"))
    with pytest.raises(storax.Corrupt) as caught:
        storax.load(path)
    assert all(
        text in str(caught.value) for text in ("'a' has the dtype 'X9'", "'b' has the shape", "'c' is 3")
    )
    assert "'d'" not in str(caught.value)
    assert "F8_E4M3" in str(caught.value), "what is legal is listed"


def test_a_file_at_the_cap_is_read_and_one_byte_more_is_not() -> None:
    for more, accepted in ((0, True), (1, False)):
        text = b"{}" + b" " * (header.MOST_HEADER_BYTES - 2 + more)
        assert is_accepted(file(text)) is accepted


# --- fuzzing -------------------------------------------------------------------------------------


def _sound() -> bytes:
    tensors = [
        ("w", "F32", (2, 3)),
        ("b", "BF16", (4,)),
        ("é", "F4", (2, 2)),
        ("z", "I64", (0, 7)),
        ("s", "BOOL", ()),
    ]
    found = header.plan(tensors, {"format": "pt"})
    return header.encode(found) + bytes(found.file_bytes - found.data_start)


def _is_stricter_here(data: bytes) -> bool:
    """Whether a name comes twice, the one way to be stricter that chance finds."""
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(name for name in dict(found) if [n for n, _ in found].count(name) > 1)
        return dict(found)

    json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")], object_pairs_hook=pairs)
    return bool(twice)


def _assert_same_verdict(data: bytes) -> None:
    ours, official = is_accepted(data), is_officially_accepted(data)
    assert ours == official or (official and _is_stricter_here(data)), data


def test_bytes_changed_at_random_get_the_official_verdict() -> None:
    chance = random.Random(6)
    sound = _sound()
    alphabet = b'{}[]:,"0123456789-+.eEFU\\ud8 tnulf\xff\x00'
    accepted = 0
    for _ in range(20_000):
        data = bytearray(sound)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[at] = chance.choice(alphabet)
                case 1:
                    del data[at : at + chance.randrange(1, 4)]
                case 2:
                    data.insert(at, chance.choice(alphabet))
                    data[0] = (data[0] + 1) % 256
                case _:
                    data[at] ^= 1 << chance.randrange(8)
        _assert_same_verdict(bytes(data))
        accepted += is_accepted(bytes(data))
    assert 500 < accepted < 19_500, "the changes are neither harmless nor hopeless"


_LENGTHS = st.one_of(
    st.integers(0, 4),
    st.sampled_from([-1, 1.0, True, None, 1 << 31, 1 << 32, 1 << 61, (1 << 64) - 1, 1 << 64]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from([*header.BITS, "X", 1]),
                "shape": st.lists(_LENGTHS, max_size=3),
                "data_offsets": st.lists(_LENGTHS, min_size=1, max_size=3),
            }
        ),
        max_size=3,
    ),
    st.integers(0, 9),
)
def test_headers_of_any_kind_get_the_official_verdict(tensors: dict[str, Any], nbytes: int) -> None:
    _assert_same_verdict(file(tensors, bytes(nbytes)))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*header.BITS]), st.lists(st.integers(0, 3), max_size=3)), max_size=5),
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.text(st.characters(codec="utf-8"), max_size=5),
        max_size=2,
    ),
)
def test_what_is_planned_is_parsed_and_official(
    tensors: list[tuple[str, list[int]]], metadata: dict[str, str]
) -> None:
    named = [(f"t{i}", dtype, (*shape, 4)) for i, (dtype, shape) in enumerate(tensors)]
    planned = header.plan(named, metadata)
    data = header.encode(planned) + bytes(planned.file_bytes - planned.data_start)
    assert header.parse(data[8 : planned.data_start], len(data), "x") == header.Header(
        tuple(sorted(planned.tensors, key=lambda t: (t.start, t.stop))), planned.metadata, planned.data_start
    )
    assert is_officially_accepted(data)


# --- indexes -------------------------------------------------------------------------------------


def _model(directory: Path, index: Any) -> Path:
    (directory / "one.safetensors").write_bytes(file({"a": entry()}, b"x"))
    (directory / "two.safetensors").write_bytes(file({"b": entry()}, b"y"))
    text = index if isinstance(index, str) else json.dumps(index)
    (directory / "model.safetensors.index.json").write_text(text)
    return directory


WRONG_INDEXES: dict[str, tuple[Any, str]] = {
    "outside": ({"weight_map": {"a": "../one.safetensors"}}, "outside of its directory"),
    "outside, in the middle": ({"weight_map": {"a": "x/../../one.safetensors"}}, "outside of its directory"),
    "absolute": ({"weight_map": {"a": "/etc/passwd"}}, "outside of its directory"),
    "of another system": ({"weight_map": {"a": "..\\one.safetensors"}}, "outside of its directory"),
    "a zero in it": ({"weight_map": {"a": "one.safetensors\0"}}, "outside of its directory"),
    "empty": ({"weight_map": {"a": ""}}, "outside of its directory"),
    "a number": ({"weight_map": {"a": 1}}, "outside of its directory"),
    "a file that is not there": ({"weight_map": {"a": "three.safetensors"}}, "not there: three"),
    "a tensor that is not there": (
        {"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}},
        "'c' in two",
    ),
    "a tensor in the other file": ({"weight_map": {"a": "two.safetensors"}}, "'a' in two"),
    "no map": ({"metadata": {}}, "weight_map"),
    "a map that is a list": ({"weight_map": []}, "weight_map"),
    "a list": ([], "not an index"),
    "no JSON": ("{", "not an index"),
    "a name twice": ('{"weight_map":{"a":"one.safetensors","a":"two.safetensors"}}', "come twice"),
    "nested too deeply": ("[" * 100_000, "not an index"),
}


@pytest.mark.parametrize("name", WRONG_INDEXES)
@pytest.mark.parametrize("read", [storax.load, storax.metadata, storax.open])
def test_a_wrong_index_is_refused(name: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    index, message = WRONG_INDEXES[name]
    directory = _model(tmp_path, index)
    for path in (directory, directory / "model.safetensors.index.json"):
        with pytest.raises(storax.Corrupt, match=message):
            read(path)


def test_a_link_to_a_file_elsewhere_is_followed_as_caches_need_it(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    model = tmp_path / "snapshot"
    model.mkdir()
    (blobs / "4f2a").write_bytes(file({"a": entry()}, b"x"))
    (model / "model.safetensors").symlink_to(blobs / "4f2a")
    assert storax.load(model)["a"].shape == (1,)


def test_a_shard_that_is_cut_off_is_named(tmp_path: Path) -> None:
    directory = _model(tmp_path, {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})
    (directory / "two.safetensors").write_bytes(file({"b": entry("F32", [4], 0, 16)}, b"x" * 15))
    with pytest.raises(storax.Corrupt, match=r"two\.safetensors has .* It was cut off"):
        storax.load(directory)


def test_a_tensor_in_two_files_needs_an_index(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.safetensors").write_bytes(file({"a": entry()}, name[:1].encode()))
    with pytest.raises(storax.Corrupt, match=r"'a' in one\.safetensors and two\.safetensors"):
        storax.load(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map":{"a":"two.safetensors"}}')
    assert storax.load(tmp_path)["a"].tolist() == [ord("t")]
