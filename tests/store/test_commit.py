"""Draft, publish, discard, delete, and what dead processes leave."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from storax.errors import BadOption, CheckpointExists, CheckpointInUse, CheckpointNotFound, StoreError
from storax.store import commit, posix


def _draft(final: Path, content: str = "new") -> commit.Draft:
    draft = commit.begin(final)
    posix.write_file(draft.path / "file", content.encode())
    return draft


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def _is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_a_draft_lies_beside_its_final_name_and_everybody_sees_that_it_is_one(tmp_path: Path):
    draft = _draft(tmp_path / "deep" / "7")
    assert draft.path.parent == tmp_path / "deep"
    assert draft.path.name.startswith("7.orbax-checkpoint-tmp-storax-")
    assert commit.is_draft(draft.path)
    assert not commit.is_committed(draft.path)
    assert not commit.is_committed(draft.final)
    assert _is_locked(draft.path)
    assert not commit.is_draft(draft.final)


def test_orbax_takes_a_draft_for_temporary(tmp_path: Path):
    import orbax.checkpoint as ocp

    draft = _draft(tmp_path / "7")
    assert ocp.utils.is_tmp_checkpoint(draft.path)
    assert list(ocp.utils.checkpoint_steps(tmp_path)) == []


def test_two_drafts_of_one_name_do_not_meet(tmp_path: Path):
    one, other = _draft(tmp_path / "a"), _draft(tmp_path / "a")
    assert one.path != other.path
    commit.publish(one, overwrite=False)
    with pytest.raises(CheckpointExists, match=r"a is there already.*overwrite=True"):
        commit.publish(other, overwrite=False)
    commit.discard(other)
    assert _names(tmp_path) == ["a"]


def test_publishing_gives_the_final_name_and_lets_the_lock_go(tmp_path: Path):
    draft = _draft(tmp_path / "a")
    commit.publish(draft, overwrite=False)
    assert commit.is_committed(tmp_path / "a")
    assert _names(tmp_path) == ["a"]
    assert not _is_locked(tmp_path / "a")
    commit.discard(draft)  # too late for that: it changes nothing
    assert (tmp_path / "a" / "file").read_text() == "new"


def test_an_empty_directory_may_be_in_the_way(tmp_path: Path):
    (tmp_path / "a").mkdir()
    assert not commit.is_committed(tmp_path / "a")
    commit.publish(_draft(tmp_path / "a"), overwrite=False)
    assert (tmp_path / "a" / "file").read_text() == "new"


@pytest.mark.parametrize("there", [False, True])
def test_replacing_deletes_what_was_there(tmp_path: Path, there: bool):
    if there:
        commit.publish(_draft(tmp_path / "a", "old"), overwrite=False)
    commit.publish(_draft(tmp_path / "a"), overwrite=True)
    assert (tmp_path / "a" / "file").read_text() == "new"
    assert _names(tmp_path) == ["a"]


def test_a_name_that_cannot_be_made_durable_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sync = posix.sync_directory

    def fails(path: Path) -> None:
        if path == tmp_path:
            raise StoreError.of(OSError(5, "Input/output error"), "syncing the directory", path)
        sync(path)

    commit.publish(_draft(tmp_path / "old", "old"), overwrite=False)
    monkeypatch.setattr(posix, "sync_directory", fails)
    for name, overwrite in (("a", False), ("a", True), ("old", True)):
        draft = _draft(tmp_path / name)
        with pytest.raises(StoreError, match="Input/output"):
            commit.publish(draft, overwrite=overwrite)
        commit.discard(draft)
        assert _names(tmp_path) == ["old"]
        assert (tmp_path / "old" / "file").read_text() == "old"


def test_discarding_leaves_nothing_and_never_raises(tmp_path: Path):
    draft = _draft(tmp_path / "a")
    commit.discard(draft)
    commit.discard(draft)
    assert _names(tmp_path) == []


def test_a_lock_is_given_back_once(tmp_path: Path):
    """The number of a handle that was closed may be somebody else's by now."""
    draft = _draft(tmp_path / "a")
    assert draft.lock is not None
    handle = draft.lock.fd
    commit.publish(draft, overwrite=False)
    fd = os.open(tmp_path, os.O_RDONLY)
    assert fd == handle  # the system gives the smallest free number
    commit.discard(draft)
    os.fstat(fd)
    os.close(fd)


