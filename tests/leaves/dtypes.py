"""Every dtype that numpy, ml_dtypes and JAX can make arrays of, and values that use all of its bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np

NUMPY = [
    *"bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split(),
    *"float16 float32 float64 complex64 complex128".split(),
]
# Bits of each value in a byte of its own.
NARROW = {
    **{"int1": 1, "uint1": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4},
    **{"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6},
}
EIGHT_BITS = [
    *"float8_e3m4 float8_e4m3 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz".split(),
    *"float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split(),
]
# Older releases of ml_dtypes lack some.
ALL = [*NUMPY, "bfloat16", *(name for name in (*NARROW, *EIGHT_BITS) if hasattr(ml_dtypes, name))]
# XLA has no arrays of these.
NOT_IN_JAX = {"float6_e2m3fn", "float6_e3m2fn"}
IN_JAX = [name for name in ALL if name not in NOT_IN_JAX]


def dtype(name: str) -> np.dtype:
    return np.dtype(name if name in NUMPY else getattr(ml_dtypes, name))


def values(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random bits, so NaN payloads, infinities and subnormal numbers are among them."""
    kind = dtype(name)
    source = np.random.default_rng(seed)
    most = 2 if name == "bool" else 1 << NARROW.get(name, 8)
    raw = source.integers(0, most, int(np.prod(shape)) * kind.itemsize, np.uint8)
    return raw.view(kind).reshape(shape)
