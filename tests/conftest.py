"""Eight devices on one CPU, for all tests. The flag counts only if it is set before JAX starts."""

from __future__ import annotations

import os

_FLAG = "--xla_force_host_platform_device_count"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=8".strip()

from hypothesis import settings  # noqa: E402

# The same examples in every run: a test that fails for a rare one fails for everybody, and at once.
settings.register_profile("storax", derandomize=True, deadline=None, database=None, max_examples=100)
settings.load_profile("storax")
