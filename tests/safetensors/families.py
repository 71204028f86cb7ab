"""Tiny models with exactly the tensor names and shapes of published Hugging Face families.

The names are those of the families' ``model.safetensors.index.json``; only the numbers (hidden size, heads,
layers) are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

Shapes = Iterator[tuple[str, tuple[int, ...]]]

HIDDEN, FEED, VOCABULARY, LAYERS, HEAD = 64, 128, 160, 2, 16
HEADS, KEY_HEADS, EXPERTS = 4, 2, 4


def _attention(prefix: str, *, bias: bool = False, norms: bool = False) -> Shapes:
    for name, rows in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
        yield f"{prefix}.{name}_proj.weight", (rows * HEAD, HIDDEN)
        if bias:
            yield f"{prefix}.{name}_proj.bias", (rows * HEAD,)
    yield f"{prefix}.o_proj.weight", (HIDDEN, HEADS * HEAD)
    if norms:
        yield f"{prefix}.q_norm.weight", (HEAD,)
        yield f"{prefix}.k_norm.weight", (HEAD,)


def _gated(prefix: str, feed: int = FEED) -> Shapes:
    yield f"{prefix}.gate_proj.weight", (feed, HIDDEN)
    yield f"{prefix}.up_proj.weight", (feed, HIDDEN)
    yield f"{prefix}.down_proj.weight", (HIDDEN, feed)


def llama() -> Shapes:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (HIDDEN,)
        yield f"{layer}.post_attention_layernorm.weight", (HIDDEN,)
        yield from _attention(f"{layer}.self_attn")
        yield from _gated(f"{layer}.mlp")
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def qwen_moe() -> Shapes:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (HIDDEN,)
        yield f"{layer}.post_attention_layernorm.weight", (HIDDEN,)
        yield from _attention(f"{layer}.self_attn", norms=True)
        yield f"{layer}.mlp.gate.weight", (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            yield from _gated(f"{layer}.mlp.experts.{expert}", 32)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def gemma() -> Shapes:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        for norm in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ):
            yield f"{layer}.{norm}.weight", (HIDDEN,)
        yield from _attention(f"{layer}.self_attn")
        yield from _gated(f"{layer}.mlp")
    yield "model.norm.weight", (HIDDEN,)  # the head is the embedding


def mixtral() -> Shapes:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (HIDDEN,)
        yield f"{layer}.post_attention_layernorm.weight", (HIDDEN,)
        yield from _attention(f"{layer}.self_attn")
        yield f"{layer}.block_sparse_moe.gate.weight", (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            prefix = f"{layer}.block_sparse_moe.experts.{expert}"
            yield f"{prefix}.w1.weight", (FEED, HIDDEN)
            yield f"{prefix}.w2.weight", (HIDDEN, FEED)
            yield f"{prefix}.w3.weight", (FEED, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def gpt2() -> Shapes:
    yield "wte.weight", (VOCABULARY, HIDDEN)
    yield "wpe.weight", (32, HIDDEN)
    for i in range(LAYERS):
        layer = f"h.{i}"
        for norm in ("ln_1", "ln_2"):
            yield f"{layer}.{norm}.weight", (HIDDEN,)
            yield f"{layer}.{norm}.bias", (HIDDEN,)
        yield f"{layer}.attn.bias", (1, 1, 32, 32)
        yield f"{layer}.attn.c_attn.weight", (HIDDEN, 3 * HIDDEN)
        yield f"{layer}.attn.c_attn.bias", (3 * HIDDEN,)
        yield f"{layer}.attn.c_proj.weight", (HIDDEN, HIDDEN)
        yield f"{layer}.attn.c_proj.bias", (HIDDEN,)
        yield f"{layer}.mlp.c_fc.weight", (HIDDEN, 4 * HIDDEN)
        yield f"{layer}.mlp.c_fc.bias", (4 * HIDDEN,)
        yield f"{layer}.mlp.c_proj.weight", (4 * HIDDEN, HIDDEN)
        yield f"{layer}.mlp.c_proj.bias", (HIDDEN,)
    yield "ln_f.weight", (HIDDEN,)
    yield "ln_f.bias", (HIDDEN,)


def whisper() -> Shapes:
    def attention(prefix: str) -> Shapes:
        for name in ("q", "k", "v", "out"):
            yield f"{prefix}.{name}_proj.weight", (HIDDEN, HIDDEN)
            if name != "k":
                yield f"{prefix}.{name}_proj.bias", (HIDDEN,)

    def norm(prefix: str) -> Shapes:
        yield f"{prefix}.weight", (HIDDEN,)
        yield f"{prefix}.bias", (HIDDEN,)

    yield "model.encoder.conv1.weight", (HIDDEN, 80, 3)
    yield "model.encoder.conv1.bias", (HIDDEN,)
    yield "model.encoder.conv2.weight", (HIDDEN, HIDDEN, 3)
    yield "model.encoder.conv2.bias", (HIDDEN,)
    yield "model.encoder.embed_positions.weight", (50, HIDDEN)
    yield "model.decoder.embed_tokens.weight", (VOCABULARY, HIDDEN)
    yield "model.decoder.embed_positions.weight", (32, HIDDEN)
    for side in ("encoder", "decoder"):
        for i in range(LAYERS):
            layer = f"model.{side}.layers.{i}"
            yield from attention(f"{layer}.self_attn")
            yield from norm(f"{layer}.self_attn_layer_norm")
            if side == "decoder":
                yield from attention(f"{layer}.encoder_attn")
                yield from norm(f"{layer}.encoder_attn_layer_norm")
            yield f"{layer}.fc1.weight", (FEED, HIDDEN)
            yield f"{layer}.fc1.bias", (FEED,)
            yield f"{layer}.fc2.weight", (HIDDEN, FEED)
            yield f"{layer}.fc2.bias", (HIDDEN,)
            yield from norm(f"{layer}.final_layer_norm")
        yield from norm(f"model.{side}.layer_norm")


def vit() -> Shapes:
    def dense(prefix: str, rows: int, columns: int) -> Shapes:
        yield f"{prefix}.weight", (rows, columns)
        yield f"{prefix}.bias", (rows,)

    yield "vit.embeddings.cls_token", (1, 1, HIDDEN)
    yield "vit.embeddings.position_embeddings", (1, 17, HIDDEN)
    yield "vit.embeddings.patch_embeddings.projection.weight", (HIDDEN, 3, 8, 8)
    yield "vit.embeddings.patch_embeddings.projection.bias", (HIDDEN,)
    for i in range(LAYERS):
        layer = f"vit.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            yield from dense(f"{layer}.attention.attention.{name}", HIDDEN, HIDDEN)
        yield from dense(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        yield from dense(f"{layer}.intermediate.dense", FEED, HIDDEN)
        yield from dense(f"{layer}.output.dense", HIDDEN, FEED)
        for norm in ("layernorm_before", "layernorm_after"):
            yield f"{layer}.{norm}.weight", (HIDDEN,)
            yield f"{layer}.{norm}.bias", (HIDDEN,)
    yield "vit.layernorm.weight", (HIDDEN,)
    yield "vit.layernorm.bias", (HIDDEN,)
    yield from dense("classifier", 10, HIDDEN)


FAMILIES: dict[str, Callable[[], Shapes]] = {
    "llama": llama,
    "qwen_moe": qwen_moe,
    "gemma": gemma,
    "mixtral": mixtral,
    "gpt2": gpt2,
    "whisper": whisper,
    "vit": vit,
}


def tensors(family: str) -> dict[str, np.ndarray]:
    """The tensors of a tiny model: bfloat16 for the large families of today, float32 for the older ones."""
    chance = np.random.default_rng(len(family))
    dtype = ml_dtypes.bfloat16 if family in ("llama", "qwen_moe", "gemma", "mixtral") else np.float32
    return {name: chance.normal(size=shape).astype(dtype) for name, shape in FAMILIES[family]()}


def shards(model: dict[str, np.ndarray], count: int) -> list[dict[str, np.ndarray]]:
    """The tensors in several files, in their order, about equally large."""
    total = sum(values.nbytes for values in model.values())
    found: list[dict[str, np.ndarray]] = [{} for _ in range(count)]
    end = 0
    for name, values in model.items():
        found[min(count - 1, end * count // total)][name] = values
        end += values.nbytes
    return found
