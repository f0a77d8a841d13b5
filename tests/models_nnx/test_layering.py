"""Layers taken out of stacks and pipelines, against plain loops over names."""

import dataclasses

import numpy as np
import pytest

from models_nnx.shared.config import LayerLayout, PipelineConfig, RematConfig, RematPolicy
from models_nnx.shared.layering import different, relaid
from models_nnx.shared.presets import preset, tiny


def numbered(layer, *shape):
    """An array whose values identify its layer."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1000 * layer


def unrolled(config):
    return dataclasses.replace(config, layout=LayerLayout.UNROLLED, pipeline=None)


def of_layers(numbers):
    """Two parameters and a routing bias of some layers, as an unrolled model has them."""
    flat = {"params/final_norm/scale": numbered(0, 3)}
    for number in numbers:
        flat[f"params/decoder/layers_{number}/mlp/up/kernel"] = numbered(number, 2, 5)
        flat[f"params/decoder/layers_{number}/norm/scale"] = numbered(number, 3)
        flat[f"routing_bias/decoder/layers_{number}/moe/routing_bias"] = numbered(number, 7)
    return flat


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf, err_msg=name)


@pytest.mark.parametrize("scan_axis", [0, 1])
def test_a_scanned_stack(scan_axis):
    config = dataclasses.replace(tiny(preset("llama2-70b")), layers=3, scan_axis=scan_axis)
    alone = of_layers(range(3))
    stacked = {
        "params/final_norm/scale": numbered(0, 3),
        "params/decoder/layers/mlp/up/kernel": np.stack([numbered(n, 2, 5) for n in range(3)], scan_axis),
        "params/decoder/layers/norm/scale": np.stack([numbered(n, 3) for n in range(3)], scan_axis),
        "routing_bias/decoder/layers/moe/routing_bias": np.stack([numbered(n, 7) for n in range(3)]),
    }
    assert_same(relaid(stacked, config, unrolled(config)), alone)
    assert_same(relaid(alone, unrolled(config), config), stacked)


def test_cycles_and_the_layers_that_fill_none():
    """Gemma 3: five local layers and a global one, twice, and two more that are never stacked."""
    config = dataclasses.replace(tiny(preset("gemma3-12b")), layers=14)
    stacked = relaid(of_layers(range(14)), unrolled(config), config)
    for block in range(6):
        kernel = stacked[f"params/decoder/layers/block_{block}/mlp/up/kernel"]
        np.testing.assert_array_equal(kernel[:, 0], numbered(block, 2, 5))
        np.testing.assert_array_equal(kernel[:, 1], numbered(6 + block, 2, 5))
    np.testing.assert_array_equal(stacked["params/decoder/layers_13/norm/scale"], numbered(13, 3))
    assert_same(relaid(stacked, config, unrolled(config)), of_layers(range(14)))


@pytest.mark.parametrize("stage_layout", list(LayerLayout))
@pytest.mark.parametrize(("repeats", "inside"), [(1, 3), (2, 3), (2, 1)])
def test_a_pipeline(stage_layout, repeats, inside):
    """Layer l of stage s in repeat r is number (r * S + s) * L + l."""
    pipeline = PipelineConfig(
        stages=2,
        microbatches=4,
        repeats=repeats,
        layers_per_stage=inside,
        layers_outside=2,
        stage_layout=stage_layout,
    )
    total = 2 * repeats * inside + 2
    config = dataclasses.replace(tiny(preset("llama2-70b")), layers=total, pipeline=pipeline)
    piped = relaid(of_layers(range(total)), unrolled(config), config)
    scanned = stage_layout is LayerLayout.SCANNED and inside > 1
    for repeat in range(repeats):
        for stage in range(2):
            for layer in range(inside):
                where = "layers" if scanned else f"layers_{layer}"
                kernel = piped[f"params/decoder/pipeline/stages/{where}/mlp/up/kernel"]
                kernel = (kernel[repeat] if repeats > 1 else kernel)[stage]
                expected = numbered((repeat * 2 + stage) * inside + layer, 2, 5)
                np.testing.assert_array_equal(kernel[layer] if scanned else kernel, expected)
    assert_same(relaid(piped, config, unrolled(config)), of_layers(range(total)))


def test_parameters_are_cast_and_untrained_leaves_are_not():
    config = dataclasses.replace(tiny(preset("llama2-70b")), layers=2)
    target = dataclasses.replace(unrolled(config), param_dtype="bfloat16")
    found = relaid(relaid(of_layers(range(2)), unrolled(config), config), config, target)
    dtypes = {name.split("/")[0]: str(leaf.dtype) for name, leaf in found.items()}
    assert dtypes == {"params": "bfloat16", "routing_bias": "float32"}


def test_configs_of_one_model_and_of_two():
    config = tiny(preset("llama2-70b"))
    remat = RematConfig(policy=RematPolicy.FULL)
    assert (
        different(config, dataclasses.replace(config, remat=remat, param_dtype="bfloat16", scan_axis=0)) == []
    )
    assert different(config, dataclasses.replace(config, layers=2, norm_epsilon=0.5)) == [
        "layers",
        "norm_epsilon",
    ]
