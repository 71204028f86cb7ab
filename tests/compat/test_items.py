"""Items of the user's own: objects that save themselves, handlers, and Grain's both kinds of iterators."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grain.python as grain
import numpy as np
import pytest
from tests.compat.side_by_side import both, shows

import storax
from storax.errors import BadOption, ItemNotFound
from storax.stateful import Stateful


class Counter:
    """The plain form."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def save(self, directory: Path) -> None:
        (directory / "value").write_text(str(self.value))
        (directory / "deep").mkdir()
        (directory / "deep" / "large").write_bytes(b"x" * (17 << 20))

    def load(self, directory: Path) -> None:
        self.value = int((directory / "value").read_text())
        assert (directory / "deep" / "large").stat().st_size == 17 << 20


class Later:
    """The asynchronous form: takes its state at once, and writes it afterwards."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    async def save(self, directory: Any) -> Awaitable[None]:
        return self._write(directory, self.value)

    async def _write(self, directory: Any, value: int) -> None:
        path = await directory.await_creation()
        await asyncio.to_thread((path / "value").write_text, str(value))

    async def load(self, directory: Path) -> Awaitable[None]:
        async def read() -> None:
            self.value = int(await asyncio.to_thread((directory / "value").read_text))

        return read()


@shows("StatefulCheckpointable")
@pytest.mark.parametrize("kind", [Counter, Later])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_stateful_object_is_saved_as_it_is_now(tmp_path: Path, kind: Any, wrapped: bool) -> None:
    counter = kind(3)
    assert isinstance(counter, Stateful)
    with storax.CheckpointManager(tmp_path) as mngr:
        item = storax.args.StatefulSave(counter) if wrapped else counter
        args = storax.args.Composite(state=storax.args.StandardSave({"w": np.ones(2)}), counter=item)
        mngr.save(1, args=args)
        counter.value = 99
        mngr.wait_until_finished()
        fresh = kind()
        wish = storax.args.StatefulRestore(fresh) if wrapped else fresh
        found = mngr.restore(1, args=storax.args.Composite(counter=wish))
        assert found.counter is fresh
        assert fresh.value == 3
        assert list(mngr.restore(1)) == ["state"]
        assert list(mngr.item_metadata(1)) == ["state", "counter"]
        assert storax.verify(tmp_path / "1").ok
        with pytest.raises(ItemNotFound, match="state, counter"):
            mngr.restore(1, args=storax.args.Composite(other=wish))


def test_a_step_of_stateful_objects_only(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path) as mngr:
        mngr.save(1, args=storax.args.Composite(counter=Counter(5)))
        mngr.wait_until_finished()
        fresh = Counter()
        mngr.restore(1, args=storax.args.Composite(counter=fresh))
        assert fresh.value == 5


def test_an_object_that_fails_leaves_no_step(tmp_path: Path) -> None:
    class Broken(Later):
        async def _write(self, directory: Any, value: int) -> None:
            raise OSError("the disk of the tokenizer")

    mngr = storax.CheckpointManager(tmp_path)
    mngr.save(1, args=storax.args.Composite(a=storax.args.StandardSave({"w": np.ones(1)}), b=Broken(1)))
    with pytest.raises(OSError, match="the disk of the tokenizer"):
        mngr.wait_until_finished()
    assert list(tmp_path.iterdir()) == []


def test_what_nothing_can_save_is_refused_at_once(tmp_path: Path) -> None:
    mngr = storax.CheckpointManager(tmp_path)
    with pytest.raises(BadOption, match="'b' is a object"):
        mngr.save(1, args=storax.args.Composite(b=object()))
    assert list(tmp_path.iterdir()) == []


def loader_iterator() -> Any:
    loader = grain.DataLoader(
        data_source=list(range(20)),
        sampler=grain.IndexSampler(20, grain.NoSharding(), shuffle=False, num_epochs=1),
        worker_count=0,
    )
    return iter(loader)


def dataset_iterator() -> Any:
    return iter(grain.MapDataset.range(20).to_iter_dataset())


@pytest.mark.parametrize("make", [loader_iterator, dataset_iterator])
def test_grain_iterators_save_themselves(tmp_path: Path, make: Any) -> None:
    iterator = make()
    for _ in range(4):
        next(iterator)
    with storax.CheckpointManager(tmp_path) as mngr:
        mngr.save(1, args=storax.args.Composite(data=iterator))
        next(iterator)
        mngr.wait_until_finished()
        found = mngr.restore(1, args=storax.args.Composite(data=make()))
    assert next(found.data) == 4


def test_grain_arguments_go_through_the_handler_that_they_are_registered_with(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        iterator = loader_iterator()
        next(iterator)
        with ocp.CheckpointManager(directory) as mngr:
            mngr.save(1, args=ocp.args.Composite(data=grain.PyGrainCheckpointSave(iterator)))
            mngr.wait_until_finished()
            found = mngr.restore(
                1, args=ocp.args.Composite(data=grain.PyGrainCheckpointRestore(loader_iterator()))
            )
        files = sorted(path.name for path in (directory / "1" / "data").glob("process*"))
        return next(found.data), files

    both(program, tmp_path)


@shows("CheckpointHandler", "subclassed PyTreeCheckpointHandler", "AbstractCheckpointer")
def test_a_handler_that_wraps_that_of_trees(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        class WithNote(ocp.PyTreeCheckpointHandler):
            def restore(self, directory: Any, *args: Any, **kwargs: Any) -> Any:
                return {"found": super().restore(directory, *args, **kwargs)}

        checkpointer = ocp.Checkpointer(WithNote())
        assert isinstance(checkpointer, ocp.AbstractCheckpointer)
        checkpointer.save(directory / "x", {"a": np.arange(3)})
        return checkpointer.restore(directory / "x")

    both(program, tmp_path)


def in_a_fresh_interpreter(program: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_ALIAS = """
import sys
from storax.testing import orbax_alias
with orbax_alias.active():
    import orbax.checkpoint as ocp
    from orbax.checkpoint import type_handlers, CheckpointManager
    from orbax.checkpoint._src.checkpoint_managers import preservation_policy as pp
    import orbax.checkpoint.utils as u
    from orbax import checkpoint
    from flax.training import orbax_utils
    import grain.python as grain
