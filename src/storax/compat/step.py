"""``storax.step``: how the directories of steps are called, and which there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storax.errors import CheckpointNotFound
from storax.manager.options import NumberedSteps, StepNames
from storax.manager.steps import StepDirectory
from storax.store import commit
from storax.store.paths import resolve


@dataclass(frozen=True)
class Metadata:
    """A step and its directory."""

    step: int
    path: Path


class NameFormat:
    """How steps are called. Derive from it and give ``build_name``, and ``find_all`` if names are special."""

    def build_name(self, step: int) -> str:
        """The name of a step's directory."""
        raise NotImplementedError

    def find_all(self, base_path: str | os.PathLike[str]) -> Iterator[Metadata]:
        """The committed steps in a directory."""
        for step, path in StepDirectory(resolve(base_path), as_step_names(self)).paths().items():
            yield Metadata(step, path)

    def find_step(self, base_path: str | os.PathLike[str], step: int) -> Metadata:
        """A committed step. Raises ``CheckpointNotFound``."""
        for found in self.find_all(base_path):
            if found.step == step:
                return found
        raise CheckpointNotFound(f"{base_path} has no committed step {step}.")


@dataclass(frozen=True)
class _Standard(NameFormat):
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None

    def build_name(self, step: int) -> str:
        return NumberedSteps(self.step_prefix, self.step_format_fixed_length).name(step)


def standard_name_format(
    *, step_prefix: str | None = None, step_format_fixed_length: int | None = None, **_: Any
) -> NameFormat:
    """``<prefix>_<step>``, padded with zeros to so many digits."""
    return _Standard(step_prefix, step_format_fixed_length)


@dataclass(frozen=True)
class _Named:
    """A format as storax asks it: a name is a step's if the format builds it for the number in it."""

    format: Any

    def name(self, step: int) -> str:
        return str(self.format.build_name(step))

    def step_of(self, name: str) -> int | None:
        digits = name[len(name.rstrip("0123456789")) :]
        if not digits or not digits.isascii():
            return None
        return int(digits) if self.name(int(digits)) == name else None


def as_step_names(format: Any) -> StepNames:
    """A format of Orbax's kind as storax asks it."""
    if isinstance(format, (NumberedSteps, _Named)):
        return format
    if hasattr(format, "step_prefix") and hasattr(format, "step_format_fixed_length"):
        return NumberedSteps(format.step_prefix, format.step_format_fixed_length)
    return _Named(format)


def build_step_path(base_path: str | os.PathLike[str], name_format: Any, step: int) -> Path:
    """Where a step is, or will be."""
    return Path(base_path) / str(name_format.build_name(step))


def build_step_metadatas(
    step_paths: Iterable[Path], build_metadata: Callable[[Path], Any | None]
) -> Iterator[Any]:
    """What ``build_metadata`` makes of each path, without the Nones."""
    return (found for path in step_paths if (found := build_metadata(path)) is not None)


def latest_step_metadata(root_path: str | os.PathLike[str], name_format: Any) -> Any | None:
    """The newest committed step, or None."""
    return max(name_format.find_all(root_path), key=lambda found: found.step, default=None)


def checkpoint_steps(checkpoint_dir: str | os.PathLike[str], *_: Any) -> list[int]:
    """The committed steps in a directory; the digits at the end of a name are its step."""
    return list(_by_digits(checkpoint_dir))


def checkpoint_steps_paths(checkpoint_dir: str | os.PathLike[str]) -> list[Path]:
    """The directories of the committed steps."""
    return list(_by_digits(checkpoint_dir).values())


def _by_digits(directory: str | os.PathLike[str]) -> dict[int, Path]:
    found = {}
    for path in sorted(resolve(directory).iterdir()):
        digits = path.name[len(path.name.rstrip("0123456789")) :]
        if digits and commit.is_committed(path):
            found[int(digits)] = path
    return dict(sorted(found.items()))


def is_path_finalized(path: str | os.PathLike[str]) -> bool:
    """Whether a committed checkpoint is at a path."""
    return commit.is_committed(resolve(path))


def is_path_temporary(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the name of a draft."""
    return commit.is_draft(Path(path))
