"""Presets have the published numbers; tiny versions keep the structure and have pairwise distinct sizes."""

import dataclasses
import math

import numpy as np
import oracle_decoder
import pytest
from meshes import make_mesh, parse_mesh
from twin_nnx import TWIN

from models_nnx.shared.config import (
    Activation,
    AttentionConfig,
    AttentionKernel,
    ConfigError,
    Head,
    LayerLayout,
    RematConfig,
    Span,
    TrainConfig,
)
from models_nnx.shared.data import VOCAB, packed_batch
from models_nnx.shared.presets import PRESETS, preset, tiny
from models_nnx.shared.sharding import ShardMode, resolve

# The config.json of each released checkpoint, and the number of parameters in Hugging Face's index of its weights,
# without the vision tower of gemma3-12b. For deepseek3-671b it is the main model; see below for its predictor.
PUBLISHED = {
    "llama2-7b": (32_000, 4096, 32, 32, 32, 128, 11008, 6_738_415_616),
    "llama2-70b": (32_000, 8192, 80, 64, 8, 128, 28672, 68_976_648_192),
    "gemma2-9b": (256_000, 3584, 42, 16, 8, 256, 14336, 9_241_705_984),
    "gemma3-12b": (262_208, 3840, 48, 16, 8, 256, 15360, 11_766_034_176),
    "qwen3-8b": (151_936, 4096, 36, 32, 8, 128, 12288, 8_190_735_360),
    "mixtral-8x7b": (32_000, 4096, 32, 32, 8, 128, 14336, 46_702_792_704),
    "deepseek3-671b": (129_280, 7168, 61, 128, 128, 192, 18432, 671_026_404_352),
    "gpt-oss-20b": (201_088, 2880, 24, 64, 8, 64, 2880, 20_914_757_184),
}
LLAMA = ("llama2-7b", "llama2-70b")
ATTENTION_SIZES = {
    "heads",
    "kv_heads",
    "head_dim",
    "rope_scaling",
    "window",
    "query_scalar",
    "soft_cap",
    "latent",
}
MOE_SIZES = {"experts", "top_k", "hidden", "groups", "top_groups", "shared_hidden"}
MESHES = (
    "data8",
    "fsdp8",
    "fsdp4.tensor2",
    "fsdp2.fsdp_transpose2.tensor2",
    "data2.fsdp2.tensor2",
    "data2.context4",
)


def parameters(config):
    return {path: math.prod(leaf.shape) for path, leaf in TWIN.abstract_params(config).items()}


@pytest.mark.slow
def test_deepseek3_has_the_published_predictor():
    """README_WEIGHTS of the checkpoint: 671B, and 14B with copies of the 0.9B embedding and the 0.9B head."""
    params = parameters(preset("deepseek3-671b"))
    own = sum(count for path, count in params.items() if path.startswith("mtp."))
    shared = params["embedder.embedding"] + params["head.kernel"]
    layer = sum(count for path, count in params.items() if path.startswith("decoder.layers.")) // 58
    # As the checkpoint stores it: a layer, enorm, hnorm, shared_head.norm, and eh_proj of 2 D x D.
    assert own == layer + 3 * 7_168 + 2 * 7_168**2
    assert (round(own / 1e9, 1), round((own + shared) / 1e9, 1)) == (11.6, 13.5)
    assert round((sum(params.values()) + shared) / 1e9, 1) == 684.5


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_models(name):
    config = preset(name)
    att = config.attention
    found = (
        config.vocab,
        config.embed,
        config.layers,
        att.heads,
        att.kv_heads,
        att.head_dim,
        config.mlp.hidden,
    )
    params = parameters(config)
    main = sum(count for path, count in params.items() if not path.startswith("mtp."))
    assert (*found, main) == PUBLISHED[name]
    assert config.dropout == 0 and att.kernel is AttentionKernel.PLAIN and config.remat == RematConfig()


@pytest.mark.parametrize("name", LLAMA)
def test_llama2_has_nothing_of_the_other_families(name):
    config = preset(name)
    plain = AttentionConfig(
        heads=config.attention.heads, kv_heads=config.attention.kv_heads, head_dim=config.attention.head_dim
    )
    assert config.attention == plain and plain.rope_theta == 10_000 and config.norm_epsilon == 1e-5
    assert config.mlp.activation is Activation.SILU and config.head is Head.UNTIED and config.moe is None


