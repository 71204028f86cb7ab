"""Shardings by rule: a function of a leaf's name and shape, for loads without a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from storax.errors import BadOption
from storax.tree.leaves import ARRAYS, Leaf
from storax.tree.names import display

Rule = Callable[[str, tuple[int, ...]], Any]
"""Of a leaf's name and shape: a ``PartitionSpec``, a ``Sharding``, or None for the default device."""


To = Literal["numpy"] | jax.Device | Sharding | tuple[Mesh, Rule]
"""Where all arrays of a load go: numpy, one device, one sharding, or a mesh by a rule."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """What a rule said of one leaf; None is the default device."""

    sharding: Sharding | None


def can_hold(leaf: Leaf) -> bool:
    """Whether a saved leaf is an array, and of a dtype that JAX has: none of six bits."""
    return leaf.kind in ARRAYS and not str(leaf.dtype).startswith("float6_")


def rule_of(to: Any) -> Rule:
    """The rule that puts all arrays where ``load(..., to=...)`` says.

    Raises:
      BadOption: it is no place.
    """
    match to:
        case Sharding():
            return lambda name, shape: to
        case jax.Device():
            return lambda name, shape: SingleDeviceSharding(to)
        case (Mesh() as mesh, rule) if callable(rule):
            return lambda name, shape: _on(mesh, rule(name, shape))
    raise BadOption(
        f"to is a {type(to).__name__}; it must be 'numpy', a device, a Sharding, or a pair (mesh, rule)"
    )


def _on(mesh: Mesh, given: Any) -> Any:
    return NamedSharding(mesh, given) if isinstance(given, PartitionSpec) else given


def shardings_by(rule: Rule, leaves: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Sharding | None]:
    """What a rule says of some leaves, by name. A ``PartitionSpec`` is on the mesh of ``jax.set_mesh``.

    Raises:
      BadOption: the rule gave something else, or there is no mesh; lists all such leaves.
    """
    found: dict[str, Sharding | None] = {}
    problems = []
    for name, shape in leaves:
        given = rule(name, shape)
        if isinstance(given, PartitionSpec):
            mesh = jax.sharding.get_mesh()
            if mesh.empty:
                problems.append(f"{display(name)}: {given}, and no mesh is set")
                continue
            given = NamedSharding(mesh, given)
        if given is not None and not isinstance(given, Sharding):
            problems.append(f"{display(name)}: a {type(given).__name__}")
            continue
        found[name] = given
    if problems:
        raise BadOption(
            "the rule for shardings must give a PartitionSpec, a Sharding or None, but it gave\n  "
            + "\n  ".join(problems[:20])
            + "\nFor a PartitionSpec set the mesh: with jax.set_mesh(mesh): load(...); "
            "or return NamedSharding(mesh, spec)."
        )
    return found
