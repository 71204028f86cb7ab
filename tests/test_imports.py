"""What importing storax costs, and what the pure rooms do without.

Each test asks a fresh interpreter, because this one has imported everything already.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PURE_ROOMS = [
    "storax.errors",
    "storax.ocdbt",
    "storax.plan",
    "storax.safetensors.header",
    "storax.store",
    "storax.tree",
]

# What a plain `import storax` must leave to those who ask for it: the engine, and every framework.
NOT_BY_ITSELF = {
    "equinox",
    "etils",
    "flax",
    "fsspec",
    "grain",
    "jax",
    "jaxlib",
    "optax",
    "orbax",
    "rich",
    "safetensors",
    "tensorstore",
    "typer",
}

_PACKAGES = """
import json, sys
def packages():
    names = {module.partition(".")[0] for module in list(sys.modules)}
    return names - set(sys.stdlib_module_names) - {"storax"}
"""

_IMPORT_STORAX = """
before = packages()
import storax
print(json.dumps(sorted(packages() - before)))
"""

# Imports a room and all modules below it; prints [module, jax packages that are there by then] for each.
_WALK_ROOM = """
import importlib, pkgutil
room = importlib.import_module(sys.argv[1])
def visit(module):
    report.append([module, sorted(packages() & {"jax", "jaxlib", "flax", "orbax"})])
def fail(module):
    raise
report = []
visit(room.__name__)
for found in pkgutil.walk_packages(getattr(room, "__path__", []), room.__name__ + ".", onerror=fail):
    if not found.name.endswith(".__main__"):
        importlib.import_module(found.name)
        visit(found.name)
print(json.dumps(report))
"""


def ask(program: str, *arguments: str) -> list:
    """The JSON that a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", _PACKAGES + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_storax_adds_to_jax_only_what_it_depends_on():
    added = set(ask("import jax\n" + _IMPORT_STORAX))
    assert added <= {"numpy", "crc32c", "ml_dtypes"}


_FIRST_ACCESS = """
import time
import jax
before, modules = time.process_time(), set(sys.modules)
import storax
storax.save, storax.load, storax.CheckpointManager
spent = time.process_time() - before
print(json.dumps([spent, sorted(packages()), sorted(set(sys.modules) - modules)]))
"""
# Counts are exact, times are not: 0.15 s here when it is quiet, which bench/startup.py measures.
_MOST_SECONDS = 2.0
_MOST_MODULES = 200


def test_the_first_save_load_and_manager_are_soon_there():
    found = [ask(_FIRST_ACCESS) for _ in range(5)]
    best = min(spent for spent, _, _ in found)
    _, packages, modules = found[0]
    print(f"import storax, save, load and CheckpointManager: {best:.3f} s of CPU, {len(modules)} modules")
    assert best < _MOST_SECONDS
    assert len(modules) <= _MOST_MODULES
    assert {"tensorstore", "orbax", "flax", "rich", "typer", "optax"}.isdisjoint(packages)


def test_storax_by_itself_imports_neither_jax_nor_a_framework_nor_the_engine():
    assert NOT_BY_ITSELF.isdisjoint(ask(_IMPORT_STORAX))


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_does_without_jax(room: str):
    report = ask(_WALK_ROOM, room)
    assert report[0][0] == room
    assert [entry for entry in report if entry[1]] == []
