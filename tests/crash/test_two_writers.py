"""Two processes that save the same thing at the same time: one wins, the other is told, nothing is half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.crash.warm import SOURCE

import storax

COUNT = 5

# Both have written their whole drafts before either renames: the tightest race there is.
_PROGRAM = """
import json, sys, time
from pathlib import Path
import numpy as np
import storax
from storax.store import posix

kind, me, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
place = Path(sys.argv[1])
rename = posix.rename_to_new
number = -1

def meet(name):
    (place / f"{name}-{me}").touch()
    deadline = time.monotonic() + 100
    while not (place / f"{name}-{1 - me}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.0005)

def together(source, target):
    if "-tmp-storax-" in source.name:
        meet(f"at-{number}")
    rename(source, target)

def save(manager):
    tree = {"me": np.full(3000, me), "step": number}
    if kind == "save":
        storax.save(place / "run" / str(number), tree)
    elif kind == "overwrite":
        storax.save(place / "run" / "tree", tree, overwrite=True)
    else:
        manager.save(number, args=storax.args.StandardSave(tree), force=True)
        manager.wait_until_finished()

(place / "run").mkdir(exist_ok=True)
manager = storax.CheckpointManager(place / "run") if kind == "manager" else None
outcomes = []
for number in range(count):
    meet(f"start-{number}")
    posix.rename_to_new = together
    try:
        save(manager)
        outcomes.append("saved")
    except Exception as error:
        outcomes.append([type(error).__name__, str(error)])
    posix.rename_to_new = rename
    meet(f"end-{number}")
print(json.dumps(outcomes))
"""


def _race(place: Path, kind: str) -> list[list]:
    command = [sys.executable, "-c", _PROGRAM, str(place), kind]
    both = [
        subprocess.Popen(
            [*command, str(me), str(COUNT)],
            env=os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in (0, 1)
    ]
    try:
        answers = [process.communicate(timeout=120)[0] for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("kind", ["save", "manager"])
def test_one_wins_the_other_is_told_and_the_step_is_whole(tmp_path: Path, kind: str):
    outcomes = _race(tmp_path, kind)
    for step, pair in enumerate(zip(*outcomes, strict=True)):
        (winner,) = [me for me, outcome in enumerate(pair) if outcome == "saved"]
        name, message = pair[1 - winner]
        assert name == "CheckpointExists"
        assert f"{tmp_path / 'run' / str(step)} is there already" in message
        if kind == "manager":
            assert f"step {step}" in message
        found = storax.load(tmp_path / "run" / str(step))
        assert found["step"] == step
        assert np.array_equal(found["me"], np.full(3000, winner))
    assert sorted(os.listdir(tmp_path / "run")) == sorted(map(str, range(COUNT)))


def test_of_two_that_replace_the_same_tree_the_first_wins_and_the_other_is_told(tmp_path: Path):
    storax.save(tmp_path / "run" / "tree", {"me": np.full(3000, 7), "step": -1})
    outcomes = _race(tmp_path, "overwrite")
    for pair in zip(*outcomes, strict=True):
        (winner,) = [me for me, outcome in enumerate(pair) if outcome == "saved"]
        name, message = pair[1 - winner]
        assert name == "CheckpointExists"
        assert "replaced while this save ran" in message
    found = storax.load(tmp_path / "run" / "tree")
    assert found["step"] == COUNT - 1
    assert np.array_equal(found["me"], np.full(3000, winner))
    assert os.listdir(tmp_path / "run") == ["tree"]
