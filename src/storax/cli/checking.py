"""``verify``: whether every byte is as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from storax.cli.options import Checkpoint, Json
from storax.cli.printing import Column, counted, manners, print_json, print_table, say, size


def register(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(checkpoint: Checkpoint, json: Json = False) -> None:
    """Read everything once, check it, and list every fault with leaf, file and what it spoils.

    Exits with 8 if something is damaged.
    """
    from storax.cli.selecting import found
    from storax.errors import Corrupt
    from storax.progress import Bar
    from storax.verification import verify as verify_checkpoint

    place = found(checkpoint)
    path = place.path
    if place.checkpoint is None:
        # Opening it has checked the header and every offset; the format has no checksums.
        if json:
            print_json({"path": str(path), "ok": True, "faults": [], "checked": "header and offsets"})
        say(f"{path}: header and offsets are right. Safetensors carry no checksums of their values.")
        return
    bar = None if manners.quiet else Bar("verifying")
    result = verify_checkpoint(path, progress=bar)
    if bar is not None:
        bar.close()
    if json:
        print_json(_as_json(result))
    elif result.faults:
        print_table(
            [Column("leaf", style="bold"), Column("file"), Column("spoils"), Column("what", style="red")],
            [[f.leaf or "-", _below(f.file, path), f.spoils, f.what] for f in result.faults],
        )
    say(
        f"{path}: {counted(result.leaves, 'leaf', 'leaves')} in {counted(result.chunks, 'chunk')}, "
        f"{size(result.read_bytes)} read"
        + (f", {size(result.unchecked_bytes)} of them without a checksum" if result.unchecked_bytes else "")
        + (". All of it is whole." if result.ok else f". {counted(len(result.faults), 'fault')}.")
    )
    if not result.ok:
        raise typer.Exit(Corrupt.exit_code)


def _below(file: str, path: Path) -> str:
    return str(Path(file).relative_to(path)) if Path(file).is_relative_to(path) else file


def _as_json(result: Any) -> dict[str, Any]:
    return {
        "path": str(result.path),
        "ok": result.ok,
        "leaves": result.leaves,
        "chunks": result.chunks,
        "read_bytes": result.read_bytes,
        "unchecked_bytes": result.unchecked_bytes,
        "faults": [
            {"leaf": fault.leaf, "file": fault.file, "what": fault.what, "spoils": fault.spoils}
            for fault in result.faults
        ],
    }
