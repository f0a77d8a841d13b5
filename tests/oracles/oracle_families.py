"""Every decoder family in plain NumPy, float64, written from the papers; parameters by unrolled name.

B row, T query, S key, D embed, N query heads, K key-value heads, H head_dim. The config is read as data only.
"""

import math

import numpy as np
import oracle_moe
import oracle_ops as ops
from oracle_weights import draw


def frequencies(half, theta, scaling):
    """Returns the angle per position of each rotary pair, and the factor of sine and cosine.

    Chen et al. 2023: positions divided by the factor. Peng et al. 2023: pairs with many rotations over the original
    length keep their frequency, those with few rotations have it divided, with a linear blend over the pair's index
    between.
    """
    plain = np.asarray([theta ** (-i / half) for i in range(half)])
    if scaling is None:
        return plain, 1.0
    if not hasattr(scaling, "original_length"):
        return plain / scaling.factor, 1.0
    ends = []
    for rotations in (scaling.beta_fast, scaling.beta_slow):
        # The pair i with original_length * theta ** (-i / half) == 2 pi rotations.
        ends.append(half * math.log(scaling.original_length / (rotations * 2 * math.pi), theta))
    if scaling.boundaries == "whole":
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], 2 * half - 1)
    kept = 1 - np.clip((np.arange(half) - low) / (high - low), 0, 1)
    return plain * kept + plain / scaling.factor * (1 - kept), scaling.angle_factor


def rotary(x_BTNH, positions_BT, theta, scaling):
    half = x_BTNH.shape[-1] // 2
    rotations, factor = frequencies(half, theta, scaling)
    angle = positions_BT[..., None, None] * rotations
    turned = (x_BTNH[..., :half] + 1j * x_BTNH[..., half:]) * factor * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def soft_cap(x, cap):
    return x if cap is None else cap * np.tanh(x / cap)


