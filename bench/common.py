"""What every group of the benchmark needs: a fair race, the machine, the trees."""

from __future__ import annotations

import functools
import gc
import math
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
DEVICES = 8


@dataclass(frozen=True)
class Contestant:
    """One way to do the thing that is measured.

    Attributes:
      act: is timed. It is given what ``before`` returned, if there is one.
      before: is not timed; makes what ``act`` needs, anew for each repetition.
      after: is not timed; given what ``act`` returned, it removes what was made.
      most: how many timed repetitions at most, for those that take long.
      warm_up: whether one more repetition is run first and not counted.
    """

    name: str
    act: Callable[..., Any]
    before: Callable[[], Any] | None = None
    after: Callable[[Any], None] | None = None
    most: int = 1000
    warm_up: bool = True


@dataclass
class Row:
    """One line of the table: seconds of each repetition, or a plain value with its unit."""

    case: str
    name: str
    seconds: list[float] = field(default_factory=list)
    nbytes: int = 0
    text: str = ""

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Setting:
    """Where to write and how often to repeat."""

    directory: Path
    repeats: int
    slow_repeats: int
    full: bool

    def fresh(self, name: str) -> Path:
        """A path in the directory that nothing has yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.directory / f"{name}-{os.urandom(4).hex()}"


def race(case: str, contestants: Sequence[Contestant], repeats: int, nbytes: int = 0) -> list[Row]:
    """Times each contestant in turn, and again, and again: what slows the machine for a while slows all.

    The first round warms up and is not counted.
    """
    rows = {c.name: Row(case, c.name, nbytes=nbytes) for c in contestants}
    for turn in range(repeats + 1):
        for contestant in contestants:
            first = 0 if contestant.warm_up else 1
            if not first <= turn <= contestant.most:
                continue
            seconds = once(contestant)
            if turn:
                rows[contestant.name].seconds.append(seconds)
    return list(rows.values())


def once(contestant: Contestant) -> float:
    """Seconds of one repetition, when nothing of the one before is left to be written."""
    given = (contestant.before(),) if contestant.before else ()
    gc.collect()
    os.sync()
    start = time.perf_counter()
    result = contestant.act(*given)
    seconds = time.perf_counter() - start
    if contestant.after:
        contestant.after(result)
    return seconds


def remove(path: Any) -> None:
    """Deletes a file or directory, if it is there."""
    path = Path(path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def writer(
    setting: Setting, name: str, write: Callable[[Path], Any], *, most: int = 1000, warm_up: bool = True
) -> Contestant:
    """A contestant that writes to a new path each time; what it wrote is deleted."""

    def act(path: Path) -> Path:
        write(path)
        return path

    return Contestant(name, act, lambda: setting.fresh("w"), remove, most, warm_up)


# --- the raw limit -------------------------------------------------------------------------------


def on_threads(acts: Sequence[Callable[[], Any]], threads: int) -> None:
    """Runs acts side by side."""
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(act) for act in acts]:
            future.result()


def pwrite_all(directory: Path, buffers: Sequence[memoryview], *, sync: bool, threads: int = CORES) -> None:
    """The bytes as they are, a file for each buffer: what the system can do."""
    directory.mkdir()

    def one(number: int) -> None:
        fd = os.open(directory / str(number), os.O_WRONLY | os.O_CREAT, 0o666)
        rest = buffers[number]
        while rest:
            rest = rest[os.write(fd, rest) :]
        if sync:
            os.fsync(fd)  # noqa: TID251
        os.close(fd)

    on_threads([functools.partial(one, i) for i in range(len(buffers))], threads)
    if sync:
        sync_path(directory)


def preadv_all(directory: Path, buffers: Sequence[memoryview], threads: int = CORES) -> None:
    """The files of ``pwrite_all`` into buffers."""

    def one(number: int) -> None:
        fd = os.open(directory / str(number), os.O_RDONLY)
        done = 0
        while done < buffers[number].nbytes:
            done += os.preadv(fd, [buffers[number][done:]], done)
        os.close(fd)

    on_threads([functools.partial(one, i) for i in range(len(buffers))], threads)


def sync_path(path: Path) -> None:
    """Makes a file or a directory durable: what libraries that do not do it themselves are owed."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)  # noqa: TID251
    os.close(fd)


