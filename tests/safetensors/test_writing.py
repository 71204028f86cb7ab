"""Trees to files: the official bytes, whole or not at all, in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices import on_mesh
from tests.safetensors import official
from tests.safetensors.families import FAMILIES, tensors

import storax
from storax.safetensors import header
from storax.safetensors.layout import deal, lay_out, owned_runs
from storax.safetensors.saving import owned_parts
from storax.safetensors.writing import Outgoing, write_tensors
from storax.store import posix
from storax.store.budget import Budget

RNG = np.random.default_rng(2)


def tree() -> dict[str, Any]:
    return {
        "embed": {"weight": RNG.normal(size=(64, 48)).astype(np.float32)},
        "layers": [
            {"w": RNG.normal(size=(8, 6)).astype(ml_dtypes.bfloat16)},
            {"w": np.arange(6, dtype=np.int8)},
        ],
        "scale": np.array(2.5, np.float16),
        "none": np.zeros((0, 4), np.uint16),
        "mask": np.array([True, False, True]),
        'odd "name"\n\u2028é😀\x7f': np.arange(3),
    }


def flat(given_tree: dict[str, Any]) -> dict[str, np.ndarray]:
    found = {name: value for name, value in given_tree.items() if isinstance(value, np.ndarray)}
    found["embed.weight"] = given_tree["embed"]["weight"]
    found |= {f"layers.{i}.w": layer["w"] for i, layer in enumerate(given_tree["layers"])}
    return found


def test_the_bytes_are_the_official_ones(tmp_path: Path) -> None:
    path, values = tmp_path / "x.safetensors", tree()
    storax.save_safetensors(path, values, metadata={"format": "pt"})
    assert path.read_bytes() == official.encode(flat(values), {"format": "pt"})
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_is_written_as_the_official_library_writes_it(family: str, tmp_path: Path) -> None:
    model = tensors(family)
    storax.save_safetensors(tmp_path / "x.safetensors", model)
    assert (tmp_path / "x.safetensors").read_bytes() == official.encode(model)


SPECS: list[tuple[Any, ...]] = [
    (), ("data",), (None, "model"), ("data", "model"), (("model", "data"),), (None, ("data", "model")),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_sharded_arrays_are_written_from_where_they_are(spec: tuple[Any, ...], tmp_path: Path) -> None:
    values = {"w": RNG.integers(0, 1 << 30, (512, 1024), np.int32), "b": np.arange(64.0).reshape(8, 8)}
    path = tmp_path / "x.safetensors"
    storax.save_safetensors(path, {name: on_mesh(value, *spec) for name, value in values.items()})
    assert path.read_bytes() == official.encode(values)


def test_arrays_that_are_not_one_run_of_memory_are_written_right(tmp_path: Path) -> None:
    values = RNG.integers(0, 1 << 30, (40, 30), np.int32)
    odd = {
        "fortran": np.asfortranarray(values),
        "every other": np.repeat(values, 2, axis=1)[:, ::2],
        "backwards": values[::-1, ::-1][::-1, ::-1],
        "big-endian": values.astype(">i4"),
        "broadcast": np.broadcast_to(values[0], (3, 30)),
        "transposed": values.T,
    }
    storax.save_safetensors(tmp_path / "x.safetensors", odd)
    plain = {name: np.ascontiguousarray(value).astype("<i4") for name, value in odd.items()}
    assert (tmp_path / "x.safetensors").read_bytes() == official.encode(plain)


def test_numbers_become_tensors_without_dimensions(tmp_path: Path) -> None:
    storax.save_safetensors(tmp_path / "x.safetensors", {"i": 7, "f": 0.5, "b": True, "g": np.float32(3)})
    found = storax.load(tmp_path / "x.safetensors", {"i": 0, "f": 0.0, "b": False, "g": 0.0})
    assert found == {"i": 7, "f": 0.5, "b": True, "g": 3.0}


def test_shards_are_called_and_filled_as_hugging_face_does(tmp_path: Path) -> None:
    values = {f"layer.{i}": np.full((10, 10), i, np.float32) for i in range(7)} | {
        "large": np.zeros((30, 30), np.float32)
    }
    storax.save_safetensors(tmp_path / "m", values, max_shard_bytes=1000, metadata={"format": "pt"})
    names = [f"model-{i:05}-of-00005.safetensors" for i in range(1, 6)]
    assert sorted(os.listdir(tmp_path / "m")) == [*names, "model.safetensors.index.json"]
    index = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 700 * 4 + 3600}
    assert index["weight_map"]["large"] == names[0], "larger than a shard may be: alone"
    for name in names:
        inside = {tensor: value for tensor, value in values.items() if index["weight_map"][tensor] == name}
        assert (tmp_path / "m" / name).read_bytes() == official.encode(inside, {"format": "pt"})
    found = storax.load(tmp_path / "m")
    assert {name: value.tolist() for name, value in found.items()} == {
        n: v.tolist() for n, v in values.items()
    }
    storax.save_safetensors(tmp_path / "one", values)
    assert os.listdir(tmp_path / "one") == ["model.safetensors"]


# --- whole or not at all -------------------------------------------------------------------------


def test_a_taken_path_is_refused_and_replaced_when_asked(tmp_path: Path) -> None:
    for path, more in ((tmp_path / "x.safetensors", {}), (tmp_path / "m", {"max_shard_bytes": 8})):
        storax.save_safetensors(path, {"a": np.arange(2), "b": np.arange(2)}, **more)
        with pytest.raises(storax.CheckpointExists, match="overwrite=True"):
            storax.save_safetensors(path, {"c": np.arange(3)}, **more)
        assert list(storax.load(path)) == ["a", "b"]
        storax.save_safetensors(path, {"c": np.arange(3)}, overwrite=True, **more)
        assert list(storax.load(path)) == ["c"]
    assert sorted(os.listdir(tmp_path)) == ["m", "x.safetensors"]


def test_nothing_but_safetensors_is_ever_replaced(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    storax.save_safetensors(tmp_path / "m", {"a": np.arange(2)})  # an empty directory may be filled
    (tmp_path / "m" / "tokenizer.json").write_text("{}")
    for path, message in (
        (tmp_path / "m", "tokenizer.json, which would be lost"),
        (tmp_path, "also holds m"),
    ):
        with pytest.raises(storax.BadOption, match=message):
            storax.save_safetensors(path, {"a": np.zeros(2)}, overwrite=True)
    (tmp_path / "d.safetensors").mkdir()
    with pytest.raises(storax.BadOption, match="is a directory"):
        storax.save_safetensors(tmp_path / "d.safetensors", {"a": np.zeros(2)}, overwrite=True)
    (tmp_path / "f").write_text("hello")
    with pytest.raises(storax.BadOption, match="is a file"):
        storax.save_safetensors(tmp_path / "f", {"a": np.zeros(2)}, overwrite=True)
    assert (tmp_path / "f").read_text() == "hello"


class _Died(BaseException):
    pass


@pytest.mark.parametrize("as_file", [True, False], ids=["a file", "a directory"])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_reader_sees_the_old_or_the_new_files_whatever_fails(
    as_file: bool, overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of the system that changes the disk fails once, and dies once, after it was done."""
    old, new = {"w": np.zeros(9)}, {"w": np.ones(9), "v": np.ones(3)}
    done = deaths = 0
    calls = ["open", "pwritev", "fsync", "rename", "replace", "link", "unlink", "mkdir"]

    def failing(call: Any, at: int, error: BaseException) -> Any:
        def act(*args: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done == at and isinstance(error, OSError):
                raise error
            result = call(*args, **more)
            if done == at:
                raise error
            return result

        return act

    for error in (OSError(28, "No space left on device"), _Died()):
        for at in range(1, 200):
            directory = tmp_path / f"{type(error).__name__}-{at}"
            directory.mkdir()
            path = directory / ("x.safetensors" if as_file else "x")
            if overwrite:
                storax.save_safetensors(path, old)
            done = 0
            with monkeypatch.context() as patch:
                for name in calls:
                    patch.setattr(f"storax.store.posix.os.{name}", failing(getattr(os, name), at, error))
                try:
                    storax.save_safetensors(path, new, overwrite=overwrite)
                    finished = done < at
                except (storax.StoraxError, OSError, _Died):
                    finished, deaths = False, deaths + 1
            if path.exists():
                found = {name: value.tolist() for name, value in storax.load(path).items()}
                allowed = [{n: v.tolist() for n, v in model.items()} for model in (old, new)]
                assert found in (allowed if overwrite else allowed[1:])
            else:
                assert not overwrite
            if finished:
                break
        else:
            pytest.fail("it never got through")
    assert deaths > 10


# --- many processes ------------------------------------------------------------------------------


def test_many_writers_that_only_know_the_shapes_make_the_official_file(tmp_path: Path) -> None:
    """Eight writers, one per device, each opening the file by itself and writing only its own boxes."""
    values = {
        "w": RNG.integers(0, 1 << 30, (64, 96), np.int32),
        "v": RNG.normal(size=(8, 16, 4)).astype(ml_dtypes.bfloat16),
        "replicated": np.arange(7),
    }
    sharded = {
        "w": on_mesh(values["w"], "data", "model"), "v": on_mesh(values["v"], "model", "data"),
        "replicated": on_mesh(values["replicated"]),
    }  # fmt: skip
    path = tmp_path / "x.safetensors"
    planned = [
        header.plan([("w", "I32", (64, 96)), ("v", "BF16", (8, 16, 4)), ("replicated", "I64", (7,))])
        for _ in range(8)
    ]
    assert len({header.encode(one) for one in planned}) == 1
    with posix.new_file(path) as file:
        file.write_at(0, [header.encode(planned[0])])
    written: list[tuple[int, int]] = [(0, planned[0].data_start)]
    for i, device in enumerate(jax.devices()):
        mine: dict[str, Outgoing] = {}
        for name, array in sharded.items():
            own = [(box, data) for box, data in owned_parts(array) if device in data.devices()]
            dtype = next(t.dtype for t in planned[i].tensors if t.name == name)
            mine[name] = Outgoing(name, dtype, array.shape, tuple(own))
        written += owned_runs(planned[i], {n: [box for box, _ in out.parts] for n, out in mine.items()})
        fd = os.open(path, os.O_WRONLY)
        try:
            write_tensors(posix.NewFile(path, fd), planned[i], mine, Budget())
        finally:
            os.close(fd)
    assert path.read_bytes() == official.encode(values)
    end = 0
    for offset, length in sorted(written):
        assert offset == end, "every byte has one owner"
        end += length
    assert end == planned[0].file_bytes


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 1000), max_size=30), st.integers(1, 9))
def test_whole_files_are_dealt_out_evenly(sizes: dict[str, int], processes: int) -> None:
    dealt = deal(sizes, processes)
    assert sorted(name for names in dealt for name in names) == sorted(sizes)
    loads = [sum(sizes[name] for name in names) for names in dealt]
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 100))
def test_shards_hold_every_tensor_once_and_no_more_than_they_may(sizes: list[int], most: int) -> None:
    planned = lay_out([(f"t{i}", "U8", (n,)) for i, n in enumerate(sizes)], most, {})
    names = [tensor.name for found in planned.values() for tensor in found.tensors]
    assert sorted(names) == sorted(f"t{i}" for i in range(len(sizes)))
    assert all(
        found.file_bytes - found.data_start <= most or sum(t.stop > t.start for t in found.tensors) == 1
        for found in planned.values()
    )


