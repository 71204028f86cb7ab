"""Traces as pictures of text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import ok, storax

from storax.errors import CheckpointNotFound, Corrupt
from storax.survey.timeline import chapters, draw, read_trace, totals


def event(name: str, begin: float, seconds: float, thread: int = 1, **args: object) -> dict:
    return {
        "name": name,
        "ph": "X",
        "ts": begin * 1e6,
        "dur": seconds * 1e6,
        "pid": 7,
        "tid": thread,
        "args": args,
    }


def write(path: Path, *events: dict) -> Path:
    names = [{"name": "thread_name", "ph": "M", "pid": 7, "tid": 1, "args": {"name": "MainThread"}}]
    path.write_text(json.dumps([*names, *events]))
    return path


SAVE = [
    event("save", 10, 4, checkpoint="/r/1"),
    event("write", 11, 1),
    event("fsync", 11.5, 0.5),
    event("write", 11, 2, thread=2),
    event("publish", 13.9, 0.1),
]


def test_lanes_are_nested_and_as_long_as_the_time(tmp_path: Path):
    (chapter,) = chapters(*read_trace(write(tmp_path / "t", *SAVE)))
    assert chapter.title == "save /r/1"
    assert [(lane.name, lane.thread, lane.depth) for lane in chapter.lanes] == [
        ("save", 1, 0), ("write", 1, 1), ("fsync", 1, 2), ("publish", 1, 1), ("write", 2, 0),
    ]  # fmt: skip
    lines = list(draw(chapter, width=100))
    assert max(map(len, lines)) <= 100
    bars = {line.split("│")[0].split()[0]: line.split("│")[1] for line in lines if "│" in line}
    cells = len(bars["save"])
    assert bars["save"] == "█" * cells
    assert abs(len(bars["publish"].strip()) - cells / 40) <= 1.5
    assert bars["publish"].endswith(("█", "▓"))
    assert "MainThread" in lines[1]


def test_each_save_has_its_own_chapter_and_staging_belongs_to_its_save(tmp_path: Path):
    path = write(
        tmp_path / "t", *SAVE, event("stage", 20, 1, checkpoint="/r/2"),
        event("save", 21.2, 1, thread=3, checkpoint="/r/2"), event("load", 30, 1, checkpoint="/r/1"),
    )  # fmt: skip
    assert [c.title for c in chapters(*read_trace(path))] == [
        "save /r/1",
        "stage /r/2, save /r/2",
        "load /r/1",
    ]


def test_totals_count_and_sum(tmp_path: Path):
    spans, _ = read_trace(write(tmp_path / "t", *SAVE))
    assert list(totals(spans)) == ["save", "write", "fsync", "publish"]
    assert totals(spans)["write"] == (2, pytest.approx(3))
    assert ok("timeline", tmp_path / "t", "--json").json["write"]["count"] == 2


def test_the_object_form_is_read_as_well(tmp_path: Path):
    (tmp_path / "t").write_text(json.dumps({"traceEvents": SAVE}))
    assert len(read_trace(tmp_path / "t")[0]) == 5
    assert "save /r/1: 4.00 s" in ok("timeline", tmp_path / "t").out


@pytest.mark.parametrize(
    "text", ["", "[", "3", '{"a": 1}', "[3]", '[{"ph": "X"}]', '[{"ph":"X","name":"a","ts":"x"}]']
)
def test_what_is_no_trace_is_said_so(tmp_path: Path, text: str):
    (tmp_path / "t").write_text(text)
    with pytest.raises(Corrupt, match="t "):
        read_trace(tmp_path / "t")
    assert storax("timeline", tmp_path / "t").code == 8


def test_a_missing_trace_says_how_to_make_one(tmp_path: Path):
    with pytest.raises(CheckpointNotFound, match="STORAX_TRACE"):
        read_trace(tmp_path / "t")
