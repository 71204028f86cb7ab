"""Steps in a directory: when to save, what to keep, which is the newest, and one save at a time."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from storax import inspection
from storax.checkpoint import open_checkpoint
from storax.errors import BadOption, CheckpointNotFound
from storax.inspection import CheckpointMetadata
from storax.items import DEFAULT_ITEM, Composite, LoadItem, SaveItem, StagedJson, load_any
from storax.loading import unchanged
from storax.plan.retention import KeepRule, SaveRule
from storax.saving import SaveHandle, check_json, start, wait_for_running, write_checkpoint
from storax.store import commit, posix
from storax.store.paths import resolve
from storax.tracing import recording, span
from storax.tree import documents

_log = logging.getLogger("storax")
_ROOT_DOCUMENT = Path("metadata") / "_ROOT_METADATA"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointManagerOptions:
    """How a ``CheckpointManager`` saves and keeps steps.

    Args:
      save_interval_steps: save at multiples of this.
      max_to_keep: how many steps stay; None keeps all. The newest always stays.
      keep_period: steps that are multiples of this stay as well.
      best_fn: from a step's metrics to a number; then the best steps stay instead of the newest.
      best_mode: whether the best is the ``"max"`` or the ``"min"``.
      keep_checkpoints_without_metrics: with ``best_fn``, whether steps without metrics stay.
      save_on_steps: save at these steps as well.
      should_save_fn: ``(step, latest_step) -> bool``, instead of the interval.
      step_prefix: steps are called ``<prefix>_<step>``.
      step_format_fixed_length: steps are padded with zeros to this many digits.
      create: make the directory if it is missing.
      read_only: never write: ``save`` does nothing and returns False.
      enable_async_checkpointing: whether ``save`` returns before the step is committed.
      cleanup_tmp_directories: delete also the drafts of other programs when the manager is made.
        Drafts of dead storax processes are always deleted.
    """

    save_interval_steps: int = 1
    max_to_keep: int | None = None
    keep_period: int | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: Literal["max", "min"] = "max"
    keep_checkpoints_without_metrics: bool = True
    save_on_steps: Sequence[int] = ()
    should_save_fn: Callable[[int, int | None], bool] | None = None
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    create: bool = True
    read_only: bool = False
    enable_async_checkpointing: bool = True
    cleanup_tmp_directories: bool = False

    @property
    def save_rule(self) -> SaveRule:
        return SaveRule(self.save_interval_steps, frozenset(self.save_on_steps or ()), self.should_save_fn)

    @property
    def keep_rule(self) -> KeepRule:
        return KeepRule(
            self.max_to_keep,
            self.keep_period,
            self.best_fn,
            self.best_mode,
            self.keep_checkpoints_without_metrics,
        )

    def step_name(self, step: int) -> str:
        digits = str(step).zfill(self.step_format_fixed_length or 0)
        return f"{self.step_prefix}_{digits}" if self.step_prefix else digits

    def step_of(self, name: str) -> int | None:
        """The step that a directory's name stands for, or None."""
        prefix = re.escape(f"{self.step_prefix}_") if self.step_prefix else ""
        found = re.fullmatch(prefix + r"([0-9]+)", name)
        return int(found[1]) if found else None


