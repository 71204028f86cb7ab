"""One program for two libraries: it is given the module, and what it gives back is compared."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint

import storax

Program = Callable[[Any, Path], Any]


def both(program: Program, tmp_path: Path, *, same: bool = True) -> tuple[Any, Any]:
    """What a program gives with storax and with Orbax; the same, unless ``same`` is False."""
    results = []
    for name, library in (("storax", storax), ("orbax", orbax.checkpoint)):
        directory = tmp_path / name
        directory.mkdir()
        results.append(program(library, directory))
    if same:
        found = list(differences(plain(results[0]), plain(results[1])))
        assert not found, "storax | orbax:\n" + "\n".join(found)
    return results[0], results[1]


def differences(ours: Any, theirs: Any, where: str = "result") -> Iterator[str]:
    """Where two results in plain form differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs) and set(ours) != set(theirs):
            yield f"{where}: keys {list(ours)} | {list(theirs)}"
        for key in set(ours) & set(theirs):
            yield from differences(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif ours != theirs:
        yield f"{where}: {ours} | {theirs}"


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the builtin kind of error that it raises."""
    try:
        return call()
    except Exception as error:
        kinds = (KeyError, FileNotFoundError, FileExistsError, ValueError, TypeError, RuntimeError)
        return next((kind.__name__ for kind in kinds if isinstance(error, kind)), type(error).__name__)


def plain(value: Any) -> Any:
    """A result in a form that compares: lists and dicts, and arrays by kind, dtype, shape and bits."""
    if isinstance(value, jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return ("keys", str(jax.random.key_impl(value)), plain(jax.random.key_data(value)))
        return ("jax.Array", str(value.dtype), value.shape, np.asarray(value).tobytes())
    if isinstance(value, (np.ndarray, np.generic)):
        return ("numpy", str(value.dtype), value.shape, value.tobytes())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if type(value).__name__ in ("Composite", "CompositeArgs"):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return ("float", struct.pack("d", value))
    return value


def shows(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Says which of Orbax's names a test shows; the table in docs/from-orbax.md is made of this."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        test.shown_names = names  # type: ignore[attr-defined]
        return test

    return mark
