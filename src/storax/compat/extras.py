"""Arguments for PRNG states and protocol buffers, in the files that Orbax has for them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from storax.checkpoint import load_json
from storax.compat.leaf_args import RestoreArgs
from storax.compat.nested import StagedComposite
from storax.compat.registry import CheckpointArgs
from storax.errors import BadOption, Corrupt
from storax.inspection import tree_metadata
from storax.items import JsonSave, TreeSave
from storax.loading import load_tree
from storax.publishing import Staged

_HANDLERS = "orbax.checkpoint._src.handlers"
# The name of the only leaf where Orbax saves one array.
ARRAY = "checkpoint"
_PROTO_FILE = "proto.pbtxt"


def named_as_saved(directory: Path, item: Any, args: Any) -> tuple[Any, Any]:
    """A wish for one array, under the name that it was saved with, if it has one."""
    saved, _ = tree_metadata(directory)
    if not isinstance(saved, Mapping) or set(saved) != {ARRAY}:
        return item, args
    if args is None and item is not None:
        return {ARRAY: item}, None
    return None, {ARRAY: RestoreArgs() if args is None else args}


def _load_array(directory: Path) -> Any:
    found = load_tree(directory)
    return found[ARRAY] if isinstance(found, Mapping) and set(found) == {ARRAY} else found


@dataclass
class JaxRandomKeySave(CheckpointArgs):
    """PRNG keys of JAX, typed or not, to be saved."""

    item: Any
    save_args: Any = None

    def stage(self) -> Staged:
        typed = jnp.issubdtype(self.item.dtype, jax.dtypes.prng_key)
        data = jax.random.key_data(self.item) if typed else self.item
        about: dict[str, Any] = {"typed": bool(typed)}
        if typed:
            about["impl"] = str(jax.random.key_impl(self.item))
        items = {
            "jax_random_key": TreeSave({ARRAY: data}).stage(),
            "jax_random_key_metadata": JsonSave(about).stage(),
        }
        return StagedComposite(
            items, f"{_HANDLERS}.random_key_checkpoint_handler.JaxRandomKeyCheckpointHandler"
        )


@dataclass
class JaxRandomKeyRestore(CheckpointArgs):
    """PRNG keys of JAX to be restored."""

    restore_args: Any = None

    def load(self, directory: Path) -> Any:
        data = _load_array(directory / "jax_random_key")
        about = load_json(directory / "jax_random_key_metadata")
        if not about.get("typed"):
            return data
        return jax.random.wrap_key_data(data, impl=about.get("impl"))


@dataclass
class NumpyRandomKeySave(CheckpointArgs):
    """What ``np.random.get_state`` gives, to be saved."""

    item: Any

    def stage(self) -> Staged:
        legacy = isinstance(self.item, tuple)
        items = {
            "np_random_key": TreeSave(list(self.item) if legacy else self.item).stage(),
            "np_random_key_metadata": JsonSave({"legacy": legacy}).stage(),
        }
        return StagedComposite(
            items, f"{_HANDLERS}.random_key_checkpoint_handler.NumpyRandomKeyCheckpointHandler"
        )


@dataclass
class NumpyRandomKeyRestore(CheckpointArgs):
    """What ``np.random.set_state`` takes, to be restored."""

    def load(self, directory: Path) -> Any:
        state = load_tree(directory / "np_random_key")
        legacy = load_json(directory / "np_random_key_metadata").get("legacy")
        return tuple(state) if legacy else state


@dataclass
class ProtoSave(CheckpointArgs):
    """A protocol buffer message to be saved, as text."""

    item: Any

    def stage(self) -> Staged:
        text = _text_format().MessageToString(self.item).encode()
        return StagedText(text, _PROTO_FILE, f"{_HANDLERS}.proto_checkpoint_handler.ProtoCheckpointHandler")


@dataclass
class ProtoRestore(CheckpointArgs):
    """A protocol buffer message to be restored; ``item`` is its class."""

    item: Any

    def load(self, directory: Path) -> Any:
        path = directory / _PROTO_FILE
        try:
            text = path.read_text()
        except FileNotFoundError:
            raise Corrupt(f"{path} is missing: the message is in it.") from None
        return _text_format().Parse(text, self.item())


def _text_format() -> Any:
    try:
        return importlib.import_module("google.protobuf.text_format")
    except ImportError:
        raise BadOption("protocol buffers need the package protobuf: pip install protobuf") from None


@dataclass(frozen=True, slots=True)
class StagedText:
    """One file of text."""

    text: bytes
    file: str
    handler: str

    def write(self, directory: Path) -> Mapping[str, bytes]:
        return {self.file: self.text}
