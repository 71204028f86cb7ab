"""``storax.path``."""

from __future__ import annotations

from storax.compat import step as step
