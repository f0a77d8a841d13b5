"""Family options of the config are checked with field, value and rule, and become stacks of layers."""

import dataclasses
import math
import re

import pytest
from oracle_decoder import SMALL

from models_nnx.shared.config import (
    AttentionKernel,
    Biases,
    CacheUse,
    Caching,
    ConfigError,
    DecodeConfig,
    FeedForward,
    LatentConfig,
    LayerLayout,
    LinearScaling,
    MoeConfig,
    QueryKeyNorm,
    Sinks,
    Span,
    YarnScaling,
    override,
)

NAN = math.nan
WHOLE, ABOVE_0 = "a whole number above 0", "a number above 0, or none"
LOCAL, GLOBAL = Span.LOCAL, Span.GLOBAL
ATTENTION = SMALL.attention
CYCLE = dataclasses.replace(ATTENTION, cycle=(LOCAL, LOCAL, GLOBAL), window=4)
LATENT = LatentConfig(query_rank=5, key_value_rank=7, rotary_dim=4, value_dim=3)
MLA = dataclasses.replace(ATTENTION, kv_heads=6, latent=LATENT)
MIXED = dataclasses.replace(SMALL, moe=MoeConfig(experts=4, top_k=2, hidden=8), dense_layers=1)
YARN = YarnScaling(factor=4.0, original_length=64)
BAD = [
    *((CYCLE, "window", value, WHOLE) for value in (0, -1, 1.5, None)),
    (ATTENTION, "window", 4, "None: no layer of the cycle is local"),
    (ATTENTION, "local_rope_theta", 50.0, "None: no layer of the cycle is local"),
    *((CYCLE, "local_rope_theta", value, "a number above 1") for value in (1, -2.0, NAN)),
    *((CYCLE, "cycle", value, "at least one Span: local or global") for value in ((), ("local",))),
    *((ATTENTION, field, v, ABOVE_0) for field in ("query_scalar", "soft_cap") for v in (0, -1.0, NAN)),
    *(
        (
            dataclasses.replace(ATTENTION, **change),
            "kernel",
            AttentionKernel.LIBRARY,
            "plain: the library's knows no soft_cap, sinks or latent",
        )
        for change in ({"soft_cap": 5.0}, {"sinks": Sinks.LEARNED}, {"kv_heads": 6, "latent": LATENT})
    ),
    (MLA, "kv_heads", 3, "heads=6 with latent"),
    (MLA, "head_dim", 4, ("latent.rotary_dim", 4, "less than head_dim=4")),
    (MLA, "query_key_norm", QueryKeyNorm.HEAD, "none with latent"),
    (MLA, "sinks", Sinks.LEARNED, "none with latent"),
    (MLA, "biases", Biases.TRAINED, "none with latent"),
    *((LATENT, field.name, 0, WHOLE) for field in dataclasses.fields(LATENT)),
    (LATENT, "rotary_dim", 5, "an even number (rotary rotates pairs)"),
    (dataclasses.replace(SMALL, attention=CYCLE), "layers", 2, "at least one attention.cycle of 3"),
    *((MIXED, "dense_layers", value, "less than layers=4") for value in (4, 7)),
    *((MIXED, "dense_layers", value, "a whole number >= 0") for value in (-1, 1.0)),
    (MIXED, "moe", None, ("dense_layers", 1, "0: without moe all are dense")),
    *((SMALL, "logits_soft_cap", value, ABOVE_0) for value in (0, -3.0, NAN)),
    *((LinearScaling(factor=2.0), "factor", value, "a number >= 1") for value in (0.5, NAN)),
    (YARN, "factor", 0.0, "a number >= 1"),
    (YARN, "original_length", 0, WHOLE),
    (YARN, "beta_slow", 0.0, "a number above 0"),
    (YARN, "beta_fast", 1.0, "a number above beta_slow=1.0"),
    (YARN, "angle_factor", 0.0, "a number above 0"),
    (YARN, "score_factor", -1.0, "a number above 0"),
    (DecodeConfig(length=3), "length", 0, WHOLE),
    (DecodeConfig(length=3), "temperature", 0.0, "a number above 0, or none for greedy"),
]


@pytest.mark.parametrize("config, field, value, rule", BAD, ids=lambda value: str(value)[:20])
def test_a_broken_rule_names_field_value_and_rule(config, field, value, rule):
    where, got, expected = rule if isinstance(rule, tuple) else (field, value, rule)
    message = f"config field {where}: got {got!r}, expected {expected}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(config, **{field: value})


@pytest.mark.parametrize(
    "config, field",
    [
        (SMALL, "norm_scale"),
        (SMALL, "norms"),
        (SMALL, "embedding_scale"),
        (ATTENTION, "query_key_norm"),
        (ATTENTION, "sinks"),
        (ATTENTION, "biases"),
        (YARN, "boundaries"),
    ],
)
def test_text_that_would_silently_mean_something_else_is_refused(config, field):
    with pytest.raises(ConfigError, match=f"config field {field}: got 'head', expected one of"):
        dataclasses.replace(config, **{field: "head"})


def test_layers_that_fill_no_cycle_come_last_and_unrolled():
    config = dataclasses.replace(SMALL, layers=8, attention=CYCLE)
    whole, rest = config.stacks
    assert (whole.name, whole.first, whole.repeats, whole.layout) == ("layers", 0, 2, LayerLayout.SCANNED)
    assert (rest.first, rest.repeats, rest.layout) == (6, 1, LayerLayout.UNROLLED)
    named = {**whole.layers, **rest.layers}
    assert list(named) == [f"layers_{layer}" for layer in range(8)]
    assert [kind.span for kind in named.values()] == [LOCAL, LOCAL, GLOBAL] * 2 + [LOCAL, LOCAL]
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED).stacks
    assert {name: kind for stack in unrolled for name, kind in stack.layers.items()} == named


def test_a_change_of_the_feed_forward_starts_a_stack_and_keeps_the_phase_of_the_spans():
    config = dataclasses.replace(MIXED, layers=8, attention=CYCLE, dense_layers=4)
    assert [(s.name, s.first, s.repeats) for s in config.stacks] == [
        ("dense_layers", 0, 1),
        ("dense_layers_rest", 3, 1),
        ("layers", 4, 1),
        ("layers_rest", 7, 1),
    ]
    kinds = [kind for stack in config.stacks for kind in stack.layers.values()]
    assert [kind.span for kind in kinds] == ([LOCAL, LOCAL, GLOBAL] * 3)[:8]
    assert [kind.feed_forward for kind in kinds] == [FeedForward.DENSE] * 4 + [FeedForward.MOE] * 4


def test_a_ring_is_as_long_as_its_window_and_no_longer_than_the_cache():
    caching = Caching(use=CacheUse.DECODE, length=9)
    assert [caching.slots(window) for window in (None, 4, 20)] == [9, 4, 9]


def test_spans_and_windows_can_be_set_from_the_command_line():
    changed = override(dataclasses.replace(SMALL, attention=CYCLE), {"attention.cycle": "local,global"})
    assert changed.attention.cycle == (LOCAL, GLOBAL)
    changed = override(changed, {"attention.window": "2", "attention.soft_cap": "3.5"})
    assert (changed.attention.window, changed.attention.soft_cap) == (2, 3.5)
    with pytest.raises(ConfigError, match="got 'near', expected one of local, global"):
        override(changed, {"attention.cycle": "near"})
