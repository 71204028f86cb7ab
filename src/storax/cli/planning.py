"""``plan``: who would write how much, on any mesh, without a device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from storax.cli.options import Json
from storax.cli.printing import out, print_json

if TYPE_CHECKING:
    from storax.plan.simulation import PlannedArray, Simulation


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    tree: Annotated[
        str,
        typer.Argument(
            metavar="CKPT|FILE.json",
            help='A checkpoint, or {"mesh": {"data": 4}, "arrays": {"w": {"shape": [8, 2],'
            ' "dtype": "float32", "spec": ["data", null]}}}.',
        ),
    ],
    mesh: Annotated[
        str | None,
        typer.Option(metavar="AXIS=SIZE,...", help="Instead of the tree's own, such as data=4,model=2."),
    ] = None,
    hosts: Annotated[int, typer.Option(min=1, help="How many processes.")] = 1,
    chips_per_host: Annotated[
        int | None, typer.Option(min=1, help="By default the mesh is shared out among the hosts.")
    ] = None,
    writers: Annotated[int, typer.Option(min=1, help="Threads that each process writes with.")] = 8,
    json: Json = False,
) -> None:
    """Explain a save without devices: bytes per process, heaviest and mean, files, chunks, largest slice."""
    from storax.plan.simulation import simulate

    arrays, own_mesh = _tree(tree)
    devices = _mesh(mesh) or own_mesh
    _check_hosts(tree, devices, hosts, chips_per_host)
    found = simulate(arrays, devices, hosts=hosts, chips_per_host=chips_per_host, writers=writers)
    if json:
        print_json(_as_json(found))
    else:
        out(str(found))


def _check_hosts(tree: str, mesh: dict[str, int], hosts: int, chips: int | None) -> None:
    from storax.errors import BadOption

    devices = math.prod(mesh.values())
    if hosts * (chips or devices // hosts) == devices:
        return
    wanted = hosts * (chips or 8)
    if not mesh:
        raise BadOption(
            f"{tree} has no mesh, so it says nothing of how its arrays lie on {hosts} hosts. "
            f"Say which mesh, such as {wanted} devices: --mesh data={wanted} --hosts {hosts}"
        )
    shown = ", ".join(f"{axis}={size}" for axis, size in mesh.items())
    most = f"{hosts} hosts" if chips is None else f"{hosts} hosts of {chips} chips"
    raise BadOption(
        f"the {devices} devices of the mesh {shown} cannot be shared out among {most}. Change --hosts or "
        f"--chips-per-host, whose product is the number of devices, or the mesh: --mesh data={wanted}"
    )


def _tree(text: str) -> tuple[dict[str, Any] | list[PlannedArray], dict[str, int]]:
    """The arrays and their mesh, from a JSON file or from a checkpoint's own metadata."""
    import json

    from storax.checkpoint import SavedTree
    from storax.cli.selecting import found
    from storax.errors import BadOption
    from storax.opening import open_safetensors
    from storax.plan.simulation import planned
    from storax.store.paths import resolve

    path = resolve(text)
    if path.suffix == ".json" and path.is_file() and not path.name.endswith(".index.json"):
        try:
            value = json.loads(path.read_bytes())
        except ValueError as error:
            raise BadOption(f"{path} is not JSON: {error}") from None
        if not isinstance(value, dict) or not isinstance(value.get("arrays"), dict):
            raise BadOption(f"{path} has no object 'arrays'; see: storax plan --help")
        bad = [
            n
            for n, a in value["arrays"].items()
            if not isinstance(a, dict) or not isinstance(a.get("shape"), list)
        ]
        if bad:
            raise BadOption(f"{path}: these arrays have no list 'shape': {', '.join(bad[:10])}")
        mesh = value.get("mesh") or {}
        if not isinstance(mesh, dict) or not all(isinstance(size, int) for size in mesh.values()):
            raise BadOption(f"{path}: 'mesh' is not an object of sizes, such as {{\"data\": 4}}")
        return value, mesh
    place = found(text)
    return planned(
        leaf.leaf
        for directory in place.trees.values()
        for leaf in (open_safetensors(directory) or SavedTree.open(directory)).leaves()
    )


def _mesh(text: str | None) -> dict[str, int]:
    from storax.errors import BadOption

    found: dict[str, int] = {}
    for part in (text or "").split(","):
        axis, _, size = part.partition("=")
        if part and not (axis.strip() and size.strip().isdigit() and int(size) > 0):
            raise BadOption(f"--mesh {text}: {part!r} is not AXIS=SIZE, such as data=4")
        if part:
            found[axis.strip()] = int(size)
    return found


def _as_json(found: Simulation) -> dict[str, Any]:
    plans = {
        "storax": found.loads,
        "single replica": found.single_replica,
        "divided replicas": found.divided_replicas,
    }
    return {
        "mesh": dict(found.mesh),
        "arrays": found.arrays,
        "nbytes": found.nbytes,
        "bytes_per_process": list(found.loads.bytes),
        "chunks_per_process": list(found.chunks),
        "files": found.files,
        "largest_slice": found.largest_slice,
        "plans": {
            name: {"heaviest": loads.heaviest, "mean": loads.mean, "balance": loads.balance}
            for name, loads in plans.items()
        },
    }
