"""Any checkpoint to any other, in bounded memory, whole or not at all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from tests.devices import on_mesh
from tests.safetensors import official
from tests.safetensors.families import shards, tensors
from tests.same import assert_same

import storax
from storax.arrays.read import DatabaseArray
from storax.checkpoint import SavedTree

RNG = np.random.default_rng(3)
FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"


def state() -> dict[str, Any]:
    return {
        "params": {
            "w": on_mesh(RNG.normal(size=(256, 64)).astype(np.float32), "data", "model"),
            "layers": ({"w": np.arange(6, dtype=np.int8)}, {"w": RNG.normal(size=(3, 5)).astype(np.float16)}),
        },
        "opt": {
            "count": 7,
            "key": jax.random.key(1),
            "note": "hi",
            "nothing": None,
            "huge": 10**30,
            "empty": [],
        },
    }


@pytest.fixture(params=[1 << 30, 3000], ids=["one batch", "many batches"])
def _batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storax.streaming.BATCH_BYTES", request.param)


@pytest.mark.usefixtures("_batches")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_checkpoint_becomes_the_same_checkpoint(compression: Any, tmp_path: Path) -> None:
    values = state()
    storax.save(tmp_path / "a", values, custom_metadata={"run": "x"})
    storax.convert(tmp_path / "a", tmp_path / "b", compression=compression, chunk_bytes=2000, verify=True)
    assert_same(storax.load(tmp_path / "b"), storax.load(tmp_path / "a"), shardings=True)
    assert storax.metadata(tmp_path / "b").custom_metadata == {"run": "x"}
    (found,) = [one for one in SavedTree.open(tmp_path / "b").leaves() if one.leaf.name == "params.w"]
    if compression is None:
        assert isinstance(found.source, DatabaseArray)
        assert found.source.array.chunk_shape == (8, 32), (
            "at most 2,000 bytes, and a part of a chunk that is read"
        )


@pytest.mark.usefixtures("_batches")
def test_safetensors_to_a_checkpoint_and_back_are_the_same_bytes(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    model = tensors("llama")
    official.write_shards(tmp_path / "hf", shards(model, 3))
    storax.convert(tmp_path / "hf", tmp_path / "checkpoint", verify=True)
    assert storax.metadata(tmp_path / "checkpoint").custom_metadata == {"format": "pt"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ocp.StandardCheckpointer().restore(tmp_path / "checkpoint")
    assert {name: np.asarray(value).tobytes() for name, value in theirs.items()} == {
        name: value.tobytes() for name, value in model.items()
    }
    storax.convert(
        tmp_path / "checkpoint", tmp_path / "x.safetensors", verify=True, metadata={"format": "pt"}
    )
    assert (tmp_path / "x.safetensors").read_bytes() == official.encode(model, {"format": "pt"})
    storax.convert(tmp_path / "checkpoint", tmp_path / "shards", to="safetensors", max_shard_bytes=40_000)
    assert len(os.listdir(tmp_path / "shards")) > 3
    assert_same(storax.load(tmp_path / "shards"), storax.load(tmp_path / "hf"))


def test_a_subtree_is_cut_out_and_its_name_left_out(tmp_path: Path) -> None:
    values = state()
    storax.save(tmp_path / "a", values)
    storax.convert(tmp_path / "a", tmp_path / "p", subtree="params", verify=True)
    assert_same(storax.load(tmp_path / "p"), storax.load(tmp_path / "a")["params"], shardings=True)
    storax.convert(tmp_path / "a", tmp_path / "l.safetensors", subtree="params.layers", verify=True)
    assert storax.load(tmp_path / "l.safetensors")["0.w"].tolist() == list(range(6))
    storax.convert(tmp_path / "l.safetensors", tmp_path / "one", subtree="1", verify=True)
    assert_same(storax.load(tmp_path / "one"), {"w": values["params"]["layers"][1]["w"]})
    with pytest.raises(storax.ItemNotFound, match="nothing below 'parms'; it has opt, params"):
        storax.convert(tmp_path / "a", tmp_path / "q", subtree="parms")


def test_floats_are_cast_and_nothing_else(tmp_path: Path) -> None:
    values = state()
    storax.save(tmp_path / "a", values)
    storax.convert(tmp_path / "a", tmp_path / "b", dtype="bfloat16", verify=True)
    found = storax.load(tmp_path / "b")
    assert found["params"]["w"].dtype == ml_dtypes.bfloat16
    assert (
        np.asarray(found["params"]["w"]).tobytes()
        == np.asarray(values["params"]["w"]).astype(ml_dtypes.bfloat16).tobytes()
    )
    assert found["params"]["layers"][0]["w"].dtype == np.int8
    assert found["opt"]["count"] == 7
    storax.convert(
        tmp_path / "a", tmp_path / "f.safetensors", subtree="params", dtype="float8_e4m3fn", verify=True
    )
    assert storax.load(tmp_path / "f.safetensors")["w"].dtype == ml_dtypes.float8_e4m3fn
    for wrong in ("int8", "float33"):
        with pytest.raises(storax.BadOption, match=f"dtype is '{wrong}'"):
            storax.convert(tmp_path / "a", tmp_path / "c", dtype=wrong)


def test_what_safetensors_cannot_hold_is_listed_with_the_way_out(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", state())
    with pytest.raises(storax.UnsupportedLeaf) as caught:
        storax.convert(tmp_path / "a", tmp_path / "a.safetensors")
    message = str(caught.value)
    assert all(f"opt.{name}: " in message for name in ("key", "note", "nothing", "huge", "empty"))
    assert "opt.count" not in message
    assert "subtree='params'" in message
    assert os.listdir(tmp_path) == ["a"]


def _orbax_fixtures() -> Iterator[Path]:
    for version in sorted(FIXTURES.glob("0.*")):
        for name in ("pytree", "pytree_zarr3", "pytree_noocdbt"):
            if (version / name).is_dir():
                yield version / name


@pytest.mark.parametrize(
    "source", list(_orbax_fixtures()), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_checkpoints_of_orbax_are_converted(source: Path, tmp_path: Path) -> None:
    storax.convert(source, tmp_path / "b", verify=True)
    assert_same(storax.load(tmp_path / "b"), storax.load(source))
    storax.convert(source, tmp_path / "p.safetensors", subtree="params", verify=True)
    found = storax.load(tmp_path / "p.safetensors")
    wanted = storax.load(source)["params"]
    assert np.asarray(found["dense.kernel"]).tobytes() == np.asarray(wanted["dense"]["kernel"]).tobytes()


def test_a_step_with_items_keeps_them(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path / "run") as manager:
        args = storax.args.Composite(
            params=storax.args.StandardSave({"w": np.ones(3, np.float32)}),
            config=storax.args.JsonSave({"lr": 1}),
        )
        manager.save(1, args=args)
        manager.wait_until_finished()
    storax.convert(tmp_path / "run" / "1", tmp_path / "b", verify=True)
    assert_same(storax.load(tmp_path / "b"), {"params": {"w": np.ones(3, np.float32)}, "config": {"lr": 1}})
    storax.convert(tmp_path / "run" / "1", tmp_path / "x.safetensors", subtree="params")
    assert storax.load(tmp_path / "x.safetensors")["w"].tolist() == [1, 1, 1]
    with pytest.raises(storax.UnsupportedLeaf, match="config: JSON"):
        storax.convert(tmp_path / "run" / "1", tmp_path / "y.safetensors")


def test_nothing_is_left_when_it_is_stopped_and_it_runs_again(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"w": np.zeros((64, 64), np.float32)})

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    for name in ("b", "b.safetensors"):
        with pytest.raises(KeyboardInterrupt):
            storax.convert(tmp_path / "a", tmp_path / name, progress=stop)
        assert os.listdir(tmp_path) == ["a"]
    storax.convert(tmp_path / "a", tmp_path / "b", verify=True)
    with pytest.raises(storax.CheckpointExists):
        storax.convert(tmp_path / "a", tmp_path / "b")
    storax.convert(tmp_path / "a", tmp_path / "b", overwrite=True, dtype="float16")
    assert storax.load(tmp_path / "b")["w"].dtype == np.float16


@pytest.mark.parametrize("name", ["b", "b.safetensors"])
def test_a_copy_that_is_not_what_was_read_is_never_committed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storax.store.posix import NewFile

    storax.save(tmp_path / "a", {"w": np.arange(100_000), "v": np.arange(3)})
    write = NewFile.write_at

    def flipping(self: NewFile, offset: int, buffers: Any) -> int:
        large = [bytes(b) for b in buffers]
        if len(large[0]) > 100_000:
            large[0] = large[0][:50_000] + bytes([large[0][50_000] ^ 1]) + large[0][50_001:]
        return write(self, offset, large)

    monkeypatch.setattr(NewFile, "write_at", flipping)
    with pytest.raises(storax.Corrupt, match="w"):
        storax.convert(tmp_path / "a", tmp_path / name, verify=True)
    assert os.listdir(tmp_path) == ["a"]


def test_progress_ends_at_the_bytes_of_the_source(tmp_path: Path) -> None:
    model = tensors("gpt2")
    nbytes = sum(value.nbytes for value in model.values())
    official.write(tmp_path / "a.safetensors", model)
    seen: list[tuple[int, int]] = []
    for source, copy in (("a.safetensors", "b"), ("b", "c.safetensors"), ("b", "d")):
        seen.clear()
        storax.convert(
            tmp_path / source, tmp_path / copy, progress=lambda done, total: seen.append((done, total))
        )
        assert seen[-1] == (nbytes, nbytes)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_it_cannot_be_converted_onto_itself(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"w": np.zeros(3)})
    with pytest.raises(storax.BadOption, match="in place"):
        storax.convert(tmp_path / "a", tmp_path / "a", overwrite=True)
    with pytest.raises(storax.BadOption, match="to is 'zip'"):
        storax.convert(tmp_path / "a", tmp_path / "b", to="zip")  # type: ignore[arg-type]
