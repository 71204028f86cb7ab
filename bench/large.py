"""512 MB of float32 on eight devices: save, and restore into the same sharding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from common import Contestant, Orbax, Row, Setting, writer

ARRAYS = 8
SHAPE = (4096, 4096)  # 64 MB


def run(setting: Setting) -> list[Row]:
    common.eight_devices()
    normal = {f"w{i}": common.sharded(common.normal(SHAPE, i), "x") for i in range(ARRAYS)}
    rows = _group(setting, "512 MB", normal, every=True)
    del normal
    return rows + _group(setting, "fresh Adam state", _fresh_adam(), every=False)


def _fresh_adam() -> dict[str, Any]:
    """Parameters and two moments that are still zero."""
    import numpy as np

    shape = (2560, 4096)  # 12 of them make 503 MB
    params = {f"w{i}": common.sharded(common.normal(shape, i), "x") for i in range(4)}
    moments = {
        name: {k: common.sharded(np.zeros(shape, np.float32), "x") for k in params} for name in ("mu", "nu")
    }
    return {"params": params, **moments}


def _group(setting: Setting, title: str, tree: Any, *, every: bool) -> list[Row]:
    import jax
    import numpy as np

    nbytes = common.size(tree)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    formats = _formats(setting, tree, leaves, every=every)
    saves = [writer(setting, name, save, most=most) for name, (save, _, most) in formats.items()]
    rows = common.race(f"{title}: save", saves, setting.repeats, nbytes)
    paths = {}
    restores = []
    for name, (save, restore, most) in formats.items():
        if restore is None:
            continue
        paths[name] = setting.fresh("r")
        save(paths[name])
        result = restore(paths[name])
        common.check_equal(tree, result)
        del result
        restores.append(Contestant(name, functools.partial(restore, paths[name]), most=max(2, most)))
    restores += _raw_reads(setting, leaves, paths)
    rows += common.race(f"{title}: restore", restores, setting.repeats, nbytes)
    for path in paths.values():
        common.remove(path)
    return rows


Format = tuple[Callable[[Path], Any], Callable[[Path], Any] | None, int]


def _formats(setting: Setting, tree: Any, leaves: list[Any], *, every: bool) -> dict[str, Format]:
    """Of each contestant how it saves, how it restores, and how often at most."""
    import jax

    import storax

    target = common.abstract(tree)
    structure = jax.tree.structure(tree)
    shardings = [leaf.sharding for leaf in jax.tree.leaves(tree)]
    orbax, plain = Orbax(compression=True), Orbax(compression=False)
    views = [common.bytes_of(leaf) for leaf in leaves]

    def placed(values: Any) -> Any:
        arrays = [jax.device_put(v, s) for v, s in zip(values, shardings, strict=True)]
        return jax.block_until_ready(structure.unflatten(arrays))

    formats: dict[str, Format] = {
        "storax": (
            lambda path: storax.save(path, tree),
            lambda path: jax.block_until_ready(storax.load(path, target)),
            1000,
        ),
        "Orbax, default": (
            lambda path: orbax.save(path, tree),
            lambda path: jax.block_until_ready(orbax.restore(path, target)),
            setting.slow_repeats,
        ),
        "Orbax, no compression": (
            lambda path: plain.save(path, tree),
            lambda path: jax.block_until_ready(plain.restore(path, target)),
            setting.slow_repeats + 1,
        ),
        "raw pwrite + fsync": (lambda path: common.pwrite_all(path, views, sync=True), None, 1000),
    }
    if not every:
        return formats

    names = [f"a{i}" for i in range(len(leaves))]
    formats["TensorStore zarr in OCDBT, no checksum"] = (
        lambda path: _tensorstore_save(path, jax.tree.leaves(tree)),
        lambda path: jax.block_until_ready(structure.unflatten(_tensorstore_load(path, shardings))),
        1000,
    )
    formats["numpy.save + fsync"] = (
        lambda path: _numpy_save(path, leaves),
        lambda path: placed(_numpy_load(path, len(leaves))),
        1000,
    )
    formats["raw pwrite, no fsync"] = (lambda path: common.pwrite_all(path, views, sync=False), None, 1000)
    try:
        import safetensors.numpy as st
    except ImportError:
        return formats

    def st_save(path: Path) -> None:
        st.save_file(dict(zip(names, leaves, strict=True)), path)
        common.sync_path(path)

    def st_load(path: Path) -> Any:
        loaded = st.load_file(path)
        return placed([loaded[name] for name in names])

    formats["safetensors + fsync"] = (st_save, st_load, 1000)
    return formats


def _numpy_save(path: Path, leaves: list[Any]) -> None:
    import numpy as np

    path.mkdir()
    for i, leaf in enumerate(leaves):
        np.save(path / f"{i}.npy", leaf)
        common.sync_path(path / f"{i}.npy")


def _numpy_load(path: Path, count: int) -> list[Any]:
    import numpy as np

    return [np.load(path / f"{i}.npy") for i in range(count)]


def _spec(path: Path, name: str) -> dict[str, Any]:
    return {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": f"file://{path.absolute()}/", "path": f"{name}/"},
    }


def _tensorstore_save(path: Path, arrays: list[Any]) -> None:
    """By hand, as fast as it goes: raw chunks of a shard each, not copied, all at once."""
    import numpy as np
    import tensorstore as ts

    path.mkdir()
    context = ts.Context()
    transaction = ts.Transaction()
    futures = []
    for i, array in enumerate(arrays):
        metadata = {
            "shape": array.shape,
            "dtype": "<f4",
            "chunks": array.sharding.shard_shape(array.shape),
            "compressor": None,
        }
        store = ts.open(
            {**_spec(path, f"a{i}"), "metadata": metadata},
            create=True,
            context=context,
            transaction=transaction,
        ).result()
        for shard in array.addressable_shards:
            futures.append(
                store[shard.index].write(np.asarray(shard.data), can_reference_source_data_indefinitely=True)
            )
    for future in futures:
        future.copy.result()
    transaction.commit_async().result()


def _tensorstore_load(path: Path, shardings: list[Any]) -> list[Any]:
    import jax
    import tensorstore as ts

    context = ts.Context()
    reads = []
    for i, sharding in enumerate(shardings):
        store = ts.open(_spec(path, f"a{i}"), context=context).result()
        shape = tuple(store.shape)
        shards = sharding.addressable_devices_indices_map(shape).items()
        reads.append((shape, sharding, [(device, store[index].read()) for device, index in shards]))
    return [
        jax.make_array_from_single_device_arrays(
            shape, sharding, [jax.device_put(future.result(), device) for device, future in shards]
        )
        for shape, sharding, shards in reads
    ]


def _raw_reads(setting: Setting, leaves: list[Any], paths: dict[str, Path]) -> list[Contestant]:
    """The limit: the same bytes, into memory that is there and into memory that the system must find."""
    import numpy as np

    path = paths["raw"] = setting.fresh("raw")
    common.pwrite_all(path, [common.bytes_of(leaf) for leaf in leaves], sync=True)
    warm = [np.ones(leaf.nbytes, np.uint8) for leaf in leaves]

    def fresh() -> Any:
        buffers = [np.empty(leaf.nbytes, np.uint8) for leaf in leaves]
        common.preadv_all(path, [memoryview(b) for b in buffers])
        return buffers

    return [
        Contestant("raw preadv, fresh memory", fresh),
        Contestant("raw preadv, warm memory", lambda: common.preadv_all(path, [memoryview(b) for b in warm])),
    ]
