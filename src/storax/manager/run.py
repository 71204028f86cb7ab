"""``CheckpointManager``: the steps of a run."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from jax.experimental import multihost_utils

from storax.background import SaveHandle, Turn, start, turn
from storax.errors import BadOption, CheckpointNotFound
from storax.manager import preemption
from storax.manager.content import stage_items, whole
from storax.manager.keeping import Keeper
from storax.manager.offering import LastOffer
from storax.manager.options import ManagerOptions, check_names
from storax.manager.reading import Reader
from storax.manager.steps import StepDirectory
from storax.manager.together import by_process_0
from storax.plan.cadence import Moment, decide_save, is_certain, watches_preemption
from storax.plan.retention import Verdicts
from storax.plan.steps import Decision
from storax.processes import present, sigterm_came
from storax.publishing import telling, write_checkpoint
from storax.saving import check_json
from storax.store import commit, posix
from storax.store.paths import resolve
from storax.tracing import recording, span
from storax.tree import documents

_log = logging.getLogger("storax")


class CheckpointManager(Reader):
    """Saves and restores the steps of a run in one directory.

    A step is visible, here and to every other process, once it is committed, and never before.

    Args:
      directory: the run's directory.
      options: how to save and what to keep.
      metadata: a JSON object about the whole run, written once.
      clock: seconds since 1970, for policies that ask for the time.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> run = tempfile.mkdtemp()
      >>> with storax.CheckpointManager(run, options=storax.CheckpointManagerOptions(max_to_keep=2)) as mngr:
      ...     for step in range(4):
      ...         _ = mngr.save(step, args=storax.args.StandardSave({"w": np.full(2, step)}))
      >>> mngr.all_steps()
      [2, 3]
      >>> mngr.restore(mngr.latest_step())
      {'w': array([3, 3])}
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        options: ManagerOptions | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = resolve(directory)
        self._settings = options or ManagerOptions()
        _refuse_other_places(self._directory)
        self._save_policy = self._settings.saving()
        self._ranking = self._settings.ranking()
        check_names(self._settings.names())
        self._disk = StepDirectory(self._directory, self._settings.names())
        self._keeper = Keeper(self._disk, self._settings, clock)
        self._clock = clock
        self._handle: SaveHandle | None = None
        self._begun: int | None = None
        self._said: set[str] = set()
        self._last = LastOffer(self._begin, self._settings.grace_seconds)
        if watches_preemption(self._save_policy):
            self.watch_preemption()
        if self._settings.read_only:
            return
        if self._settings.create:
            posix.make_directories(self._directory)
        if self._directory.is_dir() and present().index == 0:
            self._clean()
            if metadata is not None:
                self._disk.write_root(check_json(metadata, "metadata"))

    # --- saving ----------------------------------------------------------------------------------

    def explain_save(self, step: Any) -> Decision:
        """Whether ``save`` would save this step now, and why.

        Of many processes, if it depends on more than the steps (time, SIGTERM, a function), process 0
        decides: then all must ask at the same steps.
        """
        if self._settings.read_only:
            return Decision(False, "the manager is read-only")
        if is_certain(self._save_policy):
            return self._decide_save(step)
        decision = by_process_0(
            f"decide whether to save step {whole(step)} in {self._directory}",
            lambda: dataclasses.astuple(self._decide_save(step)),
            timeout=self._settings.barrier_timeout,
            room="decisions",
        )
        return Decision(*decision)

    def _decide_save(self, step: Any) -> Decision:
        saving = self.is_saving_in_progress()  # asked first: if it ends now, the step is on disk
        latest = max(self._disk.paths(), default=None)
        if saving and self._begun is not None:
            latest = self._begun if latest is None else max(latest, self._begun)
        moment = Moment(
            whole(step),
            latest,
            self._clock(),
            saving,
            preemption.process.reached() or sigterm_came(),
            self._disk.steps,
        )
        return decide_save(self._save_policy, moment)

    def should_save(self, step: Any) -> bool:
        """Whether ``save`` would save this step now."""
        return self.explain_save(step).yes

    def save(
        self,
        step: Any,
        *,
        args: Any,
        metrics: Mapping[str, Any] | None = None,
        force: bool = False,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Saves a step, in the background unless the options say otherwise.

        When it returns, the caller may donate, delete or overwrite its arrays.

        Args:
          step: a whole number: int, numpy integer or 0-d ``jax.Array``.
          args: ``storax.args.StandardSave(tree)``, or a ``Composite`` of named items.
          metrics: numbers by name, for ``best_fn``.
          force: save even if the policy says no.
          custom_metadata: a JSON object kept with the step.

        Returns:
          Whether it saved. If not, the log says why, once for each reason.

        Raises:
          CheckpointExists: with ``force``, if the step is there already.
          CheckpointNotFound: the directory is missing, and the options say not to make it.
          UnsupportedLeaf, NameCollision, BadOption: before anything is written.
          Exception: what made the previous save fail.
        """
        number = whole(step)
        if number < 0:
            raise BadOption(f"the step is {number}; steps are 0 or more")
        self._refuse_missing()
        self._last.run_is_here()
        with self._last.lock:
            self.check_for_errors()
            decision = self.explain_save(number)
            if self._settings.read_only or not (force or decision):
                self._decline(number, decision.reason)
                if not self._settings.read_only:
                    self._last.remember(number, args, metrics, custom_metadata)
                return False
            self._last.forget()
            self._begin(number, args, metrics, custom_metadata)
        if not self._settings.enable_async_checkpointing:
            self.wait_until_finished()
        return True

    def _begin(self, number: int, args: Any, metrics: Any, custom_metadata: Any) -> None:
        with turn() as mine:
            self._begin_in_turn(number, args, metrics, custom_metadata, mine)

    def _begin_in_turn(self, number: int, args: Any, metrics: Any, custom_metadata: Any, mine: Turn) -> None:
        self.wait_until_finished()
        final = self._disk.new_path(number)
        processes = present(self._settings.barrier_timeout, self._settings.grace_seconds)
        with telling(final, processes):
            there = self._disk.paths().get(number)  # perhaps with other padding than we would give it
            if there is not None:
                raise commit.exists(there, f"Delete it first: mngr.delete({number}).")
            with recording(None, "stage", checkpoint=str(final)):
                items = stage_items(args, metrics)
            custom = check_json(custom_metadata, "custom_metadata")

        def retain() -> None:
            if self._settings.directory_mode is not None:
                posix.set_mode(final, self._settings.directory_mode)
            with span("retain"):
                self._keeper.apply()

        def act() -> None:
            with recording(None, "save", checkpoint=str(final)):
                write_checkpoint(final, items, processes=processes, custom=custom, then=retain)

        self._begun = number
        self._handle = start(act, what=f"saving step {number} in {self._directory}", turn=mine)

    def _decline(self, step: int, reason: str) -> None:
        kind = "".join(letter for letter in reason if not letter.isdigit())
        if kind not in self._said:
            self._said.add(kind)
            level = logging.WARNING if self._settings.read_only else logging.INFO
            _log.log(level, "%s: step %d is not saved: %s (said once)", self._directory, step, reason)

    def wait_until_finished(self) -> None:
        """Waits for the running save. Raises what went wrong, with its type and the step in the message."""
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                handle.result(self._settings.timeout_seconds)
            except (KeyboardInterrupt, TimeoutError):
                if not handle.done():
                    self._handle = handle  # the wait ended, not the save
                raise
            except BaseException:
                self._begun = None
                raise

    def check_for_errors(self) -> None:
        """Raises what went wrong in a save that has ended; does not wait."""
        if self._handle is not None and self._handle.done():
            self.wait_until_finished()

    def is_saving_in_progress(self) -> bool:
        """Whether a save runs."""
        handle = self._handle
        return handle is not None and not handle.done()

    def close(self) -> None:
        """Waits for the running save and for the files of deleted steps to go. Raises what went wrong."""
        try:
            if preemption.process.reached() and present().count == 1:
                self._last.save()
            self.wait_until_finished()
        finally:
            self._last.forget()
            self._keeper.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except Exception as failed:
            if error is None:
                raise
            # The block's own exception goes on; this one must not be lost behind it.
            error.add_note(f"storax: besides, {type(failed).__name__}: {failed}")

    # --- what stays ------------------------------------------------------------------------------

    def explain_retention(self) -> Verdicts:
        """Every step, whether it stays and why; ``print`` shows it as a table. Deletes nothing."""
        return self._keeper.explain()

    def apply_retention(self) -> list[int]:
        """Deletes what the options no longer keep, now; their files go in the background.

        Steps that a reader holds open stay until the next time: the next save, or ``close``.

        Returns:
          The steps that were deleted.
        """
        self._refuse_read_only("delete")
        gone: list[int] = self._by_process_0("apply retention", self._keeper.apply)
        return gone

    def delete(self, step: Any) -> None:
        """Deletes a step: it vanishes in one moment, then its files go.

        Raises:
          CheckpointNotFound: there is no such step.
          CheckpointInUse: a reader holds it open.
        """
        self._refuse_read_only("delete")
        self.wait_until_finished()
        self._by_process_0(f"delete step {whole(step)}", lambda: self._keeper.remove(whole(step)))
        if self._settings.deletions_per_second is None:
            self._keeper.finish()

    def pin(self, step: Any, reason: str = "") -> None:
        """Keeps a step, whatever the policy of any manager says, until ``unpin``."""
        self._refuse_read_only("pin")
        self.wait_until_finished()
        self._by_process_0(f"pin step {whole(step)}", lambda: self._disk.pin(whole(step), reason))

    def unpin(self, step: Any) -> None:
        """Lets the policy decide about a step again."""
        self._refuse_read_only("unpin")
        self._by_process_0(f"unpin step {whole(step)}", lambda: self._disk.unpin(whole(step)))

    def _by_process_0(self, about: str, act: Callable[[], Any]) -> Any:
        about = f"{about} in {self._directory}"
        return by_process_0(about, act, timeout=self._settings.barrier_timeout)

    # --- SIGTERM ---------------------------------------------------------------------------------

    def watch_preemption(self) -> None:
        """Begins to watch for SIGTERM, from any thread; ``reached_preemption`` and a policy do so as well.

        From then on the signal no longer ends the process: the run must ask ``reached_preemption``
        and leave its loop. If the run does not come to ``save`` soon after the signal, as it
        compiles or evaluates, the step that it offered last is saved meanwhile.
        """
        self._last.watch()

    def reached_preemption(self, step: Any = None) -> bool:
        """Whether SIGTERM came: leave the loop. The first call begins to watch.

        The step that was offered last is saved, if the signal came after the policy had declined it.

        Of many processes all must ask at every step. They learn of a SIGTERM to any of them, agree on
        a step that none has reached yet, and it is True on all of them at that step, and no other.
        """
        if not self._last.is_watching():
            self._last.watch()
        if not (preemption.process.reached() if present().count == 1 else _all_reached(step)):
            return False
        self._last.run_is_here()
        self._last.save()
        return True

    # --- inside ----------------------------------------------------------------------------------

    def _clean(self) -> None:
        for path in commit.clean(self._directory):
            _log.info("%s: deleted what a dead process left: %s", self._directory, path.name)
        if self._settings.cleanup_tmp_directories:
            commit.clean_foreign(self._directory)

    def _refuse_missing(self) -> None:
        if not (self._settings.create or self._settings.read_only or self._directory.is_dir()):
            raise CheckpointNotFound(
                f"{self._directory} is not there, and the manager was told not to make it (create=False). "
                "Make it, or leave create=False away."
            )

    def _refuse_read_only(self, verb: str) -> None:
        if self._settings.read_only:
            raise BadOption(f"{self._directory}: the manager is read-only, it cannot {verb}")


def _all_reached(step: Any) -> bool:
    """Whether all processes of the job are at the step at which they leave."""
    if step is None:
        raise BadOption("of many processes each must say where it is: reached_preemption(step)")
    return bool(multihost_utils.reached_preemption_sync_point(whole(step)))


def _refuse_other_places(directory: Path) -> None:
    """A run that is really something else would seem to have no steps, and training begin anew."""
    if directory.exists() and not directory.is_dir():
        raise BadOption(f"{directory} is a file; a run needs a directory")
    if (directory / documents.STEP_DOCUMENT).is_file():
        raise BadOption(
            f"{directory} is one checkpoint, not a run with steps. Its run is CheckpointManager"
            f"({str(directory.parent)!r}); load it alone with load({str(directory)!r})."
        )
