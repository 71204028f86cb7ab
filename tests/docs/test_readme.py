"""The programs of ``README.md``, run as they stand, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.docs.session import blocks

DOCUMENT = Path(__file__).parents[2] / "README.md"
FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"


def test_every_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    programs = blocks(DOCUMENT.read_text())
    assert len(programs) == 3
    for language, program in programs:
        assert language == "python"
        exec(compile(program, str(DOCUMENT), "exec"), known)
    assert known["state"]["step"] == 7
    assert known["storax"].verify("runs/a").ok
    assert known["mngr"].all_steps() == [0]
    assert np.array_equal(known["fresh"].kernel[...], known["model"].kernel[...])


def test_it_names_the_versions_of_orbax_that_there_are_files_of() -> None:
    text = DOCUMENT.read_text()
    versions = [path.name for path in FIXTURES.iterdir() if path.is_dir() and path.name[0].isdigit()]
    assert versions
    assert all(version in text for version in versions)
