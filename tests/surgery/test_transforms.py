"""Every transform against numpy on whole arrays, and all that can be wrong with its input."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.same import assert_same
from tests.surgery.test_sources import shapes, values

import storax
from storax.errors import BadOption, TransformMismatch
from storax.surgery import (
    deinterleave,
    drop,
    flatten,
    fuse_by_keys,
    fuse_by_pattern,
    interleave,
    keep,
    pad,
    rename_by_regex,
    repeat_by_keys,
    repeat_by_pattern,
    reshape,
    split_by_keys,
    split_by_pattern,
    stack,
    transpose,
    unflatten,
    unstack,
)
from storax.surgery import slice as sliced

LAYERS = {f"layers.{i}.{part}.w": values((4, 6)) for i in range(3) for part in ("q", "k", "v")}


def problems(tree, transforms, **options):
    """All that does not fit, as (name, what)."""
    with pytest.raises(TransformMismatch) as caught:
        storax.transform(tree, transforms, **options)
    for _, name, what in caught.value.problems:
        assert name in str(caught.value)
        assert what in str(caught.value)
    return [(name, what) for _, name, what in caught.value.problems]


# --- names ---------------------------------------------------------------------------------------


def test_rules_apply_in_order_and_several_times():
    found = storax.transform({"a.x": 1, "b.x": 2}, [rename_by_regex([("a", "b.b"), (r"^b", "c")])])
    assert found == {"c.b.x": 1, "c.x": 2}


def test_rules_in_a_dict_are_told_as_the_list_to_type():
    with pytest.raises(BadOption, match=r"Type: rename_by_regex\(\[\('a', 'b'\), \('c', 'd'\)\]\)"):
        rename_by_regex({"a": "b", "c": "d"})
    with pytest.raises(BadOption, match="a list of pairs"):
        rename_by_regex(["ab", "cd", "efg"])


def test_renames_that_collide_are_all_named():
    found = problems({"a1": 1, "a2": 2, "b1": 3, "b2": 4}, [rename_by_regex([(r"\d", "")])])
    assert found == [("a", "a1 and a2 would all have this name"), ("b", "b1 and b2 would all have this name")]


def test_names_that_no_rule_knows():
    rules = rename_by_regex([("^w", "kernel")], unmatched="error")
    assert problems({"w": 1, "x": 2, "y": 3}, [rules]) == [
        ("x", "no rule matches this name"),
        ("y", "no rule matches this name"),
    ]


def test_drop_and_keep():
    tree = {"a.w": 1, "a.b": 2, "c.w": 3}
    assert storax.transform(tree, [drop(r"\.b$")]) == {"a.w": 1, "c.w": 3}
    assert storax.transform(tree, [keep(r"^a\.")]) == {"a.w": 1, "a.b": 2}


def test_flatten_and_unflatten_are_inverse():
    nested = {"a": {"b": {"w": 1.5}, "c": 2}, "d": None}
    flat = storax.transform(nested, [flatten("/")])
    assert flat == {"a/b/w": 1.5, "a/c": 2, "d": None}
    assert storax.transform(flat, [unflatten("/")]) == nested


def test_a_leaf_that_would_have_to_hold_another():
    assert problems({"a": 1, "a.b": 2}, [unflatten()]) == [("a.b", "a is a leaf and cannot hold it")]
    assert problems({"a..b": 1}, [unflatten()]) == [("a..b", "a key between two separators is empty")]


def test_unflatten_into_a_target_leaves_out_what_it_lacks_and_keeps_what_is_missing():
    target = {"a": {"w": np.zeros(2), "new": np.full(3, 7.0)}}
    found = storax.transform({"a.w": np.ones(2), "b": np.ones(1)}, [unflatten(".", target=target)])
    assert_same(found, {"a": {"w": np.ones(2), "new": np.full(3, 7.0)}})
    abstract = {"a": {"new": jax.ShapeDtypeStruct((3,), "float32")}}
    ((name, what),) = problems({"a.w": np.ones(2)}, [unflatten(".", target=abstract)])
    assert name == "a.new"
    assert "no value to keep" in what


def test_a_nested_tree_stays_nested_and_lists_stay_lists():
    tree = {"layers": [{"w": 1.0}, {"w": 2.0}], "t": (3, 4)}
    found = storax.transform(tree, [rename_by_regex([(r"^layers\.1\.w", "layers.1.kernel")])])
    assert found == {"layers": [{"w": 1.0}, {"kernel": 2.0}], "t": (3, 4)}


# --- fuse and split ------------------------------------------------------------------------------


@given(st.data(), shapes)
@settings(max_examples=100, deadline=None)
def test_fuse_is_concatenate_and_split_its_inverse(data, shape):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    parts = {}
    for i, n in enumerate(lengths):
        whole = list(shape)
        whole[axis] = n
        parts[f"p{i}"] = values(tuple(whole))
    fused = storax.transform(parts, [fuse_by_keys(list(parts), "all", axis)])
    assert_same(fused, {"all": np.concatenate(list(parts.values()), axis)})
    assert_same(storax.transform(fused, [split_by_keys("all", list(parts), axis, lengths)]), parts)


def test_groups_are_fused_by_pattern_and_split_again():
    fuse = fuse_by_pattern(r".*\.(q|k|v)\.w$", ["q", "k", "v"], "qkv", axis=1)
    fused = storax.transform(LAYERS, [fuse])
    one = np.concatenate([LAYERS[f"layers.1.{part}.w"] for part in "qkv"], 1)
    assert sorted(fused) == [f"layers.{i}.qkv.w" for i in range(3)]
    assert_same(fused["layers.1.qkv.w"], one)
    split = split_by_pattern(r".*\.qkv\.", "qkv", ["q", "k", "v"], axis=1)
    assert_same(storax.transform(fused, [split]), LAYERS)


def test_proportions_of_a_split():
    found = storax.transform(
        {"qkv": values((12, 2))}, [split_by_keys("qkv", ["q", "k", "v"], sizes=[4, 1, 1])]
    )
    assert [found[name].shape[0] for name in "qkv"] == [8, 2, 2]


def test_all_that_does_not_fit_together():
    tree = {
        "0.q": np.ones((2, 3)), "0.k": np.ones((2, 4)),
        "1.q": np.ones((2, 3)),
        "2.q": np.ones((2, 3)), "2.k": np.ones((2, 3), np.float32),
        "3.q": "text", "3.k": np.ones(2),
        "4.q": np.ones(()), "4.k": np.ones(()),
    }  # fmt: skip
    found = dict(problems(tree, [fuse_by_pattern(r"\d\.(q|k)", ["q", "k"], "qk"), transpose("qk")]))
    assert "shapes or dtypes do not fit along axis 0: 0.q float64[2,3], 0.k float64[2,4]" in found["0.qk"]
    assert "k is missing" in found["1.qk"]
    assert "2.k float32[2,3]" in found["2.qk"]
    assert found["3.q"] == "it is str, not an array of numbers"
    assert "no axis 0" in found["4.qk"]


def test_an_incomplete_group_can_be_skipped_and_is_said_so(tmp_path):
    tree = {"0.q": np.ones(2), "0.k": np.ones(2), "1.q": np.ones(2)}
    storax.save(tmp_path / "a", tree)
    fuse = fuse_by_pattern(r"\d\.(q|k)", ["q", "k"], "qk", incomplete="skip")
    report = storax.rewrite(tmp_path / "a", tmp_path / "b", transforms=[fuse])
    assert sorted(report.loaded) == ["0.qk", "1.q"]
    assert any("1.qk is skipped: of its parts k is missing" in note for note in report.notes)


def test_keys_that_are_not_there():
    found = dict(
        problems({"gate": np.ones(2)}, [fuse_by_keys(["gate", "upp"], "g"), split_by_keys("x", ["a"])])
    )
    assert found == {"g": "there is no upp", "x": "there is no such leaf"}
    assert "close: gate_w" in problems({"gate_w": 1}, [repeat_by_keys(["gate_x"], 0, 2)])[0][1]


def test_lengths_that_do_not_divide():
    ((name, what),) = problems({"w": np.ones((7, 2))}, [split_by_keys("w", ["a", "b"])])
    assert (name, what) == ("w", "it is float64[7,2]; its axis 0 of 7 does not fall into 2 equal parts")


# --- stack ---------------------------------------------------------------------------------------


@given(st.data(), shapes)
@settings(max_examples=100, deadline=None)
def test_stack_is_stack_and_unstack_its_inverse(data, shape):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    count = data.draw(st.integers(1, 5))
    parts = {f"layers.{i}.w": values(shape) for i in range(count)}
    shuffled = {name: parts[name] for name in data.draw(st.permutations(list(parts)))}
    stacked = storax.transform(shuffled, [stack(r"layers\.(\d+)\.", axis=axis)])
    assert_same(stacked, {"layers.w": np.stack(list(parts.values()), axis)})
    assert_same(storax.transform(stacked, [unstack(r"^layers\.", "layers.{index}.", axis)]), parts)


def test_missing_numbers_are_filled():
    tree = {
        "e.0.w": values((2,)),
        "e.2.w": values((2,)),
        "e.0.b": np.ones(2, np.int8),
        "e.2.b": np.ones(2, np.int8),
    }
    step = stack(r"e\.(\d+\.)", expected_count=4, filler_mapping={"b$": 9.9}, default_filler=-1)
    found = storax.transform(tree, [step])
    row = np.full(2, -1, np.float32)
    assert_same(found["e.w"], np.stack([tree["e.0.w"], row, tree["e.2.w"], row]))
    assert_same(found["e.b"], np.array([[1, 1], [9, 9], [1, 1], [9, 9]], np.int8))


def test_all_that_can_be_wrong_with_numbers():
    tree = {
        "a.0.w": np.ones(2), "a.2.w": np.ones(2),
        "b.0.w": np.ones(2), "b.00.w": np.ones(2), "b.1.w": np.ones(2), "b.2.w": np.ones(2),
        "c.0.w": np.ones(2), "c.1.w": np.ones(3), "c.2.w": np.ones(2),
        "d.0.w": np.ones(2), "d.1.w": np.ones(2), "d.2.w": np.ones(2), "d.3.w": np.ones(2),
    }  # fmt: skip
    found = dict(problems(tree, [stack(r"\w\.(\d+\.)", expected_count=3)]))
    assert "number 1 of 3 is missing, there are numbers 0, 2" in found["a.w"]
    assert found["b.w"] == "b.0.w and b.00.w both have the number 0"
    assert found["c.w"] == "shapes or dtypes differ: float64[2]: c.0.w, c.2.w; float64[3]: c.1.w"
    assert "number 3 of 3 expected" in found["d.w"]


def test_a_stack_needs_one_group():
    with pytest.raises(BadOption, match="one group"):
        stack("layers")
    with pytest.raises(BadOption, match="not a pattern"):
        stack("(")


# --- shapes --------------------------------------------------------------------------------------


@given(st.data(), shapes)
@settings(max_examples=150, deadline=None)
def test_shapes_of_single_arrays(data, shape):
    whole = values(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    order = data.draw(st.permutations(range(len(shape))))
    n = shape[axis]
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    index = [slice(None)] * len(shape)
    index[axis] = slice(start, stop)
    widths = [(0, 0)] * len(shape)
    widths[axis] = (1, 2)
    for step, expected in [
        (transpose("w", order), whole.transpose(order)),
        (transpose("w"), whole.T),
        (reshape("w", [-1]), whole.reshape(-1)),
        (reshape("w", [1, *shape[::-1]]), whole.reshape(1, *shape[::-1])),
        (sliced("w", start, stop, axis), whole[tuple(index)]),
        (pad("w", 1, 2, value=5, axis=axis), np.pad(whole, widths, constant_values=5)),
        (pad("w", to=n + 3, axis=axis, before=1), np.pad(whole, widths)),
        (repeat_by_keys(["w"], axis, 3), np.repeat(whole, 3, axis)),
        (repeat_by_pattern("w", axis, 2), np.repeat(whole, 2, axis)),
    ]:
        assert_same(storax.transform({"w": whole}, [step]), {"w": np.ascontiguousarray(expected)})


@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_interleave_is_a_transpose_of_pieces(data, heads, groups, rows, block):
    axis = data.draw(st.integers(0, 2))
    shape = [2, 3]
    shape.insert(axis, heads * groups * rows * block)
    whole = values(tuple(shape))
    pieces = [*shape[:axis], heads, groups, rows, block, *shape[axis + 1 :]]
    expected = np.swapaxes(whole.reshape(pieces), axis + 1, axis + 2).reshape(shape)
    there = interleave("w", groups, block, heads, axis)
    back = deinterleave("w", groups, block, heads, axis)
    assert_same(storax.transform({"w": whole}, [there]), {"w": expected})
    assert_same(storax.transform({"w": whole}, [there, back]), {"w": whole})


def test_shapes_that_do_not_fit():
    tree = {"w": np.ones((4, 6))}
    for step, what in [
        (transpose("w", [0]), "does not order its 2 axes"),
        (transpose("w", [0, 0]), "does not order its 2 axes"),
        (reshape("w", [5, 5]), "24 elements"),
        (reshape("w", [-1, 7]), "has no shape"),
        (sliced("w", 0, 5), "not a range"),
        (sliced("w", 0, 1, axis=2), "no axis 2"),
        (pad("w", to=3), "longer than 3"),
        (repeat_by_keys(["w"], 3, 2), "no axis 3"),
        (interleave("w", 5), "does not fall into pieces of 5"),
        (unstack("w", "w{index}", axis=4), "no axis 4"),
    ]:
        ((name, found),) = problems(tree, [step])
        assert name == "w"
        assert what in found