def attention(heads, segments_BT, att, reach, sinks_N=None):
    """Returns attention of one query and head at a time over its keys; a sink is one more score, without a value."""
    query_BTNH, key_BSKH, value_BSKV = heads
    B, T, N, H = query_BTNH.shape
    group = N // key_BSKH.shape[2]
    divisor = math.sqrt(att.query_scalar or H)
    factor = getattr(att.rope_scaling, "score_factor", 1.0)
    out = np.zeros((B, T, N, value_BSKV.shape[-1]))
    for b in range(B):
        for t in range(T):
            first = 0 if reach is None else max(0, t - reach + 1)
            keys = [s for s in range(first, t + 1) if segments_BT[b, s] == segments_BT[b, t]]
            for n in range(N):
                scores = key_BSKH[b, keys, n // group] @ query_BTNH[b, t, n] / divisor * factor
                scores = soft_cap(scores, att.soft_cap)
                if sinks_N is not None:
                    scores = np.append(scores, sinks_N[n])
                weights = ops.softmax(scores)[: len(keys)]
                out[b, t, n] = weights @ value_BSKV[b, keys, n // group]
    return out


class Family:
    """One model: ``Family(config).logits(batch)``."""

    def __init__(self, config):
        self.config = config

    def get(self, name, *shape):
        return draw(name, shape, self.config).astype(np.float64)

    def norm(self, x, name):
        scale = self.get(f"{name}.scale", x.shape[-1])
        scale = 1 + scale if self.config.norm_scale == "offset" else scale
        return ops.rms_norm(x, scale, self.config.norm_epsilon)

    def project(self, x_BTD, name, *shape):
        """Returns ``x @ kernel``, contracted over the kernel's dimensions before those of ``shape``, plus a bias."""
        rank = 2 if name.endswith(".out") else 1
        kernel = self.get(f"{name}.kernel", *x_BTD.shape[2 : 2 + rank], *shape)
        out = np.tensordot(x_BTD, kernel, axes=rank)
        biased = self.config.attention.biases == "trained" and ".attention." in name
        return out + self.get(f"{name}.bias", *shape) if biased else out

    def attend(self, x_BTD, name, span, batch):
        att, D = self.config.attention, self.config.embed
        theta, scaling = att.rope_theta, att.rope_scaling
        if span == "local" and att.local_rope_theta is not None:
            theta, scaling = att.local_rope_theta, None
        rotation = (batch["positions"], theta, scaling)
        if att.latent:
            query, key, value = self.latent(x_BTD, name, rotation)
        else:
            query = self.project(x_BTD, f"{name}.query", att.heads, att.head_dim)
            key, value = (
                self.project(x_BTD, f"{name}.{part}", att.kv_heads, att.head_dim) for part in ("key", "value")
            )
            if att.query_key_norm == "head":
                query, key = self.norm(query, f"{name}.query_norm"), self.norm(key, f"{name}.key_norm")
            query, key = rotary(query, *rotation), rotary(key, *rotation)
        sinks = self.get(f"{name}.sink", att.heads) if att.sinks == "learned" else None
        reach = att.window if span == "local" else None
        mixed = attention((query, key, value), batch["segments"], att, reach, sinks)
        return self.project(mixed, f"{name}.out", D)

    def latent(self, x_BTD, name, rotation):
        """Returns query, key and value by DeepSeek-V2, section 2.1, equations 9 to 19."""
        att, lat = self.config.attention, self.config.attention.latent
        N, H = att.heads, att.head_dim - lat.rotary_dim
        narrow = self.norm(self.project(x_BTD, f"{name}.query_down", lat.query_rank), f"{name}.query_norm")
        query = self.project(narrow, f"{name}.query_up", N, att.head_dim)
        query = np.concatenate([query[..., :H], rotary(query[..., H:], *rotation)], axis=-1)
        latent = self.norm(self.project(x_BTD, f"{name}.latent", lat.key_value_rank), f"{name}.latent_norm")
        shared = rotary(self.project(x_BTD, f"{name}.rotary_key", lat.rotary_dim)[:, :, None], *rotation)
        key = self.project(latent, f"{name}.key_up", N, H)
        key = np.concatenate([key, np.repeat(shared, N, axis=2)], axis=-1)
        return query, key, self.project(latent, f"{name}.value_up", N, lat.value_dim)

    def mlp(self, x_BTD, name, hidden, activation):
        gate, up = (self.project(x_BTD, f"{name}.{part}", hidden) for part in ("gate", "up"))
        return self.project(oracle_moe.activate(gate, up, activation), f"{name}.down", self.config.embed)

    def experts(self, x_BTD, name, batch):
        moe, D = self.config.moe, self.config.embed
        E, F = moe.experts, moe.hidden
        logits = x_BTD @ self.get(f"{name}.router.kernel", D, E)
        shapes = {"gate": (E, D, F), "up": (E, D, F), "down": (E, F, D)}
        if moe.biases == "trained":
            logits = logits + self.get(f"{name}.router.bias", E)
            shapes |= {"gate_bias": (E, F), "up_bias": (E, F), "down_bias": (E, D)}
        bias = None if moe.bias_rate is None else self.get(f"{name}.routing_bias", E)
        chosen, weights, _, _ = oracle_moe.route(logits, bias, batch["segments"], moe)
        kernels = {part: self.get(f"{name}.experts.{part}", *shape) for part, shape in shapes.items()}
        out = oracle_moe.experts(x_BTD, chosen, weights, kernels, moe)
        if not moe.shared_hidden:
            return out
        return out + self.mlp(x_BTD, f"{name}.shared", moe.shared_hidden, moe.activation)

    def block(self, x_BTD, index, batch, name=None):
        config, name = self.config, name or f"decoder.layers_{index}"
        both = config.norms == "pre_and_post"
        span = config.attention.cycle[index % len(config.attention.cycle)]
        out = self.attend(self.norm(x_BTD, f"{name}.attention_norm"), f"{name}.attention", span, batch)
        x_BTD = x_BTD + (self.norm(out, f"{name}.attention_post_norm") if both else out)
        normed = self.norm(x_BTD, f"{name}.mlp_norm")
        if config.moe and index >= config.dense_layers:
            out = self.experts(normed, f"{name}.moe", batch)
        else:
            out = self.mlp(normed, f"{name}.mlp", config.mlp.hidden, config.mlp.activation)
        return x_BTD + (self.norm(out, f"{name}.mlp_post_norm") if both else out)

    def embed(self, tokens_BT):
        table = self.get("embedder.embedding", self.config.vocab, self.config.embed)
        factor = math.sqrt(self.config.embed) if self.config.embedding_scale == "root" else 1.0
        return table[tokens_BT] * factor

    def hidden(self, batch):
        """Returns the input of the final norm."""
        x_BTD = self.embed(batch["tokens"])
        for index in range(self.config.layers):
            x_BTD = self.block(x_BTD, index, batch)
        return x_BTD

    def head(self, x_BTD):
        if self.config.head == "tied":
            logits = x_BTD @ self.get("embedder.embedding", self.config.vocab, self.config.embed).T
        else:
            logits = self.project(x_BTD, "head", self.config.vocab)
        return soft_cap(logits, self.config.logits_soft_cap)

    def logits(self, batch):
        return self.head(self.norm(self.hidden(batch), "final_norm"))
