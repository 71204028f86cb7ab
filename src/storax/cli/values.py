"""``get``, ``stats`` and ``diff``: values, read a block at a time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from storax.cli.options import Checkpoint, Item, Json, Match
from storax.cli.printing import Column, counted, number, out, print_json, print_table, say


def register(app: typer.Typer) -> None:
    app.command("get")(get)
    app.command("stats")(stats)
    app.command("diff")(diff)


def get(
    checkpoint: Checkpoint,
    leaf: Annotated[
        str, typer.Argument(metavar="LEAF[SLICE]", help="A leaf, or part of one: 'params.w[0:10, :, -1]'.")
    ],
    file: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Write a .npy file instead of printing.")
    ] = None,
    item: Item = None,
    json: Json = False,
) -> None:
    """Print a leaf or a slice of it, reading little more than that; or write it to a .npy file."""
    import numpy as np

    from storax.cli import selecting
    from storax.survey.values import portable, read_slice

    place = selecting.found(checkpoint, item)
    if leaf in place.others:
        _print_plain(place.load_json(leaf), True, file)
        return
    found, index = selecting.one_leaf(place, leaf)
    name = found.name
    if found.source is None:
        value: Any = [] if found.kind in ("list", "tuple") else {} if found.kind == "dict" else found.value
        _print_plain(value, json, file)
        return
    values = read_slice(found, index)
    if found.kind == "bytes" and not index and file is None:
        _print_plain(values.tobytes().decode("latin-1") if json else repr(values.tobytes()), json, None)
    elif file is not None:
        wide = portable(values)
        if wide.dtype != values.dtype:
            say(f"{name} is {values.dtype.name}, for which .npy has no name: written as {wide.dtype.name}.")
        _write_npy(file, wide)
        say(f"{file}: {wide.dtype.name}{list(wide.shape)}, {wide.nbytes:,} bytes")
    elif json:
        print_json(
            {"name": name, "dtype": found.dtype, "shape": list(values.shape), "values": _listed(values)}
        )
    else:
        out(np.array2string(portable(values), separator=", ", threshold=1000))


def _print_plain(value: Any, json: bool, file: str | None) -> None:
    from storax.errors import BadOption

    if file is not None:
        raise BadOption("the leaf is no array, so there is nothing for a .npy file; leave --out away")
    if json:
        print_json(value)
    else:
        out(str(value))


def _listed(values: Any) -> Any:
    from storax.survey.values import portable

    if values.dtype.kind == "c":
        return {"real": values.real.tolist(), "imag": values.imag.tolist()}
    return portable(values).tolist()


def _write_npy(file: str, values: Any) -> None:
    import numpy as np

    if not file.endswith(".npy"):
        from storax.errors import BadOption

        raise BadOption(f"--out {file}: the name of a .npy file ends with .npy")
    np.save(file, values, allow_pickle=False)


# --- statistics ----------------------------------------------------------------------------------


def stats(checkpoint: Checkpoint, match: Match = None, item: Item = None, json: Json = False) -> None:
    """Print min, max, mean, std, norm, and how many NaN, Inf and zeros every leaf has."""
    from storax.cli.selecting import all_leaves, found
    from storax.cli.watching import watched
    from storax.progress import expect
    from storax.survey.values import statistics

    every = [
        (name, leaf) for name, leaf in all_leaves(found(checkpoint, item), match) if leaf.source is not None
    ]
    with watched("reading"):
        expect(sum(leaf.nbytes for _, leaf in every))
        seen = statistics([leaf for _, leaf in every])
    named = list(zip((name for name, _ in every), seen, strict=True))
    if json:
        print_json([_statistics_json(name, s) for name, s in named])
        return
    titles = "min max mean std norm nan inf zero".split()
    columns = [
        Column("name", style="bold"),
        Column("what", style="green"),
        *(Column(t, "right") for t in titles),
    ]
    print_table(
        columns,
        [
            [name, s.what, *map(number, (s.low, s.high, s.mean, s.std, s.norm, s.nans, s.infs, s.zeros))]
            for name, s in named
        ],
    )
    bad = [name for name, s in named if s.nans or s.infs]
    if bad:
        more = "…" if len(bad) > 5 else ""
        say(f"{len(bad)} of {len(named)} leaves have NaN or Inf: {', '.join(bad[:5])}{more}")


def _statistics_json(name: str, s: Any) -> dict[str, Any]:
    return {
        "name": name, "what": s.what, "count": s.count, "min": s.low, "max": s.high, "mean": s.mean,
        "std": s.std, "norm": s.norm, "nan": s.nans, "inf": s.infs, "zero": s.zeros,
    }  # fmt: skip


# --- differences ---------------------------------------------------------------------------------


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A checkpoint, an item, or a run (its newest step).")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    rtol: Annotated[
        float, typer.Option(min=0, help="Values this close, relative to the larger, are equal.")
    ] = 0,
    only_shapes: Annotated[bool, typer.Option("--only-shapes", help="Do not read values.")] = False,
    match: Match = None,
    item: Item = None,
    json: Json = False,
) -> None:
    """Compare two checkpoints: names, shapes, dtypes, then values. Exits with 1 if they differ."""
    from dataclasses import replace

    from storax.cli.selecting import all_leaves, found
    from storax.cli.watching import watched
    from storax.progress import expect
    from storax.survey.difference import compare

    sides = [
        [replace(leaf, name=name) for name, leaf in all_leaves(found(path, item), match)] for path in (a, b)
    ]
    with watched("comparing"):
        if not only_shapes:
            expect(_bytes_of_common(*sides))
        differences = list(compare(*sides, rtol=rtol, values=not only_shapes))
    if json:
        print_json([_difference_json(d) for d in differences])
    elif differences:
        print_table(
            [
                Column("name", style="bold"), Column("differs", style="red"), Column("A"), Column("B"),
                Column("values", "right"), Column("max abs", "right"), Column("max rel", "right"),
            ],
            [_difference_row(d) for d in differences],
        )  # fmt: skip
    common = len({leaf.name for leaf in sides[0]} & {leaf.name for leaf in sides[1]})
    say(f"{counted(len(differences), 'difference')}; on both sides: {counted(common, 'leaf', 'leaves')}.")
    if differences:
        raise typer.Exit(1)


def _difference_row(d: Any) -> list[str]:
    values = [f"{d.count:,} of {d.size:,}", number(d.absolute), number(d.relative)] if d.size else [""] * 3
    return [d.name, d.kind, d.one or "-", d.other or "-", *values]


def _bytes_of_common(ones: list[Any], others: list[Any]) -> int:
    theirs = {leaf.name: leaf for leaf in others}
    return sum(
        2 * leaf.nbytes
        for leaf in ones
        if leaf.name in theirs
        and (leaf.shape, leaf.dtype) == (theirs[leaf.name].shape, theirs[leaf.name].dtype)
    )


def _difference_json(d: Any) -> dict[str, Any]:
    found = {"name": d.name, "kind": d.kind, "a": d.one or None, "b": d.other or None}
    if d.size:
        found |= {"count": d.count, "size": d.size, "max_abs": d.absolute, "max_rel": d.relative}
    return found
