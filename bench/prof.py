"""Which functions a case spends its time in: ``python bench/prof.py small-load``.

(Not profile.py: scripts here would then import that instead of the standard library's.)
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

CASES = ("large-save", "large-load", "large-async", "small-save", "small-load", "model-save", "model-load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--sort", default="tottime", choices=("tottime", "cumtime", "ncalls"))
    parser.add_argument("--dir", type=Path, default=Path(__file__).parent / "tmp")
    options = parser.parse_args()
    common.eight_devices()
    options.dir.mkdir(parents=True, exist_ok=True)
    where = Path(tempfile.mkdtemp(dir=options.dir))
    try:
        act = _act(options.case, where)
        for _ in range(3):
            start = time.perf_counter()
            act()
            print(f"without the profiler: {time.perf_counter() - start:.3f} s")
        profile = cProfile.Profile()
        profile.runcall(act)
        pstats.Stats(profile).sort_stats(options.sort).print_stats(options.top)
    finally:
        shutil.rmtree(where)


def _act(case: str, where: Path) -> Callable[[], Any]:
    import model
    import small

    import storax

    kind, what = case.split("-")
    if kind == "small":
        tree = small.tree_of_small()
    elif kind == "model":
        tree = model.state("float32")
    else:
        tree = {f"w{i}": common.sharded(common.normal((4096, 4096), i), "x") for i in range(8)}
    target = common.abstract(tree)
    storax.save(where / "a", tree)
    if what == "load":
        return lambda: storax.load(where / "a", target)
    if what == "save":
        return lambda: storax.save(where / "a", tree, overwrite=True)
    return lambda: storax.save_async(where / "a", tree, overwrite=True).result()


if __name__ == "__main__":
    main()
