"""Traces of saves and loads, in the format that Perfetto opens."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import storax
from storax import tracing
from storax.tracing import recording, span

TREE = {"w": np.zeros(1_000_000, np.float32), "b": [np.ones(3)] * 4}


def events(path: Path) -> list[dict]:
    return [event for event in json.loads(path.read_text()) if event["ph"] == "X"]


def test_a_save_and_a_load_add_to_one_trace(tmp_path: Path):
    trace = tmp_path / "deep" / "trace.json"
    storax.save(tmp_path / "a", TREE, trace=trace)
    names = {event["name"] for event in events(trace)}
    assert names >= {"save", "flatten", "stage", "write", "fsync", "merge", "publish"}
    storax.load(tmp_path / "a", trace=trace)
    storax.save_async(tmp_path / "b", TREE, trace=trace).result()
    found = events(trace)
    assert {event["name"] for event in found} >= {*names, "load", "read", "place"}
    assert [e["args"]["checkpoint"] for e in found if e["name"] == "save"] == [
        f"{tmp_path}/a",
        f"{tmp_path}/b",
    ]


def test_a_trace_has_the_form_of_chrome(tmp_path: Path):
    storax.save(tmp_path / "a", TREE, trace=tmp_path / "t.json")
    every = json.loads((tmp_path / "t.json").read_text())
    for event in every:
        assert {"name", "ph", "pid", "tid"} <= set(event)
        assert event["ph"] == "M" or (event["dur"] >= 0 and event["pid"] == os.getpid())
    (save,) = [event for event in every if event["name"] == "save"]
    assert abs(save["ts"] / 1e6 - time.time()) < 60  # microseconds since 1970
    threads = {event["tid"] for event in every if event["name"] == "thread_name"}
    assert {event["tid"] for event in every} == threads


def test_spans_lie_within_the_save(tmp_path: Path):
    storax.save(tmp_path / "a", TREE, trace=tmp_path / "t.json")
    found = events(tmp_path / "t.json")
    (save,) = [event for event in found if event["name"] == "save"]
    for event in found:
        assert save["ts"] <= event["ts"] + 1
        assert event["ts"] + event["dur"] <= save["ts"] + save["dur"] + 1


def test_the_variable_traces_a_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(tracing.VARIABLE, str(tmp_path / "t.json"))
    options = storax.CheckpointManagerOptions(max_to_keep=1)
    with storax.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in (1, 2):
            manager.save(step, args=storax.args.StandardSave(TREE))
        manager.wait_until_finished()
        manager.restore(2)
    names = [event["name"] for event in events(tmp_path / "t.json")]
    assert names.count("save") == names.count("retain") == names.count("publish") == 2
    assert names.count("load") == 1


def test_without_being_asked_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(tracing.VARIABLE, raising=False)
    monkeypatch.setattr(tracing, "_append", lambda *_: pytest.fail("a trace was written"))
    storax.save(tmp_path / "a", TREE)
    storax.load(tmp_path / "a")


def test_a_span_costs_nothing_when_off():
    assert span("write", file="x") is span("read")
    rounds = 20_000

    def spans() -> float:
        began = time.process_time()
        for _ in range(rounds):
            with span("write", file="x"):
                pass
        return (time.process_time() - began) / rounds

    assert min(spans() for _ in range(5)) < 1e-4  # some 1e-6 here; a slow machine must not fail


def test_a_failure_is_in_the_trace(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), recording(tmp_path / "t.json", "save"), span("write"):
        raise ZeroDivisionError
    assert {event["name"]: event["args"]["failed"] for event in events(tmp_path / "t.json")} == {
        "write": "ZeroDivisionError",
        "save": "ZeroDivisionError",
    }


def test_a_recording_within_another_is_a_span_of_it(tmp_path: Path):
    with recording(tmp_path / "t.json", "outer"), recording(tmp_path / "other.json", "inner"):
        pass
    assert [event["name"] for event in events(tmp_path / "t.json")] == ["inner", "outer"]
    assert not (tmp_path / "other.json").exists()


def test_a_trace_that_cannot_be_written_costs_no_save(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    mine = tmp_path / "thesis.txt"
    mine.write_text("chapter 1")
    with caplog.at_level(logging.WARNING, "storax"):
        storax.save(tmp_path / "a", TREE, trace=mine)
        storax.save(tmp_path / "b", TREE, trace=tmp_path)
    assert mine.read_text() == "chapter 1"
    assert len(caplog.records) == 2
    assert np.array_equal(storax.load(tmp_path / "a")["w"], TREE["w"])


def test_many_processes_add_to_one_trace(tmp_path: Path):
    program = """if True:
        import sys
        from storax.tracing import recording
        for _ in range(40):
            with recording(sys.argv[1], "x"):
                pass
    """
    source = str(Path(__file__).parents[1] / "src")
    command = [sys.executable, "-c", program, str(tmp_path / "t.json")]
    running = [subprocess.Popen(command, env={"PYTHONPATH": source}) for _ in range(3)]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    found = events(tmp_path / "t.json")
    assert len(found) == 120
    assert len({event["pid"] for event in found}) == 3


def test_a_relative_trace_is_where_it_was_when_the_call_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    storax.save(tmp_path / "a", TREE)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    storax.load("a", trace="t.json", progress=lambda done, total: os.chdir(tmp_path / "other"))
    assert (tmp_path / "t.json").is_file()
    assert not (tmp_path / "other" / "t.json").exists()
