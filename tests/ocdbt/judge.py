"""TensorStore as the independent judge of our databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorstore as ts

from storax.ocdbt.index import Index
from storax.ocdbt.nodes import Indirect, Inline


def base(directory: Path) -> str:
    return f"file://{directory}/"


def open_database(directory: Path, **config: Any) -> Any:
    """A database that TensorStore reads, or makes, at a directory."""
    spec: dict[str, Any] = {"driver": "ocdbt", "base": base(directory)}
    if config:
        spec["config"] = config
    return ts.KvStore.open(spec).result()


def read_all(directory: Path) -> dict[bytes, bytes]:
    """Every key and value, by TensorStore."""
    store = open_database(directory)
    reads = {key: store.read(key) for key in store.list().result()}
    return {key: read.result().value for key, read in reads.items()}


def read_ours(directory: Path) -> dict[bytes, bytes]:
    """Every key and value, by our index."""
    return {key: fetch(directory, value) for key, value in Index.open(directory).items()}


def fetch(directory: Path, value: Inline | Indirect) -> bytes:
    if isinstance(value, Inline):
        return value.data
    with open(directory / value.file, "rb") as file:
        file.seek(value.offset)
        return file.read(value.length)


def write_theirs(directory: Path, values: dict[bytes, bytes], **config: Any) -> None:
    """One transaction of TensorStore."""
    store = open_database(directory, **{"compression": None, **config})
    transaction = ts.Transaction()
    inside = store.with_transaction(transaction)
    for key, value in values.items():
        inside[key] = value
    transaction.commit_sync()


def dump(directory: Path, node: str | None = None) -> Any:
    store = ts.KvStore.open(base(directory)).result()
    return ts.ocdbt.dump(store, node).result() if node else ts.ocdbt.dump(store).result()


def measure(directory: Path, location: str) -> dict[str, int]:
    """The statistics of a subtree, counted from what TensorStore prints of its nodes."""
    node = dump(directory, location)
    counted = {
        "num_keys": 0,
        "num_tree_bytes": int(location.rsplit(":", 1)[1]),
        "num_indirect_value_bytes": 0,
    }
    for entry in node["entries"]:
        if node["height"] == 0:
            counted["num_keys"] += 1
            if "indirect_value" in entry or "location" in entry:
                place = entry.get("indirect_value") or entry["location"]
                counted["num_indirect_value_bytes"] += int(place.rsplit(":", 1)[1])
        else:
            below = measure(directory, entry["location"])
            assert below == entry["statistics"]
            counted = {name: counted[name] + below[name] for name in counted}
    return counted
