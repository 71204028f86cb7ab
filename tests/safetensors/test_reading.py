"""Files to arrays: which kinds of path, which targets, which bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices import on_mesh, sharding
from tests.safetensors import official
from tests.same import assert_same

import storax
from storax.arrays.lazy import read_box
from storax.plan.boxes import Box
from storax.safetensors import files
from storax.safetensors.reading import TensorSource
from storax.store.budget import Budget
from storax.store.reading import planned, read_all

RNG = np.random.default_rng(1)


def wanted(shape: tuple[int, ...], dtype: Any, *spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding(*spec))


@pytest.fixture
def model() -> dict[str, np.ndarray]:
    return {
        "a.w": RNG.normal(size=(64, 48)).astype(np.float32),
        "a.b": np.arange(5, dtype=np.int32),
        "layers.0.w": RNG.normal(size=(8, 16, 6)).astype(ml_dtypes.bfloat16),
        "layers.1.w": RNG.normal(size=(8, 16, 6)).astype(ml_dtypes.bfloat16),
        "scale": np.array(2.5, np.float32),
        "none": np.zeros((0, 4), np.float16),
    }


def test_a_file_a_directory_and_an_index_are_the_same(model: dict[str, np.ndarray], tmp_path: Path) -> None:
    names = list(model)
    parts = [{n: model[n] for n in names[:2]}, {n: model[n] for n in names[2:]}]
    directory = official.write_shards(tmp_path / "hf", parts)
    (directory / "config.json").write_text("{}")
    single = official.write(tmp_path / "x.safetensors", model)
    other = official.write(tmp_path / "weights.bin", model)
    bare = tmp_path / "bare"
    bare.mkdir()
    official.write(bare / "x.safetensors", model)
    for path in (directory, directory / "model.safetensors.index.json", single, other, bare):
        assert_same(storax.load(path), {name: jax.device_put(model[name]) for name in sorted(model)})
        assert list(storax.metadata(path).item_metadata) == sorted(model)
    assert storax.metadata(directory).custom_metadata == {"format": "pt"}
    assert storax.metadata(single).nbytes == sum(v.nbytes for v in model.values())


def test_what_is_neither_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello, this is no checkpoint")
    for path in (tmp_path / "notes.txt", tmp_path / "absent.safetensors", tmp_path / "absent"):
        for read in (storax.load, storax.metadata, storax.open):
            with pytest.raises(storax.CheckpointNotFound):
                read(path)


def test_a_target_may_be_nested_flat_or_partial_and_casts(
    model: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = official.write(tmp_path / "x.safetensors", model)
    nested = {
        "a": {"w": wanted((64, 48), "bfloat16", "data", "model"), "b": ...},
        "layers": [{"w": wanted((8, 16, 6), "float32", "data")}, ...],
        "scale": 0.0,
        "none": np.zeros((0, 4), np.float16),
    }
    found = storax.load(path, nested)
    assert np.asarray(found["a"]["w"]).tobytes() == model["a.w"].astype(ml_dtypes.bfloat16).tobytes()
    assert found["a"]["w"].sharding == sharding("data", "model")
    assert np.asarray(found["layers"][0]["w"]).tobytes() == model["layers.0.w"].astype(np.float32).tobytes()
    assert found["a"]["b"] is ...
    assert found["layers"][1] is ...
    assert found["scale"] == 2.5
    assert type(found["scale"]) is float
    assert isinstance(found["none"], np.ndarray)
    partial = storax.load(path, {"layers.1.w": wanted((8, 16, 6), "bfloat16", None, "model")}, partial=True)
    assert np.asarray(partial["layers.1.w"]).tobytes() == model["layers.1.w"].tobytes()


def test_all_differences_are_told_before_a_byte_is_read(model: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = official.write(tmp_path / "x.safetensors", model)
    target = {
        "a": {"w": jax.ShapeDtypeStruct((64, 47), "float32"), "b": jax.ShapeDtypeStruct((5,), "int8")},
        "new": 0,
    }
    with pytest.raises(storax.TreeMismatch) as caught:
        storax.load(path, target)
    assert set(caught.value.only_saved) == {"layers.0.w", "layers.1.w", "scale", "none"}
    assert caught.value.only_wanted == ("new",)
    assert [name for name, _ in caught.value.differ] == ["a.b", "a.w"]


SPECS: list[tuple[Any, ...]] = [
    (), ("data",), ("model",), (None, "data"), (None, "model"), ("data", "model"), ("model", "data"),
    (("data", "model"),), (("model", "data"),), (None, ("model", "data")), (None, ("data", "model")),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_sharding_gets_its_values_and_no_byte_twice(spec: tuple[Any, ...], tmp_path: Path) -> None:
    values = RNG.integers(0, 1 << 30, (1024, 1024), np.int32)
    path = official.write(tmp_path / "x.safetensors", {"w": values})
    found, report = storax.load(path, {"w": wanted(values.shape, values.dtype, *spec)}, report=True)
    assert_same(found, {"w": on_mesh(values, *spec)}, shardings=True)
    assert report.read_bytes == report.wanted_bytes == values.nbytes


# --- one process of many -------------------------------------------------------------------------


def source(path: Path, name: str = "w", gap: int | None = None) -> TensorSource:
    collection = files.find(path)
    assert collection is not None
    placed = collection.tensors[name]
    return TensorSource(placed) if gap is None else TensorSource(placed, gap)


def read(found: TensorSource, box: Box) -> tuple[np.ndarray, Any]:
    memory = np.empty(tuple(q - p for p, q in box), found.dtype)
    segments = list(found.reads([(box, memory)]))
    report = read_all(segments, budget=Budget())
    assert report == planned(segments)
    return memory, report


def test_the_leading_dimension_is_read_exactly(tmp_path: Path) -> None:
    values = RNG.integers(0, 1 << 30, (4096, 256), np.int32)
    found = source(official.write(tmp_path / "x.safetensors", {"w": values}))
    memory, report = read(found, ((512, 1024), (0, 256)))
    assert (memory == values[512:1024]).all()
    assert (report.read_bytes, report.wanted_bytes, report.reads) == (1 << 19, 1 << 19, 1)


def test_an_inner_dimension_takes_the_cheaper_way_and_says_which(tmp_path: Path) -> None:
    values = RNG.integers(0, 1 << 30, (16, 1 << 16), np.int32)  # rows of 256 KiB
    path = official.write(tmp_path / "x.safetensors", {"w": values})
    box = ((0, 16), (0, 1 << 13))  # 32 KiB of each row, 224 KiB apart
    memory, runs = read(source(path), box)
    assert (memory == values[:, : 1 << 13]).all()
    assert (runs.read_bytes, runs.reads) == (16 << 15, 16)
    assert runs.files[str(path)].across == 0
    memory, span = read(source(path, gap=1 << 20), box)
    assert (memory == values[:, : 1 << 13]).all()
    assert span.read_bytes == (15 << 18) + (1 << 15)
    assert span.wanted_bytes == 16 << 15
    assert span.files[str(path)].across == span.reads == 1


def test_small_neighbours_are_read_together(tmp_path: Path) -> None:
    model = {f"t{i:03}": np.full(100, i, np.float32) for i in range(500)}
    path = official.write(tmp_path / "x.safetensors", model)
    found, report = storax.load(path, report=True)
    assert all((np.asarray(found[name]) == values).all() for name, values in model.items())
    assert report.reads == 1
    assert report.read_bytes == report.wanted_bytes == 500 * 400


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_boxes_of_any_tensor_are_read_right(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=3)))
    dtype = data.draw(st.sampled_from([np.int16, ml_dtypes.bfloat16, ml_dtypes.float4_e2m1fn]))
    shape = (*shape, 4)
    values = np.arange(np.prod(shape)).reshape(shape).astype(np.int16) % 16
    values = values.astype(np.uint8).view(dtype) if dtype is ml_dtypes.float4_e2m1fn else values.astype(dtype)
    path = official.write(
        tmp_path_factory.mktemp("any") / "x.safetensors", {"w": values, "before": np.zeros(3)}
    )
    found = source(path, gap=data.draw(st.sampled_from([0, 1, 3, 1 << 20])))
    asked = []
    for _ in range(data.draw(st.integers(1, 3))):
        box = tuple(
            tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in shape
        )
        asked.append((box, np.empty(tuple(q - p for p, q in box), values.dtype)))
    read_all(list(found.reads(asked)), budget=Budget())
    for box, memory in asked:
        assert memory.tobytes() == values[tuple(slice(p, q) for p, q in box)].tobytes()


def test_large_boxes_go_straight_into_their_memory(tmp_path: Path) -> None:
    values = RNG.integers(0, 1 << 30, (9 << 20,), np.int32)  # 36 MiB
    found = source(official.write(tmp_path / "x.safetensors", {"w": values}))
    segments = list(found.reads([(((0, 9 << 20),), np.empty(9 << 20, np.int32))]))
    assert [segment.length for segment in segments] == [16 << 20, 16 << 20, 4 << 20]
    assert all(segment.into for segment in segments), "no other memory is needed"
    assert (read_box(found, ((0, 9 << 20),)) == values).all()


# --- lazily ---------------------------------------------------------------------------------------


INDICES = [
    5, -1, slice(2, 7), slice(None), slice(None, None, -1), slice(7, 2, -2), slice(50, 60), ..., (), (3, 2),
    (slice(1, 3), ..., 1), (..., slice(None, None, 3)), (0, 0, 0), (np.int64(3), slice(0, 0)),
    (slice(1, 2), slice(3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_gives_what_numpy_gives(index: Any, tmp_path: Path) -> None:
    values = RNG.normal(size=(9, 8, 7)).astype(ml_dtypes.bfloat16)
    storax.save(tmp_path / "checkpoint", {"w": values})
    official.write(tmp_path / "x.safetensors", {"w": values})
    for path in (tmp_path / "checkpoint", tmp_path / "x.safetensors"):
        with storax.open(path) as opened:
            found = opened["w"][index]
            assert isinstance(found, (np.ndarray, np.generic))
            assert found.dtype == values.dtype
            assert found.shape == values[index].shape
            assert found.tobytes() == values[index].tobytes()


def test_an_opened_checkpoint_is_a_mapping_that_reads_when_asked(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(3, 4)
    storax.save(tmp_path / "a", {"w": values, "note": "hi", "nothing": None, "empty": [], "step": 7})
    with storax.open(tmp_path / "a") as opened:
        assert sorted(opened) == ["empty", "note", "nothing", "step", "w"]
        assert (opened["note"], opened["nothing"], opened["empty"], opened["step"][()]) == ("hi", None, [], 7)
        lazy = opened["w"]
        assert (lazy.shape, lazy.ndim, lazy.size, lazy.nbytes, len(lazy)) == ((3, 4), 2, 12, 96, 3)
        assert np.asarray(lazy).tolist() == values.tolist()
        assert np.asarray(lazy, np.float32).dtype == np.float32
        with pytest.raises(storax.BadOption, match=r"np\.asarray\(lazy\)"):
            lazy[[0, 1]]
        with pytest.raises(IndexError, match="out of range"):
            lazy[3]
        with pytest.raises(KeyError, match="no leaf 'x'"):
            opened["x"]
    with pytest.raises(ValueError, match="is closed"):
        lazy[0]


def test_items_come_first_in_the_names(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path) as manager:
        args = storax.args.Composite(
            params=storax.args.StandardSave({"w": np.ones(3)}), config=storax.args.JsonSave({"lr": 1})
        )
        manager.save(1, args=args)
        manager.wait_until_finished()
    with storax.open(tmp_path / "1") as opened:
        assert opened["params.w"][1:].tolist() == [1, 1]
        assert opened["config"] == {"lr": 1}


def test_a_file_that_is_replaced_while_open_is_noticed(tmp_path: Path) -> None:
    path = official.write(tmp_path / "x.safetensors", {"w": np.zeros(3)})
    with storax.open(path) as opened:
        lazy = opened["w"]
        storax.save_safetensors(path, {"w": np.ones(3)}, overwrite=True)
        with pytest.raises(storax.CheckpointChanged, match="replaced"):
            lazy[0]


def test_a_file_cut_off_after_it_was_opened_is_corrupt(tmp_path: Path) -> None:
    path = official.write(tmp_path / "x.safetensors", {"w": np.arange(1000)})
    with storax.open(path) as opened:
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 1)
        with pytest.raises(storax.Corrupt, match="ends early"):
            opened["w"][-1]


# --- by rule --------------------------------------------------------------------------------------


def test_a_rule_places_a_checkpoint_too(tmp_path: Path) -> None:
    values = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    storax.save(tmp_path / "a", {"w": jax.device_put(values), "n": values, "step": 3})
    given: dict[str, tuple[int, ...]] = {}

    def rule(name: str, shape: tuple[int, ...]) -> Any:
        given[name] = shape
        return sharding("data") if name == "w" else None

    found = storax.load(tmp_path / "a", sharding=rule)
    assert given == {"w": (8, 8), "n": (8, 8)}
    assert found["w"].sharding == sharding("data")
    assert isinstance(found["n"], np.ndarray)
    assert found["step"] == 3
    assert_same(found["w"], on_mesh(values, "data"))


def test_a_rule_that_cannot_be_followed_says_all(tmp_path: Path) -> None:
    path = official.write(tmp_path / "x.safetensors", {"a": np.zeros(7), "b": np.zeros(8)})
    with pytest.raises(storax.BadOption, match=r"a: .*, and no mesh is set\n  b: .*\n.*set_mesh"):
        storax.load(path, sharding=lambda name, shape: jax.P("data"))
    with pytest.raises(storax.BadOption, match="a: a str"):
        storax.load(path, sharding=lambda name, shape: "data")
    with pytest.raises(storax.TreeMismatch, match=r"a: .*evenly divide"):
        storax.load(path, sharding=lambda name, shape: sharding("data"))
    with pytest.raises(storax.BadOption, match="without a target"):
        storax.load(path, {"a": 0}, sharding=lambda name, shape: None)
