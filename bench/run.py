"""The benchmark: each figure beside its peers, in the same run.

python bench/run.py                 the short table, in a few minutes
python bench/run.py --all           everything
python bench/run.py --only small    one group
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import common
from common import Row, Setting

SHORT = ("large", "blocking", "small", "startup")
LONG = ("partial", "tensors", "surgery", "model", "training", "memory")
HERE = Path(__file__).parent

_NOTES = """\
Weights are random normal float32, whose entropy is that of trained ones: zstd makes them some 8 % smaller.
The "fresh Adam state" is one third such numbers and two thirds zeros. All restores come from the page cache;
all saves end with fsync unless a line says otherwise. Contestants take turns (A B C A B C ...), after a
warm-up that is not counted, and each repetition replaces the one before; all is synced before each. Ratios
compare best with best: 2.0 means twice the time of storax. A virtual machine may hand freed memory back
to its host, and then the first touch of a page, page cache included, costs ten times a warm one: hence the
warm-up, and hence medians that lie well above the best. Restored values are compared bit by bit with what was
saved, outside of the clock.
"""


def main() -> None:
    options = _options()
    if options.group:
        _one_group(options, options.dir)
        return
    options.dir.mkdir(parents=True, exist_ok=True)
    # Of our own, as it is deleted at the end.
    directory = Path(tempfile.mkdtemp(prefix="storax-bench-", dir=options.dir.absolute()))
    groups = options.only or ([*SHORT, *LONG] if options.all else SHORT)
    started = time.monotonic()
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    head = [f"# Benchmark, {now}\n", *(f"- {line}" for line in common.machine(options.dir)), "", _NOTES]
    print("\n".join(head), flush=True)
    rows: list[Row] = []
    try:
        for group in groups:
            found = _in_child(group, options, directory)
            print(table(found), flush=True)
            rows += found
    finally:
        common.remove(directory)
    minutes = f"The whole run took {(time.monotonic() - started) / 60:.1f} minutes."
    print(minutes)
    text = "\n".join([*head, table(rows), minutes, ""])
    if not options.only:
        (HERE / "RESULTS.md").write_text(text)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all groups, not only the short table")
    parser.add_argument("--only", nargs="+", choices=[*SHORT, *LONG], help="these groups; RESULTS.md stays")
    parser.add_argument("--json", type=Path, help="also write the raw numbers to this file")
    parser.add_argument("--dir", type=Path, default=HERE / "tmp", help="where to write (on a disk)")
    parser.add_argument("--repeats", type=int, default=5, help="timed repetitions (default: 5)")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_child(group: str, options: argparse.Namespace, directory: Path) -> list[Row]:
    """Runs a group in a process of its own: what one leaves in memory does not slow the next."""
    out = directory / f"{group}.json"
    command = [sys.executable, __file__, "--group", group, "--out", str(out), "--dir", str(directory)]
    command += ["--repeats", str(options.repeats), *(["--all"] if options.all or options.only else [])]
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(f"The group {group} failed with exit code {done.returncode}.")
    return [Row(**row) for row in json.loads(out.read_text())]


def _one_group(options: argparse.Namespace, directory: Path) -> None:
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    setting = Setting(directory, options.repeats, 2, options.all)
    rows: list[Row] = importlib.import_module(options.group).run(setting)
    options.out.write_text(json.dumps([dataclasses.asdict(row) for row in rows]))


def table(rows: list[Row]) -> str:
    """Markdown. The ratio is best over storax's best in the same case."""
    lines = ["| case | | best | median | n | GB/s | x storax |", "|---|---|--:|--:|--:|--:|--:|"]
    base: dict[str, float] = {}
    for row in rows:
        if row.seconds:
            base.setdefault(row.case, row.best)
            if row.name == "storax":
                base[row.case] = row.best
    before = None
    for row in rows:
        case = row.case if row.case != before else ""
        before = row.case
        if not row.seconds:
            lines.append(f"| {case} | {row.name} | {row.text} | | | | |")
            continue
        speed = f"{row.nbytes / row.best / 1e9:.2f}" if row.nbytes else ""
        ratio = f"{row.best / base[row.case]:.2f}"
        cells = (common.human(row.best), common.human(row.median), str(len(row.seconds)), speed, ratio)
        lines.append(f"| {case} | {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
