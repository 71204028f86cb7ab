"""What the processes of a job run: functions that are given ``say``, their number, and arguments."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.same import bits

import storax

Say = Callable[[Any], None]

# Of each array its shape, its dtype, and the partition specs that it has on meshes of two and of three axes.
ARRAYS: dict[str, tuple[tuple[int, ...], Any, list[Any], list[Any]]] = {
    "rows": ((2048, 256), np.float32, [["x", "y"]], [["x", "y", "z"]]),
    "block": ((64, 96), np.float32, ["x", "y"], ["x", ["y", "z"]]),
    "column": ((96, 64), ml_dtypes.bfloat16, [None, ["y", "x"]], [None, ["z", "x"]]),
    "partly": ((16, 7, 5), np.int16, ["y"], ["z"]),
    "everywhere": ((336, 257), np.float64, [], []),
    "flags": ((24,), np.bool_, ["x"], ["y"]),
    "waves": ((8, 3), np.complex64, ["x"], []),
    "empty": ((0, 4), np.float32, [], []),
}
KEYS = 8


def host(name: str, step: int = 0) -> np.ndarray:
    """The values of an array, the same in every process."""
    shape, dtype, _, _ = ARRAYS[name]
    chance = np.random.default_rng(zlib.crc32(name.encode()) + step)
    return chance.integers(0, 200, shape).astype(dtype)


def mesh_of(shape: list[int], names: str = "xyz", *, backwards: bool = False) -> Mesh:
    """A mesh over all devices of the job."""
    devices = sorted(jax.devices(), key=lambda device: device.id, reverse=backwards)
    return Mesh(np.array(devices).reshape(shape), tuple(names[: len(shape)]))


def shardings(mesh: Mesh, *, renamed: bool = False, swapped: bool = False) -> dict[str, NamedSharding]:
    """The sharding of each array: as the table says, or replicated what it shards and the reverse."""
    found = {}
    for name, (shape, _, two, three) in ARRAYS.items():
        spec = two if len(mesh.axis_names) < 3 else three
        if swapped:
            spec = [["x", "y"]] if not any(spec) and shape[0] % mesh.size == 0 and shape[0] else []
        parts = [tuple(part) if isinstance(part, list) else part for part in spec]
        if renamed:
            new = dict(zip("xyz", mesh.axis_names, strict=False))
            parts = [
                tuple(new[a] for a in part) if isinstance(part, tuple) else new.get(str(part))
                for part in parts
            ]
        found[name] = NamedSharding(mesh, PartitionSpec(*parts))
    return found


def spread(value: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array over the devices of all processes, of which each knows the whole value."""
    with jax.enable_x64(True):
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def keys(mesh: Mesh) -> jax.Array:
    """An array of PRNG keys over all devices of a mesh."""
    with jax.enable_x64(False):
        data = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(5), KEYS)))
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    return jax.random.wrap_key_data(spread(data, sharding), impl="threefry2x32")


def tree(mesh: Mesh, step: int = 0) -> dict[str, Any]:
    """Arrays of all kinds of sharding, and what every process has for itself."""
    arrays = {name: spread(host(name, step), sharding) for name, sharding in shardings(mesh).items()}
    return {
        "arrays": arrays,
        "keys": keys(mesh),
        "table": np.arange(40_000, dtype=np.int32) + step,
        "step": step,
        "rate": 0.1,
        "name": f"step {step}",
        "none": None,
        "nothing": {},
    }


def small(step: int) -> dict[str, Any]:
    """A tree that takes no time: an array over all devices, one that all have, a table and a number."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    devices = len(jax.devices())
    ours = np.arange(devices * 512, dtype=np.float32).reshape(devices, 512) + step
    return {
        "w": spread(ours, NamedSharding(mesh, PartitionSpec("x"))),
        "b": spread(ours[0], NamedSharding(mesh, PartitionSpec())),
        "table": np.full(3000, step),
        "step": step,
    }


def wrong(found: jax.Array, value: np.ndarray) -> bool:
    """Whether any of this process's shards is not what it should be, bit for bit."""
    return any(bits(np.asarray(s.data)) != bits(np.asarray(value[s.index])) for s in found.addressable_shards)


def told(error: BaseException) -> list[str]:
    return [type(error).__name__, str(error)]


def attempt(act: Callable[[], Any]) -> Any:
    """What an act gives, or its error as text."""
    try:
        return act()
    except Exception as error:
        return told(error)


# --- saving and restoring --------------------------------------------------------------------------


