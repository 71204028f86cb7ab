"""Every recipe: there, and back to the same bytes; and one that is wrong fails before anything is read."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from tests.same import assert_same
from tests.surgery import families
from tests.surgery.families import EXPERTS, HIDDEN, LAYERS, WIDTH, WORDS

import storax
from storax.errors import BadOption
from storax.surgery import recipe, recipes, to_plain, unflatten

FAMILIES = ["llama", "qwen", "qwen_moe", "gemma", "mixtral", "gpt2", "vit"]

# One matrix of each family in its place on the side of JAX, whole layers stacked.
PLACES = {
    "llama": ("model.layers.{}.mlp.down_proj.weight", "layers.mlp.down.kernel", (HIDDEN, WIDTH)),
    "qwen": ("model.layers.{}.self_attn.q_proj.weight", "layers.attention.query.kernel", (WIDTH, WIDTH)),
    "qwen_moe": ("model.layers.{}.mlp.gate.weight", "layers.moe.router.kernel", (WIDTH, EXPERTS)),
    "gemma": ("model.layers.{}.mlp.up_proj.weight", "layers.mlp.up.kernel", (WIDTH, HIDDEN)),
    "mixtral": ("model.layers.{}.block_sparse_moe.gate.weight", "layers.moe.router.kernel", (WIDTH, EXPERTS)),
    "vit": ("vit.encoder.layer.{}.output.dense.weight", "layers.mlp.down.kernel", (HIDDEN, WIDTH)),
}


def test_every_recipe_says_what_it_is_for():
    assert set(recipes()) == {*FAMILIES, "scan", "linen_to_nnx", "nnx_0_11"}
    assert all(len(about) > 20 for about in recipes().values())


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_there_and_back(family, stacked, tmp_path):
    theirs = families.weights(family)
    storax.save_safetensors(tmp_path / "model.safetensors", theirs)
    forward = [*recipe(family, stacked=stacked), unflatten()]
    storax.rewrite(tmp_path / "model.safetensors", tmp_path / "jax", transforms=forward)
    found = storax.load(tmp_path / "jax", transforms=recipe(family, "backward", stacked=stacked))
    flat = storax.transform(found, [storax.surgery.flatten()])
    assert_same(dict(sorted(flat.items())), theirs)


@pytest.mark.parametrize("family", PLACES)
def test_where_a_matrix_goes(family):
    theirs = families.weights(family)
    before, after, shape = PLACES[family]
    found = storax.transform(theirs, recipe(family, stacked=True))
    assert_same(found[after], np.stack([theirs[before.format(i)].T for i in range(LAYERS)]))
    assert found[after].shape == (LAYERS, *shape)
    one = storax.transform(theirs, recipe(family))
    assert_same(
        one[after.replace("layers.", "layers.1.", 1)], np.ascontiguousarray(theirs[before.format(1)].T)
    )


@pytest.mark.parametrize(
    ("family", "before", "after"),
    [
        (
            "mixtral",
            "model.layers.1.block_sparse_moe.experts.{}.w2.weight",
            "layers.1.moe.experts.down.kernel",
        ),
        ("qwen_moe", "model.layers.1.mlp.experts.{}.down_proj.weight", "layers.1.moe.experts.down.kernel"),
    ],
)
def test_experts_are_stacked(family, before, after):
    theirs = families.weights(family)
    found = storax.transform(theirs, recipe(family))
    assert_same(found[after], np.stack([theirs[before.format(j)].T for j in range(EXPERTS)]))


def test_what_is_no_plain_matrix():
    theirs = families.weights("vit")
    found = storax.transform(theirs, recipe("vit"))
    patches = theirs["vit.embeddings.patch_embeddings.projection.weight"]
    assert_same(found["embed.patches.kernel"], np.ascontiguousarray(patches.transpose(2, 3, 1, 0)))
    theirs = families.weights("gpt2")
    named = {f"transformer.{name}": value for name, value in theirs.items()}
    named["transformer.h.0.attn.bias"] = np.ones((1, 1, 4, 4), np.float32)
    named["lm_head.weight"] = theirs["wte.weight"]
    found = storax.transform(named, recipe("gpt2"))
    assert_same(found, storax.transform(theirs, recipe("gpt2")))
    assert_same(found["layers.0.attention.qkv.kernel"], theirs["h.0.attn.c_attn.weight"])
    assert found["embed.embedding"].shape == (WORDS, WIDTH)


@pytest.mark.parametrize("wrong", ["gpt2", "vit", "mixtral", "gemma"])
def test_a_wrong_recipe_fails_in_the_dry_run(wrong, tmp_path, monkeypatch):
    storax.save_safetensors(tmp_path / "model.safetensors", families.weights("llama"))
    monkeypatch.setattr("storax.store.reading._Files.fill", None)
    with pytest.raises(storax.TransformMismatch) as caught:
        storax.explain(tmp_path / "model.safetensors", transforms=recipe(wrong))
    assert "no rule matches this name" in str(caught.value)
    right = storax.explain(tmp_path / "model.safetensors", transforms=recipe("llama", stacked=True))
    assert len(right.leaves) == 12


def test_a_layer_that_lacks_a_tensor_fails_in_the_dry_run(tmp_path):
    theirs = families.weights("llama")
    del theirs["model.layers.1.mlp.up_proj.weight"]
    storax.save_safetensors(tmp_path / "model.safetensors", theirs)
    with pytest.raises(storax.TransformMismatch, match=r"layers\.mlp\.up\.kernel: number 1 of 3 is missing"):
        storax.explain(tmp_path / "model.safetensors", transforms=recipe("llama", stacked=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_recipes_are_plain_values(family):
    for direction in ("forward", "backward"):
        assert len(to_plain(recipe(family, direction, stacked=True))) >= 2


def test_recipes_that_are_not_there():
    for call, message in [
        (lambda: recipe("lama"), "close: llama"),
        (lambda: recipe("llama", "sideways"), "direction"),
        (lambda: recipe("llama", seed=3), "has no argument seed; it has none"),
        (lambda: recipe("nnx_0_11", "backward"), "only goes forward"),
        (lambda: recipe("scan", stacked=True), "no stacked form"),
    ]:
        with pytest.raises(BadOption, match=message):
            call()


# --- scans, Linen, NNX ---------------------------------------------------------------------------


@pytest.mark.parametrize("joint", ["_", "."])
def test_scanned_and_not(joint):
    rng = np.random.default_rng(0)
    apart = {f"params.blocks{joint}{i}.dense.kernel": rng.normal(size=(2, 3)) for i in range(12)}
    one = storax.transform(apart, recipe("scan", name="blocks", joint=joint))
    assert_same(one, {"params.blocks.dense.kernel": np.stack(list(apart.values()))})
    assert_same(storax.transform(one, recipe("scan", "backward", name="blocks", joint=joint)), apart)


def test_linen_variables_into_an_nnx_model():
    linen = pytest.importorskip("flax.linen", reason="flax is an extra of the tests")
    from flax import nnx

    class Old(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.BatchNorm(use_running_average=True, name="bn")(linen.Dense(5, name="first")(x))
            return linen.Dense(2, name="last")(x)

    class New(nnx.Module):
        def __init__(self, rngs):
            self.first, self.last = nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)
            self.bn = nnx.BatchNorm(5, use_running_average=True, rngs=rngs)

        def __call__(self, x):
            return self.last(self.bn(self.first(x)))

    x = jax.random.normal(jax.random.key(0), (4, 3))
    variables = Old().init(jax.random.key(1), x)
    variables["batch_stats"]["bn"]["mean"] = jax.numpy.arange(5.0)
    model = New(nnx.Rngs(2))
    state = storax.transform(variables, recipe("linen_to_nnx"), nnx.state(model))
    nnx.update(model, state)
    assert_same(model(x), Old().apply(variables, x))
    back = storax.transform(state, recipe("linen_to_nnx", "backward"))
    assert_same(back, jax.tree.map(lambda value: value, variables))


def fixture(version: str, name: str):
    from pathlib import Path

    return Path(__file__).parents[1] / "interop" / "fixtures" / f"nnx-flax-{version}" / name


def nnx_model(seed: int):
    """The model that the fixtures hold, in the flax that is installed."""
    nnx = pytest.importorskip("flax.nnx", reason="flax is an extra of the tests")

    class Net(nnx.Module):
        def __init__(self, *, rngs):
            self.conv = nnx.Conv(1, 4, kernel_size=(3, 3), rngs=rngs)
            self.bn = nnx.BatchNorm(4, rngs=rngs)
            self.drop1 = nnx.Dropout(0.5, rngs=rngs)
            self.head = nnx.Linear(4 * 64, 10, rngs=rngs)
            self.drop2 = nnx.Dropout(0.25, rngs=rngs)

        def __call__(self, x):
            x = self.drop1(nnx.relu(self.bn(self.conv(x))))
            return self.drop2(self.head(x.reshape(x.shape[0], -1)))

    return nnx, Net(rngs=nnx.Rngs(params=seed, dropout=seed + 1))


def test_an_nnx_checkpoint_of_flax_0_10_into_a_model_of_today():
    nnx, model = nnx_model(7)
    state = nnx.state(model)
    with pytest.raises(storax.TreeMismatch):
        storax.load(fixture("0.10.7", "nnx_dropout_bn"), state)
    found, report = storax.load(
        fixture("0.10.7", "nnx_dropout_bn"), state, transforms=recipe("nnx_0_11", seed=5), report=True
    )
    assert len(report.loaded) == 8
    assert sorted(report.filled) == [
        "drop1.rngs.count.value", "drop1.rngs.key.value", "drop2.rngs.count.value", "drop2.rngs.key.value",
    ]  # fmt: skip
    nnx.update(model, found)
    model.eval()
    x = np.linspace(-1, 1, 2 * 64).reshape(2, 8, 8, 1).astype(np.float32)
    np.testing.assert_allclose(
        model(x), _by_hand(x, fixture("0.10.7", "nnx_dropout_bn")), rtol=1e-5, atol=1e-5
    )
    keys = [jax.random.key_data(found[name]["rngs"]["key"][...]).tolist() for name in ("drop1", "drop2")]
    assert keys[0] != keys[1]  # each layer has a stream of its own
    again = storax.load(fixture("0.10.7", "nnx_dropout_bn"), state, transforms=recipe("nnx_0_11", seed=5))
    assert_same(jax.tree.leaves(again), jax.tree.leaves(found))


def _by_hand(x, path):
    """The model in eval mode from the saved weights alone, without flax."""
    w = storax.load(path)
    conv, bn, head = w["conv"], w["bn"], w["head"]
    y = jax.lax.conv_general_dilated(
        x, conv["kernel"]["value"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = y + conv["bias"]["value"]
    y = (y - bn["mean"]["value"]) / jax.numpy.sqrt(bn["var"]["value"] + 1e-5)
    y = jax.nn.relu(y * bn["scale"]["value"] + bn["bias"]["value"])
    return y.reshape(len(x), -1) @ head["kernel"]["value"] + head["bias"]["value"]


def test_a_checkpoint_of_today_needs_no_recipe():
    _, model = nnx_model(7)
    from flax import nnx

    found = storax.load(fixture("0.12.8", "nnx_dropout_bn"), nnx.state(model))
    assert found["conv"]["kernel"][...].shape == (3, 3, 1, 4)


def test_an_optimizer_of_flax_0_10_without_the_model_that_it_held():
    pytest.importorskip("optax", reason="optax is an extra of the tests")
    import optax

    nnx, model = nnx_model(7)
    state = nnx.state(nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param))
    steps = [storax.surgery.drop(r"^model\.")]
    found = storax.load(fixture("0.10.7", "nnx_optimizer"), state, transforms=steps)
    assert int(found["step"][...]) == 0
    assert len(jax.tree.leaves(found)) == 14
