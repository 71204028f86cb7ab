"""Pytrees <-> named leaves: the one door to ``jax.tree_util``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from storax.arrays.place import sharding_text
from storax.errors import UnsupportedLeaf
from storax.tree.documents import PRNG_WIDTHS
from storax.tree.dtypes import dtype_name, is_storable
from storax.tree.leaves import Kind, Leaf
from storax.tree.names import Key, KeyPath, check_distinct, display, leaf_name, path_text

_SCALARS: dict[type, Kind] = {bool: "bool", int: "int", float: "float", complex: "complex"}
_SCALAR_DTYPES = {"bool": "bool", "int": "int64", "float": "float64", "complex": "complex128"}
_INT64 = range(-(1 << 63), 1 << 63)
# What JAX and its callbacks take of Python's stack besides a level for each of the tree.
_STACK_OF_JAX = 60
_SPECIAL_DTYPES = (
    "arrays hold numbers and booleans; save dates as numbers (.view(np.int64)), strings as lists"
)


def flatten(tree: Any) -> tuple[list[tuple[KeyPath, Any]], Any]:
    """A tree as (key path, value) pairs and its structure. None and empty containers are leaves.

    Raises:
      UnsupportedLeaf: for keys that no name can hold, and for trees too deep for JAX.
    """
    _check_depth(tree)
    try:
        pairs, structure = tree_util.tree_flatten_with_path(tree, is_leaf=_is_leaf)
    except (TypeError, ValueError) as error:
        raise UnsupportedLeaf(
            f"the tree cannot be flattened: {error}. The keys of one dict must all be str or all be int, "
            "so that JAX can sort them."
        ) from error
    problems: list[str] = []
    named = [(_key_path(path, problems), value) for path, value in pairs]
    if problems:
        raise UnsupportedLeaf("these keys cannot be saved:\n  " + "\n  ".join(dict.fromkeys(problems)))
    return named, structure


def flatten_to(tree: Any, is_leaf: Callable[[Any], bool]) -> list[tuple[KeyPath, Any]]:
    """As ``flatten``, with leaves of the caller's choice as well."""
    pairs, _ = tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: _is_leaf(node) or is_leaf(node))
    problems: list[str] = []
    return [(_key_path(path, problems), value) for path, value in pairs]


def _check_depth(tree: Any) -> None:
    """JAX recurses, as deep as Python may. What fails there spoils Python's count, so it is not tried."""
    frame: Any = sys._getframe()
    used = 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    most = sys.getrecursionlimit() - used - _STACK_OF_JAX
    if _is_deeper(tree, most):
        raise UnsupportedLeaf(
            f"the tree is nested more than {most} levels deep, or holds itself; JAX cannot flatten it under "
            "Python's recursion limit. Nest less, or raise the limit: sys.setrecursionlimit(...)."
        )


def _is_deeper(tree: Any, most: int) -> bool:
    """Whether a tree has more than so many levels. Depth first, as there are trees that hold themselves."""
    leaves: set[type] = {type(None), str, bytes, int, float, complex, bool, np.ndarray}
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > most:
            return True
        kind = type(node)
        if kind is dict:
            children = node.values()
        elif kind is list or kind is tuple:
            children = node
        elif isinstance(node, Iterator) or (children := _children(node)) is None:
            leaves.add(kind)
            continue
        waiting += [(child, depth + 1) for child in children if type(child) not in leaves]
    return False


def _children(node: Any) -> list[Any] | None:
    level = tree_util.default_registry.flatten_one_level(node)
    return None if level is None else list(level[0])


def register(node: type, child: Callable[[Any], Any], make: Callable[[Any], Any]) -> None:
    """Makes a class a node of pytrees, with one child that has the node's own key path."""
    tree_util.register_pytree_node(
        node, lambda it: ((child(it),), None), lambda _, children: make(children[0])
    )


def _is_leaf(node: Any) -> bool:
    return node is None or node is ... or _is_empty(node) or isinstance(node, Iterator)


def _is_empty(node: Any) -> bool:
    """Whether a node is a container without children."""
    if isinstance(node, (dict, list, tuple, Mapping)):
        return len(node) == 0
    if isinstance(node, (jax.Array, np.ndarray, np.generic, str, bytes, int, float, complex)):
        return False
    return _children(node) == []


def _key_path(path: Sequence[Any], problems: list[str]) -> KeyPath:
    keys = []
    for entry in path:
        match entry:
            case tree_util.SequenceKey(idx=index):
                keys.append(Key("index", index))
            case tree_util.GetAttrKey(name=name):
                keys.append(Key("key", name))
            case tree_util.DictKey(key=value) | tree_util.FlattenedIndexKey(key=value):
                keys.append(_dict_key(value, path, problems))
            case _:
                keys.append(_dict_key(str(entry), path, problems))
    return tuple(keys)


def _dict_key(value: Any, path: Sequence[Any], problems: list[str]) -> Key:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Key("key", int(value))
    if type(value) is str and _is_unicode(value):
        return Key("key", value)
    problems.append(f"{tree_util.keystr(tuple(path))}: a key is {value!r}; keys are str or int")
    return Key("key", repr(value))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def tuples(tree_structure: Any, paths: Sequence[KeyPath]) -> frozenset[str]:
    """The key paths, as text, of the nodes that are plain tuples and have children."""
    found: set[str] = set()
    remaining = iter(paths)
    waiting = [(tree_structure, 0)]
    opened: list[int] = []  # the depths of tuples whose first leaf comes next
    while waiting:
        node, depth = waiting.pop()
        data = node.node_data()
        if data is None:
            first = next(remaining)
            found |= {path_text(first[:above]) for above in opened}
            opened = []
        elif node.num_leaves:
            opened += [depth] if data[0] is tuple else []
            waiting += [(child, depth + 1) for child in reversed(node.children())]
    return frozenset(found)


