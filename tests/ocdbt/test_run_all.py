"""Work on a few threads: all of it is done, errors come back, nothing is left running."""

from __future__ import annotations

import threading
import time

import pytest

from storax.store.budget import run_all


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_every_task_runs_once(workers: int) -> None:
    done: list[int] = []
    run_all([lambda i=i: done.append(i) for i in range(100)], workers)  # type: ignore[misc]
    assert sorted(done) == list(range(100))


def test_no_tasks() -> None:
    run_all([], 4)


def test_the_caller_is_a_worker() -> None:
    names: set[int] = set()
    together = threading.Barrier(2, timeout=10)

    def task() -> None:
        names.add(threading.get_ident())
        together.wait()

    run_all([task, task], 2)
    assert threading.get_ident() in names
    assert len(names) == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_error_comes_back_after_all_threads_ended(workers: int) -> None:
    ended: list[int] = []

    def slow() -> None:
        time.sleep(0.05)
        ended.append(1)

    def failing() -> None:
        raise KeyError("first")

    before = threading.active_count()
    with pytest.raises(KeyError, match="first"):
        run_all([slow, failing, *[slow] * 50], workers)
    assert threading.active_count() == before
    assert len(ended) < 10


def test_where_no_thread_starts_the_caller_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    run_all([lambda i=i: done.append(i) for i in range(9)], 4)  # type: ignore[misc]
    assert done == list(range(9))
