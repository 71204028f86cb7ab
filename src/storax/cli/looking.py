"""``ls`` and ``show``: what there is. They read documents and indexes only, and start without JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from storax.cli.options import Item, Json, Match
from storax.cli.printing import Column, counted, number, print_json, print_table, say, size, when

# A tree with more leaves than this is shown folded, unless somebody asks for more.
_MOST_LEAVES = 200
_FOLDED_DEPTH = 2


def register(app: typer.Typer) -> None:
    app.command("ls")(ls)
    app.command("show")(show)


def ls(
    directory: Annotated[
        str, typer.Argument(metavar="RUN", help="A run directory, or one checkpoint.", show_default=False)
    ] = ".",
    json: Json = False,
) -> None:
    """List the steps of a run: when, how large, which items, committed or not, metrics."""
    from storax.store import commit
    from storax.store.paths import resolve
    from storax.survey import run

    path = resolve(directory)
    if not run.is_run(path) and not commit.is_draft(path):
        from storax.errors import CheckpointNotFound
        from storax.survey.folders import what_lies_in
        from storax.survey.places import find

        if advice := what_lies_in(path, for_runs="storax ls", for_checkpoints="storax ls"):
            raise CheckpointNotFound(f"{path} is not a run: there are no steps in it. {advice}")
        find(path)  # a checkpoint of any kind; otherwise it says what is there instead
    seen = run.see_run(path) if run.is_run(path) else [run.see_step(path)]
    if json:
        print_json([_step_json(step) for step in seen])
        return
    metrics = list(dict.fromkeys(name for step in seen for name in step.metrics))
    columns = [
        Column("step", "right", "bold"), Column("saved"), Column("took", "right"),
        Column("size", "right", "cyan"), Column("files", "right"), Column("state"), Column("items"),
        *(Column(name, "right") for name in metrics),
    ]  # fmt: skip
    rows = [
        [
            step.path.name if step.step is None else str(step.step),
            when(step.saved_ns),
            "-" if step.seconds is None else f"{step.seconds:.2f} s",
            size(step.nbytes),
            str(step.files),
            ", ".join([step.state, *step.why]),
            ", ".join(step.items) or "-",
            *(_metric(step.metrics.get(name)) for name in metrics),
        ]
        for step in seen
    ]
    print_table(columns, rows)


def _metric(value: Any) -> str:
    return number(value) if isinstance(value, (int, float, type(None))) else str(value)


def _step_json(step: Any) -> dict[str, Any]:
    return {
        "path": str(step.path),
        "step": step.step,
        "state": step.state,
        "why": list(step.why),
        "saved_ns": step.saved_ns,
        "seconds": step.seconds,
        "nbytes": step.nbytes,
        "files": step.files,
        "items": list(step.items),
        "metrics": dict(step.metrics),
    }


# --- show ----------------------------------------------------------------------------------------


def show(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CKPT", help="A checkpoint, an item of one, or a run (its newest step)."),
    ],
    depth: Annotated[
        int | None,
        typer.Option("--depth", "-d", min=0, help="Fold the tree below so many levels; 0 folds nothing."),
    ] = None,
    match: Match = None,
    sort: Annotated[
        Literal["tree", "size", "name"], typer.Option(help="The order within each branch.")
    ] = "tree",
    item: Item = None,
    json: Json = False,
) -> None:
    """Show what is in a checkpoint: the tree with shapes, dtypes, shardings, bytes and chunks."""
    from storax.cli.selecting import found
    from storax.survey import branches

    place = found(checkpoint, item)
    trees = {name: _tree(directory, depth, match, name) for name, directory in place.trees.items()}
    if match is not None and not any(tree.leaves for tree in trees.values()):
        say(f"No leaf's name has {match!r}.")
    if json:
        print_json(_show_json(place, trees))
        return
    rows: list[list[str]] = []
    for name, tree in trees.items():
        indent = 0
        if name and place.has_items:
            rows.append([f"{name}:", _count(tree), *_amounts(tree), "", ""])
            indent = 1
        rows += [_row(branch, level + indent) for level, branch in branches.walk(tree, sort)]
    rows += [[f"{name}:", "not a tree of arrays", "", "", "", ""] for name in place.others]
    print_table(
        [
            Column("name", style="bold"), Column("what", style="green"), Column("bytes", "right", "cyan"),
            Column("on disk", "right"), Column("chunks"), Column("sharding", style="magenta"),
        ],
        rows,
    )  # fmt: skip
    _summary(place, trees)


def _tree(directory: Path, depth: int | None, match: str | None, name: str) -> Any:
    from storax.cli.selecting import matching
    from storax.survey.branches import grow
    from storax.survey.leaves import see_leaves
    from storax.survey.outline import outline

    if match is None and depth != 0 and (tree := outline(directory, depth or _FOLDED_DEPTH)) is not None:
        if depth is None:
            say(f"{tree.leaves:,} leaves; shown to a depth of {_FOLDED_DEPTH}. All: --depth 0")
        return tree
    leaves = see_leaves(directory, matching(match))
    if depth is None and len(leaves) > _MOST_LEAVES:
        say(f"{len(leaves):,} leaves; shown to a depth of {_FOLDED_DEPTH}. All: --depth 0")
        depth = _FOLDED_DEPTH
    return grow(leaves, depth or None, name)


def _count(branch: Any) -> str:
    return counted(branch.leaves, "leaf", "leaves")


def _amounts(branch: Any) -> list[str]:
    return [size(branch.nbytes), size(branch.stored_bytes) if branch.stored_bytes else "-"]


def _row(branch: Any, level: int) -> list[str]:
    from storax.survey.sharding import in_short

    name = "  " * level + (branch.name or "(the whole tree)")
    leaf = branch.leaf
    if leaf is None:
        fold = "…" if branch.folded else ""
        return [name + fold, _count(branch), *_amounts(branch), "", ""]
    what = leaf.what if leaf.value is None else f"{leaf.what} {_short(leaf.value)}"
    if leaf.tied is not None:
        what += f" = {leaf.tied}"
    grid = "x".join(map(str, leaf.grid))
    chunks = f"{leaf.chunks:,}" + (f" ({grid})" if len(leaf.grid) > 1 and leaf.chunks > 1 else "")
    return [
        name,
        what,
        *_amounts(branch),
        chunks if leaf.chunk_shape is not None else "",
        in_short(leaf.sharding),
    ]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _summary(place: Any, trees: dict[str, Any]) -> None:
    leaves = sum(tree.leaves for tree in trees.values())
    nbytes = sum(tree.nbytes for tree in trees.values())
    say(f"{place.path}: {counted(leaves, 'leaf', 'leaves')}, {size(nbytes)} ({nbytes:,} bytes)")
    if place.custom:
        say("saved beside it: " + ", ".join(f"{key}={value!r}" for key, value in place.custom.items()))


def _show_json(place: Any, trees: dict[str, Any]) -> dict[str, Any]:
    from storax.survey import branches
    from storax.survey.leaves import as_json

    return {
        "path": str(place.path),
        "custom_metadata": dict(place.custom),
        "items": {
            name: {
                "leaves": tree.leaves,
                "nbytes": tree.nbytes,
                "tree": [
                    {
                        "path": list(b.path),
                        "leaves": b.leaves,
                        "nbytes": b.nbytes,
                        "stored_bytes": b.stored_bytes,
                    }
                    | ({} if b.leaf is None else as_json(b.leaf))
                    for _, b in branches.walk(tree)
                ],
            }
            for name, tree in trees.items()
        },
        "others": list(place.others),
    }
