"""The page on safetensors, executed: every block runs, and prints what the block after it shows."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "safetensors.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def test_every_block_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert {language for language, _ in blocks} == {"python", "text"}
    names: dict[str, Any] = {}
    executed = 0
    for (language, text), (following, shown) in itertools.pairwise(blocks):
        if language != "python":
            continue
        assert following == "text", f"no output is shown for:\n{text}"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, PAGE.name, "exec"), names)
        # How a partition spec is printed depends on the release of JAX.
        found = printed.getvalue().replace(f"{tmp_path}/", "").replace("PartitionSpec(", "P(")
        assert found == shown, text
        executed += 1
    assert executed == 8


def test_the_byte_map_is_that_of_the_file(tmp_path: Path) -> None:
    """The numbers of the drawing, from the file itself."""
    import numpy as np

    import storax
    from storax.safetensors.files import read_file

    model = {
        "embed": {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)},
        "norm": np.array([1, 2], np.int16),
    }
    storax.save_safetensors(tmp_path / "tiny.safetensors", model, metadata={"format": "pt"})
    header = read_file(tmp_path / "tiny.safetensors").header
    ends = [0, 8, header.data_start, *(header.data_start + tensor.stop for tensor in header.tensors)]
    drawn = re.search(r"^offset +(.*)$", PAGE.read_text(), re.MULTILINE)
    assert drawn is not None
    assert [int(number) for number in drawn.group(1).split()] == ends
