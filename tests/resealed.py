"""For tests that change documents on purpose: the list of checksums made to fit again, as a forger would."""

from __future__ import annotations

from pathlib import Path

from storax.store.sealed import LIST_NAME, SealedDirectory, seal


def reseal(directory: Path) -> None:
    """Makes the checksums of a directory fit its documents as they are now."""
    names = SealedDirectory(directory).names
    texts = {name: (directory / name).read_bytes() for name in names if (directory / name).exists()}
    (directory / LIST_NAME).write_bytes(seal(texts))