def describe(pairs: Sequence[tuple[KeyPath, Any]]) -> list[Leaf]:
    """What each value of a tree to be saved is.

    Raises:
      UnsupportedLeaf: lists every value that cannot be saved.
      NameCollision: lists all leaves that would share a name.
    """
    leaves, problems = [], []
    for path, value in pairs:
        found = _describe(path, value)
        if isinstance(found, Leaf):
            leaves.append(found)
        else:
            problems.append(f"  {display(leaf_name(path))}: {found}")
    if problems:
        raise UnsupportedLeaf(
            f"{len(problems)} of {len(pairs)} leaves cannot be saved:\n"
            + "\n".join(problems)
            + "\nA leaf is an array, a number, a str, bytes or None. Take the others out of the tree."
        )
    check_distinct(path for path, _ in pairs)
    return leaves


def _describe(path: KeyPath, value: Any) -> Leaf | str:
    """A leaf, or why the value cannot be one."""
    if value is None:
        return Leaf(path, "None")
    if isinstance(value, jax.Array):
        return _describe_jax(path, value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _describe_numpy(path, value)
    if (kind := _SCALARS.get(type(value))) is not None:
        if kind == "int" and value not in _INT64:
            return Leaf(path, "int", value=value)
        dtype = _SCALAR_DTYPES[kind]
        return Leaf(path, kind, (), dtype, nbytes=np.dtype(dtype).itemsize)
    if type(value) is str:
        return Leaf(path, "str", value=value, nbytes=len(value.encode(errors="surrogatepass")))
    if type(value) is bytes:
        return Leaf(path, "bytes", (len(value),), "uint8", nbytes=len(value))
    if _is_empty(value):
        return Leaf(path, _empty_kind(value))
    if isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__} itself"
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _empty_kind(value: Any) -> Kind:
    return "list" if type(value) is list else "tuple" if type(value) is tuple else "dict"


def _describe_jax(path: KeyPath, value: jax.Array) -> Leaf | str:
    if isinstance(value, jax.core.Tracer):
        return "a tracer; save outside of jit, grad and vmap"
    if value.is_deleted():
        return "an array that was deleted or donated"
    if not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        dtype = np.dtype(value.dtype)
        nbytes = value.size * dtype.itemsize
        return Leaf(
            path,
            "jax.Array",
            value.shape,
            dtype_name(dtype),
            sharding=sharding_text(value.sharding),
            nbytes=nbytes,
            weak=value.weak_type,
        )
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return f"an array of {value.dtype}"
    prng = str(jax.random.key_impl(value))
    if prng not in PRNG_WIDTHS:
        return f"PRNG keys of the implementation {prng!r}; known are {', '.join(PRNG_WIDTHS)}"
    return Leaf(
        path,
        "jax.Array",
        value.shape,
        f"key<{prng}>",
        prng=prng,
        sharding=sharding_text(value.sharding),
        nbytes=value.size * 4 * PRNG_WIDTHS[prng],
    )


def _describe_numpy(path: KeyPath, value: np.ndarray | np.generic) -> Leaf | str:
    if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
        return f"a {type(value).__module__}.{type(value).__qualname__}; pass np.asarray of it"
    if not is_storable(value.dtype):
        return f"a numpy array of dtype {value.dtype}; {_SPECIAL_DTYPES}"
    return Leaf(
        path,
        "np.ndarray" if isinstance(value, np.ndarray) else "np.generic",
        value.shape,
        dtype_name(value.dtype),
        byteorder=">" if value.dtype.str.startswith(">") else "<",
        nbytes=value.nbytes,
    )


def array_of(leaf: Leaf, value: Any) -> Any:
    """The array that goes into the database for a leaf: of keys their data, of bytes and numbers an array."""
    if leaf.prng is not None:
        return jax.random.key_data(value)
    if leaf.kind == "bytes":
        return np.frombuffer(value, np.uint8)
    if leaf.kind in _SCALAR_DTYPES and not leaf.is_in_document:
        return np.array(value, _SCALAR_DTYPES[leaf.kind])
    return value


def describe_target(path: KeyPath, value: Any) -> Leaf | str:
    """A leaf of a target: what ``describe`` takes, and anything with a shape and a dtype."""
    if isinstance(value, tuple) and not value:
        return Leaf(path, "tuple")  # a named one too: see how ``match`` treats what Orbax writes for it
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) or not _is_abstract(value):
        if isinstance(value, jax.Array) and value.is_deleted():
            value = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
                value.shape, value.dtype, sharding=value.sharding, weak_type=value.weak_type
            )
        else:
            # What a number is counts, not which one it is: an int of any size stands for an int.
            return _describe(path, 0 if type(value) is int else value)
    kind: Kind | Literal["any"] = "any" if getattr(value, "sharding", None) is None else "jax.Array"
    try:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            prng = _impl(value.dtype)
            return Leaf(path, "jax.Array", tuple(value.shape), f"key<{prng}>", prng=prng)
        dtype = dtype_name(np.dtype(value.dtype))
    except TypeError:
        return f"a {type(value).__module__}.{type(value).__qualname__} of the dtype {value.dtype}"
    return Leaf(path, kind, tuple(value.shape), dtype, weak=bool(getattr(value, "weak_type", False)))


def _is_abstract(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "shape") and hasattr(value, "dtype")


@functools.cache
def _impl(dtype: Any) -> str:
    """The PRNG implementation of a key dtype; JAX tells it only of arrays, so known ones are tried."""
    for name in PRNG_WIDTHS:
        if jax.eval_shape(functools.partial(jax.random.key, impl=name), 0).dtype == dtype:
            return name
    return str(dtype)