def test_deleting_takes_the_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commit.publish(_draft(tmp_path / "a"), overwrite=False)
    seen: list[list[str]] = []
    remove = posix.remove_tree
    monkeypatch.setattr(posix, "remove_tree", lambda path: (seen.append(_names(tmp_path)), remove(path))[1])
    commit.delete(tmp_path / "a")
    assert len(seen) == 1
    (name,) = seen[0]
    assert commit.is_draft(Path(name))
    assert _names(tmp_path) == []
    with pytest.raises(CheckpointNotFound, match="a is not there"):
        commit.delete(tmp_path / "a")


def test_what_is_read_is_not_deleted(tmp_path: Path):
    commit.publish(_draft(tmp_path / "a"), overwrite=False)
    with commit.lease(tmp_path / "a"), commit.lease(tmp_path / "a"):
        with pytest.raises(CheckpointInUse):
            commit.delete(tmp_path / "a")
        # It is replaced all the same: the reader has its files, and notices at the end.
        commit.publish(_draft(tmp_path / "a", "newer"), overwrite=True)
        assert (tmp_path / "a" / "file").read_text() == "newer"
    commit.clean(tmp_path)
    assert _names(tmp_path) == ["a"]
    commit.delete(tmp_path / "a")
    assert _names(tmp_path) == []


def test_only_drafts_of_ours_that_nobody_holds_are_leftovers(tmp_path: Path):
    live = _draft(tmp_path / "1")
    dead = tmp_path / ("2.orbax-checkpoint-tmp-storax-" + "a" * 16)
    foreign = [
        "3.orbax-checkpoint-tmp",
        "3.orbax-checkpoint-tmp-1700000000",
        "3.orbax-checkpoint-tmp-storax-xyz",
        "3.orbax-checkpoint-tmp-storax-" + "A" * 16,
        "3.orbax-checkpoint-tmp-storax-" + "a" * 16 + "-copy",
        "4",
    ]
    for path in (dead, *(tmp_path / name for name in foreign)):
        path.mkdir()
        (path / "file").touch()
    assert list(commit.leftovers(tmp_path)) == [dead]
    assert commit.clean(tmp_path) == [dead]
    assert _names(tmp_path) == sorted([*foreign, live.path.name])
    commit.clean_foreign(tmp_path)
    assert set(_names(tmp_path)) == {"4", live.path.name}


def test_without_locks_nothing_is_known_to_be_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(fd: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ("2.orbax-checkpoint-tmp-storax-" + "a" * 16)).mkdir()
    draft = _draft(tmp_path / "a")
    assert draft.lock is None
    commit.publish(draft, overwrite=False)
    commit.publish(_draft(tmp_path / "a"), overwrite=True)
    assert commit.clean(tmp_path) == []
    assert len(_names(tmp_path)) == 2
    commit.delete(tmp_path / "a")
    assert len(_names(tmp_path)) == 1


def test_a_copy_of_a_lock_does_not_keep_it(tmp_path: Path):
    """A child forked during a save has one: it must not keep readers or retention from the step."""
    draft = _draft(tmp_path / "a")
    assert draft.lock is not None
    copy = os.dup(draft.lock.fd)
    commit.publish(draft, overwrite=False)
    assert not _is_locked(tmp_path / "a")
    os.close(copy)


def test_a_reader_goes_on_without_a_lease_if_somebody_keeps_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(posix, "_PATIENCE_SECONDS", 0.0)
    commit.publish(_draft(tmp_path / "a"), overwrite=False)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with commit.lease(tmp_path / "a"):
        assert posix.share_directory(tmp_path / "a") is None
    os.close(fd)


