"""Kinds of leaf, and their abstract form: what is known of a leaf without its values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from storax.tree.names import KeyPath, leaf_name

# The order is that of the table in the documentation. "empty" kinds are containers without children.
Kind = Literal[
    "jax.Array", "np.ndarray", "np.generic",
    "int", "float", "complex", "bool", "str", "bytes",
    "None", "dict", "list", "tuple",
]  # fmt: skip

KINDS: frozenset[str] = frozenset(get_args(Kind))
ARRAYS: frozenset[str] = frozenset({"jax.Array", "np.ndarray"})
NUMBERS: frozenset[str] = frozenset({"int", "float", "complex", "bool", "np.generic"})
EMPTY: frozenset[str] = frozenset({"dict", "list", "tuple"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a tree, saved or wanted, without its values.

    Attributes:
      path: the key path.
      kind: what it is in memory. A wanted leaf may say ``any``: whatever was saved.
      shape: of arrays and of numbers (``()``).
      dtype: its name, of arrays and of numbers; ``key<impl>`` of typed PRNG keys.
      prng: the implementation of typed PRNG keys, such as ``threefry2x32``.
      sharding: the JSON text that the ``_sharding`` document holds, or None.
      value: of strings, and of integers that no 64 bits hold.
      nbytes: bytes of the values.
      tied: the name of an earlier leaf that is the same array in memory; it is stored once for both.
      weak: whether the dtype of a ``jax.Array`` gives way to others, as that of ``jnp.asarray(0.1)`` does.
      name: the leaf's name on disk.
    """

    path: KeyPath
    kind: Kind | Literal["any"]
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    prng: str | None = None
    byteorder: Literal["<", ">"] = "<"
    sharding: str | None = field(default=None, compare=False)
    value: str | int | None = None
    nbytes: int = 0
    tied: str | None = None
    weak: bool = False
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", leaf_name(self.path))

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape or ())

    @property
    def is_in_document(self) -> bool:
        """Whether the documents alone hold it: None, empty containers, strings, very large integers."""
        return self.kind in EMPTY or self.kind == "None" or self.value is not None

    def __str__(self) -> str:
        """As messages show it: ``float32[8,512]``, ``int``, ``None``, ``empty dict``."""
        if self.kind in EMPTY:
            return f"empty {self.kind}"
        if self.kind in ("jax.Array", "np.ndarray", "any") and self.shape is not None:
            return f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return f"{self.dtype} scalar" if self.kind == "np.generic" else self.kind
