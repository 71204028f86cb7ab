"""`cp` and `rm`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import ok, storax
from tests.cli.runs import leave_draft, make_run, tree

import storax as library
from storax.errors import StoreError
from storax.store import commit, posix


def contents(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_a_copy_has_the_same_bytes(tmp_path: Path):
    library.save(tmp_path / "a", tree())
    ok("cp", tmp_path / "a", tmp_path / "deep" / "b")
    assert contents(tmp_path / "deep" / "b") == contents(tmp_path / "a")


def test_a_copy_does_not_take_a_place_that_is_taken(tmp_path: Path):
    library.save(tmp_path / "a", tree())
    library.save(tmp_path / "b", tree(2))
    assert storax("cp", tmp_path / "a", tmp_path / "b").code == 6
    ok("cp", tmp_path / "a", tmp_path / "b", "--overwrite")
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_what_takes_the_place_is_told_with_the_option_to_type(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.ones(3, np.float32)})
    for target in ("b", "c.safetensors"):
        ok("convert", tmp_path / "a", tmp_path / target)
        done = storax("convert", tmp_path / "a", tmp_path / target)
        assert done.code == 6
        assert "--overwrite" in done.err
        assert "overwrite=" not in done.err
        ok("convert", tmp_path / "a", tmp_path / target, "--overwrite")
    (tmp_path / "spec.json").write_text('{"transforms": []}')
    done = storax("surgery", tmp_path / "a", tmp_path / "b", "--spec", tmp_path / "spec.json")
    assert "--overwrite" in done.err
    assert "overwrite=" not in done.err
    library.save(tmp_path / "d", tree())
    assert "--subtree params" in storax("convert", tmp_path / "d", tmp_path / "d.safetensors").err


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library.save(tmp_path / "a", tree())
    calls = []
    original = posix.NewFile.write_at

    def full(self: posix.NewFile, offset: int, buffers: list) -> int:
        calls.append(offset)
        if len(calls) > 3:
            raise StoreError("the disk is full")
        return original(self, offset, buffers)

    monkeypatch.setattr(posix.NewFile, "write_at", full)
    assert storax("cp", tmp_path / "a", tmp_path / "b").code == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_copy_appears_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library.save(tmp_path / "a", tree())
    seen = []
    original = commit.publish

    def publish(draft: commit.Draft, *, overwrite: bool) -> None:
        seen.append(((tmp_path / "b").exists(), contents(draft.path) == contents(tmp_path / "a")))
        original(draft, overwrite=overwrite)

    monkeypatch.setattr(commit, "publish", publish)
    ok("cp", tmp_path / "a", tmp_path / "b")
    assert seen == [(False, True)]


def test_of_a_run_the_missing_steps_are_copied(tmp_path: Path):
    run = make_run(tmp_path / "run")
    leave_draft(run, 4)
    ok("cp", run / "1", tmp_path / "copy" / "1")
    assert ok("cp", run, tmp_path / "copy", "--dry-run").out.count("->") == 2
    done = ok("cp", run, tmp_path / "copy")
    assert "has it already" in done.err
    assert "not copied" in done.err
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["1", "2", "3"]
    assert contents(tmp_path / "copy" / "3") == contents(run / "3")


def test_rm_asks(tmp_path: Path):
    run = make_run(tmp_path / "run")
    assert storax("rm", run / "1", answer="n\n").code == 1
    assert storax("rm", run / "1").code == 2  # nobody there to answer
    ok("rm", run / "1", "--dry-run")
    assert (run / "1").is_dir()
    ok("rm", run / "1", answer="y\n")
    ok("rm", run / "2", "--yes")
    assert [path.name for path in run.iterdir()] == ["3"]


def test_rm_takes_drafts_of_the_dead_and_not_of_the_living(tmp_path: Path):
    dead = leave_draft(make_run(tmp_path / "run"), 4)
    ok("rm", dead, "--yes")
    assert not dead.exists()
    living = commit.begin(tmp_path / "run" / "5")
    try:
        assert storax("rm", living.path, "--yes").code == 2
        assert living.path.is_dir()
    finally:
        commit.discard(living)


def test_rm_takes_nothing_that_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("x")
    assert storax("rm", tmp_path / "thesis", "--yes").code == 7
    run = make_run(tmp_path / "run")
    assert storax("rm", run, "--yes").code == 2
    assert storax("rm", run / "1", tmp_path / "thesis", "--yes").code == 7
    assert (tmp_path / "thesis" / "chapter.txt").exists()
    assert (run / "1").is_dir()
