"""How many bytes are read, exactly: whole chunks when they are checked, else only what is wanted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec
from tests.devices import mesh

import storax
from storax.arrays.read import DatabaseArray
from storax.checkpoint import SavedTree
from storax.plan import boxes
from storax.store.budget import Budget
from storax.store.reading import Report, read_all, split

ROWS, COLUMNS = 1024, 512
VALUES = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One array in one chunk of 2 MiB."""
    path = tmp_path_factory.mktemp("exact") / "a"
    storax.save(path, {"w": VALUES})
    return path


def read(path: Path, *wanted: boxes.Box, exact: bool) -> tuple[list[np.ndarray], Report]:
    """Some boxes of the array, read at once."""
    (found,) = SavedTree.open(path).leaves()
    assert isinstance(found.source, DatabaseArray)
    source = replace(found.source, exact=exact)
    memory = [np.empty(boxes.box_shape(box), source.dtype) for box in wanted]
    segments, acts = split(source.reads(list(zip(wanted, memory, strict=True))))
    return memory, read_all(segments, acts, budget=Budget())


def test_some_rows(saved: Path) -> None:
    rows = ((100, 228), (0, COLUMNS))
    for exact, nbytes in ((True, 128 * COLUMNS * 4), (False, VALUES.nbytes + 4)):
        (found,), report = read(saved, rows, exact=exact)
        np.testing.assert_array_equal(found, VALUES[100:228])
        assert (report.read_bytes, report.reads) == (nbytes, 1)


def test_some_columns_are_read_across_where_gaps_are_small(saved: Path) -> None:
    (found,), report = read(saved, ((0, ROWS), (0, 128)), exact=True)
    np.testing.assert_array_equal(found, VALUES[:, :128])
    # From the first element to the last one: a gap of 1.5 KB costs less than another request.
    assert report.read_bytes == ((ROWS - 1) * COLUMNS + 128) * 4


@given(st.data())
def test_any_boxes(saved: Path, data: st.DataObject) -> None:
    edges = st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted)
    sides = st.tuples(st.integers(0, COLUMNS), st.integers(0, COLUMNS)).map(sorted)
    one_box = st.tuples(edges.map(tuple), sides.map(tuple))
    wanted = data.draw(st.lists(one_box, min_size=1, max_size=4))
    found, _ = read(saved, *wanted, exact=data.draw(st.booleans()))
    for part, (rows, columns) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(part, VALUES[slice(*rows), slice(*columns)])


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("spec", [("data",), (None, "data"), ()])
def test_shards_share_the_read_of_a_chunk(saved: Path, spec: tuple[str | None, ...], verify: bool) -> None:
    sharding = jax.sharding.NamedSharding(mesh(8, 1), PartitionSpec(*spec))
    target = {"w": jax.ShapeDtypeStruct(VALUES.shape, np.float32, sharding=sharding)}
    found, report = storax.load(saved, target, verify=verify, report=True)
    np.testing.assert_array_equal(np.asarray(found["w"]), VALUES)
    assert found["w"].sharding == sharding
    # All of it is wanted, so all of it is checked.
    assert (report.read_bytes, report.reads) == (VALUES.nbytes + 4, 1)


def test_damage_in_an_unread_part_is_seen_only_when_checked(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"w": VALUES})
    data = max((tmp_path / "a" / "ocdbt.process_0" / "d").iterdir(), key=lambda p: p.stat().st_size)
    with data.open("r+b") as file:
        file.seek(4096 + 4 * COLUMNS * (ROWS - 1))
        file.write(b"\xff")
    rows = ((0, 10), (0, COLUMNS))
    with pytest.raises(storax.Corrupt, match=r"w\[0:1024, 0:512\].*offset 4,096"):
        read(tmp_path / "a", rows, exact=False)
    (found,), _ = read(tmp_path / "a", rows, exact=True)
    np.testing.assert_array_equal(found, VALUES[:10])
