"""Lets ``import orbax.checkpoint`` find storax, inside one process, to try other people's code unmodified.

    from storax.testing import orbax_alias

    with orbax_alias.active():
        import their_program        # its `import orbax.checkpoint as ocp` is storax

Orbax need not be installed; if it is and was imported, it is back afterwards. Modules that were
imported meanwhile keep what they found.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ROOT = "orbax.checkpoint"


class _Door(ModuleType):
    """A module whose names are those of something else."""

    def __init__(self, name: str, target: Any) -> None:
        super().__init__(name, getattr(target, "__doc__", None))
        self.__path__: list[str] = []
        self.__target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__target, name)


class _Finder(MetaPathFinder, Loader):
    """Finds ``orbax``, ``orbax.checkpoint`` and what is below, also under the private ``_src``."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if name == "orbax":
            return ModuleSpec(name, self, is_package=True)
        if not (name == _ROOT or name.startswith(_ROOT + ".")):
            return None
        return ModuleSpec(name, self, is_package=True) if _target(name) is not None else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name) if spec.name == "orbax" else _Door(spec.name, _target(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "orbax":
            module.__path__ = []


class _Storax:
    """storax's public names, those of ``storax.compat.doors`` first where Orbax means something else."""

    def __getattr__(self, name: str) -> Any:
        doors = importlib.import_module("storax.compat.doors")
        return getattr(doors if hasattr(doors, name) else importlib.import_module("storax"), name)


def _target(name: str) -> Any | None:
    found: Any = _Storax()
    for part in name[len(_ROOT) :].split("."):
        if part in ("", "_src"):
            continue
        try:
            found = getattr(found, part)
        except AttributeError:
            return None
    return found


@contextlib.contextmanager
def active() -> Iterator[None]:
    """While the block runs, ``import orbax.checkpoint`` finds storax."""
    before = _take_out()
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _take_out()
        sys.modules.update(before)


def _take_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == "orbax" or name.startswith("orbax.")]
    return {name: sys.modules.pop(name) for name in names}
