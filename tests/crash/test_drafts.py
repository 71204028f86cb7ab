"""A draft belongs to the process that writes it, for as long as that lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.crash.strays import Strays
from tests.crash.warm import SOURCE

import storax
from storax.store import commit

TREE = {"w": np.arange(100)}

# Writes a draft and stays in the middle of it until it is told to go on.
_WRITER = """
import sys
import numpy as np
import storax
from storax.store import commit

publish = commit.publish
def waits(draft, **options):
    print(draft.path, flush=True)
    sys.stdin.readline()
    publish(draft, **options)
commit.publish = waits
with storax.CheckpointManager(sys.argv[1]) as manager:
    manager.save(1, args=storax.args.StandardSave({"w": np.arange(100)}))
    manager.wait_until_finished()
    print("committed", flush=True)
    sys.stdin.readline()
"""


class Writer:
    """Another process, in the middle of saving step 1."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(directory)],
            env=os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.draft = Path(self.hears())

    def hears(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the writer died"
        return line

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)

    def close(self) -> None:
        with self._process:
            self._process.kill()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "run")
    yield writer
    writer.close()


def test_a_draft_of_a_live_process_is_left_alone_and_then_published(tmp_path: Path, writer: Writer):
    for _ in range(2):
        with storax.CheckpointManager(
            tmp_path / "run", options=storax.CheckpointManagerOptions(cleanup_tmp_directories=True)
        ) as manager:
            assert manager.all_steps() == []
            assert writer.draft.is_dir()
    manager.save(0, args=storax.args.StandardSave(TREE))
    manager.wait_until_finished()
    assert writer.draft.is_dir()
    assert manager.all_steps() == [0]
    writer.go_on()
    assert writer.hears() == "committed"
    # At once, without a reload.
    assert manager.all_steps() == [0, 1]
    assert manager.latest_step() == 1
    assert np.array_equal(manager.restore(1)["w"], TREE["w"])
    manager.close()


def test_a_draft_of_a_dead_process_is_deleted_by_the_next_manager(tmp_path: Path, writer: Writer):
    reader = storax.CheckpointManager(
        tmp_path / "run", options=storax.CheckpointManagerOptions(read_only=True)
    )
    with Strays(tmp_path / "run") as strays:
        writer.kill()
        storax.CheckpointManager(
            tmp_path / "run", options=storax.CheckpointManagerOptions(read_only=True)
        ).close()
        assert writer.draft.is_dir()  # whoever only reads deletes nothing
        storax.CheckpointManager(tmp_path / "run").close()
        assert not writer.draft.exists()
        assert strays.damage() == []
    assert reader.all_steps() == []


def test_drafts_of_others_are_deleted_only_on_request(tmp_path: Path):
    theirs = tmp_path / "3.orbax-checkpoint-tmp" / "default"
    theirs.mkdir(parents=True)
    storax.CheckpointManager(tmp_path).close()
    assert theirs.is_dir()
    options = storax.CheckpointManagerOptions(cleanup_tmp_directories=True)
    storax.CheckpointManager(tmp_path, options=options).close()
    assert list(tmp_path.iterdir()) == []


def test_a_draft_of_this_process_is_not_taken_for_dead(tmp_path: Path):
    draft = commit.begin(tmp_path / "1")
    storax.CheckpointManager(tmp_path).close()
    assert draft.path.is_dir()
    commit.discard(draft)
    assert list(tmp_path.iterdir()) == []


def test_a_cleaner_that_comes_between_makes_the_writer_take_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between making the directory and locking it, the draft looks dead."""
    from storax.store import posix

    make_directory, cleaned = posix.make_directory, []

    def made_and_cleaned(path: Path) -> None:
        make_directory(path)
        if not cleaned:
            cleaned.extend(commit.clean(tmp_path))

    monkeypatch.setattr(posix, "make_directory", made_and_cleaned)
    storax.save(tmp_path / "a", TREE)
    assert len(cleaned) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert np.array_equal(storax.load(tmp_path / "a")["w"], TREE["w"])


def test_what_a_dead_save_of_a_tree_left_goes_with_the_next_replacement(tmp_path: Path):
    storax.save(tmp_path / "a", TREE)
    dead = tmp_path / ("a.orbax-checkpoint-tmp-storax-" + "0" * 16)
    other = tmp_path / ("b.orbax-checkpoint-tmp-storax-" + "0" * 16)
    dead.mkdir()
    other.mkdir()
    storax.save(tmp_path / "a", TREE, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", other.name]
