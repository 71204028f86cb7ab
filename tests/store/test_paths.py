"""What a path that somebody typed means."""

from __future__ import annotations

from pathlib import Path

import pytest

from storax.errors import BadOption
from storax.store.paths import resolve


def test_a_relative_path_is_that_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert resolve("a/../b/./c") == tmp_path / "b" / "c"
    assert resolve(Path("a")) == tmp_path / "a"
    assert resolve(".") == tmp_path


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/runs") == tmp_path / "runs"


def test_bytes_are_refused(tmp_path: Path):
    with pytest.raises(BadOption, match="bytes"):
        resolve(bytes(tmp_path))


def test_what_is_no_path_at_all_is_a_type_error():
    with pytest.raises(TypeError):
        resolve(3)
