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


def test_what_is_above_a_link_is_above_what_it_points_to(tmp_path: Path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    assert resolve(tmp_path / "link" / ".." / "a") == tmp_path / "deep" / "a"
    assert resolve(tmp_path / "link" / "a") == tmp_path / "link" / "a"
    assert resolve(tmp_path / "link" / "a" / ".." / "b") == tmp_path / "link" / "b"


def test_below_a_working_directory_that_is_gone_there_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BadOption, match="working directory was deleted"):
        resolve("a")
    assert resolve(tmp_path / "a") == tmp_path / "a"


@pytest.mark.parametrize(
    ("path", "says"),
    [("x" * 256, "256 bytes"), ("é" * 130, "260 bytes"), ("x/" * 2300, "4,095"), ("\0", "zero")],
)
def test_what_no_file_system_takes_is_refused(path: str, says: str):
    with pytest.raises(BadOption, match=says):
        resolve("/" + path)
