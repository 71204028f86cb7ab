"""What stays of a run's steps: asks the policy, and lets go what it does not keep."""

from __future__ import annotations

import logging
from collections.abc import Callable

from storax.errors import CheckpointInUse, CheckpointNotFound
from storax.manager.deletion import Deletion
from storax.manager.options import ManagerOptions
from storax.manager.steps import StepDirectory
from storax.plan.retention import Verdicts, explain
from storax.store import commit

_log = logging.getLogger("storax")


class Keeper:
    """Applies a keep policy to the steps of a directory."""

    def __init__(self, steps: StepDirectory, options: ManagerOptions, clock: Callable[[], float]) -> None:
        self._steps = steps
        self._options = options
        self._policy = options.keeping()
        self._clock = clock
        self._deletion = Deletion(options.deletions_per_second)
        self._deferred = False

    def explain(self) -> Verdicts:
        """What would become of every step now, and why."""
        return explain(
            self._policy,
            self._steps.steps(),
            now=self._clock(),
            pinned=self._steps.pins(),
            leased=self._steps.leased(),
            keep_newest=self._options.keep_newest,
        )

    def apply(self) -> list[int]:
        """Lets go the steps that the policy does not keep, but for those that a reader holds open."""
        self._deferred = False
        verdicts = explain(
            self._policy,
            self._steps.steps(),
            now=self._clock(),
            pinned=self._steps.pins(),
            keep_newest=self._options.keep_newest,
        )
        gone = []
        for step in verdicts.dropped:
            try:
                self.remove(step)
                gone.append(step)
            except CheckpointNotFound:
                _log.info("%s: step %d was deleted by somebody else", self._steps.path, step)
            except CheckpointInUse:
                self._deferred = True
                _log.info("%s: step %d is open in a reader, it stays for now", self._steps.path, step)
        return gone

    def remove(self, step: int) -> None:
        """Lets a step go: it vanishes in one moment, its files are deleted in the background."""
        path = self._steps.existing(step)
        if self._options.trash is not None:
            commit.move(path, self._options.trash / path.name)
        else:
            self._deletion.add(commit.retire(path))

    def finish(self) -> None:
        """Lets go what was open in a reader before, and waits until all files are gone."""
        try:
            if self._deferred:
                self.apply()
        finally:
            self._deletion.finish()
