"""The JSON documents of a checkpoint <-> values. Formats: those of Orbax 0.12 (and what older ones lack).

Every ``parse_*`` treats its text as hostile: whatever is wrong in it is ``Corrupt``, with the file's name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from storax.errors import Corrupt
from storax.tree.leaves import KINDS, Leaf
from storax.tree.names import Key, KeyPath, path_text

STEP_DOCUMENT = "_CHECKPOINT_METADATA"
TREE_DOCUMENT = "_METADATA"
SHARDING_DOCUMENT = "_sharding"
STRINGS_DOCUMENT = "_strings.json"
ARRAY_DOCUMENTS = "array_metadatas"
MARKER = "commit_success.txt"
JSON_ITEM_DOCUMENT = "metadata"
METRICS_ITEM = "metrics"
METRICS_DOCUMENT = "metrics"
# In a pinned step's directory; its text is the reason. Orbax looks at directories only.
PIN = "_PINNED"

_HANDLERS = "orbax.checkpoint._src.handlers."
TREE_HANDLER = _HANDLERS + "standard_checkpoint_handler.StandardCheckpointHandler"
# The standard handler of Orbax refuses strings, this one reads them; both read the same files.
TREE_HANDLER_WITH_STRINGS = _HANDLERS + "pytree_checkpoint_handler.PyTreeCheckpointHandler"
JSON_HANDLER = _HANDLERS + "json_checkpoint_handler.JsonCheckpointHandler"

# How many uint32 a typed PRNG key of each implementation is.
PRNG_WIDTHS = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}

# Where storax keeps what Orbax has no field for: kinds, int keys, tuples, weak dtypes.
_OURS = "storax"
_OUR_FORMAT = 1

_EMPTY_TYPES = {"dict": "Dict", "list": "List", "tuple": "Tuple", "None": "None"}
_KINDS = {
    "jax.Array": "jax.Array", "np.ndarray": "np.ndarray", "string": "str",
    "None": "None", "Dict": "dict", "List": "list", "Tuple": "tuple", "NamedTuple": "tuple",
}  # fmt: skip


def encode_json(value: Any) -> bytes:
    """Any JSON document."""
    return json.dumps(value).encode()


def parse_json(text: bytes, file: str) -> Any:
    """Any JSON document. Raises ``Corrupt`` with the file's name."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{file} is not JSON: {error}") from None


def parse_object(text: bytes, file: str) -> dict[str, Any]:
    """A JSON document that is an object."""
    value = parse_json(text, file)
    if not isinstance(value, dict):
        raise Corrupt(f"{file} is not a JSON object")
    return value


# --- the step's document -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepDocument:
    """What ``_CHECKPOINT_METADATA`` says: the items and how to read them, times, what the user added."""

    item_handlers: str | dict[str, str] | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    init_ns: int | None = None
    commit_ns: int | None = None
    custom: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(
            {
                "item_handlers": self.item_handlers,
                "metrics": self.metrics,
                "performance_metrics": {},
                "init_timestamp_nsecs": self.init_ns,
                "commit_timestamp_nsecs": self.commit_ns,
                "custom_metadata": self.custom,
            }
        ).encode()

    @classmethod
    def parse(cls, text: bytes, file: str) -> StepDocument:
        raw = parse_object(text, file)
        handlers = raw.get("item_handlers")
        return cls(
            item_handlers=handlers if isinstance(handlers, (str, dict)) else None,
            metrics=_object(raw.get("metrics")),
            init_ns=_integer(raw.get("init_timestamp_nsecs")),
            commit_ns=_integer(raw.get("commit_timestamp_nsecs")),
            custom=_object(raw.get("custom_metadata")),
        )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) else None


