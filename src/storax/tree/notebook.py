"""Leaves as a small HTML table, which is how notebooks show what a cell ends with."""

from __future__ import annotations

import html
from collections.abc import Sequence

MOST_ROWS = 60

_CELL = "padding:1px 14px 1px 0;text-align:left;white-space:nowrap"
_NAME = _CELL + ";font-family:monospace"
_NUMBER = _CELL + ";text-align:right;font-variant-numeric:tabular-nums"


def leaf_table(title: str, remark: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """A table of leaves; of very many the first ones.

    Args:
      title, remark: above it.
      rows: of each leaf its name, what it is, and its bytes; any text is safe.

    >>> leaf_table("a", "1 leaf", [("<w>", "int8[2]", "2 B")]).count("&lt;w&gt;")
    1
    """
    body = "".join(
        f'<tr><td style="{_NAME}">{html.escape(name)}</td><td style="{_CELL}">{html.escape(what)}</td>'
        f'<td style="{_NUMBER}">{html.escape(size)}</td></tr>'
        for name, what, size in rows[:MOST_ROWS]
    )
    if len(rows) > MOST_ROWS:
        rest = f"… and {len(rows) - MOST_ROWS:,} more"
        body += f'<tr><td colspan="3" style="{_CELL}">{rest}</td></tr>'
    head = "".join(
        f'<th style="{style}">{text}</th>'
        for text, style in (("leaf", _CELL), ("what", _CELL), ("bytes", _NUMBER))
    )
    return (
        f"<div><strong>{html.escape(title)}</strong><div>{html.escape(remark)}</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
