"""The verbs, put together, and how a command ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer

from storax import __version__, errors
from storax.cli import checking, converting, looking, managing, moving, operating, pictures, planning, values
from storax.cli.printing import close_pipe, manners

_OTHER_CODES = {
    0: "it went well",
    1: "anything else failed; of `diff`: they differ; of `doctor`: something serious was found",
    2: "the command cannot work as it was typed",
    130: "interrupted",
}


def _exit_codes() -> str:
    """Every exit code with what it means, from the tree of errors."""
    found: dict[int, list[str]] = {}
    for kind in _below(errors.StoraxError):
        if kind.exit_code not in _OTHER_CODES:
            found.setdefault(kind.exit_code, []).append(kind.__name__)
    said = {code: _meaning(names) for code, names in found.items()}
    return "\n\n".join(f"{code}  {text}" for code, text in sorted({**_OTHER_CODES, **said}.items()))


def _below(kind: type[errors.StoraxError]) -> Iterator[type[errors.StoraxError]]:
    yield kind
    for lower in kind.__subclasses__():
        yield from _below(lower)


def _meaning(names: list[str]) -> str:
    first = (getattr(errors, names[0]).__doc__ or "").split(". ")[0].splitlines()[0].rstrip(".")
    return f"{', '.join(dict.fromkeys(names))}: {first[0].lower()}{first[1:]}"


app = typer.Typer(
    name="storax",
    help="Look at, compare, copy and mend checkpoints of JAX programs: those of storax and of Orbax.",
    epilog=f"Exit codes:\n\n{_exit_codes()}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"storax {__version__}\n")
        raise typer.Exit


@app.callback()
def _manners(
    quiet: bool = typer.Option(
        False, "--quiet", "-q", help="No progress and no remarks, only data and errors."
    ),
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_show_version, is_eager=True
    ),
) -> None:
    manners.quiet = quiet


for verbs in (looking, values, checking, moving, converting, operating, planning, managing, pictures):
    verbs.register(app)


def run() -> int:
    """Runs the command of ``sys.argv``; returns its exit code and says on stderr what went wrong."""
    try:
        try:
            app(standalone_mode=True, prog_name="storax")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        close_pipe()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except errors.StoraxError as error:
        sys.stderr.write(f"storax: {type(error).__name__}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("storax: interrupted\n")
        return 130
    except OSError as error:
        sys.stderr.write(f"storax: {error}\n")
        return errors.StoreError.exit_code
    return 0
