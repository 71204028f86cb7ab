"""What the processes of a job run when something goes wrong in one of them."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import distributed
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.crash.watch import dying_at, watched
from tests.processes.programs import Say, attempt, small, told
from tests.same import bits

import storax
from storax import publishing, staged
from storax.processes import Joined, present, wait_for_all
from storax.store import commit


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def same(found: Any, wanted: Any) -> bool:
    """Whether a tree of ``small`` is what it should be, as far as this process has it."""

    def one(a: Any, b: Any) -> bool:
        if not isinstance(a, jax.Array):
            return bits(a) == bits(b)
        pairs = zip(a.addressable_shards, b.addressable_shards, strict=True)
        return all(bits(np.asarray(p.data)) == bits(np.asarray(q.data)) for p, q in pairs)

    return all(jax.tree.leaves(jax.tree.map(one, found, wanted)))


class Troubles:
    """Cases, one after another; after each the directory must be as before, and the next save must work."""

    def __init__(self, say: Say, index: int, directory: Path, timeout: float) -> None:
        self._say = say
        self.index = index
        self.directory = directory
        self._timeout = timeout
        self._step = 0

    def save(self, name: str, tree: Any = None, **options: Any) -> None:
        options = {"barrier_timeout": self._timeout, **options}
        storax.save(self.directory / name, small(0) if tree is None else tree, **options)

    def case(self, name: str, act: Callable[[], Any]) -> None:
        result = attempt(act)
        # A failure is the same for all, but who raised earlier waits for the others here.
        wait_for_all(present(30, room="test"), name)
        self._step += 1
        good = f"{self._step:03}"
        after = attempt(lambda: self.save(good, small(self._step), barrier_timeout=20))
        found = storax.load(self.directory / good, small(0)) if after is None else None
        works = found is not None and same(found, small(self._step))
        there = sorted(p for p in os.listdir(self.directory) if not p.isdigit() and "-tmp-" not in p)
        self._say({"case": name, "result": result, "after": after, "works": works, "there": there})


def troubles(say: Say, index: int, directory: str, timeout: float) -> None:
    t = Troubles(say, index, Path(directory), timeout)
    guilty = index == 1
    t.case("other paths", lambda: t.save(f"step{index}"))
    t.case("other values", lambda: t.save("a", small(0) | {"table": np.full(3000, index)}))
    t.case("other leaves", lambda: t.save("a", small(0) | ({"zz": 1} if guilty else {})))
    t.case("other sharding", lambda: t.save("a", small(0) | {"w": _replicated(guilty)}))
    t.case("other option", lambda: t.save("a", compression="zstd" if guilty else None))
    t.case("not a leaf", lambda: t.save("a", small(0) | ({"x": object()} if guilty else {})))
    for full in (1, 0):
        with _full_disk(index == full):
            t.case(f"disk of {full} is full", lambda: t.save("a", small(0) | {"big": _big()}))
    with _another_directory(guilty):
        t.case("not shared", lambda: t.save("elsewhere/a"))
    with _part(guilty, lambda part: (part.parent / "ocdbt.process_7").mkdir()):
        t.case("stray database", lambda: t.save("a"))
    with _part(guilty, lambda part: (part.parent / "array_metadatas" / "process_9").write_bytes(b"{}")):
        t.case("stray document", lambda: t.save("a"))
    with _losing(guilty):
        t.case("lost chunk", lambda: t.save("a"))
    t.case("never calls", lambda: None if guilty else t.save("a"))
    t.case("process 0 never calls", lambda: None if index == 0 else t.save("a"))
    t.case("late", lambda: _late(t, guilty))
    t.save("a")
    t.case("taken", lambda: t.save("a"))


def _replicated(yes: bool) -> jax.Array:
    mesh = Mesh(np.array(jax.devices()), ("x",))
    value = np.zeros((len(jax.devices()), 512), np.float32)
    sharding = NamedSharding(mesh, PartitionSpec() if yes else PartitionSpec("x"))
    return jax.make_array_from_callback(value.shape, sharding, lambda at: value[at])


def _big() -> jax.Array:
    """So much that every process must write a data file."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    value = np.ones((len(jax.devices()), 200_000), np.float32)
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    return jax.make_array_from_callback(value.shape, sharding, lambda at: value[at])


