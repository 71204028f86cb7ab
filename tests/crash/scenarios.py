"""What is killed: programs that save, with the directory that each finds and what may be in it afterwards.

Trees are of numpy, so that no program waits for JAX to find its devices; one scenario has arrays of JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import storax

# Says that a step (or a tree) is committed, as far as the program was told.
Tell = Callable[[int], None]


def tree(step: int) -> dict[str, Any]:
    """Different for every step in every leaf, of every size class of the writer."""
    draw = np.random.default_rng(step)
    return {
        "weights": draw.standard_normal((96, 128)).astype(np.float32),
        "layers": [draw.integers(0, 255, 3000, np.uint8), draw.standard_normal(7)],
        "step": step,
        "name": f"step {step}",
    }


def optimizer(step: int) -> dict[str, Any]:
    return {"mu": np.full((50, 40), step, np.float64), "count": step}


def config(step: int) -> dict[str, Any]:
    return {"lr": 0.1 * step, "notes": ["a", None]}


@dataclass(frozen=True)
class Scenario:
    """A program to be killed.

    Attributes:
      run: the program; it is given the directory, which ``prepare`` was given before.
      prepare: makes what the program finds.
      place: where below the directory the steps are.
      composite: whether steps have named items.
    """

    run: Callable[[Path, Tell], None]
    prepare: Callable[[Path], None] = lambda directory: None
    place: str = ""
    composite: bool = False


def _options(**options: Any) -> Any:
    return storax.CheckpointManagerOptions(**options)


def _save_steps(directory: Path, steps: range) -> None:
    with storax.CheckpointManager(directory) as manager:
        for step in steps:
            manager.save(step, args=storax.args.StandardSave(tree(step)))


def _first_use(directory: Path, tell: Tell) -> None:
    where = directory / "parent" / "run"
    with storax.CheckpointManager(where, metadata={"project": "x", "seed": 3}) as manager:
        manager.save(0, args=storax.args.StandardSave(tree(0)))
        manager.wait_until_finished()
        tell(0)


def _retention(directory: Path, tell: Tell) -> None:
    options = _options(max_to_keep=2, keep_period=2)
    with storax.CheckpointManager(directory, options=options) as manager:
        for step in range(3, 6):
            manager.save(step, args=storax.args.StandardSave(tree(step)))
            manager.wait_until_finished()
            tell(step)


def _save_measured(directory: Path, losses: dict[int, float], tell: Tell = lambda step: None) -> None:
    options = _options(max_to_keep=2, best_fn=lambda m: m["loss"], best_mode="min", keep_period=10)
    with storax.CheckpointManager(directory, options=options) as manager:
        for step, loss in losses.items():
            items = storax.args.Composite(
                params=storax.args.StandardSave(tree(step)),
                optimizer=storax.args.StandardSave(optimizer(step)),
                config=storax.args.JsonSave(config(step)),
            )
            manager.save(step, args=items, metrics={"loss": loss})
            manager.wait_until_finished()
            tell(step)


def _best(directory: Path, tell: Tell) -> None:
    # 12 stays although it is the worst, since it is the newest; then 13 comes and 12 goes.
    _save_measured(directory, {12: float("nan"), 13: 0.5}, tell)


def _deletion(directory: Path, tell: Tell) -> None:
    with storax.CheckpointManager(directory) as manager:
        manager.delete(1)
        manager.delete(2)


def _after_a_death(directory: Path, tell: Tell) -> None:
    """The next manager dies as well, while it cleans up."""
    with storax.CheckpointManager(directory) as manager:
        manager.save(3, args=storax.args.StandardSave(tree(3)))
        manager.wait_until_finished()
        tell(3)


def _leave_a_dead_draft(directory: Path) -> None:
    _save_steps(directory, range(1, 3))
    draft = directory / ("3.orbax-checkpoint-tmp-storax-" + "0" * 16)
    storax.save(draft, tree(9))


def _overwrite(directory: Path, tell: Tell) -> None:
    for step in (1, 2):
        storax.save(directory / "tree", tree(step), overwrite=True)
        tell(step)


def _arrays(directory: Path, tell: Tell) -> None:
    with storax.CheckpointManager(directory, options=_options(max_to_keep=1)) as manager:
        for step in (1, 2):
            manager.save(step, args=storax.args.StandardSave(on_devices(step)))
            manager.wait_until_finished()
            tell(step)


def on_devices(step: int) -> dict[str, Any]:
    """A tree of sharded and replicated arrays, and a key."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))

    def put(value: Any, *spec: Any) -> jax.Array:
        return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*spec)))

    host = tree(step)
    return {
        "weights": put(host["weights"], "data", "model"),
        "bias": put(host["layers"][0], None),
        "key": jax.random.key(step),
        "step": step,
    }


SCENARIOS = {
    "first use": Scenario(_first_use, place="parent/run"),
    "retention": Scenario(_retention, lambda directory: _save_steps(directory, range(1, 3))),
    "best": Scenario(_best, lambda directory: _save_measured(directory, {10: 9.0, 11: 1.0}), composite=True),
    "deletion": Scenario(_deletion, lambda directory: _save_steps(directory, range(1, 4))),
    "after a death": Scenario(_after_a_death, _leave_a_dead_draft),
    "overwrite": Scenario(_overwrite, lambda directory: storax.save(directory / "tree", tree(0))),
    "arrays": Scenario(_arrays),
}
