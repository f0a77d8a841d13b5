"""A Llama 2 decoder in plain NumPy, its random parameters and packed batches.

Parameters are a flat dict of float64 arrays; those under ``layers.`` have the layer axis first. The config is
read as data only.
"""

import numpy as np
import oracle_ops as ops

from models_nnx.shared.config import Activation, AttentionConfig, Head, LayerLayout, MlpConfig, ModelConfig

# B 8, T 17, D 18, L 4, N 6, K 3 (or 6), G 2, H 10, F 22, V 29: all distinct, also N * H and K * H.
ROWS, LENGTH = 8, 17
SMALL = ModelConfig(
    vocab=29,
    embed=18,
    layers=4,
    attention=AttentionConfig(heads=6, kv_heads=3, head_dim=10, rope_theta=50.0),
    mlp=MlpConfig(hidden=22),
    norm_epsilon=0.03,
)


def shapes(config):
    """Returns the shape of every parameter, from the paper's block."""
    att, D, L = config.attention, config.embed, config.layers
    N, K, H, F = att.heads, att.kv_heads, att.head_dim, config.mlp.hidden
    found = {
        "embedder.embedding": (config.vocab, D),
        "layers.attention_norm.scale": (L, D),
        "layers.attention.query.kernel": (L, D, N, H),
        "layers.attention.key.kernel": (L, D, K, H),
        "layers.attention.value.kernel": (L, D, K, H),
        "layers.attention.out.kernel": (L, N, H, D),
        "layers.mlp_norm.scale": (L, D),
        "layers.mlp.gate.kernel": (L, D, F),
        "layers.mlp.up.kernel": (L, D, F),
        "layers.mlp.down.kernel": (L, F, D),
        "final_norm.scale": (D,),
    }
    return found | ({"head.kernel": (D, config.vocab)} if config.head is Head.UNTIED else {})


def random_params(config, seed=0):
    """Returns random leaves, none near ones or zeros, with scores of a few units, so that softmax is not flat."""
    rng = np.random.default_rng(seed)

    def draw(name, shape):
        if name.endswith("scale"):
            return rng.uniform(0.4, 1.7, shape) * rng.choice([-1, 1], shape)
        if name == "embedder.embedding":
            return rng.normal(size=shape) * 0.3
        fan_in = np.prod(shape[1:-1]) if "out" in name or "down" in name else config.embed
        return rng.normal(size=shape) * 1.3 / np.sqrt(fan_in)

    return {name: draw(name, shape) for name, shape in shapes(config).items()}


def random_batch(vocab, rows=ROWS, length=LENGTH, seed=0):
    """Returns rows of 3 or 4 documents, the same for every seed, and unequal padding; tokens weigh 0 or 1.

    Rows 3 and 7 have no weight, so that one of 4 microbatches has none.
    """
    rng = np.random.default_rng(seed)
    cutter = np.random.default_rng(2)
    batch = {name: np.zeros((rows, length), np.int32) for name in ("segments", "positions", "weights")}
    batch |= {name: rng.integers(0, vocab, (rows, length)).astype(np.int32) for name in ("tokens", "targets")}
    for row in range(rows):
        count = 3 + row % 2
        cuts = np.sort(cutter.choice(np.arange(1, length - 1), count, replace=False))
        start = 0
        for segment, end in enumerate(cuts, 1):
            batch["segments"][row, start:end] = segment
            batch["positions"][row, start:end] = np.arange(end - start)
            batch["weights"][row, start:end] = 0 if row % 4 == 3 else rng.integers(0, 4, end - start) > 0
            start = end
    return batch


def layer(params, name, index):
    """Returns one layer's parameter."""
    return params[f"layers.{name}"][index]


def block(x_BTD, params, index, config, inputs, xp=np):
    """Returns the output of pre-norm attention and pre-norm gated MLP, each with a residual."""
    positions_BT, seen_BTS = inputs
    att = config.attention
    normed = ops.rms_norm(x_BTD, layer(params, "attention_norm.scale", index), config.norm_epsilon, xp)
    heads = {
        name: xp.einsum("btd,dnh->btnh", normed, layer(params, f"attention.{name}.kernel", index))
        for name in ("query", "key", "value")
    }
    query = ops.rotary(heads["query"], positions_BT, att.rope_theta, xp)
    key = ops.rotary(heads["key"], positions_BT, att.rope_theta, xp)
    mixed = ops.attention(query, key, heads["value"], seen_BTS, xp)
    x_BTD = x_BTD + xp.einsum("btnh,nhd->btd", mixed, layer(params, "attention.out.kernel", index))
    normed = ops.rms_norm(x_BTD, layer(params, "mlp_norm.scale", index), config.norm_epsilon, xp)
    activate = {Activation.SILU: ops.silu, Activation.GELU: ops.gelu}[config.mlp.activation]
    gate = activate(normed @ layer(params, "mlp.gate.kernel", index), xp)
    hidden = gate * (normed @ layer(params, "mlp.up.kernel", index))
    return x_BTD + hidden @ layer(params, "mlp.down.kernel", index)


def logits(params, batch, config, xp=np):
    """Returns ``[B, T, V]`` in the dtype of the parameters."""
    inputs = (batch["positions"], ops.visible(batch["segments"]))
    x_BTD = params["embedder.embedding"][batch["tokens"]]
    for index in range(config.layers):
        x_BTD = block(x_BTD, params, index, config, inputs, xp)
    x_BTD = ops.rms_norm(x_BTD, params["final_norm.scale"], config.norm_epsilon, xp)
    head = params["embedder.embedding"].T if config.head is Head.TIED else params["head.kernel"]
    return x_BTD @ head


def mean_loss(params, batch, config, z_loss, xp=np):
    """Returns the weighted mean over the whole batch."""
    total, weight = ops.cross_entropy(
        logits(params, batch, config, xp), batch["targets"], batch["weights"], z_loss, xp
    )
    return total / weight


def to_layer_first(flat, config):
    """Converts a twin's ``{dotted path: array}`` to the oracle's names, with layers along the first axis."""
    found, unrolled = {}, {}
    for path, leaf in flat.items():
        head, _, tail = path.removeprefix("decoder.").partition(".")
        if not path.startswith("decoder."):
            found[path] = leaf
        elif config.layout is LayerLayout.SCANNED:
            found[f"layers.{tail}"] = np.moveaxis(leaf, config.scan_axis, 0)
        else:
            index, _, name = tail.partition(".") if head == "layers" else (head.split("_")[1], "", tail)
            unrolled.setdefault(name, {})[int(index)] = leaf
    for name, leaves in unrolled.items():
        found[f"layers.{name}"] = np.stack([leaves[index] for index in range(config.layers)])
    return found


def leaf_for(path, params, config):
    """Returns the value of a twin's parameter at ``path``, from the oracle's parameters."""
    head, _, tail = path.removeprefix("decoder.").partition(".")
    if not path.startswith("decoder."):
        return params[path]
    if config.layout is LayerLayout.SCANNED:
        return np.moveaxis(params[f"layers.{tail}"], 0, config.scan_axis)
    index, _, name = tail.partition(".") if head == "layers" else (head.split("_")[1], "", tail)
    return params[f"layers.{name}"][int(index)]
