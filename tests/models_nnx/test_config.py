"""Each rule of the config rejects violations with an error that names field, value and rule."""

import dataclasses
import math
import re

import pytest
from oracle_decoder import SMALL

from models_nnx.shared.config import (
    CHECKPOINT_NAMES,
    Activation,
    AttentionConfig,
    AttentionKernel,
    Biases,
    ConfigError,
    Dispatch,
    Head,
    LayerLayout,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    OptimizerConfig,
    RematConfig,
    RematPolicy,
    Scoring,
    TrainConfig,
    Weighting,
    override,
)

NAN = math.nan
ATTENTION, OPTIMIZER, TRAIN = SMALL.attention, OptimizerConfig(), TrainConfig()
REMAT = RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query",))
WHOLE = "a whole number above 0"
MOE = MoeConfig(experts=8, top_k=2, hidden=4)
GROUPED_MOE = dataclasses.replace(MOE, groups=4, top_groups=2, bias_rate=0.1)
EXPERTS = dataclasses.replace(SMALL, moe=GROUPED_MOE)
BAD = [
    *(
        (ATTENTION, field, value, WHOLE)
        for field in ("heads", "kv_heads", "head_dim")
        for value in (0, -2, 2.0)
    ),
    (ATTENTION, "kv_heads", 4, ("heads", 6, "a multiple of kv_heads=4")),
    (ATTENTION, "head_dim", 9, "an even number (rotary rotates pairs)"),
    *((ATTENTION, "rope_theta", value, "a number above 1") for value in (1, 0.5, -3.0, NAN)),
    *((SMALL.mlp, "hidden", value, WHOLE) for value in (0, -1, 1.5)),
    (REMAT, "names", ("query", "kwery"), ("remat.names", ["kwery"], f"names of {CHECKPOINT_NAMES}")),
    (REMAT, "names", (), ("remat.names", (), "at least one name with policy save_named")),
    *(
        (REMAT, "policy", policy, ("remat.names", ("query",), "no names unless policy is save_named"))
        for policy in RematPolicy
        if policy is not RematPolicy.SAVE_NAMED
    ),
    *((SMALL, field, value, WHOLE) for field in ("vocab", "embed", "layers") for value in (0, -1, 1.5)),
    (SMALL, "embed", 20, "a multiple of attention.heads=6"),
    *((SMALL, "norm_epsilon", value, "a number above 0") for value in (0, -1e-6, NAN)),
    *((SMALL, "scan_axis", value, "0 or 1") for value in (2, -1)),
    *((SMALL, "dropout", value, "a rate in [0, 1)") for value in (1, -0.1, 1.5, NAN)),
    *(
        (SMALL, field, value, "one of ('float32', 'bfloat16', 'float64')")
        for field in ("param_dtype", "compute_dtype")
        for value in ("float16", "int32", "")
    ),
    *(
        (OPTIMIZER, field, value, WHOLE)
        for field in ("warmup_steps", "total_steps", "max_bad_steps")
        for value in (0, -1, 1.5)
    ),
    *((OPTIMIZER, "warmup_steps", value, "less than total_steps") for value in (100, 101)),
    *(
        (OPTIMIZER, field, value, "a number above 0")
        for field in ("learning_rate", "clip_norm", "spike_factor")
        for value in (0, -1.0, NAN)
    ),
    *(
        (OPTIMIZER, "final_learning_rate", value, "a number in [0, learning_rate=0.03]")
        for value in (-0.1, 0.031, NAN)
    ),
    *(
        (OPTIMIZER, "spike_window", value, "0, or a whole number above 1: one loss has no spread")
        for value in (1, -2, 2.5, True)
    ),
    *((TRAIN, field, value, WHOLE) for field in ("accumulation", "vocab_tiles") for value in (0, -1, 2.0)),
    *((TRAIN, "z_loss", value, "a number >= 0") for value in (-1e-9, NAN)),
    *(
        (MOE, field, value, WHOLE)
        for field in ("experts", "top_k", "hidden", "groups", "top_groups")
        for value in (0, -1, 1.5)
    ),
    (MOE, "top_k", 9, "at most experts=8"),
    (MOE, "groups", 3, "a divisor of experts=8"),
    (MOE, "groups", 8, "groups of two experts or more, which score them"),
    (GROUPED_MOE, "top_groups", 5, "at most groups=4"),
    (GROUPED_MOE, "top_k", 5, ("top_groups", 2, "enough groups of 2 experts for top_k=5")),
    *(
        (MOE, field, value, "a number above 0")
        for field in ("scale", "capacity_factor")
        for value in (0, -1.0, NAN, math.inf)
    ),
    *((MOE, "load_balance", value, "a number >= 0") for value in (-1e-9, NAN)),
    *((MOE, "bias_rate", value, "a number >= 0, or none for no routing bias") for value in (-1e-9, NAN)),
    *((MOE, "shared_hidden", value, "a whole number >= 0, 0 for no shared expert") for value in (-1, 1.5)),
]


