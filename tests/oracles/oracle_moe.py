"""Mixture of experts written token by token from the papers, for NumPy in float64; shares no code with the twins.

B batch, T position, E expert, K choice of a token, D embed, F hidden.
"""

import math

import numpy as np
import oracle_ops as ops


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def choose(ranked_E, top_k, groups=1, top_groups=1):
    """Returns experts in falling order of rank, within the best groups, and the smallest margin of the choice."""
    margins = [np.inf]
    allowed = list(range(len(ranked_E)))
    if groups > 1:
        size = len(ranked_E) // groups
        members = [list(range(g * size, (g + 1) * size)) for g in range(groups)]
        worth = [sum(sorted((ranked_E[e] for e in group), reverse=True)[:2]) for group in members]
        order = sorted(range(groups), key=lambda g: -worth[g])
        if top_groups < groups:
            margins.append(worth[order[top_groups - 1]] - worth[order[top_groups]])
        allowed = sorted(e for g in order[:top_groups] for e in members[g])
    order = sorted(allowed, key=lambda e: -ranked_E[e])
    if top_k < len(order):
        margins.append(ranked_E[order[top_k - 1]] - ranked_E[order[top_k]])
    return order[:top_k], min(margins)


def route(logits_BTE, bias_E, segments_BT, moe):
    """Returns ``(experts, weights, shares, margin)`` of every token; experts are E for padding."""
    B, T, E = logits_BTE.shape
    chosen = np.full((B, T, moe.top_k), E)
    weights, shares, margin = np.zeros((B, T, moe.top_k)), np.zeros((B, T, E)), np.zeros((B, T))
    for b in range(B):
        for t in range(T):
            scores = softmax(logits_BTE[b, t]) if moe.scoring == "softmax" else sigmoid(logits_BTE[b, t])
            ranked = scores if bias_E is None else scores + bias_E
            picked, margin[b, t] = choose(ranked, moe.top_k, moe.groups, moe.top_groups)
            kept = scores[picked]
            weights[b, t] = moe.scale * (kept / kept.sum() if moe.weighting == "normalised" else kept)
            shares[b, t] = scores / scores.sum()
            if segments_BT[b, t]:
                chosen[b, t] = picked
    return chosen, weights, shares, margin


def load(chosen_BTK, experts):
    return np.array([(chosen_BTK == e).sum() for e in range(experts)])


def load_balance(shares_BTE, chosen_BTK, segments_BT):
    present = segments_BT != 0
    counts = load(chosen_BTK, shares_BTE.shape[-1])
    mean_share = shares_BTE[present].mean(axis=0)
    return shares_BTE.shape[-1] * np.sum(counts / counts.sum() * mean_share)


def keep(chosen_BTK, experts, capacity):
    """Returns a mask of the choices with a place: per row and expert the first ``capacity`` tokens."""
    kept = np.zeros(chosen_BTK.shape, bool)
    for b in range(chosen_BTK.shape[0]):
        taken = [0] * (experts + 1)
        for t in range(chosen_BTK.shape[1]):
            for k in range(chosen_BTK.shape[2]):
                e = chosen_BTK[b, t, k]
                kept[b, t, k] = e < experts and taken[e] < capacity
                taken[e] += 1
    return kept


def activate(gate, up, activation):
    if activation == "clamped_swiglu":
        gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
        return gate * sigmoid(1.702 * gate) * (up + 1)
    gated = {"silu": gate * sigmoid(gate), "gelu": ops.gelu(gate)}
    return gated[activation] * up


def experts(x_BTD, chosen_BTK, weights_BTK, kernels, moe):
    """Returns the experts' output for every token; ``kernels`` has gate, up, down and optional biases."""
    out = np.zeros_like(x_BTD)
    E = kernels["gate"].shape[0]
    kept = chosen_BTK < E
    if moe.dispatch == "dropping":
        share = math.ceil(moe.capacity_factor * x_BTD.shape[1] * moe.top_k / E)
        kept = keep(chosen_BTK, E, min(share, x_BTD.shape[1]))
    for b, t, k in zip(*np.nonzero(kept), strict=True):
        e = chosen_BTK[b, t, k]
        bias = {name: kernels.get(f"{name}_bias", np.zeros((E, 1)))[e] for name in ("gate", "up", "down")}
        gate = x_BTD[b, t] @ kernels["gate"][e] + bias["gate"]
        up = x_BTD[b, t] @ kernels["up"][e] + bias["up"]
        out[b, t] += weights_BTK[b, t, k] * (
            activate(gate, up, moe.activation) @ kernels["down"][e] + bias["down"]
        )
    return out
