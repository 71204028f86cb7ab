"""Something goes wrong in one process: all are told, nothing half is visible, the next save works."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.processes.jobs import Jobs

import storax

TIMEOUT = 2.0

# What goes wrong: the type of the error on process 0 and on process 1, and what each message must say.
CASES: dict[str, tuple[str | None, str | None, str]] = {
    "other paths": (
        "ProcessesDisagree",
        "ProcessesDisagree",
        r"process 0 means \S+/step0.*process 1 means \S+/step1",
    ),
    "other values": (
        "ProcessesDisagree",
        "ProcessesDisagree",
        "the leaf table differs between process 0.*and process 1",
    ),
    "other leaves": ("ProcessesDisagree", "ProcessesDisagree", "Process 0 saves 4 leaves, others 5"),
    "other sharding": (
        "ProcessesDisagree",
        "ProcessesDisagree",
        "the leaf w differs between process 0.*and process 1",
    ),
    "other option": (
        "ProcessesDisagree",
        "ProcessesDisagree",
        "differs between process 0.*and process 1.*option",
    ),
    "not a leaf": ("UnsupportedLeaf", "UnsupportedLeaf", "x: a builtins.object"),
    "disk of 1 is full": ("StoreError", "StoreError", r"No space left on device while writing \S+process_1"),
    "disk of 0 is full": ("StoreError", "StoreError", r"No space left on device while writing \S+process_0"),
    "not shared": (
        "DirectoryNotShared",
        "DirectoryNotShared",
        r"what process 1 put into \S+elsewhere is not there",
    ),
    "stray database": ("Corrupt", "Corrupt", "ocdbt.process_7 is of no process of this save"),
    "stray document": ("Corrupt", "Corrupt", "process_9 is of no process of this save"),
    "lost chunk": ("Corrupt", "Corrupt", "w lacks w/c/2/0, which process 1 was to write"),
    "never calls": ("ProcessFailed", None, r"process 1 did not come to save \S+/a \(created\) within"),
    "process 0 never calls": (
        None,
        "ProcessFailed",
        r"process 0 did not come to save \S+/a \(created\) within",
    ),
    "late": ("ProcessFailed", "ProcessFailed", r"process 1 did not come to save \S+/a \(created\) within"),
    "taken": ("CheckpointExists", "CheckpointExists", "is there already"),
}


def test_whatever_goes_wrong_is_told_to_all_and_the_next_save_works(jobs: Jobs, tmp_path: Path) -> None:
    told = jobs.run("troubles.troubles", 2, directory=tmp_path, timeout=1.0)
    problems = []
    for index, cases in enumerate(told):
        assert [case["case"] for case in cases] == list(CASES)
        for case in cases:
            *kinds, text = CASES[case["case"]]
            kind, said = case["result"] or (None, "")
            if kind != kinds[index] or (kind is not None and not re.search(text, said, re.DOTALL)):
                problems.append(f"{case['case']}, process {index}: {case['result']}")
            if not case["works"] or case["there"] != (["a"] if case["case"] == "taken" else []):
                problems.append(f"{case['case']}, process {index}, afterwards: {case}")
    assert not problems, "\n".join(problems)
    assert [name for name in os.listdir(tmp_path) if "-tmp-" in name] == [], "no draft is left"


def test_a_save_has_three_barriers_and_the_service_does_not_fill_up(jobs: Jobs, tmp_path: Path) -> None:
    for said in jobs.run("troubles.count", 2, directory=tmp_path):
        assert said == [[["created", "written", "published"], 9]] * 4, "two messages and a verdict at each"


def _next_job(jobs: Jobs, directory: Path, *, before: list[int]) -> None:
    for process in jobs.run("troubles.go_on", 2, directory=directory):
        step = max(before) + 1
        assert (process["before"], process["after"], process["good"]) == (before, [*before, step], True)
        assert process["there"] == sorted(map(str, [*before, step])), "drafts of the dead are gone"


@pytest.mark.parametrize("victim", [1, 0])
@pytest.mark.parametrize("moment", ["never", "write", "written", "published"])
def test_one_dies_and_the_other_names_it_in_time(
    jobs: Jobs, tmp_path: Path, victim: int, moment: str
) -> None:
    ended = jobs.outcomes(
        "troubles.die",
        2,
        directory=tmp_path,
        victim=victim,
        moment=moment,
        timeout=TIMEOUT,
        apart=victim == 0,
        limit=4 * TIMEOUT + 10,
    )
    assert [one.signal for one in ended] == [9 if i == victim else 0 for i in range(2)]
    ((kind, text),) = ended[1 - victim].said
    assert kind == "ProcessFailed"
    word = {"never": "created", "write": "written", "written": "written", "published": "published"}[moment]
    assert f"process {victim} did not come to save {tmp_path / '2'} ({word}) within 2 s" in text
    # The one who dies after all was written has done its part: the step is whole, and told to be.
    whole = moment == "published"
    assert ("2" in os.listdir(tmp_path)) == whole
    assert ("is saved, but not all went well" in text) == (whole and victim == 1)
    _next_job(jobs, tmp_path, before=[1, 2] if whole else [1])


def test_process_0_dies_with_the_service_in_it(jobs: Jobs, tmp_path: Path) -> None:
    """JAX then ends the others; if storax is quicker, it says why."""
    ended = jobs.outcomes("troubles.die", 2, directory=tmp_path, victim=0, moment="never", timeout=TIMEOUT)
    assert ended[0].signal == 9
    if ended[1].signal == 0:
        ((kind, text),) = ended[1].said
        assert (kind, "It is in process 0" in text) == ("ProcessFailed", True)
    else:
        assert (ended[1].signal, ended[1].said) == (6, [])
    _next_job(jobs, tmp_path, before=[1])


@pytest.mark.parametrize("handled", [True, False], ids=["with a handler", "as JAX handles it"])
def test_sigterm_ends_a_wait(jobs: Jobs, tmp_path: Path, handled: bool) -> None:
    _, said = jobs.run("troubles.sigterm", 2, directory=tmp_path, handled=handled, limit=25)
    if handled:
        assert said == ["SystemExit", "told to stop"]
    else:
        assert said[0] == "ProcessFailed"
        assert "process 0 did not come" in said[1]
        assert "within 1 s after SIGTERM came to the job" in said[1]


@pytest.mark.parametrize("overwrite", [False, True])
def test_processes_that_were_not_joined_do_not_harm_each_other(
    jobs: Jobs, tmp_path: Path, overwrite: bool
) -> None:
    first, second = jobs.run("troubles.alone", 2, directory=tmp_path, overwrite=overwrite, joined=False)
    assert first == [None, 0]
    (kind, text), value = second
    assert (kind, value) == ("CheckpointExists", 0)
    assert "call jax.distributed.initialize() in each of them first" in text
    assert storax.load(tmp_path / "a") == {"w": 0}
    assert [name for name in os.listdir(tmp_path) if "-tmp-" in name] == []


def test_four_processes(jobs: Jobs, tmp_path: Path) -> None:
    ended = jobs.outcomes(
        "troubles.die", 4, devices=1, directory=tmp_path, victim=2, moment="write", timeout=TIMEOUT
    )
    said: list[Any] = [one.said for one in ended if one.signal == 0]
    assert len(said) == 3
    assert {kind for ((kind, _),) in said} == {"ProcessFailed"}
    assert all("process 2 did not come" in text for ((_, text),) in said)
