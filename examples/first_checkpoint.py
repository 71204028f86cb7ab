"""Save, kill, resume. Run it, stop it with Ctrl+C or `kill -9` at any moment, and run it again."""

import time

import jax
import jax.numpy as jnp

import storax

TRUE_W = jnp.arange(8.0)


def loss_fn(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


@jax.jit
def train_step(state):
    key, x_key = jax.random.split(state["key"])
    x = jax.random.normal(x_key, (64, 8))
    loss, gradients = jax.value_and_grad(loss_fn)(state["params"], x, x @ TRUE_W + 1)
    params = jax.tree.map(lambda p, g: p - 0.01 * g, state["params"], gradients)
    return {"params": params, "key": key}, loss


# Everything that the next step depends on is in the state: the key of the random numbers as well.
state = {"params": {"w": jnp.zeros(8), "b": jnp.zeros(())}, "key": jax.random.key(0)}

options = storax.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=10)
with storax.CheckpointManager("runs/first", options=options) as mngr:
    start = mngr.latest_step() or 0
    if start > 0:
        state = mngr.restore(start, args=storax.args.StandardRestore(state))
        print(f"resumed from step {start}", flush=True)

    for step in range(start + 1, 301):
        state, loss = train_step(state)
        mngr.save(step, args=storax.args.StandardSave(state))  # saves every 10th, in the background
        print(f"step {step}  loss {loss:.3e}", flush=True)
        time.sleep(0.02)  # a real model takes longer, too: time to press Ctrl+C
