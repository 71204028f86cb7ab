"""Trains twice, once undisturbed and once killed again and again, and compares the ends bit by bit.

    python examples/demo.py [--seed N]        (make demo)

The training is resumable_training.py, which knows nothing of its supervisor. Everything goes to
demo/: the two runs, and loss.png, where both loss curves lie on each other.
"""

import argparse
import random
import shutil
import sys
from pathlib import Path

from demo_report import plot, report
from demo_supervisor import STEPS, Death, Run, make_plans, train
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

DEMO = Path(__file__).resolve().parent.parent / "demo"


class Display:
    """A progress bar for each run; a line now and then where there is no terminal."""

    def __init__(self, console: Console, runs: list[Run]):
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(40), MofNCompleteColumn())
        self.progress = Progress(
            *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
        )
        self.bars = {run.name: self.progress.add_task(run.name, start=False, total=STEPS) for run in runs}

    def begin(self, run: Run) -> None:
        self.progress.start_task(self.bars[run.name])

    def step(self, run: Run, step: int) -> None:
        self.progress.update(self.bars[run.name], completed=step)
        if step % 50 == 0 and not self.console.is_terminal:
            self.console.print(f"{run.name}: step {step} of {STEPS}", highlight=False)

    def death(self, death: Death) -> None:
        self.console.print(f"  SIGKILL after step {death.step}, while {death.doing}", highlight=False)

    def end(self, run: Run) -> None:
        self.progress.stop_task(self.bars[run.name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="to be killed at the same moments again")
    seed = parser.parse_args().seed
    if seed is None:
        seed = random.SystemRandom().randrange(10_000)
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    console = Console()
    console.print(f"The moments to kill come from --seed {seed}.", highlight=False)

    undisturbed = Run(DEMO / "undisturbed")
    killed = Run(DEMO / "killed")
    display = Display(console, [undisturbed, killed])
    with display.progress:
        train(undisturbed, [], undisturbed, display)
        train(killed, make_plans(random.Random(seed)), undisturbed, display)

    good = report(console, undisturbed, killed)
    plot(undisturbed, killed, DEMO / "loss.png")
    seconds = f"{undisturbed.seconds:.0f} s undisturbed, {killed.seconds:.0f} s with the kills"
    save = f"a save takes {undisturbed.typical_save_seconds * 1000:.0f} ms in the background"
    console.print(f"{seconds}; {save}.\nBoth loss curves: demo/loss.png", highlight=False)
    if not good:
        console.print(f"To repeat it: --seed {seed}", highlight=False)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
