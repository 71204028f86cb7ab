"""Every name has a row in docs/from-orbax.md, a test that shows it, and something behind it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import orbax.checkpoint
import pytest
from tests.compat.conftest import BEGIN, END, PAGE
from tests.compat.names import BETTER, LEFT_OUT, TIER_1, TIER_2

import storax

HERE = Path(__file__).parent
PLAIN = [name for name in (*TIER_1, *TIER_2) if re.fullmatch(r"[A-Za-z_.]+", name) and name not in LEFT_OUT]


def resolved(library: Any, name: str) -> Any:
    for part in name.split("."):
        library = getattr(library, part)
    return library


# Younger than the others: not at the top of Orbax.
ELSEWHERE = {"StatefulCheckpointable"}


@pytest.mark.parametrize("name", PLAIN)
def test_the_name_is_there(name: str) -> None:
    resolved(storax, name)
    if name not in ELSEWHERE:
        resolved(orbax.checkpoint, name)


def rows() -> dict[str, tuple[str, str]]:
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    found = re.findall(r"^\| `(.+?)` \| (.+?) \| .*? ?\| (.*?) ?\|$", table, re.MULTILINE)
    return {name: (status, test) for name, status, test in found}


def test_the_table_has_every_name_and_says_what_the_tests_say() -> None:
    expected = {
        name: "left out" if name in LEFT_OUT else "works better" if name in BETTER else "works"
        for name in (*TIER_1, *TIER_2)
    }
    assert {name: status for name, (status, _) in rows().items()} == expected


def test_every_test_that_the_table_names_is_there() -> None:
    there = {
        f"{path.name}::{node.name}"
        for path in HERE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {test for _, test in rows().values() if test} <= there


def test_remarks_are_about_names_that_there_are() -> None:
    assert set(BETTER) | set(LEFT_OUT) <= {*TIER_1, *TIER_2}
