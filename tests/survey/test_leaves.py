"""Who wrote which bytes of which leaf."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import FIXTURES

from storax.ocdbt.merge import merge
from storax.ocdbt.writer import Value, write_database
from storax.survey.leaves import see_leaves, stored_bytes


def test_bytes_are_told_apart_by_the_process_that_wrote_them(tmp_path: Path):
    parts = {}
    for process, sizes in {0: (5000, 300), 1: (7000, 9000)}.items():
        values = [
            Value(b"a.w/c/%d/0" % process, bytes(sizes[0]), checksum=True),
            Value(b"b/c/%d" % process, bytes(sizes[1]), checksum=True),
            *([Value(b"a.w/zarr.json", b"{}", checksum=False)] if process == 0 else []),
        ]
        part = f"ocdbt.process_{process}"
        (tmp_path / part).mkdir()
        parts[part] = write_database(tmp_path / part, values, workers=1)
    merge(tmp_path, parts)
    assert stored_bytes(tmp_path) == {"a.w": {"0": 5004, "1": 7004}, "b": {"0": 304, "1": 9004}}


def test_leaves_in_directories_of_their_own_are_weighed_too():
    path = FIXTURES / "0.12.8" / "pytree_noocdbt"
    for leaf in see_leaves(path):
        if leaf.source is not None:
            chunks = [f for f in (path / leaf.name).iterdir() if f.name != ".zarray"]
            assert leaf.stored_bytes == sum(f.stat().st_size for f in chunks)


def test_only_what_is_wanted_is_seen():
    (leaf,) = see_leaves(FIXTURES / "0.12.8" / "pytree", lambda name: name.endswith("emb"), weigh=False)
    assert (leaf.name, leaf.what, leaf.stored_bytes) == ("params.emb", "bfloat16[32,16]", 0)
