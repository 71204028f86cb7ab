"""The reading half of a manager: which steps there are, what is in them, and their values."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from storax import inspection
from storax.checkpoint import open_checkpoint
from storax.errors import CheckpointNotFound, Corrupt
from storax.inspection import CheckpointMetadata
from storax.items import Composite
from storax.manager.content import restore_items, whole
from storax.manager.steps import StepDirectory
from storax.plan.retention import BestN
from storax.store import commit
from storax.store.unchanged import unchanged
from storax.tracing import recording
from storax.verification import verify

_log = logging.getLogger("storax")
# Whoever meets a damaged step is told which other one is whole: at most so many are read to find out,
# and none when the damaged one is larger than this, as hours of reading would come before the error.
_MOST_ADVISED_STEPS = 2
_MOST_ADVISED_BYTES = 64 << 30


class Reader:
    """Reads the steps of a run. ``CheckpointManager`` also saves."""

    _disk: StepDirectory
    _ranking: BestN | None

    def wait_until_finished(self) -> None:
        """Waits for a save that runs in this process, so that what it saves is there."""

    @property
    def directory(self) -> Path:
        """The run's directory, absolute."""
        return self._disk.path

    def all_steps(self, read: bool = False) -> list[int]:
        """The committed steps, oldest first.

        Args:
          read: ignored; the directory is always read.
        """
        return list(self._disk.paths())

    def latest_step(self) -> int | None:
        """The newest committed step, or None."""
        return max(self._disk.paths(), default=None)

    def best_step(self) -> int | None:
        """The step with the best metrics, or None if no step has any. Needs ``best_fn``."""
        ranked = self._ranking.ranked(self._disk.steps()) if self._ranking else []
        return ranked[-1] if ranked else None

    def metrics(self, step: Any) -> dict[str, Any] | None:
        """The metrics that were saved with a step, or None."""
        return inspection.read_metrics(self._disk.existing(whole(step)))

    def metadata(self, step: Any = None) -> CheckpointMetadata | dict[str, Any]:
        """What is in a step, without reading its values; without a step, the run's own metadata."""
        if step is None:
            return self._disk.root()
        return inspection.metadata(self._disk.existing(whole(step)))

    def item_metadata(self, step: Any) -> Any:
        """The trees of a step's items, as ``LeafMetadata``; a single unnamed item gives its tree."""
        path = self._disk.existing(whole(step))
        found = inspection.metadata(path).item_metadata
        return found if open_checkpoint(path).only_tree is not None else Composite(**found)

    def item_names(self, step: Any) -> dict[str, bool]:
        """The names of a step's items; whether storax knows the form of each."""
        checkpoint = open_checkpoint(self._disk.existing(whole(step)))
        return {**dict.fromkeys(checkpoint.items, True), **dict.fromkeys(checkpoint.custom, False)}

    def reload(self) -> None:
        """Does nothing: steps are read from the directory whenever they are asked for."""

    @contextlib.contextmanager
    def reading(self, step: Any) -> Iterator[Path]:
        """A step's directory; while the block runs, no manager on this file system deletes it."""
        path = self._disk.existing(whole(step))
        with commit.lease(path):
            self._disk.existing(whole(step))  # not deleted before the lease began
            yield path

    def newest_whole_step(self, at_most: int | None = None) -> int:
        """The newest step of which every byte is as it was written; the log says which are not, and why.

        Reads everything of the steps that it looks at.

        Args:
          at_most: later steps are not looked at.

        Raises:
          CheckpointNotFound: there is no step.
          Corrupt: no step is whole.
        """
        passed: list[str] = []
        for step in reversed([s for s in self.all_steps() if at_most is None or s <= at_most]):
            found = verify(self._disk.existing(step))
            if found.ok:
                for why in passed:
                    _log.warning("%s: passed over %s", self._disk.path, why)
                return step
            passed.append(f"step {step}, which is damaged: {found.faults[0].what}")
        if not passed:
            raise CheckpointNotFound(f"{self._disk.path} has no committed step yet; latest_step() is None.")
        raise Corrupt(f"{self._disk.path} has no step that is whole: {'; '.join(passed)}")

    def restore(self, step: Any = None, *, args: Any = None, fallback: bool = False) -> Any:
        """Restores a step.

        Args:
          step: which; None is the newest.
          args: ``storax.args.StandardRestore(target)``, or a ``Composite`` of the items wanted; only
            those are read. None restores everything as it was saved.
          fallback: restore the newest step that is whole, up to ``step``; all is read to find out.

        Returns:
          The tree; for named items a ``Composite``, that answers ``r["params"]`` and ``r.params``.

        Raises:
          CheckpointNotFound: there is no such step, or no step at all.
          ItemNotFound: the step has no such item.
          TreeMismatch, Corrupt: as for ``storax.load``.
        """
        self.wait_until_finished()
        if fallback:
            step = self.newest_whole_step(None if step is None else whole(step))
        number = self.latest_step() if step is None else whole(step)
        if number is None:
            raise CheckpointNotFound(f"{self._disk.path} has no committed step yet; latest_step() is None.")
        path = self._disk.existing(number)
        with recording(None, "load", checkpoint=str(path)):
            try:
                return unchanged(path, lambda: restore_items(path, args))
            except Corrupt as error:
                self._advise(error, number)
                raise

    def _advise(self, error: Corrupt, damaged: int) -> None:
        """Tells whoever meets a damaged step which other one is whole, if that is soon found out."""
        error.args = (f"step {damaged}: {error} {self._way_out(damaged)}",)

    def _way_out(self, damaged: int) -> str:
        others = [step for step in reversed(self.all_steps()) if step != damaged]
        if not others:
            return "There is no other step; load(..., salvage=True) saves leaves."
        if _nbytes(self._disk.existing(damaged)) > _MOST_ADVISED_BYTES:
            return "restore(fallback=True) restores the newest step that is whole; it reads all of each."
        for step in others[:_MOST_ADVISED_STEPS]:
            if verify(self._disk.existing(step)).ok:
                return f"Step {step} is whole: restore({step}), or restore(fallback=True)."
        if others[_MOST_ADVISED_STEPS:]:
            return "The newest others are damaged too; restore(fallback=True) looks at all steps."
        return "No other step is whole; load(..., salvage=True) saves leaves."


def _nbytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
