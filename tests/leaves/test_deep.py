"""Trees of hundreds of levels: what saves loads, and what JAX cannot flatten is refused, not tried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import storax
from storax.tree.names import Key
from storax.tree.nesting import unflatten


def nested(levels: int, kind: str) -> Any:
    wrap = {"dict": lambda x: {"a": x, "b": 1}, "list": lambda x: [1, x], "tuple": lambda x: (x, 1)}[kind]
    tree: Any = 7
    for _ in range(levels):
        tree = wrap(tree)
    return tree


def same(one: Any, other: Any) -> bool:
    """Equality that does not recurse."""
    waiting = [(one, other)]
    while waiting:
        a, b = waiting.pop()
        if type(a) is not type(b):
            return False
        if isinstance(a, dict):
            if a.keys() != b.keys():
                return False
            waiting += [(a[key], b[key]) for key in a]
        elif isinstance(a, (list, tuple)):
            if len(a) != len(b):
                return False
            waiting += zip(a, b, strict=True)
        elif a != b:
            return False
    return True


@pytest.mark.parametrize("kind", ["dict", "list", "tuple"])
def test_a_tree_of_six_hundred_levels(kind: str, tmp_path: Path) -> None:
    tree = nested(600, kind)
    storax.save(tmp_path / "a", tree)
    assert same(storax.load(tmp_path / "a"), tree)
    assert same(storax.load(tmp_path / "a", tree), tree)
    assert storax.verify(tmp_path / "a").ok


def test_key_paths_longer_than_pythons_stack() -> None:
    path = tuple(Key("index", 0) for _ in range(5000))
    tree, levels = unflatten([(path, 7)], frozenset()), 0
    while isinstance(tree, list):
        (tree,) = tree
        levels += 1
    assert (tree, levels) == (7, 5000)


def test_a_tree_that_jax_cannot_flatten_is_refused(tmp_path: Path) -> None:
    cyclic: list[Any] = [1]
    cyclic += [cyclic, cyclic]
    for tree in (nested(5000, "dict"), nested(5000, "tuple"), cyclic):
        with pytest.raises(storax.UnsupportedLeaf, match=r"levels deep.*setrecursionlimit"):
            storax.save(tmp_path / "a", tree)
    assert not (tmp_path / "a").exists()


def test_python_is_as_before_after_a_tree_that_is_too_deep(tmp_path: Path) -> None:
    program = """
import sys, storax
tree = 1
for _ in range(1500): tree = {"a": tree}
try: storax.save(sys.argv[1], tree)
except storax.UnsupportedLeaf: print("refused")
def f(n): return n and f(n - 1)
f(900)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
