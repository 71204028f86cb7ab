"""The command line: ``storax`` and ``python -m storax``. Verbs, options, printing, exit codes; no logic."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Runs one command and ends the process with its exit code."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.stderr.write(
            f"storax: the command line needs {error.name}, which is not installed. "
            "Type: pip install 'storax[cli]', or in a clone of its repository: pip install '.[cli]'\n"
        )
        sys.exit(2)
    # A command lives for a moment; looking for garbage among 100,000 leaves takes half of it.
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    from storax.cli.app import run

    sys.exit(run())
