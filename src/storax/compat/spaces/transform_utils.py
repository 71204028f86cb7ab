"""``storax.transform_utils``."""

from __future__ import annotations

from storax.compat.spaces.tree import intersect_trees as intersect_trees
from storax.compat.transforms import Transform as Transform
