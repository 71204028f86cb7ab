"""Running the command line in this process, or as a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from storax.cli import app

FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"
SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table that was printed plainly, without its titles."""
        return [
            [cell.strip() for cell in line.split("  ") if cell.strip()] for line in self.out.splitlines()[1:]
        ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def storax(*words: object, answer: str | None = None) -> Finished:
    """Runs a command in this process. With an answer, somebody sits at a terminal and gives it."""
    out, err = io.StringIO(), io.StringIO()
    stdin = io.StringIO() if answer is None else Terminal(answer)
    with (
        mock.patch.object(sys, "argv", ["storax", *map(str, words)]),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.object(sys, "stdin", stdin),
    ):
        code = app.run()
    return Finished(code, out.getvalue(), err.getvalue())


def ok(*words: object, answer: str | None = None) -> Finished:
    """A command that must end well."""
    done = storax(*words, answer=answer)
    assert done.code == 0, done.err + done.out
    return done


def process(*words: object, **variables: str) -> Finished:
    """Runs a command as a process of its own, with its output in pipes."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
    command = [sys.executable, "-m", "storax", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, stdin=subprocess.DEVNULL
    )
    return Finished(done.returncode, done.stdout, done.stderr)
