"""Runs the training of the demo, and kills it with SIGKILL at planned moments."""

import enum
import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TextIO

STEPS = 300
SAVE_EVERY = 20
SCRIPT = Path(__file__).resolve().with_name("resumable_training.py")
DRAFT = ".orbax-checkpoint-tmp"  # a checkpoint that is being written has this in its name


class Kind(enum.Enum):
    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"


@dataclass
class Plan:
    """When to kill next: at a moment of this kind, not before this step, and a little later."""

    kind: Kind
    step: int
    delay: float  # as a share of what a start, a step or a save took in the undisturbed run


@dataclass
class Death:
    kind: Kind
    step: int  # the last step that was trained
    doing: str
    draft: bool  # whether it left a draft behind
    newest: int  # the newest checkpoint at this moment; 0: none


@dataclass
class Run:
    """A run directory, the processes that trained in it, and how they died."""

    directory: Path
    attempts: list[list[tuple[int, str]]] = field(default_factory=list)  # (step, loss), by process
    deaths: list[Death] = field(default_factory=list)
    start_seconds: float = 0.0
    step_seconds: float = 0.0
    save_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def output(self) -> Path:
        return self.directory / "output.txt"

    @property
    def losses(self) -> dict[int, str]:
        return dict(itertools.chain(*self.attempts))  # of a step that was repeated, the last

    @property
    def typical_save_seconds(self) -> float:
        return statistics.median(self.save_seconds or [0.0])

    def on_disk(self) -> tuple[int, dict[int, int], list[int]]:
        """The newest checkpoint; the steps being saved, by inode; the steps being deleted.

        Both of the latter have the name of a draft, as a checkpoint that is no longer kept leaves its
        name before its files are deleted. What is newer than every checkpoint is being saved.
        """
        try:
            with os.scandir(self.checkpoints) as entries:
                found = [(entry.name, entry.inode()) for entry in entries]
        except FileNotFoundError:
            found = []
        newest = max((int(name) for name, _ in found if name.isdigit()), default=0)
        drafts = [(int(name.split(DRAFT)[0]), inode) for name, inode in found if DRAFT in name]
        saving = {inode: step for step, inode in drafts if step > newest}
        return newest, saving, [step for step, _ in drafts if step < newest]


class LossLog:
    def __init__(self, path: Path):
        self.path = path
        self.read = 0  # bytes

    def new_losses(self) -> list[tuple[int, str]]:
        """What was appended since the last call, but for a line that is not complete."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.read)
            *lines, _ = file.read().split(b"\n")
        self.read += sum(len(line) + 1 for line in lines)
        return [(int(step), loss.decode()) for step, loss in map(bytes.split, lines)]


class Display(Protocol):
    def begin(self, run: Run) -> None: ...
    def step(self, run: Run, step: int) -> None: ...
    def death(self, death: Death) -> None: ...
    def end(self, run: Run) -> None: ...


def make_plans(rng: random.Random) -> list[Plan]:
    """Two kills in the middle of a save, three while training, one while a process starts."""
    saves = rng.sample(range(2 * SAVE_EVERY, STEPS - 2 * SAVE_EVERY, SAVE_EVERY), 2)
    plans = [Plan(Kind.SAVING, step, rng.uniform(0, 0.8)) for step in saves]
    plans += [Plan(Kind.TRAINING, rng.randrange(5, STEPS - 15), rng.random()) for _ in range(3)]
    plans.sort(key=lambda plan: plan.step)
    plans.insert(rng.randrange(1, 6), Plan(Kind.STARTING, 0, rng.uniform(0.2, 0.6)))
    return plans


def train(run: Run, plans: list[Plan], typical: Run, display: Display) -> None:
    """Starts the training until it comes to its end by itself, and kills it as planned."""
    run.directory.mkdir()
    log = LossLog(run.directory / "losses.txt")
    plans = list(plans)
    display.begin(run)
    began = time.monotonic()
    with open(run.output, "a") as output:
        while True:
            process = start(run, output)
            try:
                death = watch(process, run, log, plans[0] if plans else None, typical, display)
            finally:
                process.kill()
                process.wait()
            if death is None:
                break
            run.deaths.append(death)
            display.death(death)
            if plans[0].kind == Kind.SAVING and death.kind != Kind.SAVING:
                plans[0] = Plan(Kind.SAVING, death.step, 0.0)  # too late: again at the next save, at once
            else:
                plans.pop(0)
    run.seconds = time.monotonic() - began
    display.end(run)
    if process.returncode != 0:
        sys.exit(f"the training failed:\n{run.output.read_text()}")


def start(run: Run, output: TextIO) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SCRIPT), "--run-dir", str(run.directory)]
    command += ["--steps", str(STEPS), "--save-every", str(SAVE_EVERY)]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",  # where the same program gives the same bits
        "JAX_COMPILATION_CACHE_DIR": str(
            run.directory.parent / "compiled"
        ),  # so that a restart takes seconds
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def watch(
    process: subprocess.Popen[bytes],
    run: Run,
    log: LossLog,
    plan: Plan | None,
    typical: Run,
    display: Display,
) -> Death | None:
    """Follows one process to its end, or kills it when the moment has come."""
    attempt: list[tuple[int, str]] = []
    run.attempts.append(attempt)
    _, old_drafts, _ = run.on_disk()  # left behind by those who died before
    began = time.monotonic()
    first_step_at = save_since = None
    while process.poll() is None:
        now = time.monotonic()
        if now - began > 300:
            sys.exit(f"the training takes too long; see {run.output}")

        for step, loss in log.new_losses():
            attempt.append((step, loss))
            display.step(run, step)
            first_step_at = first_step_at or now

        _, drafts, _ = run.on_disk()
        if drafts.keys() - old_drafts.keys():
            save_since = save_since or now
        elif save_since:
            run.save_seconds.append(now - save_since)
            save_since = None

        kill_at = math.inf
        if plan and plan.kind == Kind.STARTING:
            kill_at = began + plan.delay * typical.start_seconds
        elif plan and attempt and attempt[-1][0] >= plan.step:
            if plan.kind == Kind.TRAINING:
                kill_at = now + plan.delay * typical.step_seconds
            elif save_since:
                kill_at = save_since + plan.delay * typical.typical_save_seconds
        rest = kill_at - time.monotonic()
        if rest < 0.05:
            time.sleep(max(0.0, rest))
            process.kill()  # SIGKILL: it cannot be caught, nothing can be tidied up
            process.wait()
            attempt += log.new_losses()
            return post_mortem(run, attempt, old_drafts)
        time.sleep(0.0002 if plan and plan.kind == Kind.SAVING else 0.002)  # a draft is short-lived

    attempt += log.new_losses()
    if first_step_at:
        run.start_seconds = first_step_at - began
        run.step_seconds = (time.monotonic() - first_step_at) / len(attempt)
    return None


def post_mortem(run: Run, attempt: list[tuple[int, str]], old_drafts: dict[int, int]) -> Death:
    """What the process was really doing: only one that died in a save leaves a draft behind."""
    newest, drafts, deleting = run.on_disk()
    saving = [step for inode, step in drafts.items() if inode not in old_drafts]
    if not attempt:
        return Death(Kind.STARTING, newest, "starting", False, newest)
    last, _ = attempt[-1]
    if saving:
        return Death(Kind.SAVING, last, f"saving step {saving[0]}", True, newest)
    if deleting:
        return Death(Kind.TRAINING, last, f"deleting step {deleting[0]}", False, newest)
    return Death(Kind.TRAINING, last, f"training step {last + 1}", False, newest)
