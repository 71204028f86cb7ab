"""Errors of the library, said for somebody who typed a command and not a call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from storax.errors import CheckpointExists, UnsupportedLeaf

_TYPED_INSTEAD = {
    "or replace it: save(..., overwrite=True)": "or replace it: --overwrite",
    "or save_safetensors(..., overwrite=True)": "or replace it: --overwrite",
    "convert(..., subtree='params')": "--subtree params",
}


@contextlib.contextmanager
def said_for_the_shell() -> Iterator[None]:
    """While the block runs, errors that end with a call to make end with the option to type."""
    try:
        yield
    except (CheckpointExists, UnsupportedLeaf) as error:
        text = str(error)
        for call, option in _TYPED_INSTEAD.items():
            text = text.replace(call, option)
        raise type(error)(text) from None
