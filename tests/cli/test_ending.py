"""How a command ends: exit codes, messages, quiet, pipes, completion."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import SOURCE, ok, process, storax
from tests.cli.runs import make_run, tree

import storax as library
from storax import errors


def test_each_kind_of_error_has_its_exit_code(tmp_path: Path):
    library.save(tmp_path / "a", tree())
    library.save(tmp_path / "b", tree())
    (tmp_path / "b" / "_METADATA").write_bytes(b"{")
    assert storax("show", tmp_path / "nope").code == errors.CheckpointNotFound.exit_code == 7
    assert storax("cp", tmp_path / "a", tmp_path / "b").code == errors.CheckpointExists.exit_code == 6
    assert storax("show", tmp_path / "b").code == errors.Corrupt.exit_code == 8
    assert storax("show", tmp_path / "a", "--match", "(").code == errors.BadOption.exit_code == 2
    assert storax("show").code == 2
    assert storax("dance").code == 2


def test_help_lists_the_exit_code_of_every_error():
    text = process("--help", COLUMNS="200").out
    every = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == "storax.errors"
    ]
    assert len(every) > 12
    for kind in every:
        assert f"{kind.exit_code}  " in text, kind
        assert kind.exit_code in (1, 2) or kind.__name__ in text


@pytest.mark.parametrize(
    "verb", "ls show get stats diff verify cp convert surgery plan rm doctor gc report timeline".split()
)
def test_every_verb_has_help(verb: str):
    assert "Usage" in ok(verb, "--help").out


def test_errors_go_to_stderr_with_the_type_and_no_traceback(tmp_path: Path):
    done = process("show", tmp_path / "nope")
    assert done.out == ""
    assert done.err.startswith("storax: CheckpointNotFound: ")
    assert "Traceback" not in done.err


def test_data_goes_to_stdout_and_remarks_to_stderr(tmp_path: Path):
    run = make_run(tmp_path / "run")
    loud, quiet = ok("show", run), ok("--quiet", "show", run)
    assert loud.out == quiet.out
    assert loud.err
    assert quiet.err == ""


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path):
    library.save(tmp_path / "a", {f"leaf{i}": i for i in range(3000)})
    command = f"{sys.executable} -m storax show {tmp_path}/a -d 0 | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.splitlines()[1] == "0"
    assert "Broken" not in done.stderr


def test_without_typer_it_says_what_to_install():
    program = "import sys; sys.modules['typer'] = None; from storax.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}
    )
    assert done.returncode == 2
    assert "pip install 'storax[cli]'" in done.stderr
    assert "pip install '.[cli]'" in done.stderr


def test_it_completes_in_a_shell():
    done = process(_STORAX_COMPLETE="complete_bash", COMP_WORDS="storax d", COMP_CWORD="1")
    assert done.out.split() == ["diff", "doctor"]
    done = process(_STORAX_COMPLETE="complete_bash", COMP_WORDS="storax gc --keep", COMP_CWORD="2")
    assert {"--keep-last", "--keep-every", "--keep-best"} <= set(done.out.split())


def test_it_tells_its_version():
    assert ok("--version").out == f"storax {library.__version__}\n"


def test_ctrl_c_ends_it_with_130(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.zeros(1000)})
    program = """if True:
        import os, signal, sys
        from storax.cli import main
        from storax.survey import values
        values.statistics = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)
        sys.argv = ["storax", "stats", sys.argv[1]]
        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_on_a_terminal_tables_have_colours_and_work_has_a_bar(tmp_path: Path):
    library.save(tmp_path / "a", {"w": np.zeros(1000)})
    program = """if True:
        import sys
        from storax import progress
        from storax.cli import main
        progress._QUIET_SECONDS = -1
        sys.argv = ["storax", "stats", sys.argv[1]]
        main()
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "a")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as running:
        os.close(theirs)
        text = ""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            text += more.decode(errors="replace")
            if not more:
                break
    os.close(ours)
    assert running.returncode == 0
    assert "\x1b[1m" in text
    assert "reading ━━━━━━━━" in text
    assert "100%" in text
