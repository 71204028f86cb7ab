"""Host memory onto devices, as arrays with exactly the wanted sharding."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import math
import mmap
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from storax.errors import Corrupt
from storax.plan import boxes
from storax.plan.boxes import Box

# No public function of JAX; where a release has moved it, the slower public one does.
_batched_device_put: Any = None
with contextlib.suppress(ImportError, AttributeError):
    _batched_device_put = importlib.import_module("jax._src.interpreters.pxla").batched_device_put

# JAX on a CPU takes memory so aligned as it is; other memory it copies.
_ALIGNMENT = 64
# What is smaller is sooner copied than aligned; what is larger gets whole pages, large ones if it can:
# the first touch of a page costs more than filling it, and a large page is 512 small ones.
_WORTH_ALIGNING = 4096
_WORTH_PAGES = 1 << 20


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Uninitialised memory that JAX can take over without a copy, unless it is very small."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _WORTH_ALIGNING:
        return np.empty(shape, dtype)
    if nbytes >= _WORTH_PAGES:
        return np.frombuffer(_pages(nbytes), dtype).reshape(shape)
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def _pages(nbytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, nbytes)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def local_boxes(shape: tuple[int, ...], sharding: Sharding | None) -> list[Box]:
    """The different boxes that the devices of this process hold; all of the array for no sharding."""
    if sharding is None:
        return [boxes.whole(shape)]
    held = sharding.addressable_devices_indices_map(shape).values()
    return list(dict.fromkeys(boxes.from_index(index or (), shape) for index in held))


def place(parts: Mapping[Box, np.ndarray], shape: tuple[int, ...], sharding: Sharding | None) -> jax.Array:
    """An array from the boxes of ``local_boxes``.

    Args:
      parts: memory that nobody else uses; JAX may take it over.
      shape: of the whole array.
      sharding: where it goes; None is the default device, not committed to it, like a new array.
    """
    with _wide(next(iter(parts.values())).dtype):
        if sharding is None:
            return _new(parts[boxes.whole(shape)])
        # One call for all shards: a device_put for each takes ten times as long.
        return jax.make_array_from_callback(
            shape, sharding, lambda index: parts[boxes.from_index(index or (), shape)]
        )


def _new(memory: np.ndarray) -> jax.Array:
    """An array on the default device, not committed to it.

    ``jax.device_put`` does the same, after four times as long a way to the same call: for a tree of
    thousands of small leaves that is a third of the whole load.
    """
    array: jax.Array
    if _batched_device_put is None:
        array = jax.device_put(memory)
    else:
        device = default_device()
        aval = jax.core.ShapedArray(memory.shape, memory.dtype)
        array = _batched_device_put(aval, SingleDeviceSharding(device), [memory], [device], committed=False)
    return array


@contextlib.contextmanager
def _wide(dtype: np.dtype) -> Iterator[None]:
    """64-bit values keep their width even where JAX is set to 32 bits: they were saved as such."""
    if dtype.itemsize < 8:
        yield
    else:
        with jax.enable_x64(True):
            yield


def weakened(array: jax.Array) -> jax.Array:
    """The same array with a dtype that gives way to others, like that of ``jnp.asarray(0.1)``.

    Only the dtypes of Python's numbers can be so; arrays of others stay as they are.
    """
    zero = _ZEROS.get(array.dtype.kind)
    wide = array.dtype in _WIDE_ZEROS
    with jax.enable_x64(wide):
        if zero is None or jnp.asarray(zero).dtype != array.dtype:
            return array
        result: jax.Array = _weakly(array.sharding if array.committed else None)(array, zero)
    return result


_ZEROS: dict[str, Any] = {"i": 0, "f": 0.0, "c": 0j}
_WIDE_ZEROS = (np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.complex128))


@functools.lru_cache(maxsize=64)
def _weakly(sharding: Sharding | None) -> Any:
    """Writes an array over a weak one: what comes out is weak, and has its bits.

    Compiled with nothing that processes would have to do together.
    """

    def act(array: jax.Array, zero: Any) -> jax.Array:
        weak = jax.lax.full_like(
            jnp.asarray(zero), zero, shape=array.shape, sharding=jax.typeof(array).sharding
        )
        return weak.at[...].set(array)

    return jax.jit(act, out_shardings=sharding, static_argnums=1)


def is_abstract(sharding: NamedSharding) -> bool:
    """Whether a sharding is on a mesh without devices, as those of ``jax.eval_shape`` are."""
    return not isinstance(sharding.mesh, jax.sharding.Mesh)


def on_devices(sharding: Sharding) -> Sharding:
    """A sharding on an abstract mesh, on the mesh of ``jax.set_mesh`` if its axes are the same.

    All others come back as they are.
    """
    if not isinstance(sharding, NamedSharding) or not is_abstract(sharding):
        return sharding
    mesh = jax.sharding.get_mesh()
    if mesh.empty or mesh.shape_tuple != sharding.mesh.shape_tuple:
        return sharding
    return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)


def wrap_key_data(data: jax.Array, prng: str, name: str) -> jax.Array:
    """Typed PRNG keys from their data, with its sharding. ``Corrupt`` if it is not the data of such keys."""
    try:
        keys: jax.Array = jax.random.wrap_key_data(data, impl=prng)
    except (TypeError, ValueError) as error:
        raise Corrupt(
            f"{name}: {data.dtype}{list(data.shape)} is no data of {prng!r} keys: {error}"
        ) from None
    return keys


# Thousands of leaves share a handful of shardings, and a mesh may have thousands of devices.
@functools.lru_cache(maxsize=256)
def sharding_text(sharding: Sharding) -> str | None:
    """A sharding as JSON, as the ``_sharding`` document holds it; None for kinds that it cannot hold."""
    document = _sharding_document(sharding)
    return None if document is None else json.dumps(document)


def _sharding_document(sharding: Sharding) -> dict[str, Any] | None:
    if isinstance(sharding, SingleDeviceSharding):
        return {"sharding_type": "SingleDeviceSharding", "device_str": str(next(iter(sharding.device_set)))}
    if not isinstance(sharding, jax.sharding.NamedSharding) or not isinstance(
        sharding.mesh, jax.sharding.Mesh
    ):
        return None
    spec = [list(part) if isinstance(part, tuple) else part for part in sharding.spec]
    if not all(part is None or isinstance(part, (str, list)) for part in spec):
        return None
    devices = np.vectorize(lambda d: {"id": d.id}, otypes=[object])(sharding.mesh.devices)
    document: dict[str, Any] = {
        "sharding_type": "NamedSharding",
        "shape": list(sharding.mesh.devices.shape),
        "axis_names": list(sharding.mesh.axis_names),
        "axis_types": [f"AxisType.{kind.name}" for kind in sharding.mesh.axis_types],
        "partition_spec": spec,
        "device_mesh": {"mesh": devices.tolist()},
    }
    device: Any = next(iter(sharding.device_set))
    if sharding.memory_kind not in (None, device.default_memory().kind):
        document["memory_kind"] = sharding.memory_kind
    return document


@functools.lru_cache(maxsize=256)
def sharding_of(text: str) -> Sharding | None:
    """The sharding that such a text describes, or None if the devices here cannot hold it."""
    try:
        document = json.loads(text)
        if document["sharding_type"] == "SingleDeviceSharding":
            return _single_device(str(document["device_str"]))
        if document["sharding_type"] != "NamedSharding":
            return None
        by_id = {device.id: device for device in jax.devices()}
        ids = np.array(document["device_mesh"]["mesh"], dtype=object)
        devices = np.vectorize(lambda d: by_id[d["id"]], otypes=[object])(ids)
        if len({device.id for device in devices.flat}) < devices.size:
            return None
        kinds = [getattr(jax.sharding.AxisType, t.split(".")[-1]) for t in document.get("axis_types") or ()]
        mesh = jax.sharding.Mesh(
            devices.reshape(document["shape"]),
            tuple(document["axis_names"]),
            axis_types=tuple(kinds) or None,
        )
        spec = [tuple(part) if isinstance(part, list) else part for part in document["partition_spec"]]
        kind = document.get("memory_kind")
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec), memory_kind=kind)  # type: ignore[no-untyped-call]
    except Exception:  # JAX has many, with no common class, for what is no mesh or no spec
        return None  # other devices, or a document of another program: the caller decides what then


def _single_device(text: str) -> Sharding | None:
    # Older releases of JAX called the CPU's devices TFRT_CPU_0, TFRT_CPU_1, …
    text = text.replace("TFRT_CPU_", "cpu:")
    found = next((device for device in jax.local_devices() if str(device) == text), None)
    return None if found is None else SingleDeviceSharding(found)


def default_device() -> jax.Device:
    """Where arrays go that nobody placed."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if isinstance(chosen, str):
        return jax.local_devices(backend=chosen)[0]
    return chosen or jax.local_devices()[0]
