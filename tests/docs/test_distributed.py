"""The programs of ``docs/distributed.md``, run as they stand, and its tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.docs.session import blocks

DOCUMENT = Path(__file__).parents[2] / "docs" / "distributed.md"


def test_every_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    for language, program in blocks(DOCUMENT.read_text()):
        assert language == "python"
        exec(compile(program, str(DOCUMENT), "exec"), known)
    assert "16 processes, mesh data 16 x model 8; 3 arrays, 253.8 MiB" in capsys.readouterr().out


def test_every_table_was_made() -> None:
    text = DOCUMENT.read_text()
    rows = {
        name: len(re.findall(r"^\| ", body, re.MULTILINE))
        for name, body in re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end of \1 -->", text, re.DOTALL)
    }
    assert rows == {"balance": 49, "plan": 5, "merge": 4, "resharding": 6}


def test_no_process_carries_more_than_a_twentieth_above_its_share() -> None:
    table = DOCUMENT.read_text().partition("<!-- balance -->")[2].partition("<!-- end")[0]
    ratios = [float(row.split("|")[5]) for row in table.splitlines() if re.match(r"\| \d+B", row)]
    assert len(ratios) == 48
    assert max(ratios) <= 1.05
