"""A process that has imported everything, and forks a child for each order: run, or run and die.

It starts no thread and never asks JAX for its devices, so forking is safe. The test's side is ``Warm``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import storax

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(storax.__file__).resolve().parents[1]


class Warm:
    """The process, as a test sees it. A context manager."""

    def __init__(self) -> None:
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "OPENBLAS_NUM_THREADS": "1",  # no threads before the fork
            "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.warm"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, scenario: str, directory: Path, *, die_at: int = 0, half: bool = False) -> dict[str, Any]:
        """Runs a scenario in a fresh child, which dies at the n-th operation if that is not 0.

        Returns:
          ``signal``: what killed it, or 0; ``told``: the steps that the program was told are committed;
          ``operations``: of a child that does not die, what it did, and the steps that were there before;
          ``states``: of such a child, the steps that were there, one entry for each change.
        """
        order = {"scenario": scenario, "directory": str(directory), "die_at": die_at, "half": half}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert answer["signal"] in (0, 9), answer
        assert answer["code"] == 0, answer
        return answer

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its streams, at which it ends, and waits
            pass


def _steps(place: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(place) if name.isdigit()) if place.is_dir() else []


def _child(order: dict[str, Any], report: int) -> None:
    from tests.crash.scenarios import SCENARIOS
    from tests.crash.watch import Hook, Operation, dying_at, watched

    def say(**message: Any) -> None:
        os.write(report, json.dumps(message).encode() + b"\n")

    scenario = SCENARIOS[order["scenario"]]
    directory = Path(order["directory"])

    def record(operation: Operation, _: object) -> None:
        say(operation=operation.as_json() | {"steps": _steps(directory / scenario.place)})

    hook: Hook = dying_at(order["die_at"], half=order["half"]) if order["die_at"] else record
    with watched(hook):
        scenario.run(directory, lambda step: say(told=step, steps=_steps(directory / scenario.place)))


def _obey(order: dict[str, Any]) -> dict[str, Any]:
    from_child, report = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(from_child)
            _child(order, report)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(report)
    with open(from_child, encoding="utf-8") as lines:
        messages = [json.loads(line) for line in lines]
    status = os.waitpid(child, 0)[1]
    states: list[list[int]] = []
    for message in messages:
        steps = message.get("operation", message)["steps"]
        if states[-1:] != [steps]:
            states.append(steps)
    return {
        "states": states,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
        "told": [m["told"] for m in messages if "told" in m],
        "operations": [m["operation"] for m in messages if "operation" in m],
    }


def main() -> None:
    import tests.crash.scenarios  # noqa: F401

    import storax.compat.checkpointers
    import storax.manager

    assert storax.load
    for line in sys.stdin:
        print(json.dumps(_obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
