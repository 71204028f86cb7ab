"""The report of the demo: how the processes died, what is equal at the end, and the two loss curves."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from demo_supervisor import SAVE_EVERY, STEPS, Kind, Run
from rich.console import Console
from rich.table import Table

import storax


def final_state(run: Run) -> dict[str, dict[str, np.ndarray]]:
    """The last checkpoint as plain arrays, by part and by name, read without any target."""
    with storax.CheckpointManager(run.checkpoints) as mngr:
        step = mngr.latest_step()
        items = storax.args.Composite(data=storax.args.JsonRestore())
        position = json.dumps(mngr.restore(step, args=items)["data"], sort_keys=True)
    parts: dict[str, dict[str, np.ndarray]] = {
        "parameters": {},
        "batch norm statistics": {},
        "optimizer": {},
        "RNG": {},
        "data position": {f"step {step}": np.frombuffer(position.encode(), np.uint8)},
    }
    for item in ("model", "optimizer"):
        tree = storax.load(run.checkpoints / str(step) / item)
        for path, leaf in jax.tree.leaves_with_path(tree):
            name = "".join(map(str, path))
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf = jax.random.key_data(leaf)
            if item == "optimizer":
                part = "optimizer"
            elif "rngs" in name:
                part = "RNG"
            else:
                statistics = "'mean'" in name or "'var'" in name
                part = "batch norm statistics" if statistics else "parameters"
            parts[part][name] = np.asarray(leaf)
    return parts


def same_bits(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return False
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def report(console: Console, undisturbed: Run, killed: Run) -> bool:
    """Prints how the processes died and what is equal at the end; True if all is as it should be."""
    wrong = print_deaths(console, killed) + print_comparison(console, undisturbed, killed)
    _, saving, deleting = killed.on_disk()
    if saving or deleting:
        wrong.append("The last process did not clean up what the dead ones left behind.")
    if all(death.kind != Kind.SAVING for death in killed.deaths):
        wrong.append("No kill came in the middle of a save.")
    for line in wrong:
        console.print(line, style="bold red")
    return not wrong


def print_deaths(console: Console, killed: Run) -> list[str]:
    wrong = []
    table = Table(title=f"killed {len(killed.deaths)} times with SIGKILL")
    for column in ("", "step", "while", "draft", "went on from", "repeated", "same loss"):
        table.add_column(column, justify="left" if column == "while" else "right")
    seen: dict[int, str] = {}
    for number, death in enumerate(killed.deaths, 1):
        seen.update(killed.attempts[number - 1])
        following = killed.attempts[number]
        repeated = [seen[step] == loss for step, loss in following if step in seen]
        if not all(repeated):
            wrong.append(f"After kill {number}, steps were repeated with another loss.")
        if following and following[0][0] != death.newest + 1:
            wrong.append(f"After kill {number}, it began with step {following[0][0]}.")
        table.add_row(
            str(number),
            str(death.step),
            death.doing,
            "yes" if death.draft else "",
            f"step {death.newest}" if death.newest else "the beginning",
            str(len(repeated)),
            str(sum(repeated)),
        )
    console.print(table)
    return wrong


def print_comparison(console: Console, undisturbed: Run, killed: Run) -> list[str]:
    wrong = []
    table = Table(title="undisturbed and killed, bit for bit")
    for column in ("", "arrays", "bytes", "differ"):
        table.add_column(column, justify="right" if column else "left")
    table.add_column("")

    def add(part: str, count: int, size: str, different: int) -> None:
        equal = count > 0 and different == 0
        table.add_row(
            part, str(count), size, str(different), "[green]equal[/]" if equal else "[red]DIFFERENT[/]"
        )
        if not equal:
            wrong.append(f"Not the same: {part}.")

    a, b = final_state(undisturbed), final_state(killed)
    for part in a:
        names = a[part].keys() | b[part].keys()
        different = sum(not same_bits(a[part].get(name), b[part].get(name)) for name in names)
        add(part, len(names), f"{sum(array.nbytes for array in a[part].values()):,}", different)
    losses = [(undisturbed.losses.get(step), killed.losses.get(step)) for step in range(1, STEPS + 1)]
    add("loss of every step", STEPS, "", sum(one is None or one != other for one, other in losses))
    console.print(table)
    return wrong


def plot(undisturbed: Run, killed: Run, path: Path) -> None:
    colors = {Kind.STARTING: "tab:purple", Kind.TRAINING: "tab:red", Kind.SAVING: "tab:orange"}
    markers = {Kind.STARTING: "s", Kind.TRAINING: "X", Kind.SAVING: "P"}
    style = {"s": 90, "edgecolors": "white", "linewidths": 0.8, "zorder": 5}
    plt.switch_backend("agg")  # draws to a file, needs no screen
    figure, (top, bottom) = plt.subplots(
        2, 1, sharex=True, figsize=(10, 7), height_ratios=[2.2, 1], layout="constrained"
    )

    for run, look in (
        (undisturbed, {"color": "#8ec5f5", "linewidth": 5, "label": "undisturbed"}),
        (killed, {"color": "#0b3c66", "linewidth": 1.2, "label": "killed and resumed"}),
    ):
        losses = {step: float.fromhex(loss) for step, loss in sorted(run.losses.items())}
        top.plot(losses.keys(), losses.values(), solid_capstyle="round", **look)
    for kind in (Kind.TRAINING, Kind.SAVING, Kind.STARTING):
        deaths = [death for death in killed.deaths if death.kind == kind]
        height = [float.fromhex(killed.losses[death.step]) for death in deaths]
        look = {"color": colors[kind], "marker": markers[kind], **style}
        top.scatter([d.step for d in deaths], height, label=f"killed while {kind.value}", **look)
    top.set_yscale("log")
    top.set_ylabel("training loss")
    top.set_title(f"One training undisturbed, one killed {len(killed.deaths)} times", loc="left")
    top.legend(frameon=False)

    for row, attempt in enumerate(killed.attempts, 1):
        if attempt:
            bottom.plot([attempt[0][0] - 1, attempt[-1][0]], [row, row], color="#0b3c66", linewidth=3)
        if row <= len(killed.deaths):
            death = killed.deaths[row - 1]
            look = {"color": colors[death.kind], "marker": markers[death.kind], **style}
            bottom.scatter([death.step], [row], **look)
    for save in range(SAVE_EVERY, STEPS + 1, SAVE_EVERY):
        bottom.axvline(save, color="0.88", linewidth=0.8, zorder=0)
    bottom.set_yticks(range(1, len(killed.attempts) + 1))
    bottom.set_ylim(len(killed.attempts) + 0.6, 0.4)
    bottom.set_ylabel("process")
    bottom.set_xlabel(f"step (a checkpoint every {SAVE_EVERY}: grey lines)")
    bottom.set_xlim(0, STEPS)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
