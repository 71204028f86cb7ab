"""A real computation: a tiny Llama gives the same logits from the weights as Hugging Face has them, per
layer and unfused, and from those that were rewritten: fused, stacked, and scanned over.

Both are computed in float32. Where the order of additions is another one (one product for gate and up
instead of two), results may differ in the last bits: at most 1e-5, absolute and relative.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.devices import sharding
from tests.surgery import families
from tests.surgery.families import HEAD, HEADS, HIDDEN, KEYS, LAYERS, WIDTH, WORDS

import storax
from storax.surgery import fuse_by_pattern, interleave, recipe, repeat_by_pattern, unflatten

WORDS_IN = np.arange(10).reshape(2, 5) % WORDS
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}

FUSED = [
    *recipe("llama"),
    fuse_by_pattern(r".*\.(query|key|value)\.kernel$", ["query", "key", "value"], "qkv", axis=1),
    fuse_by_pattern(r".*\.(gate|up)\.kernel$", ["gate", "up"], "gate_up", axis=1),
    storax.surgery.stack(r"^layers\.(\d+\.)"),
    unflatten(),
]


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def angles(length):
    return jnp.arange(length)[:, None] / 10000 ** (jnp.arange(0, HEAD, 2) / HEAD)


def rotated_halves(x):
    """Rotary positions as Hugging Face lays them out: the pairs are (i, i + half)."""
    a = angles(x.shape[1])[None, :, None, :]
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate(
        [first * jnp.cos(a) - second * jnp.sin(a), second * jnp.cos(a) + first * jnp.sin(a)], -1
    )


def rotated_pairs(x):
    """The same where the pairs are neighbours, as the original Llama has them."""
    a = angles(x.shape[1])[None, :, None, :]
    first, second = x[..., ::2], x[..., 1::2]
    both = [first * jnp.cos(a) - second * jnp.sin(a), second * jnp.cos(a) + first * jnp.sin(a)]
    return jnp.stack(both, -1).reshape(x.shape)


def attention(q, k, v, rotated=rotated_halves):
    q, k = rotated(q), rotated(k)
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / HEAD**0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(causal, scores, -1e30)), v)


def heads(x):
    return x.reshape(*x.shape[:2], -1, HEAD)


def from_hugging_face(w, words):
    """Layer by layer, matrices as [out, in], each its own."""
    x = w["model.embed_tokens.weight"][words]
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        y = norm(x, w[layer + "input_layernorm.weight"])
        q, k, v = (heads(y @ w[f"{layer}self_attn.{name}_proj.weight"].T) for name in "qkv")
        x = x + attention(q, k, v).reshape(x.shape) @ w[layer + "self_attn.o_proj.weight"].T
        y = norm(x, w[layer + "post_attention_layernorm.weight"])
        gate, up = (y @ w[f"{layer}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (jax.nn.silu(gate) * up) @ w[layer + "mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T


def from_stacked(w, words):
    """A scan over stacked layers with fused matrices, [in, out]."""

    def step(x, layer):
        y = norm(x, layer["attention_norm"]["scale"])
        qkv = y @ layer["attention"]["qkv"]["kernel"]
        q, k, v = map(heads, jnp.split(qkv, [WIDTH, WIDTH + KEYS * HEAD], -1))
        x = x + attention(q, k, v).reshape(x.shape) @ layer["attention"]["out"]["kernel"]
        y = norm(x, layer["mlp_norm"]["scale"])
        gate, up = jnp.split(y @ layer["mlp"]["gate_up"]["kernel"], 2, -1)
        return x + (jax.nn.silu(gate) * up) @ layer["mlp"]["down"]["kernel"], None

    x, _ = jax.lax.scan(step, w["embed"]["embedding"][words], w["layers"])
    return norm(x, w["norm"]["scale"]) @ w["lm_head"]["kernel"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "model.safetensors"
    storax.save_safetensors(path, families.weights("llama"))
    return path


@pytest.fixture(scope="module")
def logits():
    found = from_hugging_face(families.weights("llama"), WORDS_IN)
    assert float(jnp.std(found)) > 0.1  # not a model that says nothing
    return found


def test_rewritten_weights_give_the_same_logits(model, logits, tmp_path):
    storax.rewrite(model, tmp_path / "stacked", transforms=FUSED, verify=True)
    stacked = storax.load(tmp_path / "stacked")
    assert stacked["layers"]["mlp"]["gate_up"]["kernel"].shape == (LAYERS, WIDTH, 2 * HIDDEN)
    np.testing.assert_allclose(from_stacked(stacked, WORDS_IN), logits, **TOLERANCE)


def test_weights_loaded_straight_into_shardings_give_the_same_logits(model, logits):
    plain = storax.load(model, transforms=FUSED)

    def placed(path, value):
        spec = (None, "data", "model") if value.ndim == 3 else ()
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding(*spec))

    target = jax.tree_util.tree_map_with_path(placed, plain)
    stacked = storax.load(model, target, transforms=FUSED)
    kernel = stacked["layers"]["attention"]["qkv"]["kernel"]
    assert kernel.sharding == sharding(None, "data", "model")
    np.testing.assert_allclose(jax.jit(from_stacked)(stacked, WORDS_IN), logits, **TOLERANCE)


def test_rotary_pairs_instead_of_halves_give_the_same_logits(model, logits, monkeypatch):
    """The permutation of queries and keys that turns one layout of rotary positions into the other."""
    pairs = [
        interleave(r"\.q_proj\.weight$", groups=2, heads=HEADS),
        interleave(r"\.k_proj\.weight$", groups=2, heads=KEYS),
    ]
    theirs = storax.load(model, transforms=pairs)
    wrong = from_hugging_face(theirs, WORDS_IN)
    assert not np.allclose(wrong, logits, **TOLERANCE)
    monkeypatch.setattr(attention, "__defaults__", (rotated_pairs,))
    np.testing.assert_allclose(from_hugging_face(theirs, WORDS_IN), logits, **TOLERANCE)


def test_keys_repeated_for_every_query_give_the_same_logits(model, logits):
    """Grouped queries as plain heads: each head of keys and values once for each query that uses it."""
    by_head = [
        storax.surgery.reshape(r"\.(k|v)_proj\.weight$", [KEYS, HEAD * WIDTH]),
        repeat_by_pattern(r".*\.(k|v)_proj\.weight$", dimension=0, repeat_count=HEADS // KEYS),
        storax.surgery.reshape(r"\.(k|v)_proj\.weight$", [HEADS * HEAD, WIDTH]),
    ]
    theirs = storax.load(model, transforms=by_head)
    assert theirs["model.layers.0.self_attn.k_proj.weight"].shape == (WIDTH, WIDTH)
    np.testing.assert_allclose(from_hugging_face(theirs, WORDS_IN), logits, **TOLERANCE)
