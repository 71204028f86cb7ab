"""What an import costs on top of ``import jax``, in a process of its own each time."""

from __future__ import annotations

import subprocess
import sys

from common import Row, Setting

_CODE = """
import time, jax
start = time.perf_counter()
{what}
print(time.perf_counter() - start)
"""
_WHATS = {
    "storax": "import storax; storax.save, storax.load",
    "storax, no name used yet": "import storax",
    "storax, every name used": "import storax; [getattr(storax, name) for name in storax.__all__]",
    "Orbax": "import orbax.checkpoint",
}


def run(setting: Setting) -> list[Row]:
    rows = {name: Row("import, over import jax", name) for name in _WHATS}
    for turn in range(max(5, setting.repeats) + 1):
        for name, what in _WHATS.items():
            code = _CODE.format(what=what)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            if turn:  # the first fills the page cache
                rows[name].seconds.append(float(done.stdout))
    return list(rows.values())
