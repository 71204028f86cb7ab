"""The processes of the job that runs: those that ``jax.distributed`` joined, or this one alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from storax.errors import ProcessFailed
from storax.processes.contract import DEFAULT_GRACE, DEFAULT_TIMEOUT, Processes, Solo
from storax.processes.joined import Attendance, Joined

# Where JAX's preemption service, which catches SIGTERM in every process, leaves word of it.
_NOTICE = "RECEIVED_PREEMPTION_NOTICE"

# The service that this process is joined to, and its attendance at the meetings there, by room.
_attended: tuple[Any, dict[str, Attendance]] = (None, {})


def present(timeout: float = DEFAULT_TIMEOUT, grace: float = DEFAULT_GRACE, room: str = "saves") -> Processes:
    """The processes of the running job: those of ``jax.distributed``, or this one alone.

    Args:
      timeout: seconds that a barrier waits for the last process.
      grace: seconds that it waits at most after SIGTERM.
      room: where they meet; gatherings in one room are one at a time.
    """
    # JAX has no public door to the service that its processes meet in; Orbax uses the same one.
    from jax._src import distributed

    global _attended
    state = distributed.global_state
    if state.client is None or state.num_processes in (None, 1):
        return Solo()
    if _attended[0] is not state.client:
        _attended = (state.client, {})
    service = _JaxService(state.client)
    index, count = int(state.process_id), int(state.num_processes)
    attendance = _attended[1].setdefault(room, Attendance())
    return Joined(index, count, service, timeout, grace, attendance=attendance, room=room)


def sigterm_is_caught() -> bool:
    """Whether JAX's preemption service handles SIGTERM, which Python knows nothing of."""
    from jax._src import distributed

    return distributed.global_state.preemption_sync_manager is not None


def sigterm_came() -> bool:
    """Whether a process of the job, this one or another, was told to stop. False for a process alone."""
    processes = present()
    return isinstance(processes, Joined) and processes.service.warned()


@dataclass(frozen=True, slots=True)
class _JaxService:
    """The coordination service of ``jax.distributed``."""

    client: Any

    def set(self, key: str, value: str) -> None:
        with _explained():
            self.client.key_value_set(key, value)

    def wait(self, key: str, seconds: float) -> str | None:
        try:
            return str(self.client.blocking_key_value_get(key, max(1, int(seconds * 1000))))
        except Exception as error:
            # The service has no type of its own for this.
            if "DEADLINE_EXCEEDED" in str(error) or "NOT_FOUND" in str(error):
                return None
            raise _service_failed(error) from error

    def below(self, directory: str) -> list[str]:
        with _explained():
            return [str(value) for _, value in self.client.key_value_dir_get(directory + "/")]

    def delete(self, directory: str) -> None:
        with _explained():
            self.client.key_value_delete(directory + "/")

    def warned(self) -> bool:
        try:
            return bool(self.client.key_value_try_get(_NOTICE))
        except Exception:  # there is no such key, or no service: then waiting itself says so
            return False


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _service_failed(error) from error


def _service_failed(error: Exception) -> ProcessFailed:
    first = str(error).partition("\n")[0]
    return ProcessFailed(
        f"the coordination service of jax.distributed failed ({first}). It is in process 0: how did that end?"
    )
