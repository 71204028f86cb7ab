"""What a path that somebody typed means."""

from __future__ import annotations

import os
from pathlib import Path

from storax.errors import BadOption


def resolve(path: str | os.PathLike[str]) -> Path:
    """The absolute path that a path means at this moment, with ``~`` expanded.

    Raises:
      BadOption: it is no text, or a URL.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise BadOption(f"the path {text!r} is bytes; pass a str or a pathlib.Path")
    if "://" in text:
        raise BadOption(f"{text}: only paths of local file systems can be saved to and loaded from")
    return Path(os.path.abspath(os.path.expanduser(text)))
