"""Compressed manifests and nodes, such as Orbax writes: TensorStore decodes them.

The library has no decompressor of its own. ``tensorstore.ocdbt.dump`` gives the contents of one
manifest or node as a plain value; here that becomes what ``manifest`` and ``nodes`` make of
uncompressed bytes, with the same limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from storax.errors import Corrupt
from storax.ocdbt.files import DataFile
from storax.ocdbt.manifest import SINGLE, Config, Manifest, Version
from storax.ocdbt.nodes import Indirect, Inline, Interior, Leaf, Node, NodeReference, Statistics

_PARTS = 5  # kind, base, file, offset, length


def dump_manifest(directory: Path) -> Manifest:
    """The manifest of a database. Raises ``Corrupt`` if TensorStore finds it wrong."""
    found = _dump(directory, None)
    try:
        config = found["config"]
        versions = [_version(version) for version in found["versions"]]
        return Manifest(
            Config(
                bytes.fromhex(config["uuid"]),
                SINGLE,
                config["max_inline_value_bytes"],
                config["max_decoded_node_bytes"],
                config["version_tree_arity_log2"],
                0,
            ),
            versions,
            [],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{directory}: the manifest cannot be understood: {error!r}") from None


def dump_node(directory: Path, reference: NodeReference) -> Node:
    """One node of a database. Raises ``Corrupt`` if TensorStore finds it wrong."""
    file = reference.file
    location = f"btreenode:{file.base}:{file.name}:{reference.offset}:{reference.length}"
    found = _dump(directory, location)
    try:
        entries = found["entries"]
        keys = [bytes(entry["key"]) for entry in entries]
        if not keys:
            raise ValueError("no entries")
        if found["height"] == 0:
            return Leaf(keys, [_value(entry) for entry in entries])
        skipped = [int(entry["subtree_common_prefix_length"]) for entry in entries]
        return Interior(int(found["height"]), keys, skipped, [_reference(entry) for entry in entries])
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{directory / file.path}, byte {reference.offset}: no node: {error!r}") from None


def _dump(directory: Path, location: str | None) -> Any:
    import tensorstore as ts

    base = ts.KvStore.open({"driver": "file", "path": f"{directory}/"}).result()
    try:
        return (ts.ocdbt.dump(base) if location is None else ts.ocdbt.dump(base, location)).result()
    except ValueError as error:
        raise Corrupt(f"{directory}: the database is damaged: {error}") from None


def _version(found: Any) -> Version:
    root = found["root"]  # without a location if the version is empty
    return Version(
        found["generation_number"],
        found["root_height"],
        _reference(root) if "location" in root else None,
        found["commit_time"],
    )


def _reference(found: Any) -> NodeReference:
    base, name, offset, length = _location(found["location"])
    statistics = found["statistics"]
    return NodeReference(
        DataFile(base, name),
        offset,
        length,
        Statistics(
            statistics["num_keys"], statistics["num_tree_bytes"], statistics["num_indirect_value_bytes"]
        ),
    )


def _value(entry: Any) -> Inline | Indirect:
    if "inline_value" in entry:
        return Inline(bytes(entry["inline_value"]))
    base, name, offset, length = _location(entry["indirect_value"])
    return Indirect(base + name, offset, length)


def _location(text: str) -> tuple[str, str, int, int]:
    parts = text.split(":")
    if len(parts) != _PARTS:
        raise ValueError(f"{text!r} is no location")
    base, name = unquote(parts[1]), unquote(parts[2])
    if ".." in f"{base}/{name}".split("/") or base.startswith("/") or name.startswith("/"):
        raise ValueError(f"{text!r} leaves the database")
    return base, name, int(parts[3]), int(parts[4])
