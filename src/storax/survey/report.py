"""One page with pictures of a checkpoint or a run: everything that it shows, as one JSON value."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from storax import progress
from storax.errors import CheckpointNotFound
from storax.survey import run as runs
from storax.survey.leaves import SeenLeaf, see_leaves
from storax.survey.places import Place, find
from storax.survey.sharding import device_boxes, in_short, mesh_of
from storax.survey.timeline import Chapter, chapters, read_trace
from storax.survey.values import Statistics, statistics

_BINS = 40
# A drawing of more devices than this shows nothing that an eye can tell apart.
_MOST_DEVICES = 256
_STYLE = "style.css"
_SCRIPTS = ("dom.js", "treemap.js", "tree.js", "details.js", "steps.js", "traces.js", "main.js")


def survey(path: Path, *, values: bool = False, traces: Sequence[Path] = ()) -> dict[str, Any]:
    """What the page shows of a checkpoint; of a run, its steps and what is in the newest.

    Args:
      path: of either.
      values: whether to read all values, for statistics and histograms.
      traces: files to show as well.
    """
    steps = runs.see_run(path) if runs.is_run(path) else []
    try:
        place: Place | None = find(path)
    except CheckpointNotFound:
        if not steps:
            raise
        place = None  # a run in which nothing was committed yet
    drawings: dict[str, int] = {}
    pictures: list[dict[str, Any]] = []
    return {
        "path": str(path),
        "name": path.name,
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "checkpoint": None if place is None else _checkpoint(place),
        "trees": [] if place is None else [
            _tree(name, directory, values, drawings, pictures) for name, directory in place.trees.items()
        ],
        "others": [] if place is None else list(place.others),
        "pictures": pictures,
        "steps": _steps(steps),
        "traces": [_trace(chapter) for trace in traces for chapter in chapters(*read_trace(trace))],
    }  # fmt: skip


def _checkpoint(place: Place) -> dict[str, Any]:
    seen = runs.see_step(place.path)
    return {
        "path": str(place.path),
        "saved_ms": seen.saved_ns / 1e6,
        "seconds": seen.seconds,
        "nbytes": seen.nbytes,
        "files": seen.files,
        "metrics": dict(seen.metrics),
        "custom": dict(place.custom),
    }


def _steps(steps: Sequence[runs.SeenStep]) -> list[dict[str, Any]]:
    return [
        {
            "name": seen.path.name,
            "step": seen.step,
            "state": seen.state,
            "saved_ms": seen.saved_ns / 1e6,
            "seconds": seen.seconds,
            "nbytes": seen.nbytes,
            "files": seen.files,
            "items": list(seen.items),
            "metrics": {k: v for k, v in seen.metrics.items() if isinstance(v, (int, float))},
            "why": list(seen.why),
        }
        for seen in steps
    ]


def _tree(
    name: str, directory: Path, values: bool, drawings: dict[str, int], pictures: list[dict[str, Any]]
) -> dict[str, Any]:
    leaves = see_leaves(directory)
    measured: dict[str, Statistics] = {}
    if values:
        # Twice: once for the ranges, once for the histograms.
        progress.expect(2 * sum(leaf.nbytes for leaf in leaves if leaf.source is not None))
        measured = {seen.name: seen for seen in statistics(leaves, bins=_BINS)}
    return {
        "item": name,
        "leaves": [_leaf(leaf, measured.get(leaf.name), drawings, pictures) for leaf in leaves],
    }


def _leaf(
    leaf: SeenLeaf, measured: Statistics | None, drawings: dict[str, int], pictures: list[dict[str, Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "path": list(leaf.path),
        "what": leaf.what,
        "kind": leaf.kind,
        "shape": list(leaf.shape or ()),
        "nbytes": leaf.nbytes,
        "stored": dict(leaf.stored),
    }
    if leaf.tied is not None:
        found["tied"] = leaf.tied
    if leaf.value is not None:
        found["value"] = str(leaf.value)[:200]
    if leaf.chunk_shape is not None and leaf.shape is not None:
        found["chunk"] = list(leaf.chunk_shape)
        found["chunks"] = leaf.chunks
    if leaf.sharding is not None and leaf.shape is not None:
        found["picture"] = _picture(leaf, drawings, pictures)
    if measured is not None and measured.count:
        found["stats"] = _numbers(measured)
    return found


def _picture(leaf: SeenLeaf, drawings: dict[str, int], pictures: list[dict[str, Any]]) -> int:
    """The number of the drawing of a leaf's sharding; leaves of one shape and sharding share it."""
    key = json.dumps([leaf.sharding, leaf.shape], sort_keys=True)
    if key not in drawings:
        drawings[key] = len(pictures)
        mesh = mesh_of(leaf.sharding)
        boxes = device_boxes(leaf.sharding, leaf.shape or ())
        pictures.append(
            {
                "short": in_short(leaf.sharding),
                "axes": {} if mesh is None else dict(mesh.axes),
                "devices": len(boxes),
                "boxes": [[device, box] for device, box in boxes[:_MOST_DEVICES]],
            }
        )
    return drawings[key]


def _numbers(measured: Statistics) -> dict[str, Any]:
    numbers = {
        "min": measured.low, "max": measured.high, "mean": measured.mean, "std": measured.std,
        "norm": measured.norm, "nan": measured.nans, "inf": measured.infs, "zero": measured.zeros,
        "count": measured.count,
    }  # fmt: skip
    finite = {k: v if v is None or math.isfinite(v) else str(v) for k, v in numbers.items()}
    return {**finite, "histogram": list(measured.histogram)}


def _trace(chapter: Chapter) -> dict[str, Any]:
    return {
        "title": chapter.title,
        "seconds": chapter.end - chapter.begin,
        "lanes": [
            {
                "name": lane.name,
                "process": lane.process,
                "thread": lane.thread,
                "thread_name": lane.thread_name,
                "depth": lane.depth,
                "busy": lane.busy,
                "spans": [
                    [span.begin - chapter.begin, span.seconds, span.what.get("file", "")]
                    for span in lane.spans
                ],
            }
            for lane in chapter.lanes
        ],
    }


def render(data: dict[str, Any]) -> str:
    """The page: HTML with its style, its scripts and the data in it; it asks the network for nothing."""
    files = resources.files("storax.survey") / "page"
    page = (files / "page.html").read_text(encoding="utf-8")
    scripts = "\n".join((files / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    # A leaf may be called </script>; within a JSON text the sign < can be spelled otherwise.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=asdict).replace("<", "\\u003c")
    parts = {"STYLE": (files / _STYLE).read_text(encoding="utf-8"), "SCRIPT": scripts, "DATA": text}
    before, *rest = page.split("{{")
    return before + "".join(parts[name] + after for name, after in (piece.split("}}", 1) for piece in rest))