def save(say: Say, index: int, directory: str, mesh: list[int]) -> None:
    storax.save(directory, tree(mesh_of(mesh)))
    say(0)


def restore(
    say: Say,
    index: int,
    directory: str,
    mesh: list[int],
    names: str = "xyz",
    backwards: bool = False,
    swapped: bool = False,
    broadcast: bool = False,
    memory: str | None = None,
    only: list[str] | None = None,
) -> None:
    """Restores on a mesh; says which arrays are wrong, the bytes that were read and the bytes needed."""
    there = mesh_of(mesh, names, backwards=backwards)
    wanted = shardings(there, renamed=names != "xyz", swapped=swapped)
    if memory is not None:
        wanted = {name: sharding.with_memory_kind(memory) for name, sharding in wanted.items()}
    if only is not None:
        wanted = {name: wanted[name] for name in only}
    target: dict[str, Any] = {
        "arrays": {
            name: jax.ShapeDtypeStruct(ARRAYS[name][0], ARRAYS[name][1], sharding=sharding)
            for name, sharding in wanted.items()
        }
    }
    if only is None:
        target["keys"] = jax.ShapeDtypeStruct(
            (KEYS,), keys(there).dtype, sharding=NamedSharding(there, PartitionSpec(there.axis_names))
        )
    found, report = storax.load(directory, target, partial=True, report=True, broadcast=broadcast)
    problems = [name for name in wanted if wrong(found["arrays"][name], host(name))]
    problems += [
        f"sharding of {name}"
        for name, sharding in wanted.items()
        if found["arrays"][name].sharding != sharding
    ]
    if only is None and any(
        bits(a.data) != bits(b.data)
        for a, b in zip(found["keys"].addressable_shards, keys(there).addressable_shards, strict=True)
    ):
        problems.append("keys")
    needed = 0
    for name, sharding in wanted.items():
        boxes = {str(index) for index in sharding.addressable_devices_indices_map(ARRAYS[name][0]).values()}
        shard = sharding.shard_shape(ARRAYS[name][0])
        needed += len(boxes) * int(np.prod(shard)) * np.dtype(ARRAYS[name][1]).itemsize
    say({"wrong": problems, "read": report.read_bytes, "needed": needed})


def restored_arrays_are_like_any_others(say: Say, index: int, directory: str, mesh: list[int]) -> None:
    sharding = shardings(mesh_of(mesh))["rows"]
    target = {"arrays": {"rows": jax.ShapeDtypeStruct((2048, 256), np.float32, sharding=sharding)}}
    found = storax.load(directory, target, partial=True)["arrays"]["rows"]
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    computed = double(spread(host("rows"), sharding))
    layouts = [found.format == computed.format, found.sharding == computed.sharding]
    doubled = double(found)
    say([*layouts, found.is_deleted(), wrong(doubled, host("rows") * 2)])


def without_a_target(say: Say, index: int, directory: str, mesh: list[int]) -> None:
    """Everything to one place, of a checkpoint of another topology."""
    there = mesh_of(mesh)
    device = jax.local_devices()[-1]

    def rule(name: str, shape: tuple[int, ...]) -> PartitionSpec:
        return PartitionSpec("x") if name.endswith("rows") else PartitionSpec()

    plain = storax.load(directory)["arrays"]
    numpy = storax.load(directory, to="numpy")["arrays"]
    one = storax.load(directory, to=device)["arrays"]
    ruled = storax.load(directory, to=(there, rule))["arrays"]
    say(
        {
            "numpy": {type(value).__name__ for value in numpy.values()} == {"ndarray"},
            "one": all(value.devices() == {device} for value in one.values()),
            "ruled": [str(ruled["rows"].sharding.spec), str(ruled["block"].sharding.spec)],
            "wrong": [
                name
                for name in ARRAYS
                if bits(numpy[name]) != bits(host(name))
                or any(wrong(found[name], host(name)) for found in (plain, one, ruled))
            ],
        }
    )


def broadcast_of_damage(say: Say, index: int, directory: str, mesh: list[int]) -> None:
    """A broadcast in which process 1 fails to read: nobody waits for it on a device."""
    import storax.landing

    if index == 1:

        def cannot(*_: Any, **__: Any) -> Any:
            raise storax.Corrupt("cannot read")

        storax.landing.read_all = cannot
    sharding = shardings(mesh_of(mesh))["everywhere"]
    target = {"arrays": {"everywhere": jax.ShapeDtypeStruct((336, 257), np.float64, sharding=sharding)}}
    say(attempt(lambda: storax.load(directory, target, partial=True, broadcast=True)))
