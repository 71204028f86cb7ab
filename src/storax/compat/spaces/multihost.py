"""``storax.multihost``: the processes of the job."""

from __future__ import annotations

from typing import Any

from storax.processes import present, wait_for_all


def process_index() -> int:
    """The number of this process."""
    return present().index


def process_count() -> int:
    """How many processes there are."""
    return present().count


def is_primary_host(primary_host: int | None = 0) -> bool:
    """Whether this process writes what only one writes."""
    return primary_host is None or present().index == primary_host


def sync_global_processes(name: str, *_: Any, **__: Any) -> None:
    """Waits for all processes to come here."""
    wait_for_all(present(room="user"), name)
