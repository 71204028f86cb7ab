"""``doctor`` and ``gc``: what is wrong in a run directory, and which of its steps may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from storax.cli.options import DryRun, Json, Yes
from storax.cli.printing import Column, confirm, counted, print_json, print_table, say, size

if TYPE_CHECKING:
    from storax.plan.retention import KeepPolicy
    from storax.survey.run import SeenStep


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)
    app.command("gc")(gc)


Run = Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")]


def doctor(
    run: Run,
    fix: Annotated[bool, typer.Option("--fix", help="Delete the drafts of dead processes.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Look for drafts of dead processes, steps that are not whole, and strays.

    Exits with 1 if a restart is at risk.
    """
    from storax.store import commit
    from storax.store.paths import resolve
    from storax.survey.examining import examine

    directory = resolve(run)
    findings = examine(directory)
    if json:
        print_json(
            [
                {"path": str(f.path), "kind": f.kind, "serious": f.serious, "advice": f.advice}
                for f in findings
            ]
        )
    elif findings:
        print_table(
            [Column("what", style="bold"), Column("is", style="yellow"), Column("to do")],
            [[str(f.path.relative_to(directory)), f.kind, f.advice] for f in findings],
        )
    if not findings:
        say(f"{directory}: nothing is wrong.")
    dead = list(commit.leftovers(directory))
    if fix and dead and not dry_run:
        confirm(f"Delete {counted(len(dead), 'draft')} of dead processes?", yes=yes)
        say(f"{counted(len(commit.clean(directory)), 'draft')} deleted.")
    elif fix:
        say(f"{counted(len(dead), 'draft')} would be deleted." if dead else "There is nothing to delete.")
    if any(f.serious for f in findings):
        raise typer.Exit(1)


# --- which steps may go --------------------------------------------------------------------------


def gc(
    run: Run,
    keep_last: Annotated[int | None, typer.Option(min=0, help="Keep the newest so many steps.")] = None,
    keep_every: Annotated[int | None, typer.Option(min=1, help="Keep multiples of this.")] = None,
    keep_days: Annotated[
        float | None, typer.Option(min=0, help="Keep what was saved in the last days.")
    ] = None,
    keep_best: Annotated[
        int | None, typer.Option(min=0, help="Keep the best so many steps by --metric.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="The metric that --keep-best goes by.")] = None,
    mode: Annotated[
        Literal["min", "max"], typer.Option(help="Whether the best is the least or the most.")
    ] = "min",
    keep_step: Annotated[list[int] | None, typer.Option(help="Keep this step; may be repeated.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete the steps of a run that no rule keeps; print every step, kept or not, and why.

    The newest step, pinned steps and those that a reader holds open always stay.
    """
    import time

    from storax.plan.retention import explain
    from storax.plan.steps import Step
    from storax.store import commit
    from storax.store.paths import resolve
    from storax.survey.run import pin_of, see_run

    policy = _policy(keep_last, keep_every, keep_days, keep_best, metric, mode, keep_step or ())
    seen: dict[int, SeenStep] = {
        s.step: s for s in see_run(resolve(run)) if s.state == "committed" and s.step is not None
    }
    verdicts = explain(
        policy,
        [Step(number, s.saved_ns / 1e9, s.metrics or None) for number, s in seen.items()],
        now=time.time(),
        pinned={number: pin for number, s in seen.items() if (pin := pin_of(s.path)) is not None},
        leased={number for number, s in seen.items() if commit.is_leased(s.path)},
    )
    _print_verdicts(verdicts, seen, json)
    going = [seen[number] for number in verdicts.dropped]
    freed = size(sum(s.nbytes for s in going))
    if dry_run or not going:
        say(f"{len(going)} of {len(seen)} steps would be deleted, {freed}.")
        return
    confirm(f"Delete {len(going)} of {len(seen)} steps, {freed}?", yes=yes)
    for step in going:
        commit.delete(step.path)
    say(f"{counted(len(going), 'step')} deleted, {freed}.")


def _policy(
    last: int | None,
    every: int | None,
    days: float | None,
    best: int | None,
    metric: str | None,
    mode: Literal["min", "max"],
    steps: Sequence[int],
) -> KeepPolicy:
    from storax.errors import BadOption
    from storax.plan import retention

    if (best is None) != (metric is None):
        raise BadOption("--keep-best N goes with --metric NAME, which says what is best")
    rules: list[KeepPolicy] = []
    if last is not None:
        rules.append(retention.LatestN(last))
    if every is not None:
        rules.append(retention.EveryNSteps(every))
    if days is not None:
        rules.append(retention.YoungerThan(days * 86400))
    if best is not None and metric is not None:
        rules.append(
            retention.BestN(lambda metrics: float(metrics[metric]), mode, best, keep_unmeasured=False)
        )
    if steps:
        rules.append(retention.KeepSteps(steps))
    if not rules:
        raise BadOption("no rule was given, such as --keep-last 3 --keep-every 1000; nothing was deleted")
    return retention.AnyKeep(rules)


def _print_verdicts(verdicts: Any, seen: dict[int, SeenStep], json: bool) -> None:
    if json:
        print_json(
            [
                {"step": v.step, "keep": v.keep, "why": v.reason, "nbytes": seen[v.step].nbytes}
                for v in verdicts
            ]
        )
        return
    print_table(
        [Column("step", "right", "bold"), Column("size", "right", "cyan"), Column(""), Column("why")],
        [
            [str(v.step), size(seen[v.step].nbytes), "keep" if v.keep else "delete", v.reason]
            for v in verdicts
        ],
    )
