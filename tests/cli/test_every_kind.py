"""Every verb on every kind of checkpoint: Orbax of each release in the fixtures, storax, safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.cli.command import FIXTURES, ok, storax
from tests.cli.runs import tree

import storax as library

KINDS = sorted(
    f"{version.name}/{path.name}"
    for version in FIXTURES.iterdir()
    if version.is_dir()
    for path in version.iterdir()
    if path.is_dir() and "tmp" not in path.name
)
OURS = ["storax", "storax zstd", "run", "safetensors"]


@pytest.fixture(params=[*KINDS, *OURS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind = request.param
    if kind in KINDS:
        return FIXTURES / kind
    path = tmp_path / "made"
    if kind == "run":
        options = library.CheckpointManagerOptions(enable_async_checkpointing=False)
        with library.CheckpointManager(path, options=options) as manager:
            manager.save(3, args=library.args.StandardSave(tree()))
    elif kind == "safetensors":
        path = tmp_path / "made.safetensors"
        library.save_safetensors(path, {k: v for k, v in tree().items() if k == "params"})
    else:
        library.save(path, tree(), compression="zstd" if "zstd" in kind else None)
    return path


def arrays(place: Path) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint by name, as ``load`` gives them."""
    newest = max((p for p in place.iterdir() if p.name.isdigit()), key=lambda p: int(p.name), default=place) \
        if place.is_dir() else place  # fmt: skip
    found = {}
    for path, value in jax.tree_util.tree_flatten_with_path(library.load(newest))[0]:
        name = ".".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in path)
        if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        if not isinstance(value, (str, bytes)):
            found[name] = np.asarray(value)
    return found


def named(every: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {entry["name"].replace("/", "."): entry for entry in every}


def test_show_agrees_with_load(place: Path):
    shown = ok("show", place, "--json").json
    items = {name: item["tree"] for name, item in shown["items"].items()}
    several = len(items) + len(shown["others"]) > 1
    leaves = {
        f"{item}.{leaf['name']}" if several else leaf["name"]: leaf
        for item, found in items.items()
        for leaf in found
        if leaf.get("shape") is not None and leaf["kind"] != "bytes"
    }
    expected = {name: value for name, value in arrays(place).items() if name in leaves}
    assert expected
    assert set(leaves) == set(expected)
    for name, value in expected.items():
        key = leaves[name]["dtype"].startswith("key<")
        assert leaves[name]["shape"] == list(value.shape)[: -1 if key else None]
        assert leaves[name]["nbytes"] == value.nbytes or leaves[name]["kind"] in ("int", "float", "bool")


def test_stats_agrees_with_numpy(place: Path):
    found = named(ok("stats", place, "--json").json)
    expected = {name: value for name, value in arrays(place).items() if name in found}
    assert found
    assert set(expected) == set(found)
    for name, value in expected.items():
        numbers = value.astype(np.float64)
        assert found[name]["count"] == value.size
        if value.size:
            assert (found[name]["min"], found[name]["max"]) == (numbers.min(), numbers.max())
            assert found[name]["mean"] == pytest.approx(numbers.mean(), rel=1e-12)
            assert found[name]["std"] == pytest.approx(numbers.std(), rel=1e-9, abs=1e-12)
            assert found[name]["norm"] == pytest.approx(np.linalg.norm(numbers.reshape(-1)), rel=1e-12)


def test_get_agrees_with_load(place: Path):
    found = [entry["name"] for entry in ok("stats", place, "--json").json]
    expected = arrays(place)
    for name in found[:6]:
        value = expected[name.replace("/", ".")]
        got = ok("get", place, name, "--json").json
        assert np.array_equal(
            np.array(got["values"], np.float64).reshape(value.shape), value.astype(np.float64)
        )


def test_it_has_no_difference_from_itself(place: Path):
    assert ok("diff", place, place, "--json").json == []


def test_it_is_whole(place: Path):
    assert ok("verify", place, "--json").json["faults"] == []


def test_a_copy_of_it_is_the_same(place: Path, tmp_path: Path):
    copy = tmp_path / ("copy.safetensors" if place.suffix == ".safetensors" else "copy")
    ok("cp", place, copy)
    assert ok("diff", place, copy, "--json").json == []
    assert [entry["nbytes"] for entry in ok("ls", copy, "--json").json] == [
        entry["nbytes"] for entry in ok("ls", place, "--json").json
    ]


def test_converted_it_has_the_same_values(place: Path, tmp_path: Path):
    ok("convert", place, tmp_path / "converted", "--verify")
    assert ok("diff", place, tmp_path / "converted", "--json").json == []


def test_a_report_of_it_is_one_page(place: Path, tmp_path: Path):
    ok("report", place, "--values", "-o", tmp_path / "report.html")
    assert "histogram" in (tmp_path / "report.html").read_text()


def test_rm_takes_it_away(place: Path, tmp_path: Path):
    copy = tmp_path / f"copy{place.suffix}"
    (shutil.copytree if place.is_dir() else shutil.copy)(place, copy)
    steps = [path for path in copy.iterdir() if path.name.isdigit()] if place.is_dir() else []
    ok("rm", *(steps or [copy]), "--yes")
    assert storax("show", copy).code == 7
