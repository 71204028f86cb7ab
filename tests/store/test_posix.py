"""The door to the disk: whole writes, renames that replace nothing, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storax.errors import StoreError
from storax.store import posix


@settings(deadline=None, max_examples=60)
@given(
    buffers=st.lists(st.binary(max_size=40), max_size=12),
    most=st.integers(1, 50),
    offset=st.integers(0, 30),
)
def test_all_bytes_are_written_however_few_the_system_takes_at_once(
    tmp_path_factory: pytest.TempPathFactory, buffers: list[bytes], most: int, offset: int
):
    pwritev = os.pwritev

    def short(fd: int, parts: Any, at: int) -> int:
        return pwritev(fd, [b"".join(parts)[:most]], at)

    path = tmp_path_factory.mktemp("posix") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwritev", short)
        with posix.new_file(path) as file:
            assert file.write_at(offset, buffers) == sum(map(len, buffers))
            file.sync()
    data = b"".join(buffers)
    assert path.read_bytes() == (b"\0" * offset + data if data else b"")


def test_more_buffers_than_the_system_takes_at_once(tmp_path: Path):
    buffers = [bytes([i % 256]) * (i % 3) for i in range(5000)]
    with posix.new_file(tmp_path / "file") as file:
        file.write_at(0, buffers)
    assert (tmp_path / "file").read_bytes() == b"".join(buffers)
    read = [memoryview(bytearray(1)) for _ in range(3000)]
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert posix.read_into(fd, read, 100) == 3000
        assert b"".join(read) == b"".join(buffers)[100:3100]
        assert posix.read_into(fd, [memoryview(bytearray(10))], 10**6) == 0
    finally:
        os.close(fd)


def test_a_new_file_is_new(tmp_path: Path):
    posix.write_file(tmp_path / "file", b"one")
    with pytest.raises(StoreError, match=r"File exists while creating .*file"):
        posix.write_file(tmp_path / "file", b"two")
    assert (tmp_path / "file").read_bytes() == b"one"


def test_missing_parents_are_made_each_durable_in_its_own_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[Path] = []
    sync = posix.sync_directory
    monkeypatch.setattr(posix, "sync_directory", lambda path: (synced.append(path), sync(path))[1])
    posix.make_directories(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    posix.make_directories(tmp_path / "a" / "b" / "c")
    assert len(synced) == 3


def test_a_directory_that_somebody_else_makes_meanwhile_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make = posix.make_directory

    def late(path: Path) -> None:
        path.mkdir()
        make(path)

    monkeypatch.setattr(posix, "make_directory", late)
    posix.make_directories(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_renaming_replaces_nothing_but_an_empty_directory(tmp_path: Path):
    for name in ("source", "empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(FileExistsError):
            posix.rename_to_new(tmp_path / "source", tmp_path / name)
    posix.rename_to_new(tmp_path / "source", tmp_path / "empty")
    assert not (tmp_path / "source").exists()
    with pytest.raises(StoreError, match="while renaming"):
        posix.rename_to_new(tmp_path / "nothing", tmp_path / "new")


def test_two_directories_swap(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    posix.exchange(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == ["b"]
    assert os.listdir(tmp_path / "b") == ["a"]
    with pytest.raises(StoreError, match="while exchanging"):
        posix.exchange(tmp_path / "a", tmp_path / "nothing")


def test_a_tree_that_is_gone_can_be_deleted(tmp_path: Path):
    posix.remove_tree(tmp_path / "nothing")
    (tmp_path / "a" / "b").mkdir(parents=True)
    posix.remove_tree(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed_when_a_tree_is_deleted(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "mine")
    posix.remove_tree(tmp_path / "tree")
    assert (tmp_path / "mine" / "thesis").exists()


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (
            errno.ENOSPC,
            "write",
            r"No space left.*while writing .*file\. It needs 5 bytes and [\d,]+ bytes are free",
        ),
        (errno.EDQUOT, "write", r"quota.*It needs 5 bytes"),
        (errno.EROFS, "write", r"Read-only.*Make the directory writable.*5 bytes"),
        (errno.EIO, "write", r"Input/output error while writing .*file\.$"),
        (errno.ENOSPC, "sync", r"No space left.*while syncing .*file\. It needs 5 bytes"),
    ],
)
def test_an_error_says_what_to_what_how_much_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: str, says: str
):
    def refuse(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, {"write": "pwritev", "sync": "fsync"}[kind], refuse)
    with pytest.raises(StoreError, match=says) as caught:
        posix.write_file(tmp_path / "file", b"12345")
    assert caught.value.errno == code
    assert caught.value.filename == str(tmp_path / "file")
    assert isinstance(caught.value, OSError)


def test_a_lock_is_held_by_one_and_ends_with_its_handle(tmp_path: Path):
    handle = posix.lock_directory(tmp_path)
    assert handle is not None
    assert posix.lock_directory(tmp_path) is None
    posix.unlock(handle)
    again = posix.lock_directory(tmp_path)
    assert again is not None
    posix.unlock(again)
    with pytest.raises(FileNotFoundError):
        posix.lock_directory(tmp_path / "nothing")


_FORKS = """
import os, sys
from pathlib import Path
from storax.store import posix

lock = posix.lock_directory(Path(sys.argv[1]))
number = lock.fd
child = os.fork()
if child == 0:
    try:
        os.fstat(number)
    except OSError:
        posix.unlock(lock)  # its parent's: nothing happens
        os._exit(0)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert posix.lock_directory(Path(sys.argv[1])) is None  # still held here
"""


def test_a_forked_child_closes_its_copies_of_locks_and_leaves_the_locks(tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", _FORKS, str(tmp_path)], check=True, timeout=60, env=environment)


def test_of_a_link_only_the_link_is_removed(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    posix.remove_tree(tmp_path / "link")
    assert os.listdir(tmp_path) == ["mine"]


def test_a_path_that_is_too_long_is_a_store_error(tmp_path: Path):
    with pytest.raises(StoreError, match="name too long"):
        posix.make_directories(tmp_path / ("x/" * 2300))
