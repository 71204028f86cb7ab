"""What notebooks show of a checkpoint."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import storax


class Cells(HTMLParser):
    """The texts of a table's cells, row by row; checks that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_metadata_is_a_table(tmp_path: Path):
    tree = {"layers": [{"<w>": np.zeros((2, 3), np.float32)}], "step": 7, "s": "x"}
    storax.save(tmp_path / "a", tree, custom_metadata={"run": "x"})
    found = Cells(storax.metadata(tmp_path / "a")._repr_html_())
    assert sorted(found.rows[1:]) == [
        ["layers.0.<w>", "float32[2,3]", "24 B"], ["s", "str", "0 B"], ["step", "int64[]", "8 B"],
    ]  # fmt: skip
    assert "run = 'x'" in " ".join(found.words)


def test_of_many_leaves_the_first_are_shown(tmp_path: Path):
    storax.save(tmp_path / "a", {f"l{i}": np.zeros(1) for i in range(100)})
    found = Cells(storax.metadata(tmp_path / "a")._repr_html_())
    assert len(found.rows) == 1 + 60 + 1
    assert found.rows[-1] == ["… and 40 more"]


def test_an_open_checkpoint_is_a_table(tmp_path: Path):
    options = storax.CheckpointManagerOptions(enable_async_checkpointing=False)
    with storax.CheckpointManager(tmp_path, options=options) as manager:
        items = {"state": storax.args.StandardSave({"w": np.zeros(3)}), "config": storax.args.JsonSave({})}
        manager.save(1, args=storax.args.Composite(**items))
    with storax.open(tmp_path / "1") as opened:
        found = Cells(opened._repr_html_())
    assert sorted(found.rows[1:]) == [["config", "JSON", "0 B"], ["state.w", "float64[3]", "24 B"]]
    rows = Cells(storax.metadata(tmp_path / "1")._repr_html_()).rows[1:]
    assert rows == [["state.w", "float64[3]", "24 B"]]
