"""What commands print: data to stdout, plain when it is piped; everything else to stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import typer

from storax.progress import readable


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, and which way its cells lean."""

    title: str
    side: Literal["left", "right"] = "left"
    style: str = ""


@dataclass(slots=True)
class _Manners:
    """How this command speaks; set once by the options that come before the verb."""

    quiet: bool = False


manners = _Manners()


def say(message: str) -> None:
    """A message to the person, on stderr; nothing with ``--quiet``."""
    if not manners.quiet:
        sys.stderr.write(message + "\n")


def out(text: str) -> None:
    """A line of data. Ends the command if whoever reads the pipe has seen enough."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        close_pipe()
        raise typer.Exit from None


def close_pipe() -> None:
    """Lets what is still to be written go nowhere; else Python complains when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: Any) -> None:
    """Data as one JSON document. NaN and infinities are texts, as JSON has no numbers for them."""
    out(json.dumps(_strict(value), indent=2, ensure_ascii=False))


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(inner) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table: drawn on a terminal; piped, plain columns that are never cut off."""
    if sys.stdout.isatty():
        _draw(columns, rows)
        return
    table = [[column.title for column in columns], *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    for row in table:
        cells = [
            cell.rjust(width) if column.side == "right" else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        out("  ".join(cells).rstrip())


# Of a text in the last column: narrower than this it is not folded, but the terminal is left to wrap.
_NARROWEST = 16


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Draws a table as wide as it must be: only a text in the last column is folded to fit the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = [
        max(cell_len(row[i]) for row in ([c.title for c in columns], *rows)) for i in range(len(columns))
    ]
    terminal = Console().width
    before = sum(width + 2 for width in widths[:-1])
    if columns[-1].side == "left":
        widths[-1] = min(widths[-1], max(terminal - before, _NARROWEST))
    table = Table(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold",
        collapse_padding=True,
    )  # fmt: skip
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title,
            justify=column.side,
            style=column.style,
            min_width=width,
            max_width=width,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=max(terminal, before + widths[-1] + 2)).print(table, soft_wrap=False)


def size(nbytes: int) -> str:
    """Bytes, for a table."""
    return readable(nbytes)


def counted(n: int, one: str, many: str = "") -> str:
    """How many of something.

    >>> counted(1, "leaf", "leaves"), counted(1200, "step")
    ('1 leaf', '1,200 steps')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def when(nanoseconds: int) -> str:
    """A moment, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(nanoseconds / 1e9))


def number(value: float | int | None) -> str:
    """A number in few digits.

    >>> number(0.123456789), number(3), number(None)
    ('0.123457', '3', '-')
    """
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def confirm(question: str, *, yes: bool) -> None:
    """Goes on if the person agrees, or said so before. Ends the command otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        say(f"{question} Nobody can answer here; pass --yes. Nothing was changed.")
        raise typer.Exit(2)
    if not typer.confirm(question, err=True):
        say("Nothing was changed.")
        raise typer.Exit(1)
