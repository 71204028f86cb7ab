"""Values that JSON gives back as they are: what a JSON item and custom metadata may hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from storax.errors import BadOption

# A message names at most so many places.
_MOST_LINES = 20


def encode_plain(value: Any, what: str) -> bytes:
    """A value as JSON. Tuples come back as lists; nothing else comes back as another value.

    Args:
      value: dicts with str keys, lists and tuples, str, numbers that are finite, True, False, None.
      what: the value, as the message names it.

    Raises:
      BadOption: lists every place whose value or key JSON would change or has no form for.

    >>> encode_plain({"lr": 0.1, "betas": (0.9, 0.99)}, "the config")
    b'{"lr": 0.1, "betas": [0.9, 0.99]}'
    """
    problems = list(_changed(value))
    if problems:
        shown = problems[:_MOST_LINES]
        shown += [f"and {len(problems) - _MOST_LINES} more"] if problems[_MOST_LINES:] else []
        raise BadOption(f"{what} would not come back from JSON as it is:\n  " + "\n  ".join(shown))
    try:
        return json.dumps(value).encode()
    except RecursionError:
        raise BadOption(f"{what} cannot be written as JSON: it is nested too deep, or holds itself") from None
    except (TypeError, ValueError) as error:
        raise BadOption(f"{what} cannot be written as JSON: {error}") from None


def _changed(value: Any) -> Iterator[str]:
    waiting: list[tuple[str, Any]] = [("", value)]
    seen: set[int] = set()
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, float) and not math.isfinite(node):
            yield f"{place or 'it'} is {node}: JSON has no such number; write it as a str, or None"
        if not isinstance(node, (dict, list, tuple)) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    yield f"{place}[{key!r}]: the key is a {type(key).__name__}; write str({key!r})"
        pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
        waiting += [(f"{place}[{key!r}]", child) for key, child in reversed(pairs)]
