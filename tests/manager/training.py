"""A training run that is told to stop: python training.py DIRECTORY HOW

Prints the number of each step when it is done. HOW:

  policy    a save policy watches for SIGTERM
  thread    a thread that is not the main one begins to watch
  compile   after step 5 the run compiles something for a long time
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import storax as ocp


@functools.partial(jax.jit, donate_argnums=0, static_argnums=1)
def train(state: dict[str, Any], phase: int) -> dict[str, Any]:
    """One step. Another phase is another program: it is compiled in the middle of the run."""
    w = state["w"]
    for _ in range(3 + phase % 2):
        w = jnp.tanh(w @ w.T / 64) + phase
    return {"w": w, "step": state["step"] + 1}


@jax.jit
def evaluate(state: dict[str, Any]) -> jax.Array:
    return jnp.linalg.norm(state["w"])


@jax.jit
def takes_long_to_compile(x: jax.Array) -> jax.Array:
    for number in range(6000):
        x = jnp.sin(x * number) + jnp.cos(x[::-1])
    return x


class ToldToStop(ocp.checkpoint_managers.SaveDecisionPolicy):
    """A policy of the user: the manager does not know that it must watch."""

    def should_save(self, step: Any, previous_steps: Any, *, context: Any) -> bool:
        return context.reached_preemption


def main(directory: str, how: str) -> None:
    policies = ocp.checkpoint_managers
    watching = policies.PreemptionCheckpointingPolicy()
    if how == "thread":
        watching = ToldToStop()
    parts = [policies.FixedIntervalPolicy(100_000), watching]
    options = ocp.CheckpointManagerOptions(
        save_decision_policy=policies.AnySavePolicy(parts), grace_seconds=1 if how == "compile" else 30
    )
    mngr = ocp.CheckpointManager(directory, options=options)
    if how == "thread":
        watcher = threading.Thread(target=mngr.watch_preemption)
        watcher.start()
        watcher.join()
    state = {
        "w": jnp.asarray(np.random.default_rng(0).standard_normal((64, 64)), jnp.float32),
        "step": jnp.int32(0),
    }
    for step in range(1, 1_000_000):
        state = train(state, step // 40)
        jax.block_until_ready(state)
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        mngr.save(step, args=ocp.args.StandardSave(state))
        if step % 10 == 0:
            evaluate(state).block_until_ready()
        if how == "compile" and step == 5:
            takes_long_to_compile(jnp.ones(8)).block_until_ready()
        if mngr.reached_preemption(step):
            break
    mngr.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
