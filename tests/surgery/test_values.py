"""Transforms that compute values, add leaves or work on whole subtrees; and wrong arguments of any."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from tests.same import assert_same
from tests.surgery.test_sources import values
from tests.surgery.test_transforms import problems

import storax
from storax.errors import BadOption
from storax.surgery import (
    apply,
    below,
    cast,
    fill,
    fuse_by_keys,
    fuse_by_pattern,
    initializer,
    interleave,
    merge,
    missing,
    overlay,
    pad,
    rename_by_regex,
    repeat_by_keys,
    reshape,
    scale,
    split_by_keys,
    stack,
    transpose,
    unflatten,
    unstack,
)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


# --- values --------------------------------------------------------------------------------------


def test_casts_that_lose_values_must_say_so():
    tree = {"w": np.ones(2, np.float32), "n": np.arange(3), "s": "text"}
    assert str(storax.transform(tree, [cast("bfloat16")])["w"].dtype) == "bfloat16"
    assert "lossy=True" in problems(tree, [cast("int8", "w")])[0][1]
    assert_same(
        storax.transform({"w": np.array([1.7])}, [cast("int8", "w", lossy=True)])["w"], np.array([1], np.int8)
    )


def test_only_floats_are_cast_unless_named():
    tree = {
        "i": np.arange(3).astype(jax.numpy.int4),
        "b": np.ones(2, bool),
        "n": 3,
        "c": np.ones(2, np.complex64),
    }
    assert_same(storax.transform(tree, [cast("float32")]), tree)
    assert_same(storax.transform({"n": 3}, [cast("float64", "n", lossy=True)]), {"n": np.array(3.0)})
    assert "only floats" in problems({"n": 3}, [scale("n", 2.0)])[0][1]


def test_arrays_without_elements_and_without_axes():
    tree = {"0.e": np.zeros((0, 3)), "1.e": np.zeros((0, 3)), "0.s": np.array(1.5), "1.s": np.array(2.5)}
    found = storax.transform(tree, [stack(r"(\d)\.")])
    assert_same(found, {"e": np.zeros((2, 0, 3)), "s": np.array([1.5, 2.5])})
    steps = [
        fuse_by_keys(["0.e", "1.e"], "e"),
        reshape("e", [3, 0, 1]),
        cast("float32"),
        pad("^e", to=2, axis=1),
    ]
    assert_same(storax.transform(tree, steps)["e"], np.zeros((3, 2, 1), np.float32))
    assert_same(storax.transform(tree, [transpose("e"), unstack("^0.e", "u{index}")])["u2"], np.zeros(0))


def test_arithmetic_is_that_of_jax(rng):
    w = rng.normal(size=(8, 6)).astype(jax.numpy.bfloat16)
    d = rng.normal(size=(8, 6)).astype(np.float32)
    scaled = storax.transform({"w": w}, [scale("w", 0.3)])["w"]
    wide = jax.numpy.asarray(w, np.float32)
    np.testing.assert_array_equal(scaled, (wide * np.float32(0.3)).astype(jax.numpy.bfloat16))
    laid = storax.transform({"w": w, "d": d}, [overlay("^w$", delta="d", scale=0.5)])
    assert_same(laid, {"w": np.asarray((wide + np.float32(0.5) * d).astype(jax.numpy.bfloat16))})


def test_an_adapter_over_its_base(rng):
    base = {f"layers.{i}.q.kernel": rng.normal(size=(6, 4)).astype(np.float32) for i in range(2)}
    lora = {"layers.0.q.lora_a": rng.integers(-3, 3, (2, 4)).astype(np.float32)}
    lora["layers.0.q.lora_b"] = rng.integers(-3, 3, (6, 2)).astype(np.float32)
    step = overlay(r"^(.*)\.kernel$", b=r"\1.lora_b", a=r"\1.lora_a", scale=2.0)
    found = storax.transform({**base, **lora}, [step])
    delta = lora["layers.0.q.lora_b"] @ lora["layers.0.q.lora_a"]
    expected = base["layers.0.q.kernel"] + np.float32(2) * delta
    assert_same(found, {**base, "layers.0.q.kernel": expected})
    del lora["layers.0.q.lora_a"]
    ((name, what),) = problems({**base, **lora}, [step])
    assert (name, what) == ("layers.0.q.kernel", "there is layers.0.q.lora_b, and no layers.0.q.lora_a")


def test_a_function_with_a_declared_result():
    found = storax.transform(
        {"w": np.arange(6.0)}, [apply("w", lambda x: x.reshape(2, 3).sum(1), [2], "float64")]
    )
    assert_same(found, {"w": np.array([3.0, 12.0])})
    with pytest.raises(BadOption, match=r"returned float64\[3\], and float64\[6\] was declared"):
        storax.transform({"w": np.arange(6.0)}, [apply("w", lambda x: x[:3])])


# --- new leaves, other checkpoints ---------------------------------------------------------------


def test_new_leaves_by_value_and_by_initialiser():
    normal = initializer("normal", {"stddev": 0.02}, key=3)
    found = storax.transform({}, [fill("a", [2], "int8", 7), fill("b", [64, 8], "float32", normal)])
    assert_same(found["a"], jax.numpy.full(2, 7, "int8"))
    key = jax.random.fold_in(jax.random.key(3), 1908338681)  # the CRC-32 of "b"
    assert_same(found["b"], jax.nn.initializers.normal(0.02)(key, (64, 8), "float32"))
    assert problems({"a": 1}, [fill("a", [1], "int8")]) == [("a", "there is such a leaf already")]


def test_policies_for_missing_leaves():
    target = {"w": np.zeros(2), "lora": np.zeros((2, 2)), "own": np.full(2, 5.0), "key": jax.random.key(0)}
    steps = [
        missing("lora", "fill", 1.5),
        missing("own", "keep"),
        missing("key", "fill", initializer("key", key=9)),
    ]
    found = storax.transform({"w": np.ones(2)}, steps, target)
    assert_same(found["lora"], np.full((2, 2), 1.5))
    assert found["own"] is target["own"]
    assert found["key"].dtype == target["key"].dtype
    assert not np.array_equal(jax.random.key_data(found["key"]), jax.random.key_data(target["key"]))
    with pytest.raises(storax.TreeMismatch) as caught:
        storax.transform({"w": np.ones(2)}, [missing("lora", "error"), missing(".", "keep")], target)
    assert caught.value.only_wanted == ("lora",)


def test_another_checkpoint_beside_this_one(tmp_path):
    storax.save(tmp_path / "b", {"w": np.ones(3)})
    found = storax.transform({"w": np.zeros(2)}, [merge(tmp_path / "b", prefix="other.model")])
    assert_same(found, {"w": np.zeros(2), "other": {"model": {"w": np.ones(3)}}})
    assert problems({"w": np.zeros(2)}, [merge({"w": 1})]) == [("w", "two leaves would have this name")]


# --- optimizer states ----------------------------------------------------------------------------


def test_moments_follow_their_parameters():
    optax = pytest.importorskip("optax", reason="optax is an extra of the tests")
    params = {"layers": [{"q": values((3, 2)), "k": values((3, 2))} for _ in range(2)], "head": values((2,))}
    state = {"params": params, "opt": optax.adam(1e-3).init(params), "step": 4}
    state["opt"] = jax.tree.map(lambda x: np.asarray(x) + np.float32(1), state["opt"])
    steps = [
        fuse_by_pattern(r".*\.(q|k)$", ["q", "k"], "qk", axis=1),
        stack(r"layers\.(\d+)\."),
        scale("head", 2.0),
    ]
    found = storax.transform(state, [below("params", steps, follow=True)])

    def changed(tree):
        return np.stack([np.concatenate([layer["q"], layer["k"]], 1) for layer in tree["layers"]])

    assert_same(found["params"]["layers"]["qk"], changed(params))
    adam = state["opt"][0]
    for name, before in [("mu", adam.mu), ("nu", adam.nu)]:
        assert_same(found["opt"][0][name]["layers"]["qk"], changed(before))
        assert_same(
            found["opt"][0][name]["head"], before["head"]
        )  # what computes values leaves moments alone
    assert_same(found["params"]["head"], params["head"] * 2)
    assert found["step"] == 4
    named = storax.transform(state, [below("params", steps, follow=["opt.0.mu", "opt.0.nu"])])
    assert_same(named, found)


def test_problems_below_a_prefix_have_their_whole_names():
    found = problems(
        {"params": {"a": np.ones(2)}}, [below("params", [fuse_by_keys(["a", "b"], "ab")]), below("p", [])]
    )
    assert found == [("params.ab", "there is no b"), ("p", "no leaf is below it")]


# --- values of transforms ------------------------------------------------------------------------


def test_wrong_arguments_are_refused_where_they_are_written():
    for wrong in [
        lambda: rename_by_regex([("(", "x")]),
        lambda: rename_by_regex("abc"),
        lambda: fuse_by_pattern("x", "qk", "y"),
        lambda: fuse_by_keys(["a", "a"], "b"),
        lambda: split_by_keys("a", ["b", "c"], sizes=[1]),
        lambda: unstack("a", "b"),
        lambda: reshape("a", [-1, -1]),
        lambda: pad("a", before=-1),
        lambda: repeat_by_keys(["a"], 0, 0),
        lambda: interleave("a", 0),
        lambda: cast("float77"),
        lambda: overlay("a", b="x"),
        lambda: apply("a", "not a function"),
        lambda: initializer("nonsense"),
        lambda: initializer("normal", {"nonsense": 1}),
        lambda: missing("a", "perhaps"),
        lambda: below("a", ["b"]),
        lambda: unflatten(""),
        lambda: storax.transform({"a": 1}, ["rename"]),
        lambda: storax.transform({"a": 1}, scale("a", 2.0)),
    ]:
        with pytest.raises(BadOption):
            wrong()