@contextlib.contextmanager
def _full_disk(yes: bool) -> Iterator[None]:
    """No data fits, only documents and the like: until a save has failed of it."""
    write = os.pwritev
    failed = []

    def pwritev(fd: int, buffers: Sequence[Any], offset: int) -> int:
        if not failed and sum(memoryview(b).nbytes for b in buffers) > 100_000:
            failed.append(fd)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, buffers, offset)

    with replaced(os, "pwritev", pwritev) if yes else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _another_directory(yes: bool) -> Iterator[None]:
    """As if this process had a disk of its own where the others have another one."""
    begin = commit.begin

    def elsewhere(final: Path) -> commit.Draft:
        if final.parent.name == "elsewhere":
            final = final.parent.parent.parent / f"disk of {os.getpid()}" / final.name
        return begin(final)

    with replaced(commit, "begin", elsewhere) if yes else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _part(yes: bool, act: Callable[[Path], object]) -> Iterator[None]:
    """Does something to the first part that this process writes."""
    write, done = staged.StagedTree.write_part, []

    def write_part(tree: staged.StagedTree, directory: Path) -> Any:
        written = write(tree, directory)
        if not done:
            done.append(act(directory / "part"))
        return written

    with replaced(staged.StagedTree, "write_part", write_part) if yes else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _losing(yes: bool) -> Iterator[None]:
    """The first database that this process writes lacks a chunk."""
    values_of, done = staged.values_of, []

    def fewer(*arguments: Any) -> Any:
        values = values_of(*arguments)
        lost = [value for value in values if value.key.startswith(b"w/c/")][:1] if not done else []
        done.append(lost)
        return [value for value in values if value not in lost]

    with replaced(staged, "values_of", fewer) if yes else contextlib.nullcontext():
        yield


def _late(t: Troubles, guilty: bool) -> None:
    client = distributed.global_state.client
    if guilty:
        client.blocking_key_value_get("the others gave up", 30_000)
        t.save("a")
    try:
        t.save("a")
    finally:
        if t.index == 0:
            client.key_value_set("the others gave up", "yes")


# --- counting ----------------------------------------------------------------------------------------


def count(say: Say, index: int, directory: str) -> None:
    """The barriers of each of some saves, and how many keys the service holds after it."""
    words: list[str] = []
    meet = Joined.meet

    def counted(self: Joined, place: str, *rest: Any) -> Any:
        words.append(place.rpartition("/")[2])
        return meet(self, place, *rest)

    joined = present()
    assert isinstance(joined, Joined)
    with replaced(Joined, "meet", counted):
        for step in range(4):
            words.clear()
            storax.save(Path(directory) / str(step), small(step))
            wait_for_all(present(room="test"), f"count {step}")
            say([list(words)[:-1], len(joined.service.below("storax/saves"))])
            wait_for_all(present(room="test"), f"counted {step}")


# --- dying -------------------------------------------------------------------------------------------


def die(say: Say, index: int, directory: str, victim: int, moment: str, timeout: float) -> None:
    """One process dies before, during or after its write; the others say what they were told."""
    run = Path(directory)
    storax.save(run / "1", small(1))
    ours = index == victim
    meet = Joined.meet

    def dies_at(self: Joined, place: str, *rest: Any) -> Any:
        if place.endswith(moment):
            os.kill(os.getpid(), signal.SIGKILL)
        return meet(self, place, *rest)

    def act() -> None:
        if ours and moment == "never":
            os.kill(os.getpid(), signal.SIGKILL)
        hook = watched(dying_at(3, half=True)) if ours and moment == "write" else contextlib.nullcontext()
        with hook, replaced(Joined, "meet", dies_at if ours else meet):
            storax.save(run / "2", small(2), barrier_timeout=timeout)

    say(attempt(act))


