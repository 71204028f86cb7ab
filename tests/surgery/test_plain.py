"""Every transform as plain values and back: in JSON, YAML and TOML."""

from __future__ import annotations

import json

import numpy as np
import pytest

import storax
from storax import surgery
from storax.errors import BadOption
from storax.surgery import below, from_plain, initializer, read_transforms, to_plain
from storax.surgery.plain import TRANSFORMS

EVERY = (
    surgery.rename_by_regex([(r"^model\.", ""), ("a", r"\g<0>b")], unmatched="error"),
    surgery.drop("a"),
    surgery.keep("b"),
    surgery.flatten("/"),
    surgery.unflatten(),
    surgery.merge("runs/a", prefix="x"),
    below("params", [surgery.stack(r"l\.(\d+)"), below("y", [surgery.drop("c")])], follow=["opt.mu"]),
    surgery.fuse_by_pattern("a", ["q", "k"], "qk", axis=1, incomplete="skip"),
    surgery.fuse_by_keys(["q", "k"], "qk"),
    surgery.split_by_pattern("a", "qk", ["q", "k"], sizes=[2, 1]),
    surgery.split_by_keys("qk", ["q", "k"], -1),
    surgery.stack(r"(\d+)", 3, 1, {"b$": 0.5}, 0.0),
    surgery.unstack("a", "a{index}", axis=2),
    surgery.transpose("a", [1, 0]),
    surgery.reshape("a", [2, -1]),
    surgery.slice("a", 1, -1, axis=1),
    surgery.pad("a", to=7, value=1.5),
    surgery.repeat_by_pattern("a", 0, 2),
    surgery.repeat_by_keys(["a"], 0, 2),
    surgery.interleave("a", 2, heads=4),
    surgery.deinterleave("a", 3, block=64, axis=1),
    surgery.cast("bfloat16", "a", lossy=True),
    surgery.scale("a", 0.5),
    surgery.overlay("(a)", b=r"\1b", a=r"\1a", scale=2.0),
    surgery.fill("a", [2, 3], "float32", initializer("normal", {"stddev": 0.02}, key=3)),
    surgery.missing("a", "fill", 1.0),
)


def test_every_transform_is_here():
    assert {type(one).__name__ for one in EVERY} | {"apply"} == set(TRANSFORMS)
    assert set(TRANSFORMS) <= set(dir(surgery))


@pytest.mark.parametrize("one", EVERY, ids=lambda one: type(one).__name__)
def test_it_comes_back_equal(one):
    plain = to_plain([one])
    assert from_plain(json.loads(json.dumps(plain))) == (one,)
    assert to_plain(from_plain(plain)) == plain


@pytest.mark.parametrize("one", EVERY, ids=lambda one: type(one).__name__)
def test_what_it_prints_is_what_to_type(one):
    assert eval(repr(one), vars(surgery) | {"initializer": initializer}) == one


def test_transforms_that_differ_are_not_equal():
    assert surgery.drop("a") != surgery.drop("b")
    assert surgery.drop("a") != surgery.keep("a")


def test_files_of_every_kind(tmp_path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is an extra")
    plain = to_plain(EVERY)
    (tmp_path / "a.json").write_text(json.dumps(plain))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"transforms": plain}))
    (tmp_path / "c.toml").write_text(
        "[[transforms]]\nstack = { pattern = 'layers\\.(\\d+)\\.', axis = 1 }\n"
        "[[transforms]]\nunflatten = {}\n"
    )
    assert read_transforms(tmp_path / "a.json") == EVERY
    assert read_transforms(tmp_path / "b.yaml") == EVERY
    assert read_transforms(tmp_path / "c.toml") == (
        surgery.stack(r"layers\.(\d+)\.", axis=1),
        surgery.unflatten(),
    )


def test_all_mistakes_of_a_list_at_once():
    plain = [
        {"stak": {"pattern": "a"}},
        {"stack": {"patern": r"(\d)"}},
        {"stack": {"pattern": "("}},
        {"drop": "a"},
        {"drop": {"pattern": "a"}, "keep": {"pattern": "b"}},
        "drop",
        {"below": {"prefix": "p", "transforms": [{"dropp": {}}]}},
        {"fill": {"name": "a", "shape": [1], "dtype": "int8", "value": {"initializer": {"name": "x"}}}},
        {"reshape": {"pattern": "a", "shape": 5}},
        {"stack": {"pattern": r"(\d)", "axis": "0", "default_filler": True}},
    ]
    with pytest.raises(BadOption) as caught:
        from_plain(plain)
    lines = str(caught.value).splitlines()[1:]
    assert [f"number {i}" in lines[i - 1] for i in range(1, 11)] == [True] * 10
    assert "of stack axis is '0', not a int, default_filler is True, not a float" in lines[-1]
    for part, line in zip(
        ["close: stack", "has no argument 'patern' (close: pattern), needs 'pattern'", "not a pattern"],
        lines,
        strict=False,
    ):
        assert part in line


def test_what_no_file_can_hold():
    with pytest.raises(BadOption, match=r"apply\(function=...\) holds a function"):
        to_plain([surgery.apply("a", lambda x: x)])
    with pytest.raises(BadOption, match="holds a ndarray"):
        to_plain([surgery.merge({"w": np.ones(2)})])


def test_files_that_are_not_recipes(tmp_path):
    for name, text, message in [
        ("a.txt", "", "must show in its name"),
        ("b.json", "{", "is not JSON"),
        ("c.toml", "=", "is not TOML"),
        ("d.json", '{"steps": []}', "must have the list 'transforms'"),
        ("e.json", '"drop"', "must be a list"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(BadOption, match=message):
            read_transforms(tmp_path / name)
    with pytest.raises(BadOption, match="cannot be read"):
        read_transforms(tmp_path / "nothing.json")


def test_a_recipe_in_a_file_does_what_the_list_does(tmp_path):
    steps = [surgery.fuse_by_keys(["q", "k"], "qk"), surgery.cast("float32")]
    (tmp_path / "steps.json").write_text(json.dumps(to_plain(steps)))
    tree = {"q": np.ones(2), "k": np.zeros(3)}
    found = storax.transform(tree, read_transforms(tmp_path / "steps.json"))
    assert found["qk"].tolist() == storax.transform(tree, steps)["qk"].tolist() == [1, 1, 0, 0, 0]
