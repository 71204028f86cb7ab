"""Iterators of Grain, as loaders of the programs in these tests."""

from __future__ import annotations

from typing import Any

import grain.python as grain


def iterator() -> Any:
    loader = grain.DataLoader(
        data_source=list(range(20)),
        sampler=grain.IndexSampler(20, grain.NoSharding(), shuffle=False, num_epochs=1),
        worker_count=0,
    )
    return iter(loader)


def stepped(count: int) -> Any:
    made = iterator()
    for _ in range(count):
        next(made)
    return made