# --- memory --------------------------------------------------------------------------------------

_COPY = """
import resource, sys
from pathlib import Path
import storax

def peak():
    # Linux hands ru_maxrss on to new programs, so that of a large parent would hide everything.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak()
with storax.open(sys.argv[1]) as model:
    storax.save_safetensors(sys.argv[2], model, max_shard_bytes=300 << 20)
print(peak() - before)
"""


def _copied(tmp_path: Path, nbytes: int) -> int:
    """Extra bytes of memory that copying a model of so many bytes takes, read lazily."""
    source, copy = tmp_path / "a.safetensors", tmp_path / "b"
    count = nbytes // (64 << 20)
    planned = header.plan([(f"t{i}", "F32", (4096, 4096)) for i in range(count)])
    with posix.new_file(source) as file:
        file.write_at(0, [header.encode(planned)])
        file.write_at(planned.file_bytes - 4, [b"last"])
    # A new program: the peak of this one is that of all tests before.
    command = [sys.executable, "-c", _COPY, str(source), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    with storax.open(copy) as found:
        assert len(found) == count
        last = planned.tensors[-1].name
        assert found[last][-1, -1].tobytes() == b"last"
    extra = int(done.stdout)
    assert extra > 1 << 20, "it was measured"
    return extra


def test_a_model_read_lazily_is_written_in_little_memory(tmp_path: Path) -> None:
    assert _copied(tmp_path, 1 << 30) < 400 << 20


@pytest.mark.slow
def test_eight_gigabytes_read_lazily_take_less_than_500_mb(tmp_path: Path) -> None:
    assert _copied(tmp_path, 8 << 30) < 500 << 20


# --- what cannot be written -----------------------------------------------------------------------


def test_every_leaf_that_the_format_cannot_hold_is_named(tmp_path: Path) -> None:
    gone = jax.device_put(np.zeros(3))
    gone.delete()
    bad = {
        "text": "x", "nothing": None, "empty": [], "keys": jax.random.key(0),
        "wide": np.zeros(2, np.complex128), "objects": np.array([None]), "gone": gone, "fine": np.zeros(2),
    }  # fmt: skip
    with pytest.raises(storax.UnsupportedLeaf) as caught:
        storax.save_safetensors(tmp_path / "x.safetensors", bad)
    message = str(caught.value)
    assert message.startswith("7 of 8 leaves cannot be in a safetensors file")
    assert all(f"\n  {name}: " in message for name in bad if name != "fine")
    assert "jax.random.key_data(keys)" in message
    assert not list(tmp_path.iterdir())


def test_options_and_names_that_cannot_work_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(storax.NameCollision, match=r"a\.b"):
        storax.save_safetensors(path, {"a": {"b": np.zeros(1)}, "a.b": np.zeros(1)})
    with pytest.raises(storax.BadOption, match="is one file"):
        storax.save_safetensors(path, {"a": np.zeros(1)}, max_shard_bytes=100)
    with pytest.raises(storax.BadOption, match="must be positive"):
        storax.save_safetensors(tmp_path / "m", {"a": np.zeros(1)}, max_shard_bytes=0)
    with pytest.raises(storax.BadOption, match="the format's own"):
        storax.save_safetensors(path, {"__metadata__": np.zeros(1)})
    with pytest.raises(storax.BadOption, match="1 is a int; names and metadata are strings"):
        storax.save_safetensors(path, {"a": np.zeros(1)}, metadata={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(storax.UnsupportedLeaf, match="a bare array has no name"):
        storax.save_safetensors(path, np.zeros(1))
    assert not list(tmp_path.iterdir())


def test_progress_counts_each_byte_once(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    storax.save_safetensors(
        tmp_path / "a.safetensors", tree(), progress=lambda done, total: seen.append((done, total))
    )
    nbytes = storax.metadata(tmp_path / "a.safetensors").nbytes
    assert seen[-1] == (nbytes, nbytes)
    seen.clear()
    with storax.open(tmp_path / "a.safetensors") as opened:
        storax.save_safetensors(
            tmp_path / "b", opened, progress=lambda done, total: seen.append((done, total))
        )
    assert seen[-1] == (nbytes, nbytes)
