"""The tiny models in Hugging Face transformers: configuration and weights by its names. Needs torch."""

import numpy as np
import torch
import transformers
from oracle_weights import draw

from models_nnx.shared.config import Boundaries, LinearScaling, Span, YarnScaling

FAMILIES = {
    "llama2": "LlamaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "deepseek3": "DeepseekV3ForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
}
TYPES = {
    "llama2": "LlamaConfig",
    "gemma2": "Gemma2Config",
    "gemma3": "Gemma3TextConfig",
    "qwen3": "Qwen3Config",
    "mixtral": "MixtralConfig",
    "deepseek3": "DeepseekV3Config",
    "gpt-oss": "GptOssConfig",
}
SPANS = {Span.LOCAL: "sliding_attention", Span.GLOBAL: "full_attention"}


def rope(theta, scaling):
    """Returns ``rope_parameters`` in the form of transformers 5."""
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    if isinstance(scaling, LinearScaling):
        return {"rope_type": "linear", "rope_theta": theta, "factor": scaling.factor}
    assert isinstance(scaling, YarnScaling)
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_length,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "truncate": scaling.boundaries is Boundaries.WHOLE,
    }


def hf_config(name, config):
    """Returns the family's configuration with the tiny sizes."""
    att, moe, latent = config.attention, config.moe, config.attention.latent
    spans = [att.cycle[layer % len(att.cycle)] for layer in range(config.layers)]
    common = {
        "vocab_size": config.vocab,
        "hidden_size": config.embed,
        "intermediate_size": config.mlp.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": att.heads,
        "num_key_value_heads": att.kv_heads,
        "head_dim": att.head_dim,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.head == "tied",
        "rope_parameters": rope(*att.rope(Span.GLOBAL)),
        "pad_token_id": None,
        "attn_implementation": "eager",
    }
    if att.window:
        common |= {"layer_types": [SPANS[span] for span in spans], "sliding_window": att.window}
    special = {
        "gemma2": lambda: {
            "query_pre_attn_scalar": int(att.query_scalar),
            "attn_logit_softcapping": att.soft_cap,
            "final_logit_softcapping": config.logits_soft_cap,
        },
        "gemma3": lambda: {
            "query_pre_attn_scalar": int(att.query_scalar),
            "rope_parameters": {SPANS[span]: rope(*att.rope(span)) for span in Span},
        },
        "mixtral": lambda: {
            "intermediate_size": moe.hidden,
            "num_local_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
        },
        "gpt-oss": lambda: {
            "intermediate_size": moe.hidden,
            "num_local_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
        },
        "deepseek3": lambda: {
            "rope_parameters": rope(*att.rope(Span.GLOBAL)) | {"mscale": 1.0, "mscale_all_dim": 1.0},
            "moe_intermediate_size": moe.hidden,
            "n_shared_experts": moe.shared_hidden // moe.hidden,
            "n_routed_experts": moe.experts,
            "routed_scaling_factor": moe.scale,
            "kv_lora_rank": latent.key_value_rank,
            "head_dim": latent.rotary_dim,
            "q_lora_rank": latent.query_rank,
            "qk_rope_head_dim": latent.rotary_dim,
            "v_head_dim": latent.value_dim,
            "qk_nope_head_dim": att.unturned_dim,
            "n_group": moe.groups,
            "topk_group": moe.top_groups,
            "num_experts_per_tok": moe.top_k,
            "first_k_dense_replace": config.dense_layers,
            "num_mtp_layers": 0,
        },
    }.get(name, dict)()
    return getattr(transformers, TYPES[name])(**{**common, **special})


class Source:
    """The tiny models' weights by unrolled name."""

    def __init__(self, config):
        self.config = config

    def __call__(self, name, *shape):
        return draw(name, shape, self.config)

    def flat(self, name, rows, *columns):
        """Returns a kernel ``[rows..., columns...]`` in torch's shape ``[columns, rows]``."""
        rows = rows if isinstance(rows, tuple) else (rows,)
        return self(name, *rows, *columns).reshape(int(np.prod(rows)), -1).T


def hf_weights(name, config):
    """Returns a state dict of the family's model."""
    get = Source(config)
    found = {
        "model.embed_tokens.weight": get("embedder.embedding", config.vocab, config.embed),
        "model.norm.weight": get("final_norm.scale", config.embed),
    }
    if config.head == "untied":
        found["lm_head.weight"] = get.flat("head.kernel", config.embed, config.vocab)
    for layer in range(config.layers):
        prefix, target = f"decoder.layers_{layer}", f"model.layers.{layer}"
        parts = _norms(get, prefix, config)
        parts |= (_latent if config.attention.latent else _attention)(get, f"{prefix}.attention", config)
        parts |= _feed_forward(name, get, prefix, layer)
        found |= {f"{target}.{key}": value for key, value in parts.items()}
    return {key: torch.tensor(np.ascontiguousarray(value)) for key, value in found.items()}


def _norms(get, prefix, config):
    D = config.embed
    before_mlp = "pre_feedforward" if config.norms == "pre_and_post" else "post_attention"
    found = {
        "input_layernorm.weight": get(f"{prefix}.attention_norm.scale", D),
        f"{before_mlp}_layernorm.weight": get(f"{prefix}.mlp_norm.scale", D),
    }
    if config.norms == "pre_and_post":
        found["post_attention_layernorm.weight"] = get(f"{prefix}.attention_post_norm.scale", D)
        found["post_feedforward_layernorm.weight"] = get(f"{prefix}.mlp_post_norm.scale", D)
    return found


