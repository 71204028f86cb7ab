"""Real processes of one job: started together, joined by ``jax.distributed``, and ended in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import storax

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(storax.__file__).resolve().parents[1]
_PROGRAMS = tuple(f"tests.processes.{name}" for name in ("programs", "troubles", "runs"))


@dataclass(frozen=True)
class Outcome:
    """How one process of a job ended.

    Attributes:
      said: what its program said, in order.
      signal: what killed it, or 0.
      overdue: whether it had to be killed as it took too long.
    """

    said: list[Any]
    signal: int
    overdue: bool


class Jobs:
    """Starts jobs. A context manager.

    Args:
      modules: what their programs import besides, which is then done once for all.
    """

    def __init__(self, *modules: str) -> None:
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
            "OPENBLAS_NUM_THREADS": "1",  # no threads before the fork
            "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.warm", *_PROGRAMS, *modules],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def outcomes(
        self,
        program: str,
        count: int,
        *,
        devices: int = 2,
        joined: bool = True,
        apart: bool = False,
        limit: float = 60.0,
        **arguments: Any,
    ) -> list[Outcome]:
        """Runs a function in some processes, and says how each ended.

        Args:
          program: its module and its name; it is given a function that says something, the number of
            its process, and the arguments.
          count: how many processes.
          devices: how many each has.
          joined: whether they know of each other.
          apart: whether the service in which they meet outlives process 0, which has it otherwise.
          limit: seconds after which they are killed.
        """
        order = {
            "program": f"tests.processes.{program}",
            "count": count,
            "devices": devices,
            "joined": joined,
            "apart": apart,
            "limit": limit,
            "arguments": {
                name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()
            },
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())
        for one in ended:
            for said in one["said"]:
                if isinstance(said, dict) and "traceback" in said:
                    raise AssertionError(said["traceback"])
        return [Outcome(one["said"], one["signal"], one["overdue"]) for one in ended]

    def run(self, program: str, count: int, **more: Any) -> list[Any]:
        """What each process said, of a job in which none dies: a list, or the one thing it said."""
        ended = self.outcomes(program, count, **more)
        assert [(one.signal, one.overdue) for one in ended] == [(0, False)] * count, ended
        return [one.said[0] if len(one.said) == 1 else one.said for one in ended]

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its streams, at which it ends, and waits
            pass
