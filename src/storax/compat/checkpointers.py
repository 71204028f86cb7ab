"""``StandardCheckpointer``: one tree at one path, saved in the background."""

from __future__ import annotations

import os
from typing import Any

from storax.inspection import CheckpointMetadata, metadata
from storax.loading import load
from storax.saving import SaveHandle, save_async


class StandardCheckpointer:
    """Saves and restores one tree at a path, as Orbax's class of that name does.

    ``save`` returns before the checkpoint is committed; ``restore``, ``metadata``,
    ``wait_until_finished``, ``close`` and the end of a ``with`` block wait for it.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> with storax.StandardCheckpointer() as c:
      ...     c.save(where, {"w": np.arange(3)})
      ...     c.restore(where)
      {'w': array([0, 1, 2])}
    """

    def __init__(self) -> None:
        self._handle: SaveHandle | None = None

    def save(self, directory: str | os.PathLike[str], state: Any, *, force: bool = False) -> None:
        """Starts saving a tree. ``force`` replaces a checkpoint that is there. Raises as ``save_async``."""
        self.wait_until_finished()
        self._handle = save_async(directory, state, overwrite=force)

    def restore(self, directory: str | os.PathLike[str], target: Any = None) -> Any:
        """Loads a tree, as ``storax.load``."""
        self.wait_until_finished()
        return load(directory, target)

    def metadata(self, directory: str | os.PathLike[str]) -> CheckpointMetadata:
        """What is in a checkpoint, as ``storax.metadata``."""
        self.wait_until_finished()
        return metadata(directory)

    def wait_until_finished(self) -> None:
        """Waits for the running save. Raises what went wrong."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.result()

    def close(self) -> None:
        """Waits for the running save. Raises what went wrong."""
        self.wait_until_finished()

    def __enter__(self) -> StandardCheckpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
