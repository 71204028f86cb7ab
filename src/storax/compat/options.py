"""``CheckpointManagerOptions`` and its parts, with Orbax's arguments; and what they mean to storax."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storax.compat.policies import keep_policy, save_policy
from storax.compat.step import as_step_names
from storax.manager import ManagerOptions
from storax.processes import DEFAULT_TIMEOUT


@dataclass
class AsyncOptions:
    """How a save runs in the background.

    Args:
      timeout_secs: how long to wait for it; Orbax gives up after 1,200 s, storax only if it is told.
      post_finalization_callback: called when a checkpointer's save is committed.
      barrier_sync_fn, create_directories_asynchronously: nothing here.
    """

    timeout_secs: float | None = None
    barrier_sync_fn: Any = None
    post_finalization_callback: Callable[[], None] | None = None
    create_directories_asynchronously: bool = True


@dataclass
class FileOptions:
    """``path_permission_mode``: the mode of a step's directories. The rest does nothing here."""

    path_permission_mode: int | None = None
    cns2_storage_options: Any = None
    skip_sync_file_validations: bool = False


@dataclass
class MultiprocessingOptions:
    """Which processes take part. storax finds that out itself."""

    primary_host: int | None = 0
    active_processes: Any = None
    barrier_sync_key_prefix: str | None = None


@dataclass
class CheckpointManagerOptions:
    """How a ``CheckpointManager`` saves and keeps steps, with Orbax's arguments in Orbax's order.

    Those that storax acts on are explained at ``storax.manager.ManagerOptions``. Those that say how
    Orbax itself works (processes, threads, temporary paths) are taken and do nothing.
    """

    save_interval_steps: int = 1
    max_to_keep: int | None = None
    keep_time_interval: datetime.timedelta | None = None
    keep_period: int | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: str = "max"
    keep_checkpoints_without_metrics: bool = True
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    step_name_format: Any = None
    create: bool = True
    cleanup_tmp_directories: bool = False
    save_on_steps: Container[int] | None = None
    single_host_load_and_broadcast: bool = False
    todelete_subdir: str | None = None
    todelete_full_path: str | None = None
    enable_background_delete: bool = False
    num_deletion_threads: int | None = None
    read_only: bool = False
    enable_async_checkpointing: bool = True
    async_options: Any = None
    multiprocessing_options: Any = field(default_factory=MultiprocessingOptions)
    should_save_fn: Callable[[int, int | None], bool] | None = None
    file_options: Any = field(default_factory=FileOptions)
    atomicity_options: Any = None
    save_root_metadata: bool = True
    temporary_path_class: Any = None
    save_decision_policy: Any = None
    preservation_policy: Any = None
    prevent_write_metrics: bool = False
    enable_should_save_is_saving_in_progress_check: bool = True
    enable_per_process_directory_creation: bool = False
    lightweight_initialize: bool = False
    # storax's own.
    keep_newest: bool = field(default=True, kw_only=True)
    deletions_per_second: float | None = field(default=None, kw_only=True)
    grace_seconds: float = field(default=30.0, kw_only=True)
    barrier_timeout: float = field(default=DEFAULT_TIMEOUT, kw_only=True)


_SAME = (
    "save_interval_steps max_to_keep keep_period best_fn best_mode keep_checkpoints_without_metrics"
    " step_prefix step_format_fixed_length create cleanup_tmp_directories save_on_steps read_only"
    " enable_async_checkpointing should_save_fn keep_newest deletions_per_second grace_seconds"
    " barrier_timeout"
).split()


def manager_options(options: Any, directory: Path) -> ManagerOptions:
    """What options mean: those above, storax's own, or Orbax's real ones, told by their attributes."""
    if options is None:
        return ManagerOptions()
    if isinstance(options, ManagerOptions):
        return options
    values = {name: getattr(options, name) for name in _SAME if hasattr(options, name)}
    asked = _Asked(options)
    interval = asked.keep_time_interval
    timeout = getattr(asked.async_options, "timeout_secs", None)
    return ManagerOptions(
        **values,
        keep_seconds=None if interval is None else interval.total_seconds(),
        keep_policy=None if asked.preservation_policy is None else keep_policy(asked.preservation_policy),
        save_policy=None if asked.save_decision_policy is None else save_policy(asked.save_decision_policy),
        step_names=None if asked.step_name_format is None else as_step_names(asked.step_name_format),
        directory_mode=getattr(asked.file_options, "path_permission_mode", None),
        timeout_seconds=timeout,
        trash=_trash(asked, directory),
    )


class _Asked:
    """Attributes of any object; None for those that it lacks."""

    def __init__(self, options: Any) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name, None)


def _trash(asked: _Asked, directory: Path) -> Path | None:
    if asked.todelete_full_path:
        return Path(os.path.abspath(asked.todelete_full_path))
    return directory / asked.todelete_subdir if asked.todelete_subdir else None
