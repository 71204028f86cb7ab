"""Every block of docs/surgery.md is run, and must say what it says there."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "surgery.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    blocks = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert {kind for kind, _ in blocks} == {"python", "toml", "sh"}
    for number, (kind, text) in enumerate(blocks):
        if kind == "toml":
            (tmp_path / "recipe.toml").write_text(text)
            continue
        if kind == "sh":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "storax"
                subprocess.run([sys.executable, "-m", "storax", *arguments], check=True, env=environment)
            continue
        examples = doctest.DocTestParser().get_examples(text)
        assert examples
        test = doctest.DocTest(examples, names, f"block {number}", str(DOCUMENT), 0, text)
        runner.run(test, clear_globs=False)
        names = test.globs
    assert runner.failures == 0
    assert runner.tries > 40
