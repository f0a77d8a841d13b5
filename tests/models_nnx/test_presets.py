"""Presets hold the published numbers; tiny versions keep the structure and no two sizes alike."""

import dataclasses

import numpy as np
import oracle_decoder
import pytest
from meshes import make_mesh, parse_mesh
from twin_nnx import TWIN

from models_nnx.config import Activation, AttentionKernel, ConfigError, Head, RematConfig, TrainConfig
from models_nnx.data import VOCAB, packed_batch
from models_nnx.presets import PRESETS, preset, tiny
from models_nnx.sharding import ShardMode, resolve

# Touvron et al. 2023 (arXiv:2307.09288) and the config.json of each released checkpoint.
PUBLISHED = {
    "llama2-7b": {"layers": 32, "embed": 4096, "heads": 32, "kv_heads": 32, "hidden": 11008},
    "llama2-70b": {"layers": 80, "embed": 8192, "heads": 64, "kv_heads": 8, "hidden": 28672},
}
MESHES = (
    "data8",
    "fsdp8",
    "fsdp4.tensor2",
    "fsdp2.fsdp_transpose2.tensor2",
    "data2.fsdp2.tensor2",
    "data2.context4",
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_models(name):
    config, published = preset(name), PUBLISHED[name]
    found = {
        "layers": config.layers,
        "embed": config.embed,
        "heads": config.attention.heads,
        "kv_heads": config.attention.kv_heads,
        "hidden": config.mlp.hidden,
    }
    assert found == published
    assert config.vocab == 32_000 and config.attention.head_dim == 128
    assert config.norm_epsilon == 1e-5 and config.attention.rope_theta == 10_000
    assert config.mlp.activation is Activation.SILU and config.head is Head.UNTIED
    assert config.dropout == 0 and config.attention.kernel is AttentionKernel.PLAIN
    assert config.remat == RematConfig()


def test_every_preset_has_its_published_numbers_here():
    assert set(PRESETS) == set(PUBLISHED)


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(ConfigError, match="preset: got 'llama3', expected one of llama2-70b, llama2-7b"):
        preset("llama3")


@pytest.mark.parametrize("name", PUBLISHED)
def test_tiny_keeps_the_structure(name):
    config, small = preset(name), tiny(preset(name))
    grouped = config.attention.kv_heads < config.attention.heads
    assert (small.attention.kv_heads < small.attention.heads) == grouped
    sizes = ("vocab", "embed", "layers", "attention", "mlp")
    kept = {f.name for f in dataclasses.fields(config)} - set(sizes)
    assert all(getattr(config, field) == getattr(small, field) for field in kept)
    for part, free in (("attention", {"heads", "kv_heads", "head_dim"}), ("mlp", {"hidden"})):
        for field in dataclasses.fields(getattr(config, part)):
            same = getattr(getattr(config, part), field.name) == getattr(getattr(small, part), field.name)
            assert same or field.name in free
    assert small.vocab >= VOCAB and small.layers >= 3


@pytest.mark.parametrize("name", PUBLISHED)
def test_tiny_has_no_two_sizes_alike(name):
    small = tiny(preset(name))
    att = small.attention
    sizes = [small.vocab, small.embed, small.layers, att.heads, att.head_dim, small.mlp.hidden]
    sizes += [att.heads * att.head_dim]
    if att.kv_heads < att.heads:
        sizes += [att.kv_heads, att.kv_heads * att.head_dim, att.heads // att.kv_heads]
    assert len(set(sizes)) == len(sizes) and min(sizes) > 1


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("text", MESHES)
def test_tiny_fits_meshes_of_eight_devices(name, text):
    config = tiny(preset(name))
    mesh = make_mesh(parse_mesh(text), ShardMode.AUTO)
    leaves = TWIN.logical_axes(config, TrainConfig())
    named = {path: row for path, row in leaves.items() if row[1] is not None}
    assert len(named) == 3 * len(oracle_decoder.shapes(config))
    for path, (shape, axes) in named.items():
        resolve(axes, shape, config.rules, mesh, path)


@pytest.mark.usefixtures("quick")
def test_the_norm_epsilon_of_a_tiny_preset_can_be_told_from_the_default():
    """1e-5 against 1e-6 moves the logits of a fresh tiny model by far more than float32 noise."""
    config = tiny(preset("llama2-7b"))
    params = {name: leaf.astype(np.float64) for name, leaf in TWIN.initial(config, 0).items()}
    batch = packed_batch(2, 40, 0)
    one, other = (
        oracle_decoder.logits(params, batch, dataclasses.replace(config, norm_epsilon=epsilon))
        for epsilon in (config.norm_epsilon, 1e-6)
    )
    assert np.abs(one - other).max() > 1e-4 * np.abs(one).max()
