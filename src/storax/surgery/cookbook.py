"""Recipes: lists of transforms for known families of models, made from the data in ``recipes/``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from storax.errors import BadOption
from storax.surgery.contract import Transform, close_to
from storax.surgery.naming import drop, rename_by_regex
from storax.surgery.plain import from_plain
from storax.surgery.shaping import transpose
from storax.surgery.stacking import stack, unstack

Direction = Literal["forward", "backward"]
_INDEX = r"(\d+)"


def recipes() -> dict[str, str]:
    """The names of all recipes, and what each is for.

    Example:
      >>> sorted(recipes())[:4]
      ['gemma', 'gpt2', 'linen_to_nnx', 'llama']
    """
    return {name: str(_read(name)["about"]) for name in _names()}


def recipe(
    name: str, direction: Direction = "forward", /, *, stacked: bool = False, **arguments: Any
) -> tuple[Transform, ...]:
    r"""The transforms of a recipe.

    Recipes of model families go from the names and layouts of Hugging Face to those of JAX: nested
    names, kernels as [in, out], the experts of a layer stacked. A name that the recipe does not know
    is an error, so that a recipe for another family fails before anything is read.

    Args:
      name: one of ``recipes()``.
      direction: ``"backward"`` for the other way, such as from JAX to Hugging Face.
      stacked: whether the layers on the side of JAX are stacked, for a scan over them.
      arguments: of the recipe, such as ``seed`` of ``nnx_0_11``.

    Raises:
      BadOption: there is no such recipe, or it has no such argument or direction.

    Example:
      >>> recipe("scan", name="blocks")
      (stack(pattern='(?:^|\\.)blocks(_\\d+)(?:\\.|$)'),)
    """
    if name not in _names():
        raise BadOption(
            f"there is no recipe {name!r}{close_to(name, _names())}; there are {', '.join(_names())}"
        )
    if direction not in ("forward", "backward"):
        raise BadOption(f"direction is {direction!r}; it must be 'forward' or 'backward'")
    data = _read(name)
    known = data.get("arguments", {})
    if unknown := [key for key in arguments if key not in known]:
        raise BadOption(
            f"the recipe {name} has no argument {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    if "names" in data:
        return tuple(_forward(data, stacked) if direction == "forward" else _backward(data, stacked))
    if direction not in data:
        raise BadOption(f"the recipe {name} only goes forward")
    if stacked:
        raise BadOption(f"the recipe {name} has no stacked form")
    return from_plain(_given(data[direction], {**known, **arguments}), f"the recipe {name}")


def _names() -> list[str]:
    files = resources.files("storax.surgery").joinpath("recipes").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def _read(name: str) -> dict[str, Any]:
    file = resources.files("storax.surgery").joinpath("recipes", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _given(plain: Any, arguments: Mapping[str, Any]) -> Any:
    """The data with the arguments in their places: alone as they are, in text as text."""
    if isinstance(plain, Mapping):
        return {key: _given(value, arguments) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_given(value, arguments) for value in plain]
    if not isinstance(plain, str):
        return plain
    for key, value in arguments.items():
        if plain == f"%{key}%":
            return value
        plain = plain.replace(f"%{key}_pattern%", re.escape(str(value))).replace(f"%{key}%", str(value))
    return plain


# --- families of models --------------------------------------------------------------------------


def _forward(data: Mapping[str, Any], stacked: bool) -> Iterator[Transform]:
    for pattern in data.get("drop", ()):
        yield drop(pattern)
    prefix = f"(?:{re.escape(data['prefix'])})?" if "prefix" in data else ""
    yield rename_by_regex(
        [(f"^{prefix}{_pattern(theirs)}$", _replacement(ours)) for theirs, ours, *_ in data["names"]],
        unmatched="error",
    )
    for axes, ours in _by_axes(data["names"]).items():
        yield transpose(_any_of(ours), axes)
    if "experts" in data:
        yield stack(data["experts"])
    if stacked:
        yield stack(data["layers"])


def _backward(data: Mapping[str, Any], stacked: bool) -> Iterator[Transform]:
    if stacked:
        yield _apart(data["layers"])
    if "experts" in data:
        yield _apart(data["experts"])
    for axes, ours in _by_axes(data["names"]).items():
        back = sorted(range(len(axes)), key=lambda i: axes[i])
        yield transpose(_any_of(ours), back)
    yield rename_by_regex(
        [(f"^{_pattern(ours)}$", _replacement(theirs)) for theirs, ours, *_ in data["names"]],
        unmatched="error",
    )


def _apart(pattern: str) -> Transform:
    """The inverse of a stack whose pattern ends with the number and a dot."""
    before = pattern.removesuffix(r"(\d+\.)")
    return unstack(f"({before})", r"\1{index}.")


def _by_axes(names: Sequence[Sequence[Any]]) -> dict[tuple[int, ...], list[str]]:
    found: dict[tuple[int, ...], list[str]] = {}
    for _, ours, *axes in names:
        if axes:
            found.setdefault(tuple(axes[0]), []).append(ours)
    return found


def _any_of(templates: Sequence[str]) -> str:
    return f"^(?:{'|'.join(_pattern(template) for template in templates)})$"


def _pattern(template: str) -> str:
    """A name with {i} and {j} for numbers, as a regular expression."""
    return re.escape(template).replace(r"\{i\}", _INDEX).replace(r"\{j\}", _INDEX)


def _replacement(template: str) -> str:
    return template.replace("{i}", r"\1").replace("{j}", r"\2")
