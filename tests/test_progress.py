"""How far a save or a load is: for a callback, on a terminal, in a log."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from tests.devices import on_mesh

import storax
from storax.progress import Bar, advance, expect, watching
from storax.store.budget import run_all


class Watcher:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))

    def check(self, least_total: int) -> None:
        done = [d for d, _ in self.calls]
        assert done == sorted(done)
        assert all(d <= t for d, t in self.calls)
        assert self.calls[-1][0] == self.calls[-1][1] >= least_total


TREE = {"w": np.arange(3_000_000, dtype=np.float32), "small": [np.ones(3)] * 5, "text": "x", "n": 3}
NBYTES = 12_000_000 + 5 * 24 + 8


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_save_tells_a_callback(tmp_path: Path, compression: str | None):
    watcher = Watcher()
    storax.save(tmp_path / "a", TREE, progress=watcher, compression=compression)  # type: ignore[arg-type]
    watcher.check(NBYTES if compression is None else 1)
    assert len(watcher.calls) > 2


def test_a_save_in_the_background_tells_a_callback(tmp_path: Path):
    watcher = Watcher()
    storax.save_async(tmp_path / "a", TREE, progress=watcher).result()
    watcher.check(NBYTES)


def test_a_load_tells_a_callback(tmp_path: Path):
    storax.save(tmp_path / "a", TREE)
    watcher = Watcher()
    storax.load(tmp_path / "a", progress=watcher)
    watcher.check(NBYTES)
    assert watcher.calls[-1] == (NBYTES, NBYTES)


def test_a_load_counts_what_is_wanted_of_every_kind(tmp_path: Path):
    tree = {"sharded": on_mesh(np.zeros((64, 64), np.float32), "data", "model"), "host": np.zeros(100)}
    storax.save(tmp_path / "a", tree, compression="zstd")
    watcher = Watcher()
    storax.load(tmp_path / "a", tree, progress=watcher)
    assert watcher.calls[-1] == (64 * 64 * 4 + 800,) * 2


def test_nobody_watches_two_works_at_once(tmp_path: Path):
    one, other = Watcher(), Watcher()
    storax.save(tmp_path / "a", {"w": np.zeros(1000, np.uint8)}, progress=one)
    with watching(other):
        handle = storax.save_async(tmp_path / "b", {"w": np.zeros(5000, np.uint8)}, progress=one)
        expect(7)
        advance(7)
        handle.result()
    assert other.calls == [(0, 7), (7, 7)]
    assert one.calls[-1][1] >= 5000


def test_a_watcher_hears_of_all_threads():
    watcher = Watcher()
    with watching(watcher):
        expect(40)
        run_all([lambda: advance(1)] * 40, workers=4)
    assert watcher.calls[-1] == (40, 40)
    assert [done for done, _ in watcher.calls] == list(range(41))


def test_an_error_in_a_callback_is_not_lost(tmp_path: Path):
    def fail(done: int, total: int) -> None:
        raise RuntimeError("the dashboard is gone")

    with pytest.raises(RuntimeError, match="dashboard"):
        storax.save(tmp_path / "a", TREE, progress=fail)
    assert not (tmp_path / "a").exists()


# --- the bar -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def draw(out: io.StringIO, seconds: float = 10.0) -> str:
    clock = Clock()
    bar = Bar("saving x", out, clock)
    for step in range(101):
        clock.now = seconds * step / 100
        bar(step << 20, 100 << 20)
    bar.close()
    return out.getvalue()


def test_a_terminal_has_one_line_that_changes():
    text = draw(Terminal())
    assert text.count("\n") == 1
    last = text.split("\r")[-1]
    assert "saving x" in last
    assert "100% 100 MiB of 100 MiB, 10.0 MiB/s" in last
    assert 50 < text.count("\r") <= 100


def test_a_log_has_a_line_per_tenth():
    lines = draw(io.StringIO()).splitlines()
    assert len(lines) == 10
    assert lines[4] == "saving x: 50%, 50.0 MiB of 100 MiB, 10.0 MiB/s"


@pytest.mark.parametrize("out", [Terminal, io.StringIO])
def test_what_ends_at_once_shows_nothing(out: type[io.StringIO]):
    assert draw(out(), seconds=0.1) == ""


def test_true_shows_a_bar_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("storax.progress._QUIET_SECONDS", -1)
    storax.save(tmp_path / "a", TREE, progress=True)
    storax.load(tmp_path / "a", progress=True)
    said = capsys.readouterr()
    assert f"saving {tmp_path}/a: 100%" in said.err
    assert f"loading {tmp_path}/a: 100%" in said.err
    assert said.out == ""
