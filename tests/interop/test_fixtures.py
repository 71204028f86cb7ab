"""storax reads what real releases of Orbax wrote: values, kinds, shardings, with a target and without one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from tests.devices import mesh, sharding
from tests.interop import expected
from tests.interop.expected import FIXTURES
from tests.same import abstract, assert_same, bits

import storax

PLAIN = expected.found("standard", "v1")
WITH_NOTE = expected.found("pytree", "pytree_noocdbt", "pytree_zarr3")
KEYS = expected.found("prng")
STEPS = [f"{m}/{s}" for m in expected.found("manager_single") for s in (1, 2)]
NAMED_STEPS = [f"{m}/{s}" for m in expected.found("manager") for s in (20, 30)]
TREES = [
    *[(name, False, 1234) for name in [*PLAIN, *STEPS]],
    *[(name, True, 1234) for name in WITH_NOTE],
    *[(f"{name}/state", False, int(name[-2:])) for name in NAMED_STEPS],
]


def test_all_fixtures_are_tested() -> None:
    written = {
        f"{version}/{kind}"
        for version in expected.VERSIONS
        for kind in json.loads((FIXTURES / version / "WROTE_BY.json").read_text())["items"]
    }
    tested = [*PLAIN, *WITH_NOTE, *KEYS, *expected.found("manager", "manager_single")]
    assert sorted(tested) == sorted(written)
    assert len(TREES) == 3 + 1 + 6 + 9 + 4


@pytest.mark.parametrize(("name", "note", "step"), TREES)
def test_a_tree_comes_back_as_it_was_saved(name: str, note: bool, step: int) -> None:
    wanted = expected.without_target(expected.tree(step=step, note=note))
    found = storax.load(FIXTURES / name)
    assert_same(found, wanted, shardings=True)
    assert found["params"]["dense"]["kernel"].sharding == sharding("data", "model")
    assert not found["opt"]["count"].committed


@pytest.mark.parametrize(("name", "note", "step"), TREES)
def test_a_tree_comes_back_as_the_target_has_it(name: str, note: bool, step: int) -> None:
    wanted = expected.tree(step=step, note=note)
    blank = jax.tree.map(lambda x: jnp.zeros_like(x) if isinstance(x, jax.Array) else x, wanted)
    blank = jax.tree.map(
        lambda x, w: jax.device_put(x, w.sharding) if isinstance(x, jax.Array) else x, blank, wanted
    )
    assert_same(storax.load(FIXTURES / name, blank), wanted, shardings=True)
    assert_same(storax.load(FIXTURES / name, abstract(wanted)), wanted, shardings=True)
    assert_same(storax.load(FIXTURES / name, abstract(wanted, shardings=False)), wanted, shardings=True)


@pytest.mark.parametrize(("name", "note", "step"), TREES)
def test_a_tree_in_other_shardings_and_as_numpy(name: str, note: bool, step: int) -> None:
    tree = expected.tree(step=step, note=note)
    other = jax.sharding.NamedSharding(mesh(2, 4), jax.sharding.PartitionSpec("model", "data"))

    def moved(x: Any) -> Any:
        if not isinstance(x, jax.Array):
            return x
        return jax.device_put(x, other if x.ndim == 2 and x.shape[0] > 8 else jax.devices()[6])

    wanted = jax.tree.map(moved, tree)
    assert_same(storax.load(FIXTURES / name, abstract(wanted)), wanted, shardings=True)
    host = jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, tree)
    assert_same(storax.load(FIXTURES / name, host), host)


@pytest.mark.parametrize("name", KEYS)
def test_typed_keys(name: str) -> None:
    wanted = expected.keys()
    assert_same(storax.load(FIXTURES / name), wanted, shardings=True)
    assert_same(storax.load(FIXTURES / name, wanted), wanted, shardings=True)
    sharded = {**wanted, "ks": jax.device_put(wanted["ks"], sharding("data"))}
    assert_same(storax.load(FIXTURES / name, abstract(sharded)), sharded, shardings=True)
    assert str(storax.metadata(FIXTURES / name).item_metadata["ks"]) == "key<threefry2x32>[4]"


@pytest.mark.parametrize("name", NAMED_STEPS)
def test_a_step_with_items_loads_as_a_dict_of_them(name: str) -> None:
    version, _, step = name.split("/")
    state = expected.tree(step=int(step))
    found = storax.load(FIXTURES / name)
    assert set(found) == {"state", "config"}
    assert_same(found["state"], expected.without_target(state), shardings=True)
    assert found["config"] == expected.config(version)
    assert_same(storax.load(FIXTURES / name, {"state": state})["state"], state, shardings=True)


@pytest.mark.parametrize(("name", "note", "step"), TREES)
def test_metadata(name: str, note: bool, step: int) -> None:
    found = storax.metadata(FIXTURES / name)
    tree = found.item_metadata
    assert str(tree["params"]["emb"]) == "bfloat16[32,16]"
    assert tree["params"]["dense"]["kernel"].sharding["partition_spec"] == ["data", "model"]
    assert [leaf.kind for leaf in tree["hist"]] == ["np.ndarray", "np.ndarray"]
    assert (tree["step"].kind, tree["lr"].kind, tree["none"].kind) == ("int", "float", "None")
    assert (tree["tup"][0].kind, tree["tup"][0].shape) == ("jax.Array", ())
    assert ("note" in tree) == note
    arrays = [x for x in jax.tree.leaves(expected.tree()) if hasattr(x, "nbytes")]
    assert sum(x.nbytes for x in arrays) + 16 <= found.nbytes <= sum(x.nbytes for x in arrays) + 16 + 5


def test_metadata_of_a_step() -> None:
    found = storax.metadata(FIXTURES / "0.12.8" / "manager" / "30")
    assert set(found.item_metadata) == {"state", "config"}
    assert found.item_metadata["config"] is None
    assert found.metrics is None  # without best_fn a manager of Orbax drops them
    assert found.init_timestamp_nsecs is not None
    assert found.commit_timestamp_nsecs is not None


# --- managers --------------------------------------------------------------------------------------


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / "run"))


@pytest.mark.parametrize("copied", expected.found("manager"), indirect=True)
def test_a_manager_on_the_steps_of_orbax(copied: Path, request: pytest.FixtureRequest) -> None:
    version = request.node.callspec.params["copied"].split("/")[0]
    with ocp.CheckpointManager(copied) as theirs:
        steps = theirs.all_steps()
    state = expected.tree(step=20)
    with storax.CheckpointManager(copied) as manager:
        assert manager.all_steps() == sorted(steps) == [20, 30]
        assert manager.latest_step() == 30
        assert manager.metrics(20) is None
        found = manager.restore(20)
        assert set(found) == {"state", "config"}
        assert_same(found.state, expected.without_target(state), shardings=True)
        assert found.config == expected.config(version)
        wish = storax.args.Composite(state=storax.args.StandardRestore(abstract(state)))
        assert_same(manager.restore(20, args=wish).state, state, shardings=True)
        only = manager.restore(args=storax.args.Composite(config=storax.args.JsonRestore()))
        assert dict(only) == {"config": expected.config(version)}
        assert set(manager.item_metadata(30)) == {"state", "config"}


@pytest.mark.parametrize("copied", expected.found("manager_single"), indirect=True)
def test_a_manager_on_single_items_of_orbax(copied: Path) -> None:
    tree = expected.tree()
    with storax.CheckpointManager(copied) as manager:
        assert manager.all_steps() == [1, 2]
        assert_same(manager.restore(1), expected.without_target(tree), shardings=True)
        found = manager.restore(2, args=storax.args.StandardRestore(abstract(tree)))
        assert_same(found, tree, shardings=True)
        emb = manager.item_metadata(2)["params"]["emb"]
        assert (emb.shape, str(emb.dtype)) == ((32, 16), "bfloat16")
        assert manager.save(3, args=storax.args.StandardSave(tree))
    with storax.CheckpointManager(copied) as manager:
        assert manager.all_steps() == [1, 2, 3]


def test_a_draft_of_orbax_is_neither_loaded_nor_listed(tmp_path: Path) -> None:
    draft = FIXTURES / "0.6.4" / "prng.orbax-checkpoint-tmp-24"
    for read in (storax.load, storax.metadata):
        with pytest.raises(storax.CheckpointNotFound, match="draft"):
            read(draft)
    with pytest.raises(storax.CheckpointNotFound, match="not committed"):
        storax.load(FIXTURES / "0.6.4" / "prng")
    shutil.copytree(FIXTURES / "0.6.4" / "manager_single", tmp_path / "run")
    shutil.copytree(draft, tmp_path / "run" / "3.orbax-checkpoint-tmp-24")
    with storax.CheckpointManager(tmp_path / "run") as manager:
        assert manager.all_steps() == [1, 2]
        with pytest.raises(storax.CheckpointNotFound):
            manager.restore(3)
    assert (tmp_path / "run" / "3.orbax-checkpoint-tmp-24").is_dir()


# --- networks of flax ------------------------------------------------------------------------------


class Net(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(1, 4, kernel_size=(3, 3), rngs=rngs)
        self.bn = nnx.BatchNorm(4, rngs=rngs)
        self.drop1 = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(4 * 64, 10, rngs=rngs)
        self.drop2 = nnx.Dropout(0.25, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.drop1(nnx.relu(self.bn(self.conv(x))))
        return self.drop2(self.head(x.reshape(x.shape[0], -1)))


@pytest.fixture(scope="module")
def net() -> Net:
    net = Net(rngs=nnx.Rngs(params=0, dropout=1))
    for i in range(3):
        net(jnp.ones((2, 8, 8, 1)) * i)
    return net


def test_the_state_of_a_network(net: Net) -> None:
    state = nnx.state(net)
    blank = nnx.state(nnx.eval_shape(lambda: Net(rngs=nnx.Rngs(params=5, dropout=6))))
    found = storax.load(FIXTURES / "nnx-flax-0.12.8" / "nnx_dropout_bn", blank)
    assert jax.tree.structure(found) == jax.tree.structure(state)
    exact = {"conv", "head", "drop1", "drop2"}
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, (found, state)), strict=True):
        if path[0].key in exact:
            assert bits(a) == bits(b), path
        else:  # computed by another machine's XLA
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_state_of_an_optimizer(net: Net) -> None:
    state = nnx.state(nnx.Optimizer(net, optax.adamw(1e-3), wrt=nnx.Param))
    found = storax.load(FIXTURES / "nnx-flax-0.12.8" / "nnx_optimizer", state)
    assert jax.tree.structure(found) == jax.tree.structure(state)
    assert [bits(a) for a in jax.tree.leaves(found)] == [bits(b) for b in jax.tree.leaves(state)]


@pytest.mark.parametrize("version", ["0.10.7", "0.12.8"])
@pytest.mark.parametrize("kind", ["nnx_dropout_bn", "nnx_optimizer"])
def test_a_network_without_a_target_is_what_orbax_reads(version: str, kind: str, tmp_path: Path) -> None:
    source = shutil.copytree(FIXTURES / f"nnx-flax-{version}" / kind, tmp_path / "a")
    with ocp.StandardCheckpointer() as theirs:
        assert_same(storax.load(source), theirs.restore(source))
    if kind == "nnx_dropout_bn":
        leaves = jax.tree_util.tree_leaves_with_path(storax.load(source))
        wrote = json.loads((FIXTURES / f"nnx-flax-{version}" / "WROTE_BY.json").read_text())["tree"]
        shown = [
            f"{jax.tree_util.keystr(p).removesuffix(chr(39) + ']').removesuffix('[' + chr(39) + 'value')}"
            f".value {x.shape} {x.dtype}"
            for p, x in leaves
        ]
        assert shown == wrote


def test_a_network_of_flax_0_10_tells_what_does_not_fit(net: Net) -> None:
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(FIXTURES / "nnx-flax-0.10.7" / "nnx_dropout_bn", nnx.state(net))
    assert set(raised.value.only_saved) == {
        f"drop1.rngs.{stream}.{part}.value" for stream in ("params", "dropout") for part in ("key", "count")
    }
    assert set(raised.value.only_wanted) == {
        f"drop{i}.rngs.{part}.value" for i in (1, 2) for part in ("key", "count")
    }