import numpy as np, storax
assert ocp.CheckpointManager is CheckpointManager is checkpoint.CheckpointManager is storax.CheckpointManager
assert type_handlers.RestoreArgs is storax.RestoreArgs
assert pp.LatestN is storax.checkpoint_managers.LatestN
assert u.TMP_DIR_SUFFIX == ".orbax-checkpoint-tmp"
assert ocp.tree.to_flat_dict({"a": {"b": 1}}) == {("a", "b"): 1}
assert isinstance(orbax_utils.save_args_from_target({"a": 1})["a"], storax.SaveArgs)
sampler = grain.IndexSampler(3, grain.NoSharding(), shuffle=False, num_epochs=1)
loader = grain.DataLoader(data_source=[1, 2, 3], sampler=sampler)
it = iter(loader); next(it)
with ocp.CheckpointManager(sys.argv[1]) as m:
    state = ocp.args.StandardSave({"a": np.ones(1)})
    m.save(0, args=ocp.args.Composite(it=grain.PyGrainCheckpointSave(it), s=state))
    m.wait_until_finished()
    got = m.restore(0, args=ocp.args.Composite(it=grain.PyGrainCheckpointRestore(iter(loader))))
assert next(got["it"]) == 2
assert not [name for name in sys.modules if name.startswith("orbax")]
try:
    with orbax_alias.active():
        import orbax.checkpoint.nothing_of_that_name
except ImportError:
    print("good")
"""


@shows("storax.testing.orbax_alias")
def test_other_peoples_imports_of_orbax_find_storax(tmp_path: Path) -> None:
    assert in_a_fresh_interpreter(_ALIAS, str(tmp_path)) == "good\n"


def test_the_alias_leaves_nothing_behind() -> None:
    import orbax.checkpoint

    from storax.testing import orbax_alias

    real = orbax.checkpoint
    with orbax_alias.active():
        import orbax.checkpoint as aliased

        assert aliased.PyTreeCheckpointer is storax.PyTreeCheckpointer
    import orbax.checkpoint as again

    assert again is real


_WITHOUT_ORBAX = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("orbax", "flax", "grain", "optax", "google"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import numpy as np, storax as ocp
missing = [name for name in ocp.__all__ if not hasattr(ocp, name)]
assert not missing, missing
with ocp.CheckpointManager(sys.argv[1], {"a": ocp.PyTreeCheckpointer()}) as m:
    m.save(0, {"a": {"w": np.ones(2)}}, {"a": {"save_args": {"w": ocp.SaveArgs()}}})
    m.wait_until_finished()
    print(m.restore(0, items={"a": None})["a"]["w"].tolist())
"""


def test_all_of_it_works_where_orbax_is_not_installed(tmp_path: Path) -> None:
    assert in_a_fresh_interpreter(_WITHOUT_ORBAX, str(tmp_path)) == "[1.0, 1.0]\n"