# --- the tree's document -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeDocument:
    """What ``_METADATA`` says of a tree.

    Attributes:
      leaves: by key path, in the order of the tree; shapes and dtypes of arrays are those
        that storax wrote down itself, the rest is in the database.
      tuples: the key paths (as ``path_text``) of nodes that were tuples, not lists.
      zarr3: whether the arrays are zarr3, not zarr2.
      complete: whether every chunk is there; older releases of Orbax left out those that are all zero.
      ours: whether storax wrote it.
    """

    leaves: tuple[Leaf, ...]
    tuples: frozenset[str] = frozenset()
    zarr3: bool = True
    complete: bool = True
    ours: bool = True

    def encode(self) -> bytes:
        ours = {leaf.name: extra for leaf in self.leaves if (extra := _our_fields(leaf))}
        return json.dumps(
            {
                "tree_metadata": {path_text(leaf.path): _leaf_entry(leaf) for leaf in self.leaves},
                "use_ocdbt": True,
                "use_zarr3": self.zarr3,
                "store_array_data_equal_to_fill_value": True,
                "custom_metadata": {
                    _OURS: {"format": _OUR_FORMAT, "leaves": ours, "tuples": sorted(self.tuples)}
                },
            }
        ).encode()

    @classmethod
    def parse(cls, text: bytes, file: str) -> TreeDocument:
        raw = parse_object(text, file)
        entries = raw.get("tree_metadata")
        if not isinstance(entries, dict):
            raise Corrupt(f"{file} has no tree_metadata")
        ours = _object(_object(raw.get("custom_metadata")).get(_OURS))
        if ours and (not isinstance(ours.get("format"), int) or ours["format"] > _OUR_FORMAT):
            raise Corrupt(
                f"{file} was written by a newer storax (format {ours.get('format')!r}); upgrade storax"
            )
        fields = _object(ours.get("leaves"))
        try:
            leaves = tuple(_parse_leaf(entry, fields) for entry in entries.values())
            tuples = frozenset(map(str, ours.get("tuples") or ()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Corrupt(f"{file} has a leaf entry that cannot be read: {error!r}") from None
        return cls(
            leaves,
            tuples,
            bool(raw.get("use_zarr3", False)),
            bool(raw.get("store_array_data_equal_to_fill_value", False)),
            bool(ours),
        )


def _leaf_entry(leaf: Leaf) -> dict[str, Any]:
    """A leaf as Orbax has it; kinds that it lacks go down as the nearest one it reads."""
    keys = [{"key": str(key), "key_type": 1 if key.kind == "index" else 2} for key in leaf.path]
    value: dict[str, Any] = {"value_type": _value_type(leaf), "skip_deserialize": leaf.kind in _EMPTY_TYPES}
    if leaf.kind == "jax.Array":
        value["write_shape"] = [*(leaf.shape or ()), *([PRNG_WIDTHS[leaf.prng]] if leaf.prng else [])]
    return {"key_metadata": keys, "value_metadata": value}


def _value_type(leaf: Leaf) -> str:
    if leaf.kind in _EMPTY_TYPES:
        return _EMPTY_TYPES[leaf.kind]
    if leaf.kind == "jax.Array":
        return "jax.Array"
    if leaf.kind == "str" or leaf.value is not None:
        return "string"
    return "scalar" if leaf.kind in ("int", "float", "bool") else "np.ndarray"


def _our_fields(leaf: Leaf) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if leaf.kind not in ("jax.Array", "np.ndarray", "str", *_EMPTY_TYPES):
        fields["kind"] = leaf.kind
    if leaf.kind in ("jax.Array", "np.ndarray", "np.generic") and leaf.prng is None:
        fields["dtype"] = leaf.dtype
    if leaf.byteorder == ">":
        fields["byteorder"] = ">"
    if leaf.tied is not None:
        fields["tied"] = leaf.tied
    if leaf.weak:
        fields["weak"] = True
    if isinstance(leaf.value, str) and leaf.value != _string(leaf.value):
        fields["text"] = leaf.value  # lone surrogates: TensorStore, so Orbax, refuses a document with them
    if int_keys := [i for i, k in enumerate(leaf.path) if k.kind == "key" and isinstance(k.value, int)]:
        fields["int_keys"] = int_keys
    return fields


def _parse_leaf(entry: Mapping[str, Any], ours: Mapping[str, Any]) -> Leaf:
    texts = [str(part["key"]) for part in entry["key_metadata"]]
    ".".join(texts).encode()  # no name has lone surrogates
    fields = _object(ours.get(".".join(texts)))
    int_keys = set(fields.get("int_keys") or ())
    path: KeyPath = tuple(
        Key("index", int(text)) if part["key_type"] == 1 else Key("key", int(text) if i in int_keys else text)
        for i, (part, text) in enumerate(zip(entry["key_metadata"], texts, strict=True))
    )
    value_type = str(entry["value_metadata"]["value_type"])
    kind: Any = fields.get("kind") or _KINDS.get(value_type)
    if kind is None:
        # "scalar" of Orbax: the dtype in the database tells int, float and bool apart.
        kind = "any" if value_type == "scalar" else "jax.Array" if "Array" in value_type else "np.ndarray"
    byteorder: Literal["<", ">"] = ">" if fields.get("byteorder") == ">" else "<"
    # The value of a "string" is in another document, mostly; a marker keeps is_in_document right until then.
    value = str(fields.get("text", "")) if value_type == "string" else None
    dtype = fields.get("dtype")
    is_string = kind == "str" or (kind == "int" and value is not None)
    if (
        (kind != "any" and kind not in KINDS)
        or not isinstance(dtype, str | None)
        or (value is not None) != is_string
    ):
        raise ValueError(
            f"{'.'.join(texts)!r} is {kind!r} of dtype {dtype!r}, with the value_type {value_type!r}"
        )
    tied = fields.get("tied")
    return Leaf(
        path,
        kind,
        dtype=dtype,
        byteorder=byteorder,
        value=value,
        tied=None if tied is None else str(tied),
        weak=fields.get("weak") is True,
    )


# --- the other documents -------------------------------------------------------------------------


def encode_strings(leaves: Iterable[Leaf]) -> bytes | None:
    """``_strings.json``: strings, and integers too large for an array; None if there are none."""
    strings = {leaf.name: _string(leaf.value) for leaf in leaves if leaf.value is not None}
    return json.dumps(strings).encode() if strings else None


def _string(value: str | int) -> str:
    if isinstance(value, int):
        return hex(value)  # Python refuses to print or parse more than 4,300 decimal digits
    return value.encode(errors="replace").decode()


def encode_shardings(leaves: Iterable[Leaf]) -> bytes:
    """``_sharding``: by leaf name in url-safe base64, each a JSON text inside the JSON."""
    return json.dumps(
        {
            base64.urlsafe_b64encode(leaf.name.encode()).decode(): leaf.sharding
            for leaf in leaves
            if leaf.sharding is not None
        }
    ).encode()


def parse_shardings(text: bytes, file: str) -> dict[str, str]:
    """The JSON text of each sharding, by leaf name."""
    try:
        return {
            # Twice: a lone surrogate, which no file can hold, is not carried further.
            base64.urlsafe_b64decode(key).decode(): str(value).encode().decode()
            for key, value in parse_object(text, file).items()
        }
    except ValueError as error:
        raise Corrupt(f"{file} has an entry that cannot be read: {error}") from None


def encode_array_document(leaves: Iterable[tuple[Leaf, tuple[int, ...], tuple[int, ...]]]) -> bytes:
    """``array_metadatas/process_N``: of each ``jax.Array`` its written shape and chunk shape."""
    entries = [
        {
            "array_metadata": {
                "param_name": leaf.name,
                "write_shape": list(write_shape),
                "chunk_shape": list(chunk_shape),
                "ext_metadata": {"random_key_impl": leaf.prng} if leaf.prng else None,
            }
        }
        for leaf, write_shape, chunk_shape in leaves
    ]
    return json.dumps({"array_metadatas": entries}).encode()


def parse_array_document(text: bytes, file: str) -> dict[str, str]:
    """The PRNG implementations, by leaf name."""
    try:
        found = {}
        for entry in parse_object(text, file).get("array_metadatas") or ():
            array = entry["array_metadata"]
            if prng := _object(array.get("ext_metadata")).get("random_key_impl"):
                found[str(array["param_name"])] = str(prng)
        return found
    except (KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{file} has an entry that cannot be read: {error!r}") from None


def marker_text(path: str) -> bytes:
    """``commit_success.txt``."""
    return f"Checkpoint commit was successful to {path}".encode()
