"""A checkpoint of some processes, restored by others on other meshes: bit for bit, no byte too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.processes.jobs import Jobs
from tests.processes.programs import ARRAYS, host
from tests.same import bits

import storax
from storax.checkpoint import SavedTree
from storax.plan import boxes, planned, simulate

CRC = 4
ROWS = 2048 * 256 * 4
EVERYWHERE = 336 * 257 * 8

# Processes, devices of each, and the mesh that they restore on.
TOPOLOGIES: dict[str, tuple[int, int, list[int], dict[str, Any]]] = {
    "the same": (2, 4, [2, 4], {}),
    "one process": (1, 8, [2, 4], {}),
    "four processes": (4, 2, [2, 4], {}),
    "8 x 1": (2, 4, [8, 1], {}),
    "1 x 8": (4, 2, [1, 8], {}),
    "2 x 2 x 2": (2, 4, [2, 2, 2], {}),
    "other order of devices": (2, 4, [2, 4], {"backwards": True}),
    "other names of axes": (4, 2, [4, 2], {"names": "pq"}),
    "sharded replicated, and the reverse": (2, 4, [4, 2], {"swapped": True}),
    "pinned host memory": (2, 4, [2, 4], {"memory": "pinned_host"}),
    "broadcast": (4, 2, [2, 2, 2], {"broadcast": True}),
    "broadcast replicas": (2, 4, [4, 2], {"broadcast": True, "swapped": True}),
}


@pytest.fixture(scope="module")
def saved(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Checkpoints of one, two and four processes."""
    places = {count: tmp_path_factory.mktemp("saved") / str(count) for count in (1, 2, 4)}
    for count, place in places.items():
        jobs.run("programs.save", count, devices=8 // count, joined=count > 1, directory=place, mesh=[2, 4])
    return places


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_on_every_process_every_bit_is_what_was_saved(
    jobs: Jobs, saved: dict[int, Path], topology: str
) -> None:
    count, devices, mesh, more = TOPOLOGIES[topology]
    for writers in (1, 4) if topology in ("one process", "four processes") else (2,):
        found = jobs.run(
            "programs.restore",
            count,
            devices=devices,
            joined=count > 1,
            directory=saved[writers],
            mesh=mesh,
            **more,
        )
        assert [process["wrong"] for process in found] == [[]] * count


def _bytes(jobs: Jobs, place: Path, count: int, mesh: list[int], only: str, **more: Any) -> list[int]:
    found = jobs.run(
        "programs.restore", count, devices=8 // count, directory=place, mesh=mesh, only=[only], **more
    )
    assert [process["wrong"] for process in found] == [[]] * count
    return [process["read"] for process in found]


def test_each_process_reads_its_own_chunks_and_nothing_else(jobs: Jobs, saved: dict[int, Path]) -> None:
    # Eight shards of 256 KiB, a chunk each.
    assert _bytes(jobs, saved[2], 2, [2, 4], "rows") == [ROWS // 2 + 4 * CRC] * 2
    assert _bytes(jobs, saved[2], 4, [8, 1], "rows") == [ROWS // 4 + 2 * CRC] * 4
    assert _bytes(jobs, saved[4], 2, [2, 2, 2], "rows", backwards=True) == [ROWS // 2 + 4 * CRC] * 2


def test_replicated_arrays_are_read_once_per_process_or_once_per_job(
    jobs: Jobs, saved: dict[int, Path]
) -> None:
    (array,) = [
        found.source
        for found in SavedTree.open(saved[2]).leaves(["arrays.everywhere"])
        if found.leaf.name == "arrays.everywhere"
    ]
    chunks = len(list(boxes.cells(boxes.whole((336, 257)), array.atom)))
    whole = chunks * (array.chunk_bytes + CRC)
    assert whole >= EVERYWHERE
    assert _bytes(jobs, saved[2], 2, [2, 4], "everywhere") == [whole, whole]
    assert sorted(_bytes(jobs, saved[2], 2, [2, 4], "everywhere", broadcast=True)) == [0, whole]
    # What is sharded, a broadcast reads as always: nobody else has it.
    assert _bytes(jobs, saved[2], 2, [2, 4], "rows", broadcast=True) == [ROWS // 2 + 4 * CRC] * 2


def test_a_process_that_cannot_read_ends_the_broadcast_of_all(jobs: Jobs, saved: dict[int, Path]) -> None:
    for said in jobs.run("programs.broadcast_of_damage", 2, devices=4, directory=saved[2], mesh=[2, 4]):
        assert said[0] == "Corrupt"
        assert "cannot read" in said[1]


def test_restored_arrays_are_as_good_as_computed_ones(jobs: Jobs, saved: dict[int, Path]) -> None:
    found = jobs.run(
        "programs.restored_arrays_are_like_any_others", 2, devices=4, directory=saved[4], mesh=[4, 2]
    )
    assert found == [[True, True, True, False]] * 2, "layout, sharding, donated, wrong"


def test_without_a_target_everything_comes_to_one_place(jobs: Jobs, saved: dict[int, Path]) -> None:
    for count in (1, 2):
        found = jobs.run(
            "programs.without_a_target",
            count,
            devices=8 // count,
            joined=count > 1,
            directory=saved[4],
            mesh=[4, 2],
        )
        for process in found:
            assert process == process | {
                "numpy": True,
                "one": True,
                "ruled": ["P('x',)", "P()"],
                "wrong": [],
            }


@pytest.mark.parametrize("writers", [1, 2, 4])
def test_this_process_reads_it_too_and_every_share_is_as_the_simulation_says(
    saved: dict[int, Path], writers: int
) -> None:
    place = saved[writers]
    found = storax.load(place, to="numpy")
    assert {name: bits(value) for name, value in found["arrays"].items()} == {
        name: bits(host(name)) for name in ARRAYS
    }
    assert (found["step"], found["name"], found["none"], found["nothing"]) == (0, "step 0", None, {})
    assert bits(found["table"]) == bits(np.arange(40_000, dtype=np.int32))
    assert bits(found["keys"]) == bits(jax.random.split(jax.random.key(5), 8))
    arrays, mesh = planned(leaf.leaf for leaf in SavedTree.open(place).leaves())
    if writers == 1:
        return  # one process alone is not planned for: it cuts no smaller chunks
    told = simulate(arrays, mesh, hosts=writers)
    for process in range(writers):
        files = list((place / f"ocdbt.process_{process}").rglob("*"))
        held = sum(path.stat().st_size for path in files if path.is_file())
        # Besides the values: padding to 4 KiB, nodes, descriptions.
        assert 0 <= held - told.loads.bytes[process] < 4096 * (told.chunks[process] + 8)
    databases = [place, *place.glob("ocdbt.process_*")]
    assert told.files == sum(1 + len(list((database / "d").iterdir())) for database in databases)
