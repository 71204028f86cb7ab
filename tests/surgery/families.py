"""Tiny models with the names and layouts of published Hugging Face families."""

from __future__ import annotations

import numpy as np

WIDTH, HEADS, KEYS, HIDDEN, WORDS, LAYERS, EXPERTS = 16, 4, 2, 24, 32, 3, 4
HEAD = WIDTH // HEADS


def names(family: str) -> dict[str, tuple[int, ...]]:
    """The tensors of a family and their shapes, matrices as [out, in]."""
    return {"gpt2": _gpt2, "vit": _vit}.get(family, lambda: _llama_like(family))()


def _llama_like(family: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (WORDS, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    if family != "gemma":
        found["lm_head.weight"] = (WORDS, WIDTH)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, rows in [("q", WIDTH), ("k", KEYS * HEAD), ("v", KEYS * HEAD), ("o", WIDTH)]:
            found[f"{layer}self_attn.{name}_proj.weight"] = (rows, WIDTH)
        found[layer + "input_layernorm.weight"] = (WIDTH,)
        found[layer + "post_attention_layernorm.weight"] = (WIDTH,)
        found |= {layer + name: shape for name, shape in _mlp(family).items()}
        found |= {layer + name: shape for name, shape in _more(family).items()}
    return found


def _mlp(family: str) -> dict[str, tuple[int, ...]]:
    up, down = (HIDDEN, WIDTH), (WIDTH, HIDDEN)
    if family == "mixtral":
        moe = "block_sparse_moe."
        found = {
            f"{moe}experts.{j}.w{k}.weight": down if k == 2 else up for j in range(EXPERTS) for k in (1, 2, 3)
        }
        return {moe + "gate.weight": (EXPERTS, WIDTH), **found}
    if family == "qwen_moe":
        found = {"mlp.gate.weight": (EXPERTS, WIDTH), "mlp.shared_expert_gate.weight": (1, WIDTH)}
        for part in [*(f"experts.{j}" for j in range(EXPERTS)), "shared_expert"]:
            found |= {f"mlp.{part}.{name}_proj.weight": up for name in ("gate", "up")}
            found[f"mlp.{part}.down_proj.weight"] = down
        return found
    return {"mlp.gate_proj.weight": up, "mlp.up_proj.weight": up, "mlp.down_proj.weight": down}


def _more(family: str) -> dict[str, tuple[int, ...]]:
    if family == "qwen":
        return {f"self_attn.{n}_proj.bias": (KEYS * HEAD if n != "q" else WIDTH,) for n in "qkv"}
    if family == "qwen_moe":
        return {f"self_attn.{n}_norm.weight": (HEAD,) for n in "qk"}
    if family == "gemma":
        return {f"{n}_feedforward_layernorm.weight": (WIDTH,) for n in ("pre", "post")}
    return {}


def _gpt2() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "wte.weight": (WORDS, WIDTH),
        "wpe.weight": (20, WIDTH),
        "ln_f.weight": (WIDTH,),
        "ln_f.bias": (WIDTH,),
    }
    for i in range(LAYERS):
        for name, rows, columns in [
            ("attn.c_attn", WIDTH, 3 * WIDTH),
            ("attn.c_proj", WIDTH, WIDTH),
            ("mlp.c_fc", WIDTH, 4 * WIDTH),
            ("mlp.c_proj", 4 * WIDTH, WIDTH),
        ]:
            found |= {f"h.{i}.{name}.weight": (rows, columns), f"h.{i}.{name}.bias": (columns,)}
        found |= {f"h.{i}.ln_{n}.{what}": (WIDTH,) for n in (1, 2) for what in ("weight", "bias")}
    return found


def _vit() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "vit.embeddings.cls_token": (1, 1, WIDTH),
        "vit.embeddings.position_embeddings": (1, 10, WIDTH),
        "vit.embeddings.patch_embeddings.projection.weight": (WIDTH, 3, 4, 5),
        "vit.embeddings.patch_embeddings.projection.bias": (WIDTH,),
        "vit.layernorm.weight": (WIDTH,),
        "vit.layernorm.bias": (WIDTH,),
        "classifier.weight": (7, WIDTH),
        "classifier.bias": (7,),
    }
    for i in range(LAYERS):
        layer = f"vit.encoder.layer.{i}."
        for name, rows, columns in [
            *((f"attention.attention.{part}", WIDTH, WIDTH) for part in ("query", "key", "value")),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", HIDDEN, WIDTH),
            ("output.dense", WIDTH, HIDDEN),
        ]:
            found |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
        for norm in ("before", "after"):
            found |= {f"{layer}layernorm_{norm}.{what}": (WIDTH,) for what in ("weight", "bias")}
    return found


def weights(family: str) -> dict[str, np.ndarray]:
    """Random weights, small enough for a model to compute with."""
    rng = np.random.default_rng(11)
    return {
        name: rng.normal(size=shape, scale=0.2).astype(np.float32)
        + np.float32("norm" in name or "ln_" in name)
        for name, shape in sorted(names(family).items())
    }
