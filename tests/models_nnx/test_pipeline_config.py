"""Configs that a pipeline refuses, and its partition of the layers."""

import dataclasses
import re

import pytest

from models_nnx.shared.config import ConfigError, Gather, Loop, PipelineConfig, RematConfig
from models_nnx.shared.presets import preset, tiny

LLAMA = tiny(preset("llama2-7b"))
PREFETCH = {"stages": 2, "microbatches": 4, "repeats": 2, "gather": Gather.PER_REPEAT}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stages": 1, "microbatches": 4}, "pipeline.stages: got 1, expected at least 2"),
        ({"stages": 2, "microbatches": 3}, "pipeline.microbatches: got 3, expected a multiple of stages=2"),
        ({"stages": 2, "microbatches": 2, "delay": 3}, "pipeline.delay: got 3, expected 1 or 2"),
        ({"stages": 2, "microbatches": 2, "delay": 2, "repeats": 2}, "at least stages * delay = 4"),
        ({**PREFETCH, "repeats": 1}, "with repeats=1 there is nothing to fetch ahead"),
        ({**PREFETCH, "delay": 2}, "per_iteration or once with delay=2"),
        ({**PREFETCH, "iteration_remat": RematConfig()}, "none keeps the weights of each iteration"),
        ({"stages": 2, "microbatches": 4, "repeat_loop": Loop.UNROLLED}, "only gather=per_repeat has a loop"),
        ({"stages": 2, "microbatches": 4, "layers_outside": -1}, "pipeline.layers_outside: got -1"),
        ({"stages": 2, "microbatches": 4, "gather": "per_repeat"}, "as Gather"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_by_field_value_and_rule(options, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        PipelineConfig(**options)


@pytest.mark.parametrize("layers", [3, 5])
def test_layers_that_do_not_divide_are_refused(layers):
    pipeline = PipelineConfig(stages=2, microbatches=4, layers_per_stage=2)
    with pytest.raises(
        ConfigError, match=rf"layers: got {layers}, expected stages \* repeats .* = 4 cycles of 1"
    ):
        dataclasses.replace(LLAMA, layers=layers, pipeline=pipeline)


def test_the_main_stack_is_split_into_layers_inside_and_after_the_pipeline():
    deepseek = tiny(preset("deepseek3-671b"))
    pipeline = PipelineConfig(stages=2, microbatches=4, repeats=2, layers_outside=3)
    layers = deepseek.dense_layers + 7
    stacks = dataclasses.replace(deepseek, layers=layers, pipeline=pipeline).stacks
    assert [(stack.name, stack.repeats) for stack in stacks] == [
        ("dense_layers", deepseek.dense_layers),
        ("pipeline", 4),
        ("layers_outside_pipeline", 3),
    ]
    assert [stack.first for stack in stacks] == [0, deepseek.dense_layers, deepseek.dense_layers + 4]
    assert stacks[2].axis == "layers_outside_pipeline"


def test_presets_without_a_pipeline_have_none():
    assert LLAMA.pipeline is None and tiny(dataclasses.replace(LLAMA)).pipeline is None
    with pytest.raises(ConfigError, match="pipeline: got None"):
        _ = LLAMA.staging
