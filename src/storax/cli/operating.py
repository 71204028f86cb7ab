"""``surgery``: rename, fuse, split, stack: a new checkpoint under another structure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from storax.cli.options import Checkpoint, DryRun, Json
from storax.cli.phrasing import said_for_the_shell
from storax.cli.printing import Column, manners, print_json, print_table, say

if TYPE_CHECKING:
    from storax.explaining import Explanation


def register(app: typer.Typer) -> None:
    app.command("surgery")(surgery)


def surgery(
    source: Checkpoint,
    target: Annotated[str, typer.Argument(metavar="DST", help="The new checkpoint.")],
    spec: Annotated[
        str | None,
        typer.Option("--spec", metavar="FILE", help="A list of transforms: .toml, .json or .yaml."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", metavar="NAME", help="Instead: a recipe of storax, such as llama."),
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="The recipe the other way.")] = False,
    stacked: Annotated[bool, typer.Option("--stacked", help="Of the recipe: layers are stacked.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read the result back and compare it.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write a checkpoint with what transforms make of another one, however large. All or nothing.

    With --dry-run: print where every leaf would come from, and what would be read; no value is read.
    """
    from storax.cli.selecting import found
    from storax.explaining import explain
    from storax.rewriting import rewrite

    path = found(source).path
    transforms = _transforms(spec, recipe, backward, stacked)
    if dry_run:
        _print_explanation(explain(path, transforms=transforms), json)
        return
    with said_for_the_shell():
        report = rewrite(
            path,
            target,
            transforms=transforms,
            overwrite=overwrite,
            verify=verify,
            progress=not manners.quiet,
        )
    if json:
        print_json(_counts(report))
    say(f"{target}: {report}")


def _transforms(spec: str | None, recipe: str | None, backward: bool, stacked: bool) -> Any:
    from storax.errors import BadOption
    from storax.surgery.cookbook import recipe as made
    from storax.surgery.cookbook import recipes
    from storax.surgery.plain import read_transforms

    if (spec is None) == (recipe is None):
        raise BadOption(f"give either --spec FILE or --recipe NAME; recipes are {', '.join(recipes())}")
    if spec is not None:
        return read_transforms(spec)
    return made(str(recipe), "backward" if backward else "forward", stacked=stacked)


def _print_explanation(explanation: Explanation, json: bool) -> None:
    if json:
        print_json(
            {
                "leaves": [
                    {"name": one.name, "what": one.what, "made": one.made, "source": one.source}
                    for one in explanation.leaves
                ],
                **_counts(explanation.report),
                "nbytes": explanation.nbytes,
                "needed_bytes": explanation.needed_bytes,
                "peak_bytes": explanation.peak_bytes,
            }
        )
        return
    print_table(
        [Column("leaf", style="bold"), Column("what", style="green"), Column("is"), Column("from")],
        [[one.name, one.what, one.made, one.source] for one in explanation.leaves],
    )
    # Its own words, without the leaves that are in the table.
    say("\n".join(str(explanation).splitlines()[len(explanation.leaves) :]))


def _counts(report: Any) -> dict[str, Any]:
    lists = ("loaded", "computed", "filled", "kept", "dropped", "unused", "notes")
    found: dict[str, Any] = {name: list(getattr(report, name)) for name in lists}
    return {**found, "read_bytes": report.read_bytes, "reads": report.reads}