@pytest.mark.parametrize("config, field, value, rule", BAD, ids=lambda value: str(value)[:20])
def test_a_broken_rule_names_field_value_and_rule(config, field, value, rule):
    where, got, expected = rule if isinstance(rule, tuple) else (field, value, rule)
    message = f"config field {where}: got {got!r}, expected {expected}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(config, **{field: value})


@pytest.mark.parametrize(
    "config, field, value",
    [
        (ATTENTION, "kv_heads", 1),
        (ATTENTION, "kv_heads", 6),
        (ATTENTION, "rope_theta", 1.5),
        (SMALL, "dropout", 0.999),
        (SMALL, "scan_axis", 0),
        (OPTIMIZER, "warmup_steps", 99),
        (TRAIN, "z_loss", 0),
        *(
            (SMALL, field, name)
            for field in ("param_dtype", "compute_dtype")
            for name in ("float64", "bfloat16")
        ),
        (REMAT, "names", CHECKPOINT_NAMES),
        (MOE, "top_k", 8),
        (MOE, "bias_rate", 0.0),
        (GROUPED_MOE, "top_k", 4),
        (GROUPED_MOE, "top_groups", 4),
    ],
)
def test_the_edge_of_a_rule_is_allowed(config, field, value):
    assert getattr(dataclasses.replace(config, **{field: value}), field) == value


def test_configs_are_frozen_hashable_keyword_only_and_compare_by_value():
    assert hash(SMALL) == hash(dataclasses.replace(SMALL)) and dataclasses.replace(SMALL) == SMALL
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.embed = 4
    for part in (
        AttentionConfig,
        MlpConfig,
        MoeConfig,
        RematConfig,
        ModelConfig,
        OptimizerConfig,
        TrainConfig,
    ):
        with pytest.raises(TypeError, match="positional argument"):
            part(4)


@pytest.mark.parametrize(
    "settings, path, expected",
    [
        ({"embed": "36"}, "embed", 36),
        ({"attention.heads": "9"}, "attention.heads", 9),
        ({"attention.kernel": "library"}, "attention.kernel", AttentionKernel.LIBRARY),
        ({"attention.rope_theta": "1e6"}, "attention.rope_theta", 1e6),
        ({"mlp.activation": "gelu"}, "mlp.activation", Activation.GELU),
        ({"remat.policy": "full"}, "remat.policy", RematPolicy.FULL),
        ({"layout": "unrolled"}, "layout", LayerLayout.UNROLLED),
        ({"head": "tied"}, "head", Head.TIED),
        ({"dropout": "0.25"}, "dropout", 0.25),
        ({"param_dtype": "bfloat16"}, "param_dtype", "bfloat16"),
        ({"embed": "12", "attention.kv_heads": "2"}, "attention.kv_heads", 2),
    ],
)
def test_override_reads_text_as_the_type_of_the_field(settings, path, expected):
    changed = override(SMALL, settings)
    found = changed
    for name in path.split("."):
        found = getattr(found, name)
    assert found == expected and type(found) is type(expected)
    untouched = {"vocab", "layers", "norm_epsilon", "rules"}
    assert all(getattr(changed, name) == getattr(SMALL, name) for name in untouched)


@pytest.mark.parametrize(
    "settings, field, expected",
    [
        ({"moe.top_k": "3"}, "top_k", 3),
        ({"moe.bias_rate": "0.5"}, "bias_rate", 0.5),
        ({"moe.bias_rate": "none"}, "bias_rate", None),
        ({"moe.dispatch": "dropping"}, "dispatch", Dispatch.DROPPING),
        ({"moe.scoring": "sigmoid"}, "scoring", Scoring.SIGMOID),
        ({"moe.weighting": "scores"}, "weighting", Weighting.SCORES),
        ({"moe.biases": "trained"}, "biases", Biases.TRAINED),
    ],
)
def test_override_reaches_into_the_experts(settings, field, expected):
    found = getattr(override(EXPERTS, settings).moe, field)
    assert found == expected and type(found) is type(expected)


