"""Saves of threads as processes, in orders that real ones seldom come in."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.processes.threads import Job
from tests.same import assert_same

import storax
from storax.processes import Joined
from storax.publishing import telling, write_checkpoint
from storax.staged import stage_tree

TREE = {
    "large": np.arange(300_000, dtype=np.float32).reshape(3000, 100),
    "small": [np.full(i, i) for i in range(1, 20)],
    "step": 7,
    "name": "x",
}


def save(process: Joined, final: Path, tree: Any = TREE) -> None:
    with telling(final, process):
        staged = stage_tree(tree, hold=True, processes=process)
    write_checkpoint(final, {None: staged}, processes=process)


def saving(final: Path) -> Callable[[Joined], None]:
    return lambda process: save(process, final)


@pytest.mark.parametrize("word", ["created", "written", "published"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_in_whatever_order_they_come(tmp_path: Path, word: str, order: tuple[int, ...]) -> None:
    job = Job(3)
    job.keys.after = {f"{word}/{b}": f"{word}/{a}" for a, b in itertools.pairwise(order)}
    assert job.run(saving(tmp_path / "a")) == dict.fromkeys(range(3))
    assert_same(storax.load(tmp_path / "a"), TREE)
    parts = sorted(path.name for path in (tmp_path / "a").glob("ocdbt.process_*"))
    assert parts == [f"ocdbt.process_{i}" for i in range(3)]


def test_numpy_leaves_numbers_and_documents_are_shared_out(tmp_path: Path) -> None:
    Job(4).run(saving(tmp_path / "a"))
    held = [
        sum(
            path.stat().st_size
            for path in (tmp_path / "a" / f"ocdbt.process_{i}").rglob("*")
            if path.is_file()
        )
        for i in range(4)
    ]
    assert max(held) <= 1.1 * sum(held) / 4
    described = [path.read_text() for path in sorted((tmp_path / "a" / "array_metadatas").iterdir())]
    assert len(described) == 4


@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("word", ["created", "written", "published"])
def test_one_stops_at_any_barrier_and_the_next_save_works(tmp_path: Path, missing: int, word: str) -> None:
    job = Job(3, timeout=5)
    meet = Joined.meet

    def stops(process: Joined) -> None:
        class Stopping(Joined):
            def meet(self, place: str, *rest: Any) -> Any:
                if place.endswith(word):
                    job.keys.leave(missing)
                    raise SystemExit
                return meet(self, place, *rest)

        if process.index != missing:
            return save(process, tmp_path / "a")
        stopping = Stopping(
            process.index, process.count, process.service, 5.0, 30.0, process.clock, process.attendance
        )
        try:
            save(stopping, tmp_path / "a")
        except SystemExit:
            return None

    found = job.run(stops)
    # A barrier earlier it was still there, so nobody waited for it in vain.
    failed = [error for index, error in found.items() if index != missing]
    assert [type(error) for error in failed] == [storax.ProcessFailed] * 2
    assert all(f"process {missing} did not come" in str(error) for error in failed)
    assert ("a" in os.listdir(tmp_path)) == (word == "published")
    job.keys.absent.clear()
    assert job.run(saving(tmp_path / "b")) == dict.fromkeys(range(3))
    assert_same(storax.load(tmp_path / "b"), TREE)


def test_the_first_leaf_that_differs_is_named_with_all_who_differ(tmp_path: Path) -> None:
    def act(process: Joined) -> None:
        small = [np.full(i, i + (process.index > 1 and i in (5, 9))) for i in range(1, 20)]
        save(process, tmp_path / "a", TREE | {"small": small})

    found = Job(4).run(act)
    assert {type(error) for error in found.values()} == {storax.ProcessesDisagree}
    assert all("the leaf small.4 differs between process 0" in str(e) for e in found.values())
    assert all("and processes 2, 3:" in str(e) for e in found.values())
    assert os.listdir(tmp_path) == []


def test_many_leaves_share_fingerprints_and_the_place_is_still_named(tmp_path: Path) -> None:
    tree = {f"{i:05}": i for i in range(9000)}
    found = Job(2).run(lambda p: save(p, tmp_path / "a", tree | ({"05000": -1} if p.index else {})))
    assert "the leaf 04998, or one of the 2 after it, differs" in str(found[0])
