"""The report page: what is in it, and that it can be opened anywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from tests.cli.command import FIXTURES, ok
from tests.cli.command import storax as command
from tests.cli.runs import leave_draft, make_run
from tests.devices import on_mesh

import storax
from storax.survey.report import render, survey


def data_of(page: str) -> dict:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_it_says_which_device_has_which_part_and_who_wrote_it(tmp_path: Path):
    storax.save(tmp_path / "a", {"w": on_mesh(np.zeros((16, 8), np.float32), "data", "model"), "n": 3})
    data = survey(tmp_path / "a", values=True)
    (leaves,) = [tree["leaves"] for tree in data["trees"]]
    w = next(leaf for leaf in leaves if leaf["path"] == ["w"])
    picture = data["pictures"][w["picture"]]
    assert picture["axes"] == {"data": 4, "model": 2}
    assert len({tuple(map(tuple, box)) for _, box in picture["boxes"]}) == 8
    assert w["stored"] == {"0": 16 * 8 * 4 + 8 * 4}
    assert (w["chunk"], w["chunks"]) == ([4, 4], 8)
    assert (w["stats"]["zero"], sum(w["stats"]["histogram"])) == (128, 128)


def test_leaves_with_one_sharding_share_a_picture(tmp_path: Path):
    leaf = on_mesh(np.zeros((16, 8), np.float32), "data")
    storax.save(tmp_path / "a", {str(i): leaf for i in range(5)})
    assert len(survey(tmp_path / "a")["pictures"]) == 1


def test_a_run_has_its_steps_drafts_metrics_and_what_keeps_them(tmp_path: Path):
    run = make_run(tmp_path / "run")
    leave_draft(run, 4)
    steps = survey(run)["steps"]
    assert [(s["step"], s["state"]) for s in steps] == [
        (1, "committed"), (2, "committed"), (3, "committed"), (4, "dead draft"),
    ]  # fmt: skip
    assert steps[2]["why"] == ["newest"]
    assert steps[1]["metrics"] == {"loss": 0.5}


def test_a_run_with_drafts_only_has_a_page(tmp_path: Path):
    leave_draft(tmp_path / "run", 1)
    ok("report", tmp_path / "run", "-o", tmp_path / "r.html")
    assert data_of((tmp_path / "r.html").read_text())["trees"] == []


def test_the_page_asks_the_network_for_nothing(tmp_path: Path):
    page = render(survey(FIXTURES / "0.12.8" / "manager"))
    without_data = re.sub(r'id="data">.*?</script>', "", page, flags=re.DOTALL)
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", without_data)
    assert set(re.findall(r"https?://[^\s\"']+", without_data)) == {"http://www.w3.org/2000/svg"}


def test_names_and_values_cannot_break_out_of_the_page(tmp_path: Path):
    evil = "</script><script>alert(1)</script>"
    storax.save(tmp_path / "a", {evil: evil, "nan": np.full(3, np.nan), "{{DATA}}": np.zeros(1)})
    page = render(survey(tmp_path / "a", values=True))
    assert evil not in page
    leaves = data_of(page)["trees"][0]["leaves"]
    assert {leaf["path"][0] for leaf in leaves} == {evil, "nan", "{{DATA}}"}


def test_a_trace_is_in_the_report(tmp_path: Path):
    trace = tmp_path / "t.json"
    storax.save(tmp_path / "a", {"w": np.zeros(100_000)}, trace=trace)
    ok("report", tmp_path / "a", "--trace", trace, "-o", tmp_path / "r.html")
    (found,) = data_of((tmp_path / "r.html").read_text())["traces"]
    assert found["title"] == f"save {tmp_path}/a"
    assert {lane["name"] for lane in found["lanes"]} >= {"save", "write", "publish"}


def test_what_is_no_checkpoint_has_no_report(tmp_path: Path):
    assert command("report", tmp_path / "nope", "-o", tmp_path / "r.html").code == 7
    assert not (tmp_path / "r.html").exists()
