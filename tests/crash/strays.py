"""What lies in a run's directory and is not storax's to touch: it must be there, unchanged, at the end."""

from __future__ import annotations

from pathlib import Path

from storax.store import commit

# A user's files, and drafts as Orbax writes them, today and formerly: nobody knows whether they live.
_FILES = {
    "notes.txt": b"do not delete",
    "plots/loss.svg": b"<svg/>",
    "5.orbax-checkpoint-tmp/default/_METADATA": b"{",
    "6.orbax-checkpoint-tmp-1700000000/default/d/0123": b"\x00",
    "a.orbax-checkpoint-tmp-storax-notes/x": b"looks nearly like ours",
}


class Strays:
    """Puts all of them into a directory, and a draft that this process, which lives, is writing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name, content in _FILES.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._live = commit.begin(directory / "77")
        (self._live.path / "half").write_bytes(b"being written")

    @property
    def names(self) -> set[str]:
        """Their names in the directory."""
        return {name.split("/")[0] for name in _FILES} | {self._live.path.name}

    def damage(self) -> list[str]:
        """Those that are gone or changed."""
        found = [name for name, content in _FILES.items() if _content(self._directory / name) != content]
        if _content(self._live.path / "half") != b"being written":
            found.append(self._live.path.name)
        return found

    def __enter__(self) -> Strays:
        return self

    def __exit__(self, *_: object) -> None:
        commit.discard(self._live)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
