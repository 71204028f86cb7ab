"""Random key paths and leaves."""

from __future__ import annotations

from hypothesis import strategies as st

from storax.tree.leaves import Leaf
from storax.tree.names import Key, KeyPath

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
KEYS = st.one_of(
    st.builds(Key, st.just("index"), st.integers(0, 20)),
    st.builds(
        Key, st.just("key"), st.one_of(TEXTS, st.integers(), st.sampled_from(["a", "b", "a.b", "0", "'"]))
    ),
)
PATHS: st.SearchStrategy[KeyPath] = st.lists(KEYS, max_size=4).map(tuple)
_ARRAYS = st.sampled_from(["float32", "int8", "bfloat16", "uint4", "bool", "complex128"])
_SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def leaf(path: KeyPath) -> st.SearchStrategy[Leaf]:
    p = st.just(path)
    return st.one_of(
        st.builds(Leaf, p, st.sampled_from(["jax.Array", "np.ndarray"]), _SHAPES, _ARRAYS),
        st.builds(Leaf, p, st.just("np.ndarray"), _SHAPES, st.just("int32"), byteorder=st.just(">")),
        st.builds(Leaf, p, st.just("np.generic"), st.just(()), _ARRAYS),
        st.builds(Leaf, p, st.sampled_from(["int", "float", "bool", "complex"])).map(_number),
        st.builds(Leaf, p, st.just("int"), value=st.integers(2**63, 2**200)),
        st.builds(Leaf, p, st.just("str"), value=st.text(max_size=5)),
        st.builds(Leaf, p, st.just("bytes"), st.integers(0, 9).map(lambda n: (n,)), st.just("uint8")),
        st.builds(Leaf, p, st.sampled_from(["None", "dict", "list", "tuple"])),
    )


def _number(found: Leaf) -> Leaf:
    dtypes = {"int": "int64", "float": "float64", "bool": "bool", "complex": "complex128"}
    return Leaf(found.path, found.kind, (), dtypes[found.kind])


def distinct(paths: list[KeyPath]) -> list[KeyPath]:
    return list({leaf.name: leaf.path for leaf in (Leaf(path, "None") for path in paths)}.values())


TREES = st.lists(PATHS, max_size=8).map(distinct).flatmap(lambda paths: st.tuples(*map(leaf, paths)))