def bytes_of(array: Any) -> memoryview:
    """The memory of a numpy array."""
    return memoryview(array.reshape(-1).view("u1"))


# --- trees ---------------------------------------------------------------------------------------


def eight_devices() -> None:
    """Eight devices on the CPU; must be called before JAX is used."""
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={DEVICES}".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def mesh() -> Any:
    import jax

    return jax.make_mesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


def sharded(array: Any, *spec: str | None) -> Any:
    """An array on the eight devices, in memory of JAX's own."""
    import jax

    sharding = jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec(*spec))
    return jax.block_until_ready(jax.device_put(array, sharding))


def abstract(tree: Any) -> Any:
    """What to restore into: shapes, dtypes and shardings."""
    import jax

    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), tree)


def size(tree: Any) -> int:
    import jax

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def normal(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Random normal float32: the entropy of trained weights (zstd makes it some 8 % smaller)."""
    import numpy as np

    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def check_equal(one: Any, other: Any) -> None:
    """A contestant that does not bring back the bits has not run."""
    import jax
    import numpy as np

    first, second = jax.tree.leaves(one), jax.tree.leaves(other)
    if len(first) != len(second):
        raise AssertionError(f"{len(first)} leaves became {len(second)}")
    for a, b in zip(first, second, strict=True):
        same = a.dtype == b.dtype and a.shape == b.shape
        if not same or np.asarray(a).tobytes() != np.asarray(b).tobytes():
            raise AssertionError("restored values differ")


# --- Orbax ---------------------------------------------------------------------------------------


class Orbax:
    """Orbax as its documentation uses it, and without compression."""

    def __init__(self, *, compression: bool) -> None:
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self._compression = compression
        self._checkpointer: Any = (
            ocp.StandardCheckpointer() if compression else ocp.PyTreeCheckpointer(use_compression=False)
        )

    def begin(self, path: Path, tree: Any) -> None:
        """Returns as soon as the caller may go on."""
        self._checkpointer.save(path.absolute(), tree)

    def wait(self) -> None:
        if self._compression:
            self._checkpointer.wait_until_finished()

    def save(self, path: Path, tree: Any) -> None:
        self.begin(path, tree)
        self.wait()

    def restore(self, path: Path, target: Any) -> Any:
        if self._compression:
            return self._checkpointer.restore(path.absolute(), target)
        args = self._ocp.checkpoint_utils.construct_restore_args(target)
        restore = self._ocp.args.PyTreeRestore(target, restore_args=args)
        return self._checkpointer.restore(path.absolute(), args=restore)

    def restore_part(self, path: Path, target: Any) -> Any:
        """Only the leaves that the target names."""
        args = self._ocp.checkpoint_utils.construct_restore_args(target)
        restore = self._ocp.args.PyTreeRestore(target, restore_args=args, partial_restore=True)
        with self._ocp.Checkpointer(self._ocp.PyTreeCheckpointHandler()) as checkpointer:
            return checkpointer.restore(path.absolute(), args=restore)


# --- the machine ---------------------------------------------------------------------------------


def machine(directory: Path) -> list[str]:
    """What the figures were measured on, as lines."""
    import importlib.metadata
    import platform

    def version(package: str) -> str:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            return f"{package} not installed"

    packages = "jax numpy tensorstore orbax-checkpoint safetensors crc32c"
    where = _file_system(directory)
    return [
        f"{_cpu()}, {CORES} cores, {_memory()} memory, load {_load()} at the start",
        where,
        f"Python {platform.python_version()}, {', '.join(map(version, packages.split()))}",
        f"{platform.system()} {platform.release()}",
    ]


def _cpu() -> str:
    import platform

    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _file_system(directory: Path) -> str:
    try:
        out = subprocess.run(
            ["df", "-T", str(directory)], capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]
        device, kind = out.split()[:2]
        return f"{kind} on {device}"
    except (OSError, subprocess.CalledProcessError, ValueError):
        return "an unknown file system"


def human(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
