"""New leaves: by value, or by an initialiser with a key."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import numpy as np

from storax.arrays.read import Source
from storax.errors import BadOption, Corrupt
from storax.surgery.computing import Applied
from storax.surgery.contract import Run, Transform, Wanted, compiled
from storax.surgery.entries import BROKEN, Entries, Entry
from storax.surgery.memory import MemoryArray, filled
from storax.surgery.naming import kept_entry
from storax.tree.dtypes import dtype_name, dtype_named, is_storable
from storax.tree.leaves import Leaf
from storax.tree.names import Key

# Initialisers of jax.nn.initializers, by their names there.
_INITIALISERS = (
    "zeros ones constant normal truncated_normal uniform glorot_normal glorot_uniform he_normal he_uniform"
    " lecun_normal lecun_uniform kaiming_normal kaiming_uniform xavier_normal xavier_uniform"
    " variance_scaling orthogonal delta_orthogonal"
).split()
_KEY = "key"


@dataclass(frozen=True)
class initializer:
    """Values from an initialiser of ``jax.nn.initializers``, or new PRNG keys.

    Each leaf gets a key of its own, made of ``key`` and its name: so the values do not depend on
    what else is filled, nor on how the leaf is sharded.

    Args:
      name: as in ``jax.nn.initializers``; ``"key"`` for a leaf that holds PRNG keys.
      arguments: what the initialiser takes, such as ``{"stddev": 0.02}``.
      key: the seed.

    Example:
      >>> initializer("normal", {"stddev": 0.02}, key=1)
      initializer(name='normal', arguments={'stddev': 0.02}, key=1)
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    key: int = 0

    def __post_init__(self) -> None:
        if self.name not in (*_INITIALISERS, _KEY):
            raise BadOption(f"initializer: {self.name!r} is none of {', '.join((*_INITIALISERS, _KEY))}")
        object.__setattr__(self, "arguments", dict(self.arguments))
        self.function()

    def function(self) -> Any:
        """The initialiser, a function of key, shape and dtype."""
        if self.name == _KEY:
            return None
        found = getattr(jax.nn.initializers, self.name)
        if self.name in ("zeros", "ones") and not self.arguments:
            return found
        try:
            return found(**self.arguments)
        except TypeError as error:
            raise BadOption(f"initializer({self.name!r}): {error}") from None

    def key_of(self, name: str, prng: str | None = None) -> Any:
        """The key of a leaf."""
        return jax.random.fold_in(jax.random.key(self.key, impl=prng), zlib.crc32(name.encode()))


Value = float | initializer


def new_source(name: str, shape: tuple[int, ...], dtype: np.dtype, value: Value) -> Source:
    """An array of a value, or of what an initialiser makes."""
    if not isinstance(value, initializer):
        return filled(shape, dtype, value)
    if value.name == _KEY:
        raise BadOption(f"{name}: it holds no PRNG keys; initializer('key') is for those that do")
    make = value.function()

    def initialised() -> np.ndarray:
        return np.asarray(make(value.key_of(name), shape, dtype))

    return Applied((), initialised, shape, dtype, value.name)


def _new_entry(transform: object, name: str, leaf: Leaf, value: Value, run: Run) -> Entry:
    """An entry for a leaf of a target that nothing provides."""
    run.filled.add(name)
    if leaf.prng:
        if not isinstance(value, initializer) or value.name != _KEY:
            run.problem(transform, name, f"it is {leaf}; fill PRNG keys with initializer('key', key=<seed>)")
            return BROKEN
        keys = value.key_of(name, leaf.prng)
        if leaf.shape:
            keys = jax.random.split(keys, leaf.shape)
        return Entry(leaf, MemoryArray(jax.random.key_data(keys)))
    if leaf.shape is None or leaf.dtype is None or leaf.is_in_document:
        run.problem(transform, name, f"it is {leaf}, which has no values to fill")
        return BROKEN
    kind = "jax.Array" if leaf.kind == "any" else leaf.kind
    dtype = dtype_named(leaf.dtype)
    if isinstance(value, initializer) and value.name == _KEY:
        run.problem(transform, name, f"it is {leaf} and holds no PRNG keys")
        return BROKEN
    return Entry(replace(leaf, kind=kind, byteorder="<"), new_source(name, leaf.shape, dtype, value))


@dataclass(frozen=True, repr=False)
class fill(Transform):
    """Adds a new leaf.

    Args:
      name: of the leaf; it must be new.
      shape, dtype: of the array.
      value: a number, or an ``initializer``.

    Example:
      >>> fill("head.bias", [10], "float32")
      fill(name='head.bias', shape=(10,), dtype='float32')
    """

    name: str
    shape: Sequence[int]
    dtype: str
    value: Value = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", checked_dtype(self, self.dtype))

    def apply(self, entries: Entries, run: Run) -> Entries:
        if self.name in entries:
            run.problem(self, self.name, "there is such a leaf already")
            return entries
        leaf = Leaf((Key("key", self.name),), "jax.Array", tuple(self.shape), self.dtype)
        run.filled.add(self.name)
        source = new_source(self.name, tuple(self.shape), dtype_named(self.dtype), self.value)
        # Not the key path of a leaf that was read: the structure of the rest decides it.
        return {**entries, self.name: Entry(replace(leaf, path=()), source)}


@dataclass(frozen=True, repr=False)
class missing(Transform):
    r"""Says what becomes of leaves that the target has and nothing provides.

    Args:
      pattern: found anywhere in a name. The first one in the list that matches decides.
      policy: ``"error"``, as without it; ``"keep"`` the target's value; ``"fill"`` it.
      value: what to fill with: a number, or an ``initializer``.

    Example:
      >>> missing(r"\.lora_b$", "fill")
      missing(pattern='\\.lora_b$', policy='fill')
    """

    pattern: str
    policy: Literal["error", "keep", "fill"] = "error"
    value: Value = 0.0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        if self.policy not in ("error", "keep", "fill"):
            raise BadOption(f"missing: policy is {self.policy!r}, not 'error', 'keep' or 'fill'")

    def apply(self, entries: Entries, run: Run) -> Entries:
        if run.target is None:
            run.note(self, "there is no target, so nothing is missing")
            return entries
        pattern = compiled(self, self.pattern)
        result = dict(entries)
        for name, want in run.target.items():
            if name in entries or name in run.settled or not pattern.search(name):
                continue
            run.settled.add(name)
            if self.policy != "error":
                result[name] = self._made(name, want, run)
        return result

    def _made(self, name: str, want: Wanted, run: Run) -> Entry:
        if self.policy == "keep":
            return kept_entry(self, name, want, run)
        return _new_entry(self, name, want.leaf, self.value, run)


def checked_dtype(transform: object, dtype: Any) -> str:
    """The name of a dtype. Raises ``BadOption`` if arrays cannot have it."""
    try:
        name = dtype if isinstance(dtype, str) else dtype_name(np.dtype(dtype))
        if is_storable(dtype_named(name)):
            return name
    except (Corrupt, TypeError):
        pass
    raise BadOption(f"{type(transform).__name__}: {dtype!r} is not a dtype of arrays, such as 'bfloat16'")
