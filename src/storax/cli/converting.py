"""``convert``: from one kind of checkpoint to another."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from storax.cli.options import Checkpoint
from storax.cli.phrasing import said_for_the_shell
from storax.cli.printing import counted, manners, say, size


def register(app: typer.Typer) -> None:
    app.command("convert")(convert)


def convert(
    source: Checkpoint,
    target: Annotated[str, typer.Argument(metavar="DST", help="A new checkpoint, or a .safetensors file.")],
    to: Annotated[
        Literal["checkpoint", "safetensors"] | None,
        typer.Option(help="By default what DST ends with decides."),
    ] = None,
    subtree: Annotated[str, typer.Option(metavar="NAME", help="Only what is below this name.")] = "",
    dtype: Annotated[str | None, typer.Option(help="Of all floating-point arrays, such as bfloat16.")] = None,
    compression: Annotated[Literal["zstd"] | None, typer.Option(help="Of a checkpoint.")] = None,
    chunk_bytes: Annotated[
        int | None, typer.Option(min=1, help="Bytes of a checkpoint's chunk at most.")
    ] = None,
    max_shard_bytes: Annotated[
        int | None, typer.Option(min=1, help="Bytes of a safetensors file at most.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the copy back and compare every bit.")
    ] = False,
) -> None:
    """Convert between checkpoints and safetensors, or change chunks, compression, dtype. All or nothing."""
    from storax.cli.selecting import found
    from storax.conversion import convert as convert_checkpoint
    from storax.plan.chunks import MOST_BYTES
    from storax.store.paths import resolve
    from storax.survey.run import weigh

    with said_for_the_shell():
        convert_checkpoint(
            found(source).path,
            target,
            to=to,
            subtree=subtree,
            dtype=dtype,
            compression=compression,
            chunk_bytes=chunk_bytes or MOST_BYTES,
            max_shard_bytes=max_shard_bytes,
            overwrite=overwrite,
            verify=verify,
            progress=not manners.quiet,
        )
    nbytes, files = weigh(resolve(target))
    say(f"{target}: {size(nbytes)} in {counted(files, 'file')}.")
