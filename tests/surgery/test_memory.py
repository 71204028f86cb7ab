"""Memory for computing is held under the budget, and errors come out of it as they are."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.surgery.whole import Chunked

import storax
from storax.arrays.gather import gather
from storax.plan import boxes
from storax.store.budget import Budget
from storax.store.reading import Segment, Work, read_all, split
from storax.surgery import cast, scale, stack, transpose
from storax.surgery.computing import Cast, Scaled
from storax.surgery.views import Stacked


def computed(rows=64, columns=1 << 16):
    """What is computed twice over, of 16 MB in chunks of one row."""
    parts = tuple(Chunked(np.full((rows // 4, columns), i, np.float32), (1, columns)) for i in range(4))
    source = Scaled(Cast(Stacked(parts, 0), np.dtype(np.float64)), 2.0)
    memory = np.zeros(source.shape)
    return parts, memory, gather([(source, (boxes.whole(source.shape), memory))])


def test_blocks_are_computed_within_the_budget():
    _, memory, reads = computed()
    segments, acts = split(reads)
    works = [act for act in acts if isinstance(act, Work)]
    assert segments == []
    assert len(works) > 3
    most = max(work.nbytes for work in works)
    held: list[int] = []
    budget = Budget(2 * most)
    watched = [Work(work.nbytes, _noting(work, budget, held)) for work in works]
    read_all([], watched, budget=budget, workers=8)
    assert (memory == np.arange(4).reshape(4, 1, 1) * 2).all()
    assert most <= max(held) <= 2 * most
    assert budget._held == 0


def _noting(work, budget, held):
    def prepare(make):
        held.append(budget._held)
        return work.prepare(make)

    return prepare


@pytest.mark.parametrize("workers", [1, 8])
def test_a_budget_that_is_too_small_for_anything_still_ends(workers):
    parts, memory, reads = computed()
    read_all([], split(reads)[1], budget=Budget(1), workers=workers)
    assert (memory[:, 0, 0] == [0, 2, 4, 6]).all()
    assert all(len(part.read) == len(set(part.read)) for part in parts)


def test_a_thread_that_holds_some_gets_more_while_others_wait():
    budget = Budget(10)
    entered = threading.Event()

    def other() -> None:
        with budget.holding(8):
            entered.set()

    with budget.holding(8):
        waiting = threading.Thread(target=other)
        waiting.start()
        with budget.holding(100):  # would wait for ever, were it to wait
            assert not entered.is_set()
    waiting.join(timeout=20)
    assert entered.is_set()


@pytest.mark.parametrize("steps", [[], [cast("bfloat16")], [scale("w", 2.0), transpose("w", [0, 2, 1])]])
def test_damage_is_found_whatever_is_made_of_it(tmp_path, steps):
    storax.save(tmp_path / "a", {f"{i}.w": np.full((512, 256), i, np.float32) for i in range(3)})
    largest = max((tmp_path / "a").rglob("d/*"), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    for run in (
        lambda: storax.load(tmp_path / "a", transforms=[stack(r"(\d\.)"), *steps]),
        lambda: storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=[stack(r"(\d\.)"), *steps]),
    ):
        with pytest.raises(storax.Corrupt, match=r"\d\.w"):
            run()
    assert not (tmp_path / "b").exists()


def test_a_segment_is_not_work():
    segments, acts = split([Segment("a", 0, 1, print), print, Work(1, lambda make: ([], print))])
    assert (len(segments), len(acts)) == (1, 2)
