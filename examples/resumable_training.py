"""Train a small CNN on scikit-learn's digits. Kill it whenever you like and run it again:
it goes on where it was and ends with exactly the weights of a run that was never killed.

    python examples/resumable_training.py --run-dir runs/digits

For that, a checkpoint has to hold everything that the next step depends on:
  model      the parameters, the running means of the batch norms, the RNG of the dropout layer
  optimizer  AdamW's moments, and the step count that drives the learning-rate schedule
  data       how far the data loader has come
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rich.progress import track
from sklearn.datasets import load_digits

import storax

BATCH_SIZE = 64


class CNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(32, rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.norm2 = nnx.BatchNorm(64, rngs=rngs)
        self.dense = nnx.Linear(4 * 4 * 64, 2048, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)  # keeps an RNG of its own, as part of the state
        self.out = nnx.Linear(2048, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm1(self.conv1(images)))
        x = nnx.max_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), (2, 2))
        x = nnx.relu(self.dense(x.reshape(len(x), -1)))
        return self.out(self.dropout(x))


@nnx.jit
def train_step(model: CNN, optimizer: nnx.Optimizer, batch: dict[str, jax.Array]) -> jax.Array:
    def loss_fn(model: CNN) -> jax.Array:
        logits = model(batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, gradients = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def accuracy(model: CNN, batch: dict[str, jax.Array]) -> jax.Array:
    return (model(batch["image"]).argmax(-1) == batch["label"]).mean()


def read_digits() -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """1,500 images to train on, one by one, and the remaining 297 to test, as one batch."""
    digits = load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    train = [{"image": x, "label": y} for x, y in zip(images[:1500], labels[:1500], strict=True)]
    return train, {"image": images[1500:], "label": labels[1500:]}


def shift(example: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Moves the image by up to a pixel. Grain derives `rng` from the position, so it resumes too."""
    moved = np.roll(example["image"], rng.integers(-1, 2, size=2), axis=(0, 1))
    return {**example, "image": moved}


def sha256(tree: object) -> str:
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        digest.update(f"{path} {leaf.dtype} {leaf.shape}".encode())
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", type=Path, default=Path("runs/digits"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--loss-log", type=Path, help="default: losses.txt in the run directory")
    args = parser.parse_args()
    args.run_dir.mkdir(parents=True, exist_ok=True)

    # Build everything as if the run began now.
    train, test = read_digits()
    data = iter(
        grain.MapDataset.source(train)
        .seed(0)
        .shuffle()  # another order in every epoch
        .repeat()
        .random_map(shift)
        .batch(BATCH_SIZE)
        .to_iter_dataset(grain.ReadOptions(num_threads=0))  # the images are in memory already
    )
    model = CNN(nnx.Rngs(0))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 2e-3, args.steps // 10, args.steps)
    optimizer = nnx.Optimizer(model, optax.adamw(schedule, weight_decay=1e-2), wrt=nnx.Param)

    options = storax.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=args.save_every)
    with storax.CheckpointManager(args.run_dir / "checkpoints", options=options) as mngr:
        # If it began earlier, the newest checkpoint replaces what was just built.
        start = mngr.latest_step() or 0
        if start > 0:
            restored = mngr.restore(
                start,
                args=storax.args.Composite(
                    model=storax.args.StandardRestore(nnx.state(model)),
                    optimizer=storax.args.StandardRestore(nnx.state(optimizer)),
                    data=storax.args.JsonRestore(),
                ),
            )
            nnx.update(model, restored["model"])
            nnx.update(optimizer, restored["optimizer"])
            data.set_state(restored["data"])
            print(f"resumed from step {start}", flush=True)

        with open(args.loss_log or args.run_dir / "losses.txt", "a") as log:
            for step in track(
                range(start + 1, args.steps + 1),
                description="training",
                total=args.steps,
                completed=start,
                disable=not sys.stdout.isatty(),
            ):
                loss = train_step(model, optimizer, next(data))

                # Written at once and in full precision. Steps that are repeated after a kill appear
                # again, with the same loss to the last bit.
                log.write(f"{step} {float(loss).hex()}\n")
                log.flush()

                # Saves if the step is due, or the last. Returns once the state is copied; it is
                # written to disk while the training goes on.
                mngr.save(
                    step,
                    args=storax.args.Composite(
                        model=storax.args.StandardSave(nnx.state(model)),
                        optimizer=storax.args.StandardSave(nnx.state(optimizer)),
                        data=storax.args.JsonSave(data.get_state()),
                    ),
                    force=step == args.steps,
                )

    # Leaving the block above has waited for the last save.
    print(f"parameters    {sha256(nnx.state(model, nnx.Param))}")
    print(f"batch norm    {sha256(nnx.state(model, nnx.BatchStat))}")
    print(f"optimizer     {sha256(nnx.state(optimizer))}")
    print(f"RNG           {sha256(nnx.state(model, nnx.RngState))}")
    print(f"data position {hashlib.sha256(json.dumps(data.get_state()).encode()).hexdigest()}")
    model.eval()
    print(f"test accuracy {float(accuracy(model, test)):.1%}")


if __name__ == "__main__":
    main()
