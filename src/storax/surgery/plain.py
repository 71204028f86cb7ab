"""Transforms <-> plain dicts, lists, strings and numbers: what JSON, YAML and TOML files hold."""

from __future__ import annotations

import importlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from storax.errors import BadOption
from storax.surgery import arithmetic, composing, filling, fusing, naming, shaping, stacking
from storax.surgery.contract import Transform, close_to
from storax.surgery.filling import initializer

TRANSFORMS: dict[str, type[Transform]] = {
    kind.__name__: kind
    for kind in (
        naming.rename_by_regex,
        naming.drop,
        naming.keep,
        naming.flatten,
        naming.unflatten,
        composing.merge,
        composing.below,
        fusing.fuse_by_pattern,
        fusing.fuse_by_keys,
        fusing.split_by_pattern,
        fusing.split_by_keys,
        stacking.stack,
        stacking.unstack,
        shaping.transpose,
        shaping.reshape,
        shaping.slice,
        shaping.pad,
        shaping.repeat_by_pattern,
        shaping.repeat_by_keys,
        shaping.interleave,
        shaping.deinterleave,
        arithmetic.cast,
        arithmetic.scale,
        arithmetic.apply,
        arithmetic.overlay,
        filling.fill,
        filling.missing,
    )
}


def to_plain(transforms: Sequence[Transform]) -> list[dict[str, Any]]:
    """A list of transforms as plain values, each a dict of its name and its arguments.

    Raises:
      BadOption: a transform holds what a file cannot: a function, or a tree in memory.

    Example:
      >>> from storax.surgery import rename_by_regex, unflatten
      >>> to_plain([rename_by_regex([("^model", "params")]), unflatten()])
      [{'rename_by_regex': {'rules': [['^model', 'params']]}}, {'unflatten': {}}]
    """
    return [{type(transform).__name__: _arguments(transform)} for transform in transforms]


def _arguments(transform: Transform | initializer) -> dict[str, Any]:
    given = {}
    for part in fields(transform):  # type: ignore[arg-type]
        value = getattr(transform, part.name)
        default = part.default_factory() if part.default_factory is not MISSING else part.default
        if default is MISSING or type(value) is not type(default) or value != default:
            given[part.name] = _plain(value, f"{type(transform).__name__}({part.name}=...)")
    return given


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, Transform):
        return to_plain([value])[0]
    if isinstance(value, initializer):
        return {"initializer": _arguments(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part, where) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, where) for part in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise BadOption(f"{where} holds a {type(value).__name__}, which no file can hold; keep it in Python")


def from_plain(plain: Any, where: str = "the list of transforms") -> tuple[Transform, ...]:
    """A list of transforms from plain values; the inverse of ``to_plain``.

    Args:
      plain: a list of dicts, each of one transform's name and its arguments.
      where: what messages call it.

    Raises:
      BadOption: a name or an argument is unknown, or missing; all such mistakes at once.

    Example:
      >>> from_plain([{"stack": {"pattern": "layers.([0-9]+)"}}])
      (stack(pattern='layers.([0-9]+)'),)
    """
    if not isinstance(plain, Sequence) or isinstance(plain, str):
        raise BadOption(f"{where} must be a list of transforms, not {plain!r}")
    problems: list[str] = []
    found = [_made(entry, f"number {i + 1}", problems) for i, entry in enumerate(plain)]
    if problems:
        raise BadOption(f"{where} has mistakes:\n  " + "\n  ".join(problems))
    return tuple(transform for transform in found if transform is not None)


def _made(entry: Any, which: str, problems: list[str]) -> Transform | None:
    if not isinstance(entry, Mapping) or len(entry) != 1:
        problems.append(f"{which} is {entry!r}; it must be one transform: {{name: {{argument: value}}}}")
        return None
    ((name, arguments),) = entry.items()
    kind = TRANSFORMS.get(str(name))
    if kind is None:
        problems.append(f"{which}: there is no transform {name!r}{close_to(str(name), TRANSFORMS)}")
        return None
    if not isinstance(arguments or {}, Mapping):
        problems.append(f"{which}: the arguments of {name} are {arguments!r}; give them by name")
        return None
    given = {
        str(key): _value(str(key), value, f"{which}, {name}", problems)
        for key, value in (arguments or {}).items()
    }
    known = {part.name: part for part in fields(kind)}  # type: ignore[arg-type]
    unknown = [key for key in given if key not in known]
    lost = [
        key
        for key, part in known.items()
        if key not in given and part.default is MISSING and part.default_factory is MISSING
    ]
    if unknown or lost:
        what = [f"has no argument {key!r}{close_to(key, known)}" for key in unknown]
        what += [f"needs {key!r}" for key in lost]
        problems.append(f"{which}: {name} " + ", ".join(what))
        return None
    mistyped = [_mistyped(known[key].type, key, value) for key, value in given.items()]
    if wrong := [text for text in mistyped if text is not None]:
        problems.append(f"{which}: of {name} {', '.join(wrong)}")
        return None
    try:
        return kind(**given)
    except BadOption as error:
        problems.append(f"{which}: {error}")
    except (TypeError, ValueError) as error:
        problems.append(f"{which}: {name}: {error}")
    return None


# Of the arguments that are single values; the others are checked where they are used.
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}


def _mistyped(annotation: Any, key: str, value: Any) -> str | None:
    """Why a value cannot be what an argument is declared to be, or None."""
    name, _, optional = str(annotation).partition(" | ")
    types = _TYPES.get(name)
    if types is None or optional not in ("", "None") or (optional and value is None):
        return None
    if isinstance(value, types) and (name == "bool" or not isinstance(value, bool)):
        return None
    return f"{key} is {value!r}, not a {name}"


def _value(key: str, value: Any, where: str, problems: list[str]) -> Any:
    if key == "transforms" and isinstance(value, Sequence):
        return tuple(
            t for t in (_made(entry, f"{where}, {i + 1}", problems) for i, entry in enumerate(value)) if t
        )
    if isinstance(value, Mapping) and set(value) == {"initializer"}:
        try:
            return initializer(**value["initializer"])
        except (TypeError, BadOption) as error:
            problems.append(f"{where}: {error}")
            return None
    return value


def read_transforms(path: str | os.PathLike[str]) -> tuple[Transform, ...]:
    """The transforms of a file: a list under ``transforms``, in TOML, JSON or YAML.

    Args:
      path: ends in ``.toml``, ``.json``, ``.yaml`` or ``.yml``; for YAML the package PyYAML is needed.

    Raises:
      BadOption: the file is not there, cannot be read, or has mistakes; all of them at once.
    """
    file = Path(path)
    value = read_document(file)
    if isinstance(value, Mapping):
        if set(value) != {"transforms"}:
            raise BadOption(
                f"{file} must have the list 'transforms', and has {', '.join(map(str, value)) or 'nothing'}"
            )
        value = value["transforms"]
    return from_plain(value, str(file))


def read_document(file: Path) -> Any:
    """The value that a TOML, JSON or YAML file holds."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{file} cannot be read: {error}") from None
    kinds: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": json.loads,
        ".yaml": _yaml,
        ".yml": _yaml,
    }
    if file.suffix not in kinds:
        raise BadOption(f"{file}: what it is must show in its name: {', '.join(kinds)}")
    try:
        return kinds[file.suffix](text)
    except BadOption:
        raise
    except Exception as error:  # each parser has errors of its own
        raise BadOption(f"{file} is not {file.suffix[1:].upper()}: {error}") from None


def _yaml(text: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise BadOption("reading YAML needs PyYAML: pip install pyyaml. Or write TOML or JSON.") from None
    return yaml.safe_load(text)
