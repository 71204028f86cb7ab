"""Dtypes by name: what memory holds and what a zarr array on disk says about it.

On disk every dtype has the name of TensorStore's zarr3 driver. The few that it lacks are
kept as their raw bytes (uint8), and the tree's document remembers the real one.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from storax.errors import Corrupt

# What TensorStore's zarr3 driver opens; everything else of one byte goes down as uint8.
_ON_DISK = frozenset(
    "bool int2 int4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bfloat16"
    " complex64 complex128 float4_e2m1fn float8_e3m4 float8_e4m3fn float8_e4m3b11fnuz float8_e4m3fnuz"
    " float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
)
_STANDARD = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
    " complex64 complex128".split()
)


@functools.cache
def dtype_named(name: str) -> np.dtype:
    """The numpy dtype of a name such as ``float32``, ``bfloat16`` or ``int4``. Raises ``Corrupt`` for others.

    >>> dtype_named("bfloat16").itemsize
    2
    """
    if name in _STANDARD:
        return np.dtype(name)
    scalar = getattr(ml_dtypes, str(name), None)
    if isinstance(scalar, type) and issubclass(scalar, np.generic):
        return np.dtype(scalar)
    raise Corrupt(f"the dtype {name!r} is unknown here; a newer ml_dtypes may have it")


@functools.cache
def dtype_name(dtype: np.dtype) -> str:
    """The name of a dtype. Cached: numpy builds it anew each time, which takes longer than a small read."""
    return dtype.name


def is_storable(dtype: np.dtype) -> bool:
    """Whether arrays of this dtype can be saved: numbers and booleans, of numpy or ml_dtypes."""
    if dtype_name(dtype) in _STANDARD:
        return dtype.kind in "biufc"
    return dtype.kind in "Vfiu" and dtype.itemsize == _ml_itemsize(dtype_name(dtype))


def _ml_itemsize(name: str) -> int:
    scalar = getattr(ml_dtypes, name, None)
    return np.dtype(scalar).itemsize if isinstance(scalar, type) and issubclass(scalar, np.generic) else -1


@functools.cache
def on_disk(dtype: np.dtype) -> np.dtype:
    """The dtype that the zarr array has; ``view`` of it gives the array's own."""
    return dtype.newbyteorder("<") if dtype_name(dtype) in _ON_DISK else np.dtype(np.uint8)


def little_endian(dtype: np.dtype) -> np.dtype:
    """The same dtype with the bytes in the order of the disk (and of every machine JAX runs on)."""
    return dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype


def castable(saved: np.dtype, wanted: np.dtype) -> bool:
    """Whether every value of one dtype may become the other without ``cast=True``.

    Float to float is allowed in any width, as training code changes precision on purpose;
    integers only where every value fits.

    >>> castable(np.dtype("float32"), dtype_named("bfloat16"))
    True
    >>> castable(np.dtype("int64"), np.dtype("int32"))
    False
    """
    if dtype_name(saved) == dtype_name(wanted):
        return True
    a, b = _family(saved), _family(wanted)
    if a == b and a in ("float", "complex"):
        return True
    if a == "float" and b == "complex":
        return True
    if a == "bool":
        return b == "int"
    if a == "int" and b == "int":
        low, high = _bounds(saved)
        wanted_low, wanted_high = _bounds(wanted)
        return wanted_low <= low and high <= wanted_high
    if a == "int" and b == "float":
        return _bits(saved) <= ml_dtypes.finfo(wanted).nmant + 1
    return False


def narrows(saved: np.dtype, wanted: np.dtype) -> bool:
    """Whether some finite numbers of one dtype are infinite (or no number) in the other.

    >>> narrows(np.dtype("float32"), np.dtype("float16")), narrows(np.dtype("float16"), np.dtype("float32"))
    (True, False)
    """
    if _family(saved) not in ("float", "complex") or _family(wanted) not in ("float", "complex"):
        return False
    return bool(float(ml_dtypes.finfo(saved).max) > float(ml_dtypes.finfo(wanted).max))


def converted(values: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Values in another dtype; whether that may lose any is the caller's decision."""
    if values.dtype.kind == "c" and wanted.kind != "c":
        values = values.real
    try:
        return values.astype(wanted)
    except TypeError:
        # ml_dtypes has no direct way between some narrow dtypes; float32 holds all of their values.
        return values.astype(np.float32).astype(wanted)


def _family(dtype: np.dtype) -> str:
    if dtype.kind == "b":
        return "bool"
    if dtype.kind == "c":
        return "complex"
    if dtype.kind in "iu" or dtype_name(dtype).startswith(("int", "uint")):
        return "int"
    return "float"


def _bounds(dtype: np.dtype) -> tuple[int, int]:
    limits = ml_dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _bits(dtype: np.dtype) -> int:
    low, high = _bounds(dtype)
    return max(high.bit_length(), (-low).bit_length())
