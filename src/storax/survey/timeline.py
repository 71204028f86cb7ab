"""A trace (see ``tracing.py``) as a picture of text: what ran when, on which thread of which process."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storax.errors import CheckpointNotFound, Corrupt


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time. Seconds since 1970, and for how many seconds."""

    name: str
    begin: float
    seconds: float
    process: int
    thread: int
    what: dict[str, Any]

    @property
    def end(self) -> float:
        return self.begin + self.seconds


@dataclass(slots=True)
class Lane:
    """All spans of one name on one thread.

    Attributes:
      depth: how many other spans are around them.
      busy: seconds in all.
    """

    name: str
    process: int
    thread: int
    thread_name: str
    depth: int = 0
    spans: list[Span] = field(default_factory=list)

    @property
    def busy(self) -> float:
        return sum(span.seconds for span in self.spans)


@dataclass(slots=True)
class Chapter:
    """What belongs together in time, such as one save: its spans by thread and name."""

    begin: float
    end: float
    title: str
    lanes: list[Lane]


def read_trace(path: Path) -> tuple[list[Span], dict[int, str]]:
    """The spans of a trace file, and the names of its threads.

    Raises:
      CheckpointNotFound: there is no such file.
      Corrupt: it is not a trace.
    """
    try:
        events = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointNotFound(
            f"{path} does not exist. Make a trace: save(..., trace={path.name!r}), or set STORAX_TRACE."
        ) from None
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{path} is not a trace: {error}") from None
    if isinstance(events, dict):
        events = events.get("traceEvents")  # the other form that Perfetto opens
    if not isinstance(events, list):
        raise Corrupt(f"{path} is not a trace: no list of events")
    try:
        threads = {
            int(e["tid"]): str(e["args"]["name"])
            for e in events
            if e.get("ph") == "M" and e.get("name") == "thread_name"
        }
        spans = [_span(e) for e in events if e.get("ph") == "X"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"{path} has an event that cannot be read: {error!r}") from None
    return sorted(spans, key=lambda span: (span.begin, -span.seconds)), threads


def _span(event: dict[str, Any]) -> Span:
    return Span(
        str(event["name"]),
        float(event["ts"]) / 1e6,
        float(event["dur"]) / 1e6,
        int(event["pid"]),
        int(event["tid"]),
        dict(event.get("args") or {}),
    )


def chapters(spans: Sequence[Span], threads: dict[int, str]) -> list[Chapter]:
    """Spans that overlap, together; and what was staged, with the save that it was staged for."""
    found: list[list[Span]] = []
    end = 0.0
    for span in spans:
        if not found or (span.begin >= end and not _follows(span, found[-1][0])):
            found.append([])
        end = max(end, span.end)
        found[-1].append(span)
    return [_chapter(group, threads) for group in found]


def _follows(span: Span, first: Span) -> bool:
    checkpoint = span.what.get("checkpoint")
    return first.name == "stage" and checkpoint in (None, first.what.get("checkpoint"))


def _chapter(spans: Sequence[Span], threads: dict[int, str]) -> Chapter:
    lanes: dict[tuple[int, int, str], Lane] = {}
    open_spans: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in spans:
        around = open_spans[span.process, span.thread]
        while around and around[-1].end <= span.begin:
            around.pop()
        key = span.process, span.thread, span.name
        if key not in lanes:
            name = threads.get(span.thread, str(span.thread))
            lanes[key] = Lane(span.name, span.process, span.thread, name, depth=len(around))
        lanes[key].spans.append(span)
        around.append(span)
    titles = dict.fromkeys(f"{s.name} {s.what['checkpoint']}" for s in spans if "checkpoint" in s.what)
    order = {thread: i for i, thread in enumerate(dict.fromkeys((s.process, s.thread) for s in spans))}
    listed = sorted(lanes.values(), key=lambda lane: order[lane.process, lane.thread])
    end = max(span.end for span in spans)
    return Chapter(spans[0].begin, end, ", ".join(titles) or spans[0].name, listed)


def totals(spans: Iterable[Span]) -> dict[str, tuple[int, float]]:
    """How often each name occurs and for how many seconds in all, the longest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for span in spans:
        found[span.name].append(span.seconds)
    return {
        name: (len(seconds), sum(seconds))
        for name, seconds in sorted(found.items(), key=lambda x: -sum(x[1]))
    }


# --- drawing -------------------------------------------------------------------------------------


def draw(chapter: Chapter, width: int = 100) -> Iterator[str]:
    """The lines of a picture, at most ``width`` letters wide."""
    length = max(chapter.end - chapter.begin, 1e-9)
    named = max((len(_label(lane)) for lane in chapter.lanes), default=0)
    cells = max(20, width - named - 14)
    yield f"{chapter.title}: {_seconds(length)}"
    thread = None
    for lane in chapter.lanes:
        if (lane.process, lane.thread) != thread:
            thread = lane.process, lane.thread
            yield f"  process {lane.process}, {lane.thread_name}"
        drawn = _cells(lane, chapter.begin, length, cells)
        yield f"{_label(lane):<{named}} {_seconds(lane.busy):>9} │{drawn}│"
    yield " " * (named + 11) + "0" + _seconds(length).rjust(cells)


def _label(lane: Lane) -> str:
    times = f" x{len(lane.spans)}" if len(lane.spans) > 1 else ""
    return "    " + "  " * lane.depth + lane.name + times


def _cells(lane: Lane, begin: float, length: float, cells: int) -> str:
    """Full blocks where a span fills a cell, lighter ones where it fills part of it."""
    filled = [0.0] * cells
    for span in lane.spans:
        first = (span.begin - begin) / length * cells
        last = (span.end - begin) / length * cells
        for cell in range(max(0, int(first)), min(cells, int(last) + 1)):
            filled[cell] += max(0.0, min(last, cell + 1) - max(first, cell)) or 1e-6
    return "".join(" ░▒▓█"[0 if f == 0 else min(4, 1 + int(f * 3.999))] for f in filled)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
