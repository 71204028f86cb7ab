"""Arrays that others wrote, and compressed ones of our own: TensorStore decodes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from storax.arrays import zarr
from storax.arrays.read import Wanted
from storax.errors import Corrupt
from storax.progress import advance
from storax.store.reading import Act


@dataclass(frozen=True, slots=True)
class ForeignArray:
    """A source: one array that TensorStore reads."""

    name: str
    store: Any
    where: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.store.shape)

    @property
    def atom(self) -> tuple[int, ...]:
        chunk: tuple[int, ...] = tuple(self.store.chunk_layout.read_chunk.shape or ())
        return chunk

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.store.dtype.numpy_dtype
        return dtype

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Act]:
        for box, memory in wanted:
            if memory.size:
                yield self._read(tuple(slice(p, q) for p, q in box), memory)

    def _read(self, index: tuple[slice, ...], memory: np.ndarray) -> Act:
        def run() -> None:
            try:
                memory[...] = self.store[index].read().result()
                advance(memory.nbytes)
            except ValueError as error:
                raise Corrupt(f"{self.where}: {self.name}: {error}") from None

        return run


def open_arrays(
    directory: Path, names: Sequence[str], *, ocdbt: bool, zarr3: bool, complete: bool
) -> list[ForeignArray]:
    """Opens the arrays of some leaves, many at a time.

    Args:
      directory: of the tree.
      names: of the leaves.
      ocdbt: whether they are in a database, not each in a directory of its own.
      zarr3: whether they are zarr3, not zarr2.
      complete: whether a chunk that is missing is an error, not all zeros.

    Raises:
      Corrupt: names every leaf that has no readable array.
    """
    import tensorstore as ts

    context = ts.Context({"cache_pool": {"total_bytes_limit": 100_000_000}})
    specs = [
        _spec(directory, name, ocdbt, zarr3) | {"fill_missing_data_reads": not complete} for name in names
    ]
    futures = [ts.open(spec, open=True, read=True, context=context) for spec in specs]
    found, lost = [], []
    for name, future in zip(names, futures, strict=True):
        try:
            found.append(ForeignArray(name, future.result(), str(directory)))
        except ValueError as error:
            lost.append(f"  {name}: {error}")
    if lost:
        raise Corrupt(f"{directory}: these leaves have no array that can be read:\n" + "\n".join(lost))
    return found


def _spec(directory: Path, name: str, ocdbt: bool, zarr3: bool) -> dict[str, Any]:
    base = {"driver": "file", "path": f"{directory}/"}
    kvstore: dict[str, Any] = (
        {"driver": "ocdbt", "base": base, "path": zarr.key_of(name, "")}
        if ocdbt
        else {"driver": "file", "path": f"{directory}/{zarr.key_of(name, '')}"}
    )
    return {"driver": "zarr3" if zarr3 else "zarr", "kvstore": kvstore}
