"""Databases that real Orbax releases wrote: parsed rightly, or said to be compressed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorstore as ts
from tests.ocdbt import judge

from storax.ocdbt.index import Index
from storax.ocdbt.manifest import Manifest, OlderVersions, Version, decode_manifest, decode_version_node

FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"
DATABASES = sorted(path.parent for path in FIXTURES.rglob("manifest.ocdbt"))


def as_dumped(manifest: Manifest) -> dict[str, Any]:
    """What ``ts.ocdbt.dump`` prints of a manifest."""
    config = manifest.config
    level = config.zstd_level
    compression = None if level is None else {"id": "zstd", **({"level": level} if level else {})}
    versions = []
    for version in manifest.versions:
        root = version.root
        counted = root.statistics if root else None
        shown: dict[str, Any] = {
            "statistics": {
                "num_keys": counted.keys if counted else 0,
                "num_tree_bytes": counted.tree_bytes if counted else 0,
                "num_indirect_value_bytes": counted.indirect_bytes if counted else 0,
            }
        }
        if root:
            shown["location"] = f"btreenode:{root.file.base}:{root.file.name}:{root.offset}:{root.length}"
        versions.append(
            {
                "generation_number": version.generation,
                "root_height": version.root_height,
                "commit_time": version.commit_time,
                "root": shown,
            }
        )
    return {
        "config": {
            "uuid": config.uuid.hex(),
            "max_inline_value_bytes": config.max_inline_value_bytes,
            "max_decoded_node_bytes": config.max_decoded_node_bytes,
            "version_tree_arity_log2": config.version_tree_arity_log2,
            "compression": compression,
        },
        "versions": versions,
    }


@pytest.mark.parametrize("source", DATABASES, ids=lambda p: str(p.relative_to(FIXTURES)))
def test_a_database_of_orbax(source: Path, tmp_path: Path) -> None:
    # A copy, since TensorStore may want to lock or write where it reads.
    directory = tmp_path / "db"
    shutil.copytree(source, directory)
    dumped = judge.dump(directory)
    index = Index.open(directory)
    dumped.pop("version_tree_nodes")
    assert as_dumped(index.manifest)["versions"] == dumped["versions"]
    everything = judge.read_all(directory)
    assert judge.read_ours(directory) == everything
    assert [key for key, _ in index.items()] == sorted(everything)
    assert all(index.get(key) is not None for key in everything)


def test_a_manifest_with_many_versions(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    for i in range(40):
        judge.write_theirs(directory, {b"k%d" % i: b"v"})
    manifest = decode_manifest((directory / "manifest.ocdbt").read_bytes(), "manifest")
    dumped = judge.dump(directory)
    older = dumped.pop("version_tree_nodes")
    assert as_dumped(manifest) == dumped
    assert [
        {
            "location": f"versionnode:{o.file.base}:{o.file.name}:{o.offset}:{o.length}",
            "generation_number": o.generation,
            "num_generations": o.generations,
            "commit_time": o.commit_time,
            "height": o.height,
        }
        for o in manifest.older
    ] == older


def test_every_version_that_tensorstore_wrote(tmp_path: Path) -> None:
    """Older versions live in version-tree nodes: of three heights here."""
    directory = tmp_path / "db"
    config = {"compression": None, "version_tree_arity_log2": 1}
    for i in range(25):
        spec = {"driver": "ocdbt", "base": f"file://{directory}/", "config": config}
        ts.KvStore.open(spec).result().write(f"k{i}", b"v").result()
    manifest = decode_manifest((directory / "manifest.ocdbt").read_bytes(), "manifest")
    heights: set[int] = set()

    def versions(reference: OlderVersions) -> list[Version]:
        path = directory / reference.file.path
        data = path.read_bytes()[reference.offset : reference.offset + reference.length]
        found = decode_version_node(data, reference, str(path))
        heights.add(reference.height)
        inside = [v for one in found for v in (versions(one) if isinstance(one, OlderVersions) else [one])]
        assert len(inside) == reference.generations
        return inside

    every = [version for one in manifest.older for version in versions(one)] + manifest.versions
    assert [version.generation for version in every] == list(range(1, len(every) + 1))
    assert len(every) >= 25
    assert max(heights) >= 2
    # Each is a whole database of its own: the i-th has as many keys as were written by then.
    assert sorted({v.root.statistics.keys if v.root else 0 for v in every}) == list(range(26))
