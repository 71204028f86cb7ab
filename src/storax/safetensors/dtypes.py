"""The format's dtypes and numpy's; elements narrower than a byte, in their bytes and out of them.

The format packs such elements without padding, the first of them in the lowest bits of the first
byte. For F4 that is what the official library writes for PyTorch's ``float4_e2m1fn_x2``; for F6,
which no library writes yet, the same rule is taken.
"""

from __future__ import annotations

import math

import numpy as np

from storax.errors import UnsupportedLeaf
from storax.safetensors.header import BITS
from storax.tree.dtypes import dtype_name, dtype_named, little_endian

_NUMPY = {
    "BOOL": "bool", "F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn",
    "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32",
    "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64",
    "U64": "uint64",
}  # fmt: skip
_FORMAT = {numpy: name for name, numpy in _NUMPY.items()}
_BYTE = 8


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of one of the format's, in the byte order of the file.

    Raises:
      Corrupt: the installed ml_dtypes does not have it.

    >>> numpy_dtype("BF16")
    dtype(bfloat16)
    """
    return little_endian(dtype_named(_NUMPY[name]))


def format_dtype(dtype: np.dtype) -> str:
    """What the format calls a numpy dtype. Raises ``UnsupportedLeaf`` if it has no name for it.

    >>> format_dtype(np.dtype("float32"))
    'F32'
    """
    name = dtype_name(dtype)
    if name not in _FORMAT:
        raise UnsupportedLeaf(f"safetensors has no dtype for {name}; it has {', '.join(_FORMAT)}")
    return _FORMAT[name]


def group(dtype: str) -> tuple[int, int]:
    """The fewest elements that are whole bytes, and how many bytes.

    >>> group("F32"), group("F4"), group("F6_E2M3")
    ((1, 4), (2, 1), (4, 3))
    """
    bits = math.lcm(BITS[dtype], _BYTE)
    return bits // BITS[dtype], bits // _BYTE


def unpacked(data: np.ndarray, dtype: str) -> np.ndarray:
    """Elements of four or six bits from their bytes: one byte each, as ml_dtypes has them.

    >>> unpacked(np.array([0x21], np.uint8), "F4").view(np.uint8)
    array([1, 2], dtype=uint8)
    """
    elements, nbytes = group(dtype)
    words = np.zeros(data.size // nbytes, np.uint32)
    for i in range(nbytes):
        words |= data[i::nbytes].astype(np.uint32) << np.uint32(_BYTE * i)
    mask = np.uint32((1 << BITS[dtype]) - 1)
    found = np.empty(words.size * elements, np.uint8)
    for i in range(elements):
        found[i::elements] = words >> np.uint32(BITS[dtype] * i) & mask
    return found.view(numpy_dtype(dtype))


def packed(values: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes of elements of four or six bits; there must be whole bytes of them.

    >>> packed(unpacked(np.array([1, 2, 3], np.uint8), "F6_E3M2"), "F6_E3M2")
    array([1, 2, 3], dtype=uint8)
    """
    elements, nbytes = group(dtype)
    flat = values.reshape(-1).view(np.uint8)
    words = np.zeros(flat.size // elements, np.uint32)
    mask = np.uint8((1 << BITS[dtype]) - 1)
    for i in range(elements):
        words |= (flat[i::elements] & mask).astype(np.uint32) << np.uint32(BITS[dtype] * i)
    found = np.empty(words.size * nbytes, np.uint8)
    for i in range(nbytes):
        found[i::nbytes] = words >> np.uint32(_BYTE * i) & np.uint32(0xFF)
    return found