class CheckpointManager:
    """Saves and restores the steps of a run in one directory.

    A step is visible, here and to every other process, once it is committed, and never before.

    Args:
      directory: the run's directory.
      options: how to save and what to keep.
      metadata: a JSON object about the whole run, written once.

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
        options: CheckpointManagerOptions | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._directory = resolve(directory)
        self._options = options or CheckpointManagerOptions()
        self._save_rule = self._options.save_rule
        self._keep_rule = self._options.keep_rule
        self._handle: SaveHandle | None = None
        self._begun: int | None = None
        if self._options.read_only:
            return
        if self._options.create:
            posix.make_directories(self._directory)
        if self._directory.is_dir():
            self._clean()
            if metadata is not None:
                self._write_root(check_json(metadata, "metadata"))

    @property
    def directory(self) -> Path:
        """The run's directory, absolute."""
        return self._directory

    # --- what there is ---------------------------------------------------------------------------

    def all_steps(self, read: bool = False) -> list[int]:
        """The committed steps, oldest first.

        Args:
          read: ignored; the directory is always read.
        """
        return sorted(self._steps())

    def latest_step(self) -> int | None:
        """The newest committed step, or None."""
        return max(self._steps(), default=None)

    def best_step(self) -> int | None:
        """The step with the best metrics, or None if no step has any. Needs ``best_fn``."""
        ranked = self._keep_rule.ranked(self._all_metrics(self._steps()))
        return ranked[-1] if ranked else None

    def metrics(self, step: Any) -> dict[str, Any] | None:
        """The metrics that were saved with a step, or None."""
        return inspection.read_metrics(self._existing(_whole(step)))

    def metadata(self, step: Any = None) -> CheckpointMetadata | dict[str, Any]:
        """What is in a step, without reading its values; without a step, the run's own metadata."""
        if step is None:
            path = self._directory / _ROOT_DOCUMENT
            if not path.is_file():
                return {}
            found = documents.parse_object(path.read_bytes(), str(path)).get("custom_metadata")
            return found if isinstance(found, dict) else {}
        return inspection.metadata(self._existing(_whole(step)))

    def item_metadata(self, step: Any) -> Any:
        """The trees of a step's items, as ``LeafMetadata``; a single unnamed item gives its tree."""
        found = inspection.metadata(self._existing(_whole(step))).item_metadata
        return Composite(**found) if self._only_tree(_whole(step)) is None else found

    def reload(self) -> None:
        """Does nothing: steps are read from the directory whenever they are asked for."""

    # --- saving ----------------------------------------------------------------------------------

    def should_save(self, step: Any) -> bool:
        """Whether ``save`` would save this step now."""
        return not self._options.read_only and self._save_rule.wants(_whole(step), self._newest_known())

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
          force: save even if the interval says no.
          custom_metadata: a JSON object kept with the step.

        Returns:
          Whether it saved.

        Raises:
          CheckpointExists: with ``force``, if the step is there already.
          UnsupportedLeaf, NameCollision, BadOption: before anything is written.
          Exception: what made the previous save fail.
        """
        number = _whole(step)
        if number < 0:
            raise BadOption(f"the step is {number}; steps are 0 or more")
        self.check_for_errors()
        if self._options.read_only:
            _log.warning("%s: the manager is read-only, step %d is not saved", self._directory, number)
            return False
        if not force and not self.should_save(number):
            return False
        self.wait_until_finished()
        final = self._path(number)
        if commit.is_committed(final):
            raise commit.exists(final, f"Delete it first: mngr.delete({number}).")
        with recording(None, "stage", step=number):
            items = self._staged(args, metrics)
        custom = check_json(custom_metadata, "custom_metadata")
        wait_for_running()

        def act() -> None:
            with recording(None, "save", checkpoint=str(final)):
                write_checkpoint(final, items, custom=custom)
                with span("retain"):
                    self._retain()

        self._begun = number
        self._handle = start(act, what=f"saving step {number} in {self._directory}")
        if not self._options.enable_async_checkpointing:
            self.wait_until_finished()
        return True

    def wait_until_finished(self) -> None:
        """Waits for the running save. Raises what went wrong, with its type and the step in the message."""
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                handle.result()
            except KeyboardInterrupt:
                self._handle = handle  # the wait was interrupted, not the save
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
        return self._handle is not None and not self._handle.done()

    def delete(self, step: Any) -> None:
        """Deletes a step: it vanishes in one moment, then its files go. Raises ``CheckpointNotFound``."""
        self._refuse_read_only("delete")
        self.wait_until_finished()
        commit.delete(self._existing(_whole(step)))

    def close(self) -> None:
        """Waits for the running save. Raises what went wrong."""
        self.wait_until_finished()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except Exception as failed:
            if error is None:
                raise
            # The block's own exception goes on; this one must not be lost behind it.
            error.add_note(f"storax: besides, {type(failed).__name__}: {failed}")

    # --- restoring -------------------------------------------------------------------------------

    def restore(self, step: Any = None, *, args: Any = None) -> Any:
        """Restores a step.

        Args:
          step: which; None is the newest.
          args: ``storax.args.StandardRestore(target)``, or a ``Composite`` of the items wanted; only
            those are read. None restores everything as it was saved.

        Returns:
          The tree; for named items a ``Composite``, that answers ``r["params"]`` and ``r.params``.

        Raises:
          CheckpointNotFound: there is no such step, or no step at all.
          ItemNotFound: the step has no such item.
          TreeMismatch, Corrupt: as for ``storax.load``.
        """
        self.wait_until_finished()
        number = self.latest_step() if step is None else _whole(step)
        if number is None:
            raise CheckpointNotFound(f"{self._directory} has no committed step yet; latest_step() is None.")
        path = self._existing(number)
        with recording(None, "load", checkpoint=str(path)):
            return unchanged(path, lambda: self._restore(path, args))

    def _restore(self, path: Path, args: Any) -> Any:
        checkpoint = open_checkpoint(path)
        if args is None:
            if (tree := checkpoint.only_tree) is not None:
                return load_any(tree)
            return Composite(**{name: load_any(directory) for name, directory in checkpoint.items.items()})
        if isinstance(args, Composite):
            wishes = {name: (checkpoint.item(name), _wish(wish, name)) for name, wish in args.items()}
            return Composite(**{name: wish.load(directory) for name, (directory, wish) in wishes.items()})
        tree = checkpoint.directory if checkpoint.bare else checkpoint.item(DEFAULT_ITEM)
        return _wish(args, DEFAULT_ITEM).load(tree)

    # --- inside ----------------------------------------------------------------------------------

    def _steps(self) -> set[int]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return set()
        numbered = ((self._options.step_of(name), name) for name in names)
        return {n for n, name in numbered if n is not None and commit.is_committed(self._directory / name)}

    def _newest_known(self) -> int | None:
        """The newest step, that which is being saved included."""
        return max(self._steps() | ({self._begun} if self._begun is not None else set()), default=None)

    def _path(self, step: int) -> Path:
        return self._directory / self._options.step_name(step)

    def _existing(self, step: int) -> Path:
        for name in os.listdir(self._directory) if self._directory.is_dir() else ():
            if self._options.step_of(name) == step and commit.is_committed(self._directory / name):
                return self._directory / name
        there = ", ".join(map(str, self.all_steps())) or "none"
        raise CheckpointNotFound(f"{self._directory} has no committed step {step}. There are: {there}.")

    def _only_tree(self, step: int) -> Path | None:
        return open_checkpoint(self._existing(step)).only_tree

    def _staged(self, args: Any, metrics: Mapping[str, Any] | None) -> dict[str | None, Any]:
        items = dict(args.items()) if isinstance(args, Composite) else {DEFAULT_ITEM: args}
        wrong = [
            f"{name} is a {type(item).__name__}"
            for name, item in items.items()
            if not isinstance(item, SaveItem)
        ]
        if wrong or not items:
            raise BadOption(
                f"nothing that can be saved: {'; '.join(wrong) or 'no items'}. Pass args=StandardSave(tree), or "
                "args=Composite(name=StandardSave(tree), config=JsonSave({...}))."
            )
        bad = [name for name in items if not _is_item_name(name)]
        if bad:
            raise BadOption(f"items cannot be called {', '.join(map(repr, bad))}")
        staged: dict[str | None, Any] = {name: item.stage() for name, item in items.items()}
        if metrics is not None:
            text = documents.encode_json({name: _number(value, name) for name, value in metrics.items()})
            staged[documents.METRICS_ITEM] = StagedJson(text, documents.METRICS_DOCUMENT)
        return staged

    def _all_metrics(self, steps: set[int]) -> dict[int, Any]:
        if self._keep_rule.best is None:
            return {}
        return {step: inspection.read_metrics(self._path(step)) for step in steps}

    def _retain(self) -> None:
        """Deletes the steps that the options no longer keep."""
        steps = self._steps()
        for step in self._keep_rule.drops(steps, self._all_metrics(steps)):
            try:
                commit.delete(self._existing(step))
            except CheckpointNotFound:
                _log.info("%s: step %d was deleted by somebody else", self._directory, step)

    def _clean(self) -> None:
        for path in commit.clean(self._directory):
            _log.info("%s: deleted what a dead process left: %s", self._directory, path.name)
        if self._options.cleanup_tmp_directories:
            commit.clean_foreign(self._directory)

    def _write_root(self, custom: dict[str, Any]) -> None:
        path = self._directory / _ROOT_DOCUMENT
        if path.exists():
            return
        posix.make_directories(path.parent)
        posix.write_file(path, documents.encode_json({"internal_metadata": {}, "custom_metadata": custom}))
        posix.sync_directory(path.parent)

    def _refuse_read_only(self, verb: str) -> None:
        if self._options.read_only:
            raise BadOption(f"{self._directory}: the manager is read-only, it cannot {verb}")


def _whole(step: Any) -> int:
    """A step as an int, from what training loops have."""
    array = np.asarray(step)
    if array.shape != () or array.dtype.kind not in "iu":
        raise BadOption(f"the step is {step!r}; it must be a whole number")
    return int(array)


def _number(value: Any, name: str) -> float | int:
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biufV":
        raise BadOption(f"the metric {name!r} is {value!r}; metrics are numbers")
    number = array.astype(np.float64).item() if array.dtype.kind in "fV" else int(array)
    return number if isinstance(number, int) or math.isfinite(number) else float(number)


def _is_item_name(name: str) -> bool:
    return bool(name) and "/" not in name and name[0] != "." and name != documents.METRICS_ITEM


def _wish(wish: Any, name: str) -> LoadItem:
    if not isinstance(wish, LoadItem):
        raise BadOption(
            f"the item {name!r} is asked for with a {type(wish).__name__}; "
            "pass StandardRestore(target) or JsonRestore()"
        )
    return wish