def test_of_a_link_only_the_link_is_deleted(tmp_path: Path):
    commit.publish(_draft(tmp_path / "disk" / "a"), overwrite=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").symlink_to(tmp_path / "disk" / "a")
    commit.delete(tmp_path / "run" / "a")
    assert _names(tmp_path / "run") == []
    assert (tmp_path / "disk" / "a" / "file").read_text() == "new"


def test_a_link_with_the_name_of_a_dead_draft_is_cleaned_and_its_target_stays(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").touch()
    (tmp_path / "run").mkdir()
    link = tmp_path / "run" / ("2.orbax-checkpoint-tmp-storax-" + "a" * 16)
    link.symlink_to(tmp_path / "disk")
    assert commit.delete_retired(link)
    assert _names(tmp_path / "disk") == ["file"]
    link.symlink_to(tmp_path / "disk")
    assert commit.clean(tmp_path / "run") == [link]
    assert _names(tmp_path / "disk") == ["file"]


def test_replacing_through_a_link_replaces_what_it_points_to(tmp_path: Path):
    commit.publish(_draft(tmp_path / "disk" / "a", "old"), overwrite=False)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "a")
    commit.publish(_draft(tmp_path / "link"), overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "a" / "file").read_text() == "new"
    assert _names(tmp_path / "disk") == ["a"]


def test_moving_to_a_name_that_is_taken_takes_a_number(tmp_path: Path):
    names = []
    for _ in range(3):
        commit.publish(_draft(tmp_path / "7"), overwrite=False)
        names.append(commit.move(tmp_path / "7", tmp_path / "trash" / "7").name)
    assert names == ["7", "7.2", "7.3"] == _names(tmp_path / "trash")


def test_only_what_a_save_saw_is_replaced(tmp_path: Path):
    commit.publish(_draft(tmp_path / "a", "old"), overwrite=False)
    one, other = _draft(tmp_path / "a", "one"), _draft(tmp_path / "a", "other")
    commit.publish(one, overwrite=True)
    with pytest.raises(CheckpointExists, match="replaced while this save ran"):
        commit.publish(other, overwrite=True)
    commit.discard(other)
    assert (tmp_path / "a" / "file").read_text() == "one"
    assert _names(tmp_path) == ["a"]


def test_who_comes_between_the_look_and_the_exchange_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    commit.publish(_draft(tmp_path / "a", "old"), overwrite=False)
    draft, between = _draft(tmp_path / "a", "mine"), _draft(tmp_path / "a", "theirs")
    exchange = posix.exchange

    def late(one: Path, two: Path) -> None:
        monkeypatch.setattr(posix, "exchange", exchange)
        exchange(between.path, tmp_path / "a")  # as a program does that asks for no lock
        exchange(one, two)

    monkeypatch.setattr(posix, "exchange", late)
    with pytest.raises(CheckpointExists, match="replaced while this save ran"):
        commit.publish(draft, overwrite=True)
    commit.discard(draft)
    assert (tmp_path / "a" / "file").read_text() == "theirs"


def test_what_cannot_be_deleted_is_logged_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    dead = [tmp_path / (f"{n}.orbax-checkpoint-tmp-storax-" + "a" * 16) for n in (1, 2)]
    foreign = [tmp_path / f"{n}.orbax-checkpoint-tmp-1" for n in (1, 2)]
    for path in (*dead, *foreign):
        path.mkdir()
    remove = posix.remove_tree

    def refuse(path: Path) -> None:
        if path.name.startswith("1"):
            raise StoreError.of(PermissionError(13, "Permission denied"), "deleting", path)
        remove(path)

    monkeypatch.setattr(posix, "remove_tree", refuse)
    assert commit.clean(tmp_path) == [dead[1]]
    commit.clean_foreign(tmp_path)
    assert _names(tmp_path) == sorted([dead[0].name, foreign[0].name])
    assert caplog.text.count("cannot be deleted: Permission denied") == 2


def test_a_name_too_long_for_its_draft_is_refused_and_nothing_is_made(tmp_path: Path):
    with pytest.raises(BadOption, match=r"may have 210.*longer by 45"):
        commit.begin(tmp_path / "new" / ("x" * 211))
    assert _names(tmp_path) == []
    commit.discard(commit.begin(tmp_path / ("x" * 210)))
