"""The six transforms that Orbax has, on the same inputs, in its own experimental module."""

from __future__ import annotations

import logging

import jax
import numpy as np
import pytest
from orbax.checkpoint.experimental.model_surgery.transformations import (
    fusing,
    nesting,
    renaming,
    repeating,
    stacking,
)
from tests.same import assert_same

import storax
from storax import surgery

RNG = np.random.default_rng(3)


def arrays(*names, shape=(4, 6)):
    return {name: RNG.normal(size=shape).astype(np.float32) for name in names}


MODEL = {
    **arrays("model.embed.weight", shape=(8, 4)),
    **arrays(*(f"model.layers.{i}.mlp.{part}_proj.weight" for i in range(3) for part in ("gate", "up"))),
    **arrays(*(f"model.layers.{i}.mlp.experts.{j}.w" for i in range(2) for j in range(4)), shape=(2, 3)),
}
GATE_UP = {
    "pattern": r"^(.*)\.(gate_proj|up_proj)\.weight$",
    "unique_parts": ["gate_proj", "up_proj"],
    "fused_unique_part": "gate_up_proj",
}
EXPERTS = r"mlp\.experts\.(\d+\.)"

SAME = {
    "rename": (
        renaming.rename_by_regex([(r"^model\.", ""), (r"\.weight$", ".kernel"), ("layers", "blocks")]),
        surgery.rename_by_regex([(r"^model\.", ""), (r"\.weight$", ".kernel"), ("layers", "blocks")]),
    ),
    "fuse": (fusing.fuse_by_pattern(**GATE_UP), surgery.fuse_by_pattern(**GATE_UP)),
    "fuse along 1": (fusing.fuse_by_pattern(**GATE_UP, axis=1), surgery.fuse_by_pattern(**GATE_UP, axis=1)),
    "fuse along -1": (
        fusing.fuse_by_pattern(**GATE_UP, axis=-1),
        surgery.fuse_by_pattern(**GATE_UP, axis=-1),
    ),
    "fuse keys": tuple(
        made(
            source_keys=["model.layers.1.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"],
            target_key="both",
            axis=1,
        )
        for made in (fusing.fuse_by_keys, surgery.fuse_by_keys)
    ),
    "repeat": tuple(
        made(pattern=r".*up_proj", dimension=1, repeat_count=3)
        for made in (repeating.repeat_by_pattern, surgery.repeat_by_pattern)
    ),
    "repeat keys": tuple(
        made(target_keys=["model.embed.weight"], dimension=0, repeat_count=2)
        for made in (repeating.repeat_by_keys, surgery.repeat_by_keys)
    ),
    "stack": (stacking.stack(EXPERTS, expected_count=4), surgery.stack(EXPERTS, expected_count=4)),
    "stack, counted": (stacking.stack(EXPERTS, axis=1), surgery.stack(EXPERTS, axis=1)),
    "stack at the end": (stacking.stack(EXPERTS, axis=-1), surgery.stack(EXPERTS, axis=-1)),
    "stack and fill": tuple(
        made(EXPERTS, expected_count=6, filler_mapping={r"layers\.1": 2.5}, default_filler=-1.0)
        for made in (stacking.stack, surgery.stack)
    ),
    "unflatten": (nesting.unflatten(), surgery.unflatten()),
}


@pytest.mark.parametrize("kind", ["numpy", "jax"])
@pytest.mark.parametrize("which", SAME)
def test_the_same_comes_out(which, kind):
    theirs, ours = SAME[which]
    tree = MODEL if kind == "numpy" else {name: jax.numpy.asarray(value) for name, value in MODEL.items()}
    assert_same(storax.transform(tree, [ours]), dict(theirs(dict(tree))))


def test_a_whole_list_of_them_from_a_checkpoint(tmp_path):
    storax.save(tmp_path / "a", MODEL)
    gate_up = {**GATE_UP, "pattern": r"^(.*)\.(gate_proj|up_proj)\.kernel$"}
    theirs = [
        SAME["rename"][0],
        fusing.fuse_by_pattern(**gate_up),
        stacking.stack(EXPERTS),
        nesting.unflatten(),
    ]
    tree = dict(MODEL)
    for step in theirs:
        tree = step(tree)
    ours = [
        SAME["rename"][1],
        surgery.fuse_by_pattern(**gate_up),
        surgery.stack(EXPERTS),
        surgery.unflatten(),
    ]
    assert_same(storax.load(tmp_path / "a", transforms=ours), tree)


def test_where_orbax_logs_and_goes_on_storax_says_no(caplog):
    """A group that lacks a part stays as it is there, with a line in the log; here it is an error."""
    tree = {name: value for name, value in MODEL.items() if name != "model.layers.1.mlp.up_proj.weight"}
    with caplog.at_level(logging.WARNING, logger="absl"):
        left = fusing.fuse_by_pattern(**GATE_UP)(dict(tree))
    assert "model.layers.1.mlp.gate_proj.weight" in left
    with pytest.raises(storax.TransformMismatch, match="up_proj is missing"):
        storax.transform(tree, [surgery.fuse_by_pattern(**GATE_UP)])
    skipping = surgery.fuse_by_pattern(**GATE_UP, incomplete="skip")
    assert_same(storax.transform(tree, [skipping]), left)


def test_where_orbax_loses_a_leaf_storax_says_no():
    """Two names that become one: the first value is gone there, without a word."""
    tree = {"a1": np.zeros(2), "a2": np.ones(2)}
    assert len(renaming.rename_by_regex([(r"\d", "")])(dict(tree))) == 1
    with pytest.raises(storax.TransformMismatch, match="a1 and a2 would all have this name"):
        storax.transform(tree, [surgery.rename_by_regex([(r"\d", "")])])


def test_of_two_dots_that_meet_storax_drops_one():
    """The one deviation in names: with the group around the number alone, Orbax leaves both."""
    tree = arrays("layers.0.w", "layers.1.w")
    assert list(stacking.stack(r"layers\.(\d+)\.")(dict(tree))) == ["layers..w"]
    assert list(storax.transform(tree, [surgery.stack(r"layers\.(\d+)\.")])) == ["layers.w"]