def test_the_stacks_of_the_published_models():
    spans = {
        name: [(stack.name, stack.first, len(stack.cycle), stack.repeats) for stack in preset(name).stacks]
        for name in PUBLISHED
    }
    assert spans["gemma2-9b"] == [("layers", 0, 2, 21)]
    assert spans["gemma3-12b"] == [("layers", 0, 6, 8)]
    assert spans["deepseek3-671b"] == [("dense_layers", 0, 1, 3), ("layers", 3, 1, 58)]
    assert spans["gpt-oss-20b"] == [("layers", 0, 2, 12)]
    assert all(spans[name] == [("layers", 0, 1, preset(name).layers)] for name in LLAMA)
    kinds = [kind.span for kind in preset("gemma3-12b").stacks[0].layers.values()]
    assert kinds == ([Span.LOCAL] * 5 + [Span.GLOBAL]) * 8
    rest = dataclasses.replace(preset("gemma3-12b"), layers=50).stacks[1]
    assert (rest.layout, list(rest.layers)) == (LayerLayout.UNROLLED, ["layers_48", "layers_49"])


def test_every_preset_has_its_published_numbers_here():
    assert set(PRESETS) == set(PUBLISHED)


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(
        ConfigError, match="preset: got 'llama3', expected one of deepseek3-671b, gemma2-9b, "
    ):
        preset("llama3")


@pytest.mark.parametrize("name", PUBLISHED)
def test_tiny_keeps_the_structure(name):
    config, small = preset(name), tiny(preset(name))
    grouped = config.attention.kv_heads < config.attention.heads
    assert (small.attention.kv_heads < small.attention.heads) == grouped
    parts = {"attention": ATTENTION_SIZES, "mlp": {"hidden"}, "moe": MOE_SIZES}
    sizes = {"vocab", "embed", "layers", "logits_soft_cap", *parts}
    kept = {f.name for f in dataclasses.fields(config)} - sizes
    assert all(getattr(config, field) == getattr(small, field) for field in kept)
    for part, free in parts.items():
        if getattr(config, part) is None:
            continue
        for field in dataclasses.fields(getattr(config, part)):
            real, shrunk = (getattr(getattr(x, part), field.name) for x in (config, small))
            assert real == shrunk or field.name in free
            assert (real is None) == (shrunk is None) and type(real) is type(shrunk)
    assert (config.logits_soft_cap is None) == (small.logits_soft_cap is None)
    assert small.vocab >= VOCAB and small.layers >= 3
    assert [(s.name, s.cycle) for s in small.stacks] == [(s.name, s.cycle) for s in config.stacks]
    assert all(stack.repeats > 1 for stack in small.stacks)


@pytest.mark.parametrize("name", PUBLISHED)
def test_tiny_has_no_two_equal_sizes(name):
    small = tiny(preset(name))
    att = small.attention
    sizes = [small.vocab, small.embed, small.layers, att.heads, att.head_dim, small.mlp.hidden]
    if att.latent:
        narrow = dataclasses.astuple(att.latent)
        sizes += [*narrow, att.unturned_dim, att.heads * att.latent.value_dim]
    if small.moe:
        sizes += [small.moe.experts, small.moe.hidden]
        sizes += [small.moe.shared_hidden] if small.moe.shared_hidden else []
    sizes += [att.window] if att.window else []
    sizes += [att.heads * att.head_dim]
    if att.kv_heads < att.heads:
        sizes += [att.kv_heads, att.kv_heads * att.head_dim, att.heads // att.kv_heads]
    assert len(set(sizes)) == len(sizes) and min(sizes) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_tiny_fits_meshes_of_eight_devices(name):
    config = tiny(preset(name))
    leaves = TWIN.logical_axes(config, TrainConfig())
    named = {path: row for path, row in leaves.items() if row[1] is not None}
    assert len(named) == 3 * len(TWIN.abstract_params(config))
    for mesh in (make_mesh(parse_mesh(text), ShardMode.AUTO) for text in MESHES):
        for path, (shape, axes) in named.items():
            resolve(axes, shape, config.rules, mesh, path)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_norm_epsilon_of_a_tiny_preset_differs_from_the_default():
    """1e-5 against 1e-6 moves the logits of a fresh tiny model by far more than float32 noise."""
    config = tiny(preset("llama2-7b"))
    params = {name: leaf.astype(np.float64) for name, leaf in TWIN.initial(config, 0).items()}
    batch = packed_batch(2, 40, 0)
    one, other = (
        oracle_decoder.logits(params, batch, dataclasses.replace(config, norm_epsilon=epsilon))
        for epsilon in (config.norm_epsilon, 1e-6)
    )
    assert np.abs(one - other).max() > 1e-4 * np.abs(one).max()
