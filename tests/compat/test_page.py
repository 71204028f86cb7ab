"""The examples of docs/from-orbax.md, run as they stand."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from tests.compat.conftest import PAGE


def test_the_examples_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(line for line in PAGE.read_text().splitlines() if not line.startswith("```"))
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    found = doctest.DocTestRunner(verbose=False).run(test)
    assert found.attempted > 15
    assert found.failed == 0
