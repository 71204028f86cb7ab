"""Transforms run: into shardings, into new checkpoints, and dry. What is read is counted in bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.devices import on_mesh, sharding
from tests.same import assert_same
from tests.surgery import families

import storax
import storax.surgery
from storax import rewriting
from storax.surgery import (
    cast,
    keep,
    missing,
    overlay,
    pad,
    rename_by_regex,
    scale,
    stack,
    transpose,
    unstack,
)

RNG = np.random.default_rng(5)
EXPERTS = 64


def weights(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    """64 experts of 256 kB each, as a checkpoint and as safetensors."""
    where = tmp_path_factory.mktemp("experts")
    tree = {f"experts.{i}.w": weights(256, 256) for i in range(EXPERTS)}
    storax.save(where / "checkpoint", tree)
    storax.save_safetensors(where / "model.safetensors", tree)
    return where, np.stack([tree[f"experts.{i}.w"] for i in range(EXPERTS)])


KINDS = ["checkpoint", "model.safetensors"]
STACK = [stack(r"experts\.(\d+\.)")]


# --- load ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "spec", [("data",), (("data", "model"),), (None, "model"), ("model", None, "data"), ()]
)
def test_experts_into_any_sharding(experts, kind, spec):
    where, whole = experts
    target = {"experts.w": jax.ShapeDtypeStruct(whole.shape, "float32", sharding=sharding(*spec))}
    found = storax.load(where / kind, target, transforms=STACK)
    assert_same(found, {"experts.w": on_mesh(whole, *spec)}, shardings=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", range(8))
def test_each_of_eight_hosts_reads_the_bytes_of_its_experts_alone(experts, kind, device):
    """A host of one device each, of eight: what it reads is what its shard of the stack holds."""
    where, whole = experts
    rows = slice(device * 8, device * 8 + 8)
    one = jax.sharding.SingleDeviceSharding(jax.devices()[device])
    target = {"experts.w": jax.ShapeDtypeStruct((8, 256, 256), "float32", sharding=one)}
    part = [*STACK, storax.surgery.slice("experts.w", rows.start, rows.stop)]
    found, report = storax.load(where / kind, target, transforms=part, report=True)
    assert_same(np.asarray(found["experts.w"]), whole[rows])
    checksums = 8 * 4 if kind == "checkpoint" else 0
    assert report.wanted_bytes - checksums == whole[rows].nbytes
    assert report.read_bytes <= whole[rows].nbytes * 1.01


def test_all_devices_of_one_process_read_every_expert_once(experts):
    where, whole = experts
    target = {"experts.w": jax.ShapeDtypeStruct(whole.shape, "float32", sharding=sharding(("data", "model")))}
    _, report = storax.load(where / "checkpoint", target, transforms=STACK, report=True)
    assert report.read_bytes <= whole.nbytes * 1.01
    assert report.loaded == ("experts.w",)


@pytest.mark.parametrize("kind", KINDS)
def test_computed_values_into_shards(experts, kind):
    where, whole = experts
    steps = [*STACK, transpose("experts.w", [0, 2, 1]), scale("experts.w", 0.5), cast("bfloat16")]
    expected = (whole.transpose(0, 2, 1) * np.float32(0.5)).astype(jax.numpy.bfloat16)
    spec = ("data", "model")
    target = {"experts.w": jax.ShapeDtypeStruct(expected.shape, "bfloat16", sharding=sharding(*spec))}
    found, report = storax.load(where / kind, target, transforms=steps, report=True)
    assert_same(found, {"experts.w": on_mesh(expected, *spec)}, shardings=True)
    assert report.computed == ("experts.w",)
    assert report.read_bytes <= whole.nbytes * 1.01


def test_what_a_load_did_is_in_its_report(tmp_path):
    storax.save(tmp_path / "a", {"w": np.ones(3), "b": np.ones(3), "x": np.ones(3), "y": np.ones(3)})
    steps = [keep("^[wby]"), scale("^b$", 2.0), missing("new", "fill"), missing("own", "keep")]
    target = {"w": np.zeros(3), "b": np.zeros(3), "new": np.zeros(2), "own": np.zeros(1)}
    found, report = storax.load(tmp_path / "a", target, transforms=steps, partial=True, report=True)
    assert (report.loaded, report.computed, report.filled) == (("w",), ("b",), ("new",))
    assert (report.kept, report.dropped, report.unused) == (("own",), ("x",), ("x", "y"))
    assert found["own"] is target["own"]
    assert "1 loaded, 1 computed, 1 filled, 1 kept, 1 dropped, 2 unused" in str(report)


def test_in_memory_trees_keep_their_shardings_where_their_shape_allows_it():
    layers = {f"layers.{i}.w": on_mesh(weights(8, 4), "data", "model") for i in range(3)}
    steps = [stack(r"layers\.(\d+)\."), transpose("w", [1, 0, 2])]
    found = storax.transform(layers, steps)["layers.w"]
    whole = np.stack([np.asarray(layers[f"layers.{i}.w"]) for i in range(3)], 1)
    assert_same(found, on_mesh(whole, "data", None, "model"))
    assert found.sharding == sharding("data", None, "model")
    padded = storax.transform(layers, [pad(r"layers\.0", after=1)])["layers.0.w"]
    assert padded.shape == (9, 4)  # 9 rows have no place on 4 devices
    assert len(padded.sharding.device_set) == 1


def test_shardings_come_along_through_a_new_checkpoint(tmp_path):
    layers = {f"layers.{i}.w": on_mesh(weights(8, 4), "data") for i in range(2)}
    storax.save(tmp_path / "a", layers)
    storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=[stack(r"layers\.(\d+)\.")])
    assert storax.load(tmp_path / "b")["layers.w"].sharding == sharding(None, "data")


# --- rewrite -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_checkpoint_has_what_a_load_would_give(experts, kind, tmp_path):
    where, whole = experts
    report = storax.rewrite(where / kind, tmp_path / "b", transforms=STACK, verify=True)
    assert_same(np.asarray(storax.load(tmp_path / "b")["experts.w"]), whole)
    assert whole.nbytes <= report.read_bytes <= whole.nbytes * 1.01
    back = storax.rewrite(
        tmp_path / "b", tmp_path / "c", transforms=[unstack("^experts.", "experts.{index}.")]
    )
    assert back.read_bytes <= whole.nbytes * 1.01
    assert_same(np.asarray(storax.load(tmp_path / "c")["experts.63.w"]), whole[63])


@pytest.mark.parametrize("batch", [1, 5_000])
@pytest.mark.parametrize("family", ["qwen_moe", "gpt2"])
def test_the_size_of_a_batch_changes_nothing(family, batch, tmp_path, monkeypatch):
    storax.save(tmp_path / "a", families.weights(family))
    steps = [*storax.surgery.recipe(family, stacked=True), cast("bfloat16", "kernel")]
    expected = storax.load(tmp_path / "a", transforms=steps)
    monkeypatch.setattr("storax.streaming.BATCH_BYTES", batch)
    storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=steps)
    assert_same(storax.load(tmp_path / "b"), expected)
    assert len(list((tmp_path / "b").glob("ocdbt.process_*"))) > 3


def test_orbax_reads_what_was_rewritten(experts, tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint", reason="orbax is an extra of the tests")
    where, whole = experts
    storax.rewrite(where / "checkpoint", tmp_path / "b", transforms=[*STACK, cast("bfloat16")])
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "b")
    assert_same(np.asarray(found["experts.w"]), whole.astype(jax.numpy.bfloat16))


def test_two_checkpoints_become_one(tmp_path):
    storax.save(tmp_path / "a", {"w": np.zeros(2), "n": 3, "name": "image", "none": None})
    storax.save(tmp_path / "b", {"layers": [{"w": np.ones(2)}]})
    both = {"image": tmp_path / "a", "text": str(tmp_path / "b")}
    storax.rewrite(both, tmp_path / "c", transforms=[rename_by_regex([(r"^text\.", "text.model.")])])
    assert_same(
        storax.load(tmp_path / "c"),
        {
            "image": {"w": np.zeros(2), "n": 3, "name": "image", "none": None},
            "text": {"model": {"layers": {"0": {"w": np.ones(2)}}}},
        },
    )


def test_an_adapter_is_merged_into_its_base(tmp_path):
    base = {"q": {"kernel": weights(32, 16)}, "k": {"kernel": weights(32, 16)}}
    lora = {"q": {"a": weights(4, 16), "b": weights(32, 4)}}
    storax.save(tmp_path / "base", base)
    storax.save(tmp_path / "lora", lora)
    steps = [
        rename_by_regex([(r"^base\.", "")]),
        overlay(r"^(.*)\.kernel$", b=r"lora.\1.b", a=r"lora.\1.a", scale=0.5),
    ]
    both = {"base": tmp_path / "base", "lora": tmp_path / "lora"}
    report = storax.rewrite(both, tmp_path / "out", transforms=steps)
    found = storax.load(tmp_path / "out")
    assert_same(found["k"], base["k"])
    expected = base["q"]["kernel"] + np.float32(0.5) * (lora["q"]["b"] @ lora["q"]["a"])
    np.testing.assert_allclose(found["q"]["kernel"], expected, rtol=1e-6, atol=1e-6)
    assert (report.loaded, report.computed) == (("k.kernel",), ("q.kernel",))


def test_a_target_decides_dtypes_kinds_and_shardings_of_a_rewrite(tmp_path):
    storax.save(tmp_path / "a", {"w": weights(8, 4), "extra": np.ones(2)})
    target = {
        "w": jax.ShapeDtypeStruct((8, 4), "bfloat16", sharding=sharding("data")),
        "new": np.full(2, 4.0),
    }
    steps = [missing("new", "keep")]
    with pytest.raises(storax.TreeMismatch) as caught:
        storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=steps, target=target)
    assert caught.value.only_saved == ("extra",)
    assert not (tmp_path / "b").exists()
    report = storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=steps, target=target, partial=True)
    found = storax.load(tmp_path / "b")
    assert found["w"].sharding == sharding("data")
    assert found["w"].dtype == "bfloat16"
    assert_same(found["new"], np.full(2, 4.0))
    assert (report.kept, report.unused) == (("new",), ("extra",))


def test_every_kind_of_leaf_goes_through(tmp_path):
    tree = {
        "keys": jax.random.key(3),
        "f8": weights(4).astype(jax.numpy.float8_e4m3fn),
        "i4": np.arange(4).astype(jax.numpy.int4),
        "c": np.ones(2, np.complex64),
        "big": np.arange(3, dtype=">i4"),
        "n": 1 << 70, "b": b"bytes", "t": ("x", [None, {}, 2.5, True]), "empty": np.zeros((0, 3)),
    }  # fmt: skip
    storax.save(tmp_path / "a", tree)
    storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=[rename_by_regex([("nothing", "x")])])
    assert_same(storax.load(tmp_path / "b"), storax.load(tmp_path / "a"))


def test_a_rewrite_that_fails_leaves_nothing(experts, tmp_path, monkeypatch):
    where, _ = experts
    storax.save(tmp_path / "b", {"old": 1})
    monkeypatch.setattr(rewriting.StreamedTree, "write_part", _raise)
    with pytest.raises(RuntimeError, match="disk"):
        storax.rewrite(where / "checkpoint", tmp_path / "b", transforms=STACK, overwrite=True)
    assert storax.load(tmp_path / "b") == {"old": 1}
    assert sorted(os.listdir(tmp_path)) == ["b"]


def _raise(*_):
    raise RuntimeError("the disk is gone")


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_is_replaced_meanwhile_is_noticed(kind, tmp_path, monkeypatch):
    save = storax.save if kind == "checkpoint" else storax.save_safetensors
    save(tmp_path / kind, {"0.w": np.zeros(9), "1.w": np.zeros(9)})
    write = rewriting.StreamedTree.write_part

    def replaced(self, directory):
        save(tmp_path / kind, {"0.w": np.ones(9), "1.w": np.ones(9)}, overwrite=True)
        return write(self, directory)

    monkeypatch.setattr(rewriting.StreamedTree, "write_part", replaced)
    with pytest.raises((storax.CheckpointChanged, storax.Corrupt)):
        storax.rewrite(tmp_path / kind, tmp_path / "b", transforms=[stack(r"(\d\.)")])
    assert not (tmp_path / "b").exists()


def test_rewrites_that_cannot_be(experts, tmp_path):
    where, _ = experts
    with pytest.raises(storax.BadOption, match="in place"):
        storax.rewrite(where / "checkpoint", where / "checkpoint", overwrite=True)
    with pytest.raises(storax.CheckpointExists):
        storax.rewrite(where / "model.safetensors", where / "checkpoint")
    with pytest.raises(storax.CheckpointNotFound):
        storax.rewrite(tmp_path / "nothing", tmp_path / "b")


def test_progress_is_in_bytes(experts, tmp_path):
    where, whole = experts
    seen = []
    storax.rewrite(
        where / "checkpoint", tmp_path / "b", transforms=STACK, progress=lambda *done: seen.append(done)
    )
    assert seen[-1] == (whole.nbytes, whole.nbytes)


FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"


@pytest.mark.parametrize("tree", ["pytree", "pytree_noocdbt", "pytree_zarr3", "standard"])
@pytest.mark.parametrize("version", ["0.6.4", "0.11.20", "0.12.8"])
def test_checkpoints_that_orbax_wrote(version, tree, tmp_path):
    path = FIXTURES / version / tree
    if not path.is_dir():
        pytest.skip(f"Orbax {version} did not write {tree}: there is no such fixture")
    steps = [rename_by_regex([("^", "old.")]), cast("bfloat16")]
    expected = storax.transform(storax.load(path), steps)
    storax.rewrite(path, tmp_path / "a", transforms=steps, verify=True)
    for found in (storax.load(path, transforms=steps), storax.load(tmp_path / "a")):
        assert_same(jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, expected))


# --- explain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [STACK, [*STACK, transpose("w", [2, 0, 1])], [*STACK, cast("bfloat16")]])
def test_a_dry_run_counts_what_the_run_reads(experts, kind, steps, tmp_path):
    where, _ = experts
    explained = storax.explain(where / kind, transforms=steps)
    report = storax.rewrite(where / kind, tmp_path / "b", transforms=steps)
    assert (explained.report.read_bytes, explained.report.reads) == (report.read_bytes, report.reads)
    assert explained.fits
    shape = explained.leaves[0].what.partition("[")[2].rstrip("]").split(",")
    target = {
        "experts.w": jax.ShapeDtypeStruct(
            tuple(map(int, shape)),
            explained.leaves[0].what.partition("[")[0],
            sharding=sharding(None, "model"),
        )
    }
    explained = storax.explain(where / kind, transforms=steps, target=target)
    _, report = storax.load(where / kind, target, transforms=steps, report=True)
    assert (explained.report.read_bytes, explained.report.reads) == (report.read_bytes, report.reads)


def test_a_dry_run_reads_no_values(experts, monkeypatch):
    where, _ = experts
    monkeypatch.setattr("storax.store.reading._Files.fill", _raise)
    text = str(storax.explain(where / "checkpoint", transforms=STACK))
    assert "experts.w  float32[64,256,256]  loaded: stack(experts.0.w, experts.1.w, … experts.63.w" in text
    assert "1.000 bytes read for each that is needed" in text


def test_a_dry_run_shows_what_does_not_fit_the_target(tmp_path):
    storax.save(tmp_path / "a", {"w": np.ones(3), "x": np.ones(3)})
    target = {"w": np.zeros(4), "v": np.zeros(1)}
    explained = storax.explain(tmp_path / "a", target=target)
    assert not explained.fits
    assert explained.mismatch.only_wanted == ("v",)
    assert explained.report.unused == ("x",)
    assert "only in the target (1)" in str(explained)


def test_a_dry_run_of_a_wrong_list_fails(experts):
    where, _ = experts
    with pytest.raises(storax.TransformMismatch, match="number 64 of 65 is missing"):
        storax.explain(where / "checkpoint", transforms=[stack(r"experts\.(\d+\.)", expected_count=65)])


def test_a_model_larger_than_memory_is_explained_in_no_time(tmp_path):
    """256 GB by its header, of which there is nothing on the disk."""
    rows, header, end = 1 << 18, {}, 0
    for i in range(64):
        header[f"layers.{i}.w"] = {
            "dtype": "F32",
            "shape": [rows, 4096],
            "data_offsets": [end, end + rows * 16384],
        }
        end += rows * 16384
    text = json.dumps(header).encode()
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    target = {"layers.w": jax.ShapeDtypeStruct((64, rows, 4096), "float32", sharding=sharding("data"))}
    steps = [stack(r"layers\.(\d+)\.")]
    explained = storax.explain(tmp_path / "model.safetensors", transforms=steps, target=target)
    assert explained.report.read_bytes == explained.nbytes == end == 1 << 38
