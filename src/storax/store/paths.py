"""What a path that somebody typed means."""

from __future__ import annotations

import os
from pathlib import Path

from storax.errors import BadOption

# What Linux and macOS take at most, in bytes.
MOST_IN_A_NAME = 255
MOST_IN_A_PATH = 4095


def resolve(path: str | os.PathLike[str]) -> Path:
    """The absolute path that a path means at this moment, with ``~`` expanded.

    Links stay as they are, but for one before ``..``: that is above what the link points to, as the
    system has it.

    Raises:
      BadOption: it is no text, a URL, longer than any path can be, or relative to a directory that is gone.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise BadOption(f"the path {text!r} is bytes; pass a str or a pathlib.Path")
    if "://" in text:
        raise BadOption(f"{text}: only paths of local file systems can be saved to and loaded from")
    if "\0" in text:
        raise BadOption(f"the path {text!r} holds a zero byte, which no file system takes")
    found = _without_dots(_absolute(Path(os.path.expanduser(text))))
    _check_length(found)
    return found


def _absolute(path: Path) -> Path:
    if path.is_absolute():
        return path
    try:
        return Path(os.getcwd()) / path
    except FileNotFoundError:
        raise BadOption(
            f"{path}: the path is relative, and the working directory was deleted. Pass an absolute path, or "
            "call os.chdir first."
        ) from None


def _without_dots(path: Path) -> Path:
    found = Path(path.anchor)
    for part in path.parts[1:]:
        if part == "..":
            found = (Path(os.path.realpath(found)) if os.path.islink(found) else found).parent
        else:
            found /= part
    return found


def _check_length(path: Path) -> None:
    for part in path.parts:
        if (size := len(os.fsencode(part))) > MOST_IN_A_NAME:
            raise BadOption(
                f"{_shown(path)}: the name {_shown(part)} has {size} bytes, and file systems take at most "
                f"{MOST_IN_A_NAME}. Choose a shorter one."
            )
    if (size := len(os.fsencode(path))) > MOST_IN_A_PATH:
        raise BadOption(
            f"{_shown(path)}: the path has {size:,} bytes, and the system takes at most {MOST_IN_A_PATH:,}. "
            "Choose a shorter one."
        )


def _shown(text: object) -> str:
    full = str(text)
    return full if len(full) <= 120 else f"{full[:60]}…{full[-40:]}"
