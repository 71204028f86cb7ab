"""What each test shows goes into its report; STORAX_WRITE_TABLE=1 writes the table of the documentation."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.compat.names import BETTER, LEFT_OUT, TIER_1, TIER_2

PAGE = Path(__file__).parents[2] / "docs" / "from-orbax.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@pytest.fixture(autouse=True)
def _names(request: pytest.FixtureRequest, record_property: Any) -> None:
    record_property("shows", getattr(request.function, "shown_names", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if os.environ.get("STORAX_WRITE_TABLE"):
        write_table(terminalreporter.stats)


def write_table(stats: dict[str, list[Any]]) -> None:
    tests: dict[str, list[str]] = defaultdict(list)
    failed: set[str] = set()
    for outcome in ("passed", "failed"):
        for report in stats.get(outcome, ()):
            for name in dict(report.user_properties).get("shows", ()):
                test = report.nodeid.rpartition("/")[2].partition("[")[0]
                if test not in tests[name]:
                    tests[name].append(test)
                if outcome == "failed":
                    failed.add(name)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [BEGIN, ""]
    for title, names in (("Tier 1", TIER_1), ("Tier 2", TIER_2)):
        lines += [f"### {title}", "", "| name | | remark | shown by |", "|---|---|---|---|"]
        lines += [row(name, tests[name], name in failed) for name in names]
        lines.append("")
    PAGE.write_text(before + "\n".join([*lines, END]) + after)


def row(name: str, tests: list[str], failed: bool) -> str:
    if name in LEFT_OUT:
        return f"| `{name}` | left out | {LEFT_OUT[name]} | |"
    status = "fails" if failed or not tests else "works better" if name in BETTER else "works"
    return f"| `{name}` | {status} | {BETTER.get(name, '')} | {tests[0] if tests else ''} |"
