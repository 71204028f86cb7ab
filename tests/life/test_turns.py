"""One save at a time, whoever begins it; and what forks, exit handlers and failures leave of it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax import background, saving
from storax.garbage import uncollected
from storax.store import posix


def _program(code: str, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == expect, done.stderr
    return done


class _Gate:
    """Holds every publish of a checkpoint until it is opened, and counts how many wait there at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        self.inside = self.most = 0
        rename = posix.rename_to_new

        def held(source: Path, target: Path) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.reached.set()
            assert self.opened.wait(60)
            self.inside -= 1
            rename(source, target)

        monkeypatch.setattr(posix, "rename_to_new", held)


def test_saves_of_many_threads_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = _Gate(monkeypatch)
    threads = [
        threading.Thread(target=lambda i=i: storax.save_async(tmp_path / str(i), {"x": i}).result())  # type: ignore[misc]
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    assert gate.reached.wait(60)
    gate.opened.set()
    for thread in threads:
        thread.join(60)
    assert gate.most == 1
    assert [storax.load(tmp_path / str(i)) for i in range(4)] == [{"x": i} for i in range(4)]


def test_a_callback_of_a_save_may_save(tmp_path: Path) -> None:
    def also() -> None:
        storax.save(tmp_path / "b", {"x": 2})
        storax.save_async(tmp_path / "c", {"x": 3}).result()

    with background.turn() as mine:
        handle = background.start(also, what="saving twice", turn=mine)
    handle.result(60)
    assert storax.load(tmp_path / "b") == {"x": 2}
    assert storax.load(tmp_path / "c") == {"x": 3}


def test_a_save_that_waits_for_itself_is_told(tmp_path: Path) -> None:
    handles: list[storax.SaveHandle] = []
    begun = threading.Event()

    def act() -> None:
        assert begun.wait(60)
        handles[0].result()

    with background.turn() as mine:
        handles.append(background.start(act, what="saving a", turn=mine))
    begun.set()
    with pytest.raises(storax.BadOption, match="saving a cannot wait for itself"):
        handles[0].result(60)


def test_a_failed_save_keeps_nothing_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[weakref.ref[Any]] = []
    write = saving.write_checkpoint

    def watching(final: Path, items: Any, **options: Any) -> None:
        for array in items[None].arrays:
            watched.extend(weakref.ref(data) for _, data in array.parts)
        write(final, items, **options)

    monkeypatch.setattr(saving, "write_checkpoint", watching)
    (tmp_path / "file").write_text("")
    handle = storax.save_async(tmp_path / "file" / "a", {"w": np.ones(1000)})
    with pytest.raises(storax.StoreError):
        handle.result(60)
    gc.collect()
    assert watched
    assert not any(ref() is not None for ref in watched)
    assert handle not in background._unasked


def test_a_save_begun_in_an_exit_handler_is_committed(tmp_path: Path) -> None:
    _program(
        """
import atexit, sys, numpy as np, storax
atexit.register(lambda: storax.save_async(sys.argv[1], {"x": np.arange(3)}))
""",
        str(tmp_path / "a"),
    )
    np.testing.assert_array_equal(storax.load(tmp_path / "a")["x"], np.arange(3))


def test_a_failure_at_exit_loses_no_work_of_others(tmp_path: Path) -> None:
    done = _program(
        """
import atexit, sys, tempfile, storax
temporary = tempfile.TemporaryDirectory(dir=sys.argv[1])
atexit.register(lambda: open(sys.argv[1] + "/handler", "w").write("ran"))
log = open(sys.argv[1] + "/log", "w")
log.write("a line")
open(sys.argv[1] + "/file", "w").close()
storax.save_async(sys.argv[1] + "/file/a", {"x": 1})
""",
        str(tmp_path),
        expect=1,
    )
    assert "a save in the background failed" in done.stderr
    assert (tmp_path / "handler").read_text() == "ran"
    assert (tmp_path / "log").read_text() == "a line"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "handler", "log"]


def test_a_forked_child_waits_for_no_save_of_its_parent(tmp_path: Path) -> None:
    _program(
        """
import os, sys, threading, warnings
warnings.simplefilter("ignore")  # JAX warns of every fork
import storax
from storax.store import posix

opened, reached = threading.Event(), threading.Event()
rename = posix.rename_to_new

def held(source, target):
    reached.set()
    assert opened.wait(60)
    rename(source, target)

posix.rename_to_new = held
handle = storax.save_async(sys.argv[1], {"x": 1})
assert reached.wait(60)
child = os.fork()
if child == 0:
    sys.exit(0)  # with all exit handlers
assert os.waitpid(child, 0)[1] == 0
opened.set()
handle.result(60)
""",
        str(tmp_path / "a"),
    )
    assert storax.load(tmp_path / "a") == {"x": 1}


def test_collection_is_back_when_the_last_thread_is_out() -> None:
    assert gc.isenabled()
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collection_goes_on_while_a_save_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    new_file = posix.new_file

    def watched(path: Path) -> Any:
        seen.append(gc.isenabled())
        return new_file(path)

    monkeypatch.setattr(posix, "new_file", watched)
    storax.save_async(tmp_path / "a", {"x": np.ones(1000)}).result(60)
    assert seen
    assert all(seen)
