"""Every dtype of the format, every bit pattern of it, in both directions, judged by the official library."""

from __future__ import annotations

from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from tests.safetensors import official

import storax
from storax.safetensors.dtypes import format_dtype, numpy_dtype, packed, unpacked
from storax.safetensors.header import BITS

FIXTURES = Path(__file__).parent / "fixtures"


def every_pattern(dtype: str) -> np.ndarray:
    """Many elements: all patterns of up to 16 bits, random ones of more, NaN and infinities among them."""
    if dtype == "BOOL":
        return np.array([False, True] * 4).reshape(2, 4)
    bits = BITS[dtype]
    if bits < 8:
        return np.arange(1 << bits, dtype=np.uint8).reshape(4, -1).view(numpy_dtype(dtype))
    if bits <= 16:
        return np.arange(1 << bits).astype(f"<u{bits // 8}").view(numpy_dtype(dtype)).reshape(16, -1)
    raw = np.random.default_rng(bits).integers(0, 256, 64 * bits, np.uint8)
    return raw.view(numpy_dtype(dtype)).reshape(8, -1)


@pytest.mark.parametrize("dtype", BITS)
def test_every_bit_comes_back(dtype: str, tmp_path: Path) -> None:
    values = every_pattern(dtype)
    path = tmp_path / "x.safetensors"
    storax.save_safetensors(path, {"x": values})
    found = storax.load(path)["x"]
    assert found.dtype == values.dtype
    assert np.asarray(found).tobytes() == values.tobytes()
    assert isinstance(found, np.ndarray if dtype.startswith("F6_") else jax.Array)
    with storax.open(path) as opened:
        assert opened["x"].dtype == values.dtype
        assert opened["x"][1:, 1:-1].tobytes() == values[1:, 1:-1].tobytes()


@pytest.mark.parametrize("dtype", [*official.NAMES, "F4"])
def test_the_file_is_the_official_one(dtype: str, tmp_path: Path) -> None:
    values = every_pattern(dtype)
    path = tmp_path / "x.safetensors"
    storax.save_safetensors(path, {"x": values})
    assert path.read_bytes() == official.encode({"x": values})


@pytest.mark.parametrize("dtype", ["F6_E2M3", "F6_E3M2"])
def test_six_bit_numbers_are_packed_from_the_lowest_bit_on(dtype: str, tmp_path: Path) -> None:
    values = every_pattern(dtype)
    path = tmp_path / "x.safetensors"
    storax.save_safetensors(path, {"x": values})
    name, shape, data = official.decode(path.read_bytes())["x"]
    assert (name, shape) == (dtype, list(values.shape))
    stream = sum(int(v) << 6 * i for i, v in enumerate(values.reshape(-1).view(np.uint8)))
    assert data == stream.to_bytes(values.size * 6 // 8, "little")


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_packing_goes_both_ways(dtype: str) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 24, np.uint8)
    assert packed(unpacked(raw, dtype), dtype).tobytes() == raw.tobytes()


def test_the_official_numpy_and_flax_bindings_read_what_they_can(tmp_path: Path) -> None:
    from safetensors import flax, numpy

    values = {dtype: every_pattern(dtype) for dtype in official.NAMES}
    plain = {name: v for name, v in values.items() if hasattr(np, v.dtype.name)}
    assert len(plain) == 13
    storax.save_safetensors(tmp_path / "plain.safetensors", plain)
    assert {k: v.tobytes() for k, v in numpy.load_file(tmp_path / "plain.safetensors").items()} == {
        k: v.tobytes() for k, v in plain.items()
    }
    # JAX has 64 bits only where it is told so, and the binding knows no dtype that numpy lacks but this one.
    narrow = {k: v for k, v in plain.items() if v.dtype.itemsize < 8 or k == "C64"} | {"BF16": values["BF16"]}
    storax.save_safetensors(tmp_path / "narrow.safetensors", narrow)
    found = flax.load_file(tmp_path / "narrow.safetensors")
    assert {k: np.asarray(v).tobytes() for k, v in found.items()} == {
        k: v.tobytes() for k, v in narrow.items()
    }


@pytest.mark.parametrize("dtype", [np.complex128, ml_dtypes.int4, ml_dtypes.float8_e3m4, ">f8", "longdouble"])
def test_what_the_format_has_no_name_for_is_refused_with_what_it_has(dtype: object, tmp_path: Path) -> None:
    values = np.zeros(4, dtype)
    path = tmp_path / "x.safetensors"
    if dtype == ">f8":  # it has: the bytes are turned
        storax.save_safetensors(path, {"x": values + 1.5})
        assert storax.load(path)["x"].tolist() == [1.5] * 4
        return
    with pytest.raises(
        storax.UnsupportedLeaf, match=r"x: safetensors has no dtype for .* it has bool, .*uint64"
    ):
        storax.save_safetensors(path, {"x": values})
    assert not list(tmp_path.iterdir())


def test_four_bit_numbers_that_are_no_whole_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(storax.BadOption, match="'x': 3 elements of F4 are not whole bytes"):
        storax.save_safetensors(tmp_path / "x.safetensors", {"x": np.zeros(3, ml_dtypes.float4_e2m1fn)})


def test_format_and_numpy_names_are_one_to_one() -> None:
    assert [format_dtype(numpy_dtype(name)) for name in BITS] == list(BITS)


def _of_pytorch() -> dict[str, np.ndarray]:
    """The values of ``fixtures/pytorch.safetensors``, as its README says."""
    values = {
        dtype: np.arange(8 * numpy_dtype(dtype).itemsize, dtype=np.uint8).view(numpy_dtype(dtype))
        for dtype in official.NAMES
        if dtype != "BOOL"
    }
    values["BOOL"] = np.array([False, True] * 4)
    values["F4"] = unpacked(np.arange(4, dtype=np.uint8), "F4")
    return values


def test_a_file_of_pytorch_is_read_and_written_again_to_the_bit(tmp_path: Path) -> None:
    path, wanted = FIXTURES / "pytorch.safetensors", _of_pytorch()
    found = storax.load(path)
    assert {n: (v.dtype, np.asarray(v).tobytes()) for n, v in found.items()} == {
        n: (v.dtype, v.tobytes()) for n, v in wanted.items()
    }
    storax.save_safetensors(tmp_path / "x.safetensors", wanted, metadata={"format": "pt"})
    assert (tmp_path / "x.safetensors").read_bytes() == path.read_bytes()


def test_pytorch_reads_what_storax_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip(
        "torch", reason="PyTorch is too large for the lock; `pip install torch` runs this"
    )
    from safetensors.torch import load_file

    values = {dtype: every_pattern(dtype) for dtype in [*official.NAMES, "F4"]}
    storax.save_safetensors(tmp_path / "x.safetensors", values)
    found = load_file(tmp_path / "x.safetensors")
    for dtype, tensor in found.items():
        raw = values[dtype] if dtype != "F4" else packed(values[dtype], "F4")
        assert tensor.contiguous().view(torch.uint8).numpy().tobytes() == raw.tobytes(), dtype
