"""What stays of a run's steps: asks the policy, and lets go what it does not keep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from storax.errors import CheckpointInUse, CheckpointNotFound
from storax.manager.deletion import Deletion
from storax.manager.options import ManagerOptions
from storax.manager.steps import StepDirectory
from storax.plan.retention import AnyKeep, BestN, KeepPolicy, Verdict, Verdicts, explain
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
        self._said: set[object] = set()

    def explain(self) -> Verdicts:
        """What would become of every step now, and why."""
        return self._verdicts(self._steps.leased())

    def _verdicts(self, leased: Collection[int] = ()) -> Verdicts:
        links = self._steps.links()
        verdicts = explain(
            self._policy,
            self._steps.steps(),
            now=self._clock(),
            pinned=self._steps.pins(),
            leased=leased,
            keep_newest=self._options.keep_newest,
        )
        return Verdicts(_spared(verdict) if verdict.step in links else verdict for verdict in verdicts)

    def apply(self) -> list[int]:
        """Lets go the steps that the policy does not keep, but for those that a reader holds open.

        A step that is a link stays: somebody moved it elsewhere.
        """
        self._deferred = False
        self._tell_failures()
        verdicts = self._verdicts()
        for verdict in verdicts:
            if verdict.reason.startswith(_LINK):
                what = (verdict.step, _LINK)
                self._say_once(what, logging.INFO, "step %d stays: %s", verdict.step, verdict.reason)
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

    def _tell_failures(self) -> None:
        """Warns, once, if ``best_fn`` raises: what it raises costs no step, and must not stay unseen."""
        for ranking in _rankings(self._policy):
            failures = ranking.failures(self._steps.steps())
            for step, error in failures.items():
                self._say_once(
                    (id(ranking), type(error)),
                    logging.WARNING,
                    "best_fn raised %s of step %d (%s), which counts as a step without metrics",
                    type(error).__name__,
                    step,
                    error,
                )

    def _say_once(self, what: object, level: int, text: str, *values: object) -> None:
        if what not in self._said:
            self._said.add(what)
            _log.log(level, f"%s: {text} (said once)", self._steps.path, *values)

    def remove(self, step: int) -> None:
        """Lets a step go: it vanishes in one moment, its files are deleted in the background.

        Of a step that is a link, the link goes and nothing else.
        """
        path = self._steps.existing(step)
        if path.is_symlink():
            commit.delete(path)
        elif self._options.trash is not None:
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


_LINK = "it is a link, so its files are not the manager's to delete"


def _spared(verdict: Verdict) -> Verdict:
    return verdict if verdict.keep else Verdict(verdict.step, True, f"{_LINK} ({verdict.reason})")


def _rankings(policy: KeepPolicy) -> Iterator[BestN]:
    if isinstance(policy, BestN):
        yield policy
    elif isinstance(policy, AnyKeep):
        for part in policy.policies:
            yield from _rankings(part)
