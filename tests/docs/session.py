"""Documents with programs and shell sessions in them, run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (\S+\.py)\n")
_SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Step:
    """One command and what it is to print; ``…`` stands for anything, alone on a line for any lines."""

    command: str
    expected: str


def blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of a document: their language and content."""
    return [(found[1], found[2]) for found in _BLOCK.finditer(text)]


def steps(session: str) -> list[Step]:
    parts = re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
    return [Step(*part.partition("\n")[::2]) for part in parts]


def write_program(text: str, where: Path) -> None:
    """A program whose first line is a comment with its file's name."""
    found = _FILE.match(text)
    assert found, f"a program must begin with its name: {text[:60]!r}"
    (where / found[1]).write_text(text)


def shell(where: Path) -> dict[str, str]:
    """An environment in which ``storax`` and ``python`` are those of this test."""
    programs = where.parent / "bin"
    programs.mkdir(exist_ok=True)
    for name, words in {"storax": "-m storax ", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        (programs / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(_SOURCE),
        "PYTHONUNBUFFERED": "1",  # so that stdout and stderr come in the order in which they were written
    }


def run(step: Step, where: Path, environment: dict[str, str]) -> str:
    """What a command prints, and its exit code if that is not 0."""
    done = subprocess.run(
        ["bash", "-c", step.command],
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.stdout + (f"[exit code {done.returncode}]\n" if done.returncode else "")


def fits(expected: str, printed: str) -> bool:
    """Whether a text is what was expected, but for the number of spaces."""
    lines = []
    for line in expected.splitlines():
        if line == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            words = re.split(r" +", line.strip())
            lines.append(r" *" + r" +".join(re.escape(w).replace("…", ".*?") for w in words) + r" *\n")
    return re.fullmatch("".join(lines), printed) is not None