def die_somewhere(
    say: Say, index: int, directory: str, victim: int, at: int, half: bool, timeout: float
) -> None:
    """A run of a manager in which one process dies at its n-th operation, barriers included."""
    from tests.crash import watch

    operations: list[str] = []
    meet = Joined.meet

    def step_on(what: str) -> None:
        operations.append(what)
        if index == victim and len(operations) == at:
            watch.die()

    def counted(self: Joined, place: str, *rest: Any) -> Any:
        step_on(f"before {place.rpartition('/')[2]}")
        found = meet(self, place, *rest)
        step_on(f"after {place.rpartition('/')[2]}")
        return found

    def hook(operation: watch.Operation, write_half: Any) -> None:
        if half and index == victim and len(operations) + 1 == at and write_half is not None:
            write_half()
        step_on(f"{operation.kind} {Path(operation.path).name[:20]}")

    def act() -> None:
        options = storax.CheckpointManagerOptions(max_to_keep=1, barrier_timeout=timeout)
        with (
            watched(hook),
            replaced(Joined, "meet", counted),
            storax.CheckpointManager(directory, options=options) as manager,
        ):
            for step in (1, 2):
                manager.save(step, args=storax.args.StandardSave(small(step)))
                manager.wait_until_finished()
                say({"told": step})

    result = attempt(act)
    say({"result": result, "operations": operations})


def go_on(say: Say, index: int, directory: str) -> None:
    """The next job in a directory: reads what is there, saves a step, leaves nothing else."""
    with storax.CheckpointManager(directory) as manager:
        before = manager.all_steps()
        good = all(
            same(manager.restore(s, args=storax.args.StandardRestore(small(0))), small(s)) for s in before
        )
        step = max(before, default=0) + 1
        manager.save(step, args=storax.args.StandardSave(small(step)))
        manager.wait_until_finished()
        after = manager.all_steps()
        found = manager.restore(step, args=storax.args.StandardRestore(small(0)))
        good = good and same(found, small(step))
    say({"before": before, "after": after, "good": good, "there": sorted(os.listdir(directory))})


# --- signals -----------------------------------------------------------------------------------------


def sigterm(say: Say, index: int, directory: str, handled: bool) -> None:
    """Process 1 waits for process 0, which does not come, and gets SIGTERM meanwhile."""
    client = distributed.global_state.client
    jax.devices()  # for which all must be there
    if index == 0:
        say(client.blocking_key_value_get("it is over", 40_000))
        return
    if handled:
        signal.signal(signal.SIGTERM, lambda *_: _leave())

    def send() -> None:
        client.blocking_key_value_get("storax/saves/0/created/1", 20_000)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send).start()
    try:
        if handled:
            storax.save(Path(directory) / "1", small(1), barrier_timeout=30)
        else:
            options = storax.CheckpointManagerOptions(grace_seconds=1, barrier_timeout=30)
            with storax.CheckpointManager(directory, options=options) as manager:
                manager.save(1, args=storax.args.StandardSave(small(1)))
        say("saved")
    except BaseException as error:
        say(told(error))
    client.key_value_set("it is over", "yes")


def _leave() -> None:
    raise SystemExit("told to stop")


# --- without jax.distributed -------------------------------------------------------------------------


def alone(say: Say, index: int, directory: str, overwrite: bool) -> None:
    """Processes that know nothing of each other save to one path, and come to its end together."""
    run = Path(directory)
    if overwrite:
        with contextlib.suppress(storax.CheckpointExists):
            storax.save(run / "a", {"w": -1})
        _come(run, "first", index)
    finish = publishing._merge

    def slowly(*arguments: Any) -> None:
        finish(*arguments)
        _come(run, "written", index)
        if index == 1:
            _await(lambda: (run / "done").exists())

    with replaced(publishing, "_merge", slowly):
        result = attempt(lambda: storax.save(run / "a", {"w": index}, overwrite=overwrite))
    if index == 0:
        (run / "done").touch()
    say([result, storax.load(run / "a")["w"]])


def _come(run: Path, name: str, index: int) -> None:
    (run / f"{name} {index}").touch()
    _await(lambda: (run / f"{name} {1 - index}").exists())


def _await(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come")