def test_override_takes_the_experts_away_and_refuses_to_reach_into_none():
    dense = override(EXPERTS, {"moe": "none"})
    assert dense.moe is None and dataclasses.replace(dense, moe=GROUPED_MOE) == EXPERTS
    message = "config field moe: got '2', expected a config that has moe, but it is none here"
    with pytest.raises(ConfigError, match=re.escape(message)):
        override(dense, {"moe.top_k": "2"})


def test_capacity_is_the_even_share_rounded_up_and_at_most_a_row():
    assert dataclasses.replace(MOE, capacity_factor=1.0).capacity(40) == 10
    assert dataclasses.replace(MOE, capacity_factor=1.01).capacity(40) == 11
    assert dataclasses.replace(MOE, capacity_factor=100.0).capacity(40) == 40


def test_override_reaches_two_levels_and_keeps_the_rest():
    changed = override(TrainConfig(accumulation=3), {"optimizer.warmup_steps": "7", "z_loss": "0"})
    assert changed == TrainConfig(accumulation=3, z_loss=0.0, optimizer=OptimizerConfig(warmup_steps=7))
    assert override(SMALL, {}) is SMALL


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"embd": "4"}, "config field embd: got '4', expected a field of ModelConfig: vocab, embed, layers"),
        (
            {"attention.head": "4"},
            "field attention.head: got '4', expected a field of AttentionConfig: heads",
        ),
        ({"embed.x": "4"}, "field embed: got '4', expected a field without parts, ModelConfig.embed"),
        ({"embed": "4.5"}, "config field embed: got '4.5', expected a int, such as '18'"),
        ({"dropout": "much"}, "config field dropout: got 'much', expected a float, such as '0.0'"),
        ({"layout": "sideways"}, "layout: got 'sideways', expected one of scanned, unrolled, such as"),
        ({"attention": "4"}, "config field attention: got '4', expected a single value, but it is Att"),
        ({"remat.names": "query"}, "remat.names: got ('query',), expected no names unless policy is save"),
        ({"rules": "x"}, "config field rules: got 'x', expected a single value, but it is tuple"),
        ({"embed": "20"}, "config field embed: got 20, expected a multiple of attention.heads=6"),
        ({"attention.head_dim": "3"}, "config field head_dim: got 3, expected an even number"),
        ({"dropout": "nan"}, "config field dropout: got nan, expected a rate in [0, 1)"),
    ],
)
def test_override_refuses_with_the_reason(settings, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        override(SMALL, settings)


def test_override_sets_all_fields_of_a_part_at_once():
    settings = {"warmup_steps": "200", "total_steps": "1000"}
    both_orders = [
        override(OptimizerConfig(), dict(items)) for items in (settings.items(), list(settings.items())[::-1])
    ]
    assert both_orders[0] == both_orders[1] == OptimizerConfig(warmup_steps=200, total_steps=1000)
    remat = override(SMALL, {"remat.policy": "save_named", "remat.names": "query,key"}).remat
    assert remat == RematConfig(policy=RematPolicy.SAVE_NAMED, names=("query", "key"))


@pytest.mark.parametrize(
    "make, field",
    [
        (lambda: OptimizerConfig(b1=1.5), "b1"),
        (lambda: OptimizerConfig(epsilon=-1.0), "epsilon"),
        (lambda: OptimizerConfig(weight_decay=float("nan")), "weight_decay"),
        (lambda: OptimizerConfig(learning_rate=float("inf")), "learning_rate"),
        (lambda: dataclasses.replace(SMALL, layers=True), "layers"),
        (lambda: dataclasses.replace(SMALL, head="untied"), "head"),
        (lambda: dataclasses.replace(SMALL, layout="scanned"), "layout"),
        (lambda: dataclasses.replace(SMALL.attention, kernel="library"), "kernel"),
        (lambda: RematConfig(policy="full"), "policy"),
        (lambda: TrainConfig(moments="zero1"), "moments"),
    ],
)
def test_values_that_would_silently_mean_something_else_are_refused(make, field):
    with pytest.raises(ConfigError, match=f"config field {field}: got "):
        make()
