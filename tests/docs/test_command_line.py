"""The newcomer's session of ``docs/command-line.md``, run as it stands."""

from __future__ import annotations

from pathlib import Path

from tests.docs.session import blocks, fits, run, shell, steps, write_program

DOCUMENT = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_the_session_goes_as_written(tmp_path: Path):
    where = tmp_path / "somewhere"
    where.mkdir()
    environment = shell(where)
    ran = 0
    for language, text in blocks(DOCUMENT.read_text()):
        if language == "python":
            write_program(text, where)
            continue
        for step in steps(text):
            printed = run(step, where, environment)
            assert fits(step.expected, printed), f"$ {step.command}\n{printed}--- expected:\n{step.expected}"
            ran += 1
    assert ran > 20


def test_what_is_expected_is_not_everything():
    assert fits("a  b…\n…\nend\n", "a b123\nx\ny\nend\n")
    assert not fits("a  b…\n…\nend\n", "a c\nend\n")
    assert not fits("a\n", "a\nb\n")
    assert not fits("a\n[exit code 1]\n", "a\n")


def test_every_verb_is_on_the_page():
    text = DOCUMENT.read_text()
    for verb in "ls show get stats diff verify cp convert surgery plan gc rm doctor report timeline".split():
        assert f"storax {verb}" in text or f"`{verb}`" in text or f"--quiet {verb}" in text, verb
