"""Change the files of a checkpoint in every way: what matters is found out by ``load`` and ``verify``."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.same import assert_same

import storax

_FLIPS = 2_000


def _tree() -> dict[str, object]:
    random_values = np.random.default_rng(0)
    return {
        "large": random_values.standard_normal((300, 300)).astype(np.float32),
        "twin": random_values.standard_normal((300, 300)).astype(np.float32),
        "small": [jnp.arange(16.0) + i for i in range(8)],
        "key": jax.random.key(3),
        "text": "hello",
        "huge": 10**40,
        "number": 7,
        "rate": 0.125,
        "nothing": None,
        "empty": {},
    }


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manager's step with a tree, a JSON item and metrics."""
    run = tmp_path_factory.mktemp("run")
    with storax.CheckpointManager(run) as manager:
        args = storax.args.Composite(
            state=storax.args.StandardSave(_tree()), config=storax.args.JsonSave({"lr": 0.1})
        )
        manager.save(1, args=args, metrics={"loss": 0.5})
    return run / "1"


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _outcome(step: Path) -> str:
    """What a reader sees: ``same``, or ``found`` if load and verify both say that something is wrong."""
    try:
        found = storax.load(step)
        assert_same(found, {"state": _tree(), "config": {"lr": 0.1}})
        loaded = True
    except storax.StoraxError:
        loaded = False
    except AssertionError:
        return "silent"
    try:
        whole = storax.verify(step).ok
    except storax.CheckpointNotFound:
        whole = False
    if loaded:
        return "same"
    return "found" if not whole else "missed by verify"


def _damages(files: list[Path], random_places: random.Random) -> Iterator[tuple[str, Path, bytes]]:
    """Every file at least once, large ones in proportion to their size."""
    sizes = [path.stat().st_size for path in files]
    each = [(path, size) for path, size in zip(files, sizes, strict=True) for _ in range(3)]
    places = [(path, random_places.randrange(size)) for path, size in each]
    weights = [min(size, 20_000) for size in sizes]
    chosen = random_places.choices(files, weights=weights, k=_FLIPS - len(places))
    places += [(path, random_places.randrange(path.stat().st_size)) for path in chosen]
    for path, at in places:
        data = bytearray(path.read_bytes())
        data[at] ^= 1 << random_places.randrange(8)
        yield f"{path.name} byte {at}", path, bytes(data)


# Nothing that load reads: the marker's text, and the databases that the root was merged from. Also the
# unused bytes between aligned chunks.
def test_flipped_bits(intact: Path, tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    step = tmp_path / "1"
    shutil.copytree(intact, step)
    counts: dict[str, int] = {}
    wrong = []
    for what, path, damaged in _damages(_files(step), random.Random(0)):
        original = path.read_bytes()
        path.write_bytes(damaged)
        outcome = _outcome(step)
        counts[outcome] = counts.get(outcome, 0) + 1
        if outcome not in ("same", "found"):
            wrong.append(f"{what}: {outcome}")
        path.write_bytes(original)
    print(f"\n{sum(counts.values())} flips: {counts}")
    record_property("flips", counts)
    assert not wrong
    assert counts["found"] > _FLIPS // 2


def test_other_damage(intact: Path, tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    counts: dict[str, int] = {}
    wrong = []
    for what, step in _other_damages(intact, tmp_path):
        outcome = _outcome(step)
        counts[outcome] = counts.get(outcome, 0) + 1
        if outcome not in ("same", "found"):
            wrong.append(f"{what}: {outcome}")
        shutil.rmtree(step)
    print(f"\n{sum(counts.values())} truncated, extended, deleted or swapped: {counts}")
    record_property("files", counts)
    assert not wrong
    assert counts["found"] > 30


def _other_damages(intact: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    step = tmp_path / "1"
    names = [path.relative_to(intact) for path in _files(intact)]
    for name in names:
        for what in ("truncate", "empty", "extend", "delete"):
            shutil.copytree(intact, step)
            data = (step / name).read_bytes()
            changed = {"truncate": data[: len(data) // 2], "empty": b"", "extend": data + b"\x00"}
            if what == "delete":
                (step / name).unlink()
            else:
                (step / name).write_bytes(changed[what])
            yield f"{what} {name}", step
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            shutil.copytree(intact, step)
            first, second = (step / one).read_bytes(), (step / other).read_bytes()
            (step / one).write_bytes(second)
            (step / other).write_bytes(first)
            yield f"swap {one} {other}", step


def test_two_data_files_of_one_layout_swapped(tmp_path: Path) -> None:
    """Each chunk's own checksum still fits; only the names in the files tell."""
    tree = {f"w{i}": np.full((9 << 20,), i, np.float32) for i in range(2)}
    storax.save(tmp_path / "a", tree)
    data = [p for p in (tmp_path / "a" / "ocdbt.process_0" / "d").iterdir() if p.stat().st_size > 1 << 20]
    assert len(data) == 2
    assert data[0].stat().st_size == data[1].stat().st_size
    data[0].rename(tmp_path / "aside")
    data[1].rename(data[0])
    (tmp_path / "aside").rename(data[1])
    with pytest.raises(storax.Corrupt, match=r"w[01].*is not the file that was written"):
        storax.load(tmp_path / "a")
    assert {fault.leaf for fault in storax.verify(tmp_path / "a").faults} == {"w0", "w1"}


def test_verify_names_leaf_file_and_what_is_spoiled(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"bad": np.arange(100_000), "good": np.arange(100_000)})
    found = storax.verify(tmp_path / "a")
    assert found.ok
    assert (found.leaves, found.unchecked_bytes) == (2, 0)
    assert found.read_bytes > 1_600_000
    data = max((tmp_path / "a" / "ocdbt.process_0" / "d").iterdir(), key=lambda p: p.stat().st_size)
    with data.open("r+b") as file:
        file.seek(4096 + 1000)
        file.write(b"\xff\xff")
    (fault,) = storax.verify(tmp_path / "a").faults
    assert fault.leaf == "bad"
    assert fault.file == str(data)
    assert "bad[0:100000]" in fault.what
    assert "offset 4,096" in fault.what
    assert fault.spoils == "the leaf bad"
