"""Model surgery: a model saved under one structure, read under another, without ever holding it whole.

Transforms are values. They go into ``storax.load``, ``storax.rewrite`` and ``storax.explain`` as a list.
"""

from storax.surgery.arithmetic import apply as apply
from storax.surgery.arithmetic import cast as cast
from storax.surgery.arithmetic import overlay as overlay
from storax.surgery.arithmetic import scale as scale
from storax.surgery.composing import below as below
from storax.surgery.composing import merge as merge
from storax.surgery.contract import Transform as Transform
from storax.surgery.cookbook import recipe as recipe
from storax.surgery.cookbook import recipes as recipes
from storax.surgery.filling import fill as fill
from storax.surgery.filling import initializer as initializer
from storax.surgery.filling import missing as missing
from storax.surgery.fusing import fuse_by_keys as fuse_by_keys
from storax.surgery.fusing import fuse_by_pattern as fuse_by_pattern
from storax.surgery.fusing import split_by_keys as split_by_keys
from storax.surgery.fusing import split_by_pattern as split_by_pattern
from storax.surgery.naming import drop as drop
from storax.surgery.naming import flatten as flatten
from storax.surgery.naming import keep as keep
from storax.surgery.naming import rename_by_regex as rename_by_regex
from storax.surgery.naming import unflatten as unflatten
from storax.surgery.plain import from_plain as from_plain
from storax.surgery.plain import read_transforms as read_transforms
from storax.surgery.plain import to_plain as to_plain
from storax.surgery.shaping import deinterleave as deinterleave
from storax.surgery.shaping import interleave as interleave
from storax.surgery.shaping import pad as pad
from storax.surgery.shaping import repeat_by_keys as repeat_by_keys
from storax.surgery.shaping import repeat_by_pattern as repeat_by_pattern
from storax.surgery.shaping import reshape as reshape
from storax.surgery.shaping import slice as slice
from storax.surgery.shaping import transpose as transpose
from storax.surgery.stacking import stack as stack
from storax.surgery.stacking import unstack as unstack