def _attention(get, prefix, config):
    att, D = config.attention, config.embed
    heads = {"query": ("q", att.heads), "key": ("k", att.kv_heads), "value": ("v", att.kv_heads)}
    found = {}
    for part, (letter, number) in heads.items():
        found[f"self_attn.{letter}_proj.weight"] = get.flat(
            f"{prefix}.{part}.kernel", D, number, att.head_dim
        )
        if att.biases == "trained":
            bias = get(f"{prefix}.{part}.bias", number, att.head_dim)
            found[f"self_attn.{letter}_proj.bias"] = bias.reshape(-1)
    found["self_attn.o_proj.weight"] = get.flat(f"{prefix}.out.kernel", (att.heads, att.head_dim), D)
    if att.biases == "trained":
        found["self_attn.o_proj.bias"] = get(f"{prefix}.out.bias", D)
    if att.query_key_norm == "head":
        found["self_attn.q_norm.weight"] = get(f"{prefix}.query_norm.scale", att.head_dim)
        found["self_attn.k_norm.weight"] = get(f"{prefix}.key_norm.scale", att.head_dim)
    if att.sinks == "learned":
        found["self_attn.sinks"] = get(f"{prefix}.sink", att.heads)
    return found


def _latent(get, prefix, config):
    """Returns the weights of latent attention; transformers interleaves the rotated pairs, the twins split halves."""
    att, lat, D, N = config.attention, config.attention.latent, config.embed, config.attention.heads
    Q, R, P, V, H = lat.query_rank, lat.key_value_rank, lat.rotary_dim, lat.value_dim, att.unturned_dim
    order = np.arange(P).reshape(2, -1).T.reshape(-1)
    query = get(f"{prefix}.query_up.kernel", Q, N, H + P)
    query = np.concatenate([query[..., :H], query[..., H:][..., order]], axis=-1)
    turned = get(f"{prefix}.rotary_key.kernel", D, P)[:, order]
    narrow = np.concatenate([get(f"{prefix}.latent.kernel", D, R), turned], axis=-1)
    wide = [get(f"{prefix}.key_up.kernel", R, N, H), get(f"{prefix}.value_up.kernel", R, N, V)]
    return {
        "self_attn.q_a_proj.weight": get.flat(f"{prefix}.query_down.kernel", D, Q),
        "self_attn.q_a_layernorm.weight": get(f"{prefix}.query_norm.scale", Q),
        "self_attn.q_b_proj.weight": query.reshape(Q, -1).T,
        "self_attn.kv_a_proj_with_mqa.weight": narrow.T,
        "self_attn.kv_a_layernorm.weight": get(f"{prefix}.latent_norm.scale", R),
        "self_attn.kv_b_proj.weight": np.concatenate(wide, axis=-1).reshape(R, -1).T,
        "self_attn.o_proj.weight": get.flat(f"{prefix}.out.kernel", (N, V), D),
    }


def _mlp(get, prefix, hidden, target):
    D = get.config.embed
    return {
        f"{target}.gate_proj.weight": get.flat(f"{prefix}.gate.kernel", D, hidden),
        f"{target}.up_proj.weight": get.flat(f"{prefix}.up.kernel", D, hidden),
        f"{target}.down_proj.weight": get.flat(f"{prefix}.down.kernel", hidden, D),
    }


def _feed_forward(name, get, prefix, layer):
    config, moe = get.config, get.config.moe
    if moe is None or layer < config.dense_layers:
        return _mlp(get, f"{prefix}.mlp", config.mlp.hidden, "mlp")
    E, D, F = moe.experts, config.embed, moe.hidden
    gate, up = (get(f"{prefix}.moe.experts.{part}", E, D, F) for part in ("gate", "up"))
    down = get(f"{prefix}.moe.experts.down", E, F, D)
    router = get.flat(f"{prefix}.moe.router.kernel", D, E)
    if name == "gpt-oss":
        biases = [get(f"{prefix}.moe.experts.{part}_bias", E, F) for part in ("gate", "up")]
        return {
            "mlp.router.weight": router,
            "mlp.router.bias": get(f"{prefix}.moe.router.bias", E),
            "mlp.experts.gate_up_proj": np.stack([gate, up], axis=-1).reshape(E, D, 2 * F),
            "mlp.experts.gate_up_proj_bias": np.stack(biases, axis=-1).reshape(E, 2 * F),
            "mlp.experts.down_proj": down,
            "mlp.experts.down_proj_bias": get(f"{prefix}.moe.experts.down_bias", E, D),
        }
    found = {
        "mlp.gate.weight": router,
        "mlp.experts.gate_up_proj": np.concatenate([gate, up], axis=-1).swapaxes(1, 2),
        "mlp.experts.down_proj": down.swapaxes(1, 2),
    }
    if name == "deepseek3":
        found["mlp.gate.e_score_correction_bias"] = get(f"{prefix}.moe.routing_bias", E)
        found |= _mlp(get, f"{prefix}.moe.shared", moe.shared_hidden, "mlp.shared_experts")
    return found
