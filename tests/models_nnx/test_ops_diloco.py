"""DiLoCo's arithmetic on toy parameters of two stacks, against a plain loop; and bugs planted in it."""

import dataclasses
import functools
import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracle_diloco
import pytest

from models_nnx.shared import ops
from models_nnx.shared.config import ConfigError, DilocoConfig, LayerLayout, PipelineConfig
from models_nnx.shared.mesh import DEFAULT_RULES
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.sharding import ShardingError

TWO_STACKS = dataclasses.replace(tiny(preset("deepseek3-671b")), layers=7, dense_layers=3)
FIRST = {"dense_layers": 0, "layers": 3}
LEAVES = {
    "embedder/embedding": (("vocab", "embed"), (5, 3)),
    "decoder/dense_layers/mlp/up/kernel": (("embed", "layers", "mlp"), (4, 3, 2)),
    "decoder/dense_layers/norm/scale": (("norm", "layers"), (6, 3)),
    "decoder/layers/attention/query/kernel": (("embed", "layers", "heads", "head_dim"), (2, 4, 3, 5)),
    "decoder/layers/norm/scale": (("norm", "layers"), (3, 4)),
    "final_norm/scale": (("norm",), (7,)),
    "head/kernel": (("embed", "vocab"), (3, 5)),
}
PLAIN = DilocoConfig(replicas=3, period=3, learning_rate=0.6, momentum=0.7)
STREAMING = DilocoConfig(
    replicas=3, period=6, fragments=3, delay=1, inner_share=0.3, learning_rate=0.6, momentum=0.7
)
CONFIGS = {
    "plain": PLAIN,
    "streaming": STREAMING,
    "at once": dataclasses.replace(STREAMING, fragments=2, delay=0, inner_share=0.0),
    "late": dataclasses.replace(STREAMING, fragments=2, delay=2, inner_share=0.9),
}


def wrong(config, module=ops):
    """Returns the first step, in two periods and a step, that differs from the plain loop, and the names; else None."""
    rng = np.random.default_rng(0)
    inner = {path: rng.normal(size=(3, *shape)) for path, (_, shape) in LEAVES.items()}
    outer = {path: rng.normal(size=shape) for path, (_, shape) in LEAVES.items()}
    momentum = {path: np.zeros(shape) for path, (_, shape) in LEAVES.items()}

    def views(replica):
        return oracle_diloco.layers({path: array[replica] for path, array in held.items()}, FIRST)

    held = {path: array.copy() for path, array in inner.items()}
    oracle = oracle_diloco.Replicas(
        [views(replica) for replica in range(3)], oracle_diloco.layers(outer, FIRST), config
    )
    parts = module.fragment_parts(TWO_STACKS, config, LEAVES)
    update = [jax.jit(functools.partial(module.update_outer, config, part)) for part in parts]
    take = [
        jax.jit(lambda inner, outer, part=part: module.take_outer(config, part, inner, outer, DEFAULT_RULES))
        for part in parts
    ]
    for step in range(1, 2 * config.period + 2):
        for path, array in held.items():
            drift = rng.normal(size=array.shape)
            array += drift
            inner[path] = inner[path] + drift
        oracle.after_step()
        if due := module.due(config, step, 0):
            outer, momentum = update[due - 1](inner, outer, momentum)
        if took := module.due(config, step, config.delay):
            inner = take[took - 1](inner, outer)
        found = {path for path in inner if not np.allclose(inner[path], held[path], rtol=1e-12, atol=1e-12)}
        if found:
            return step, {path.split("/")[0] for path in found}
    waiting = {name for _, gradients in oracle.waiting for name in gradients}
    for group in ("outer", "momentum"):
        arrays = {
            path: np.asarray(array) for path, array in {"outer": outer, "momentum": momentum}[group].items()
        }
        for name, array in oracle_diloco.layers(arrays, FIRST).items():
            if name not in waiting and not np.allclose(array, getattr(oracle, group)[name], rtol=1e-12):
                return step, {group}
    return None


@pytest.mark.slow
@pytest.mark.usefixtures("x64", "quick")
@pytest.mark.parametrize("name", CONFIGS)
def test_replicas_are_those_of_the_plain_loop(name):
    assert wrong(CONFIGS[name]) is None


# --- bugs planted in code that both twins share: only an oracle detects them ---

PLANTS = {
    "the sum, not the mean": (
        "jnp.mean(part.of(inner[path]).astype(before.dtype), axis=0)",
        "jnp.sum(part.of(inner[path]).astype(before.dtype), axis=0)",
        PLAIN,
    ),
    "plain momentum": ("update = gradient + config.momentum * trace", "update = trace", PLAIN),
    "momentum forgotten": (
        "momentum[path] = part.into(momentum[path], trace)",
        "momentum[path] = momentum[path]",
        PLAIN,
    ),
    "the wrong sign": ("gradient = before - mean", "gradient = mean - before", PLAIN),
    "the share on the wrong side": (
        "share * mine.astype(new.dtype) + (1 - share) * new",
        "(1 - share) * mine.astype(new.dtype) + share * new",
        STREAMING,
    ),
    "the test before the increment": (
        "number, rest = step // config.gap, step % config.gap",
        "number, rest = (step - 1) // config.gap, (step - 1) % config.gap",
        PLAIN,
    ),
    "the delay ignored": ("(rest == delay)", "(rest == 0)", STREAMING),
    "each fragment at the other's step": (
        "((number + config.fragments - 1) % config.fragments + 1)",
        "(number % config.fragments + 1)",
        STREAMING,
    ),
    "every stack counted from zero": (
        'places |= _held("decoder", stack, stack.first)',
        'places |= _held("decoder", stack, 0)',
        dataclasses.replace(STREAMING, fragments=2),
    ),
    "every stack as deep as the first": (
        "range(1 if axis is None else shape[axis])",
        "range(1 if axis is None else min(3, shape[axis]))",
        STREAMING,
    ),
    "slices at the wrong stride": (
        "stride = mine[1] - mine[0] if len(mine) > 1 else 1",
        "stride = 1",
        dataclasses.replace(STREAMING, fragments=2),
    ),
    "a slice too many taken": ("numbers < length - after)", "numbers <= length - after)", STREAMING),
}


@pytest.mark.slow
@pytest.mark.usefixtures("x64", "quick")
@pytest.mark.parametrize("bug", PLANTS)
def test_the_plain_loop_catches_a_bug_that_both_twins_share(bug, tmp_path, monkeypatch):
    old, new, config = PLANTS[bug]
    source = Path(ops.diloco.__file__).read_text()
    assert source.count(old) == 1
    (tmp_path / "planted.py").write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("planted_diloco", tmp_path / "planted.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert wrong(config, module) is not None


# --- fragments ---


def covered(config, diloco, leaves):
    """Returns how often the fragments together have each entry of each leaf."""

    def count():
        times = {path: jnp.zeros(shape, int) for path, (_, shape) in leaves.items()}
        for parts in ops.fragment_parts(config, diloco, leaves):
            for path, part in parts.items():
                old = jnp.zeros(times[path].shape, int)
                times[path] += part.into(old, jnp.ones_like(part.of(old)))
        return times

    return {path: np.asarray(times) for path, times in jax.jit(count)().items()}


@pytest.mark.parametrize("fragments", [1, 2, 3, 5])
def test_every_entry_is_in_one_fragment(fragments):
    diloco = DilocoConfig(replicas=2, period=30, fragments=fragments)
    assert all((times == 1).all() for times in covered(TWO_STACKS, diloco, LEAVES).values())


def test_cycles_unrolled_layers_and_stages_are_assigned_by_path():
    diloco = DilocoConfig(replicas=2, period=4, fragments=2)
    gemma = tiny(preset("gemma2-9b"))
    axes = ("norm", "layers")
    blocks = {f"decoder/layers/block_{index}/norm/scale": (axes, (5, 4)) for index in range(2)}
    even, odd = ops.fragment_parts(gemma, diloco, blocks)
    assert list(even) == ["decoder/layers/block_0/norm/scale"] and even[next(iter(even))].axis is None
    assert list(odd) == ["decoder/layers/block_1/norm/scale"]
    unrolled = dataclasses.replace(tiny(preset("llama2-7b")), layout=LayerLayout.UNROLLED)
    leaves = {f"decoder/layers_{number}/norm/scale": (("norm",), (5,)) for number in range(4)}
    even, odd = ops.fragment_parts(unrolled, diloco, leaves)
    assert list(even) == ["decoder/layers_0/norm/scale", "decoder/layers_2/norm/scale"]
    pipeline = PipelineConfig(stages=2, microbatches=4, repeats=2, layers_per_stage=2)
    staged = dataclasses.replace(tiny(preset("llama2-7b")), layers=8, pipeline=pipeline)
    axes = ("repeats", "stage", "layers", "norm")
    leaves = {"decoder/pipeline/stages/layers/norm/scale": (axes, (2, 2, 2, 5))}
    for number, parts in enumerate(ops.fragment_parts(staged, diloco, leaves)):
        (part,) = parts.values()
        assert (part.axis, part.start, part.count) == (0, number, 1)


def test_a_fragment_without_layers_is_refused():
    diloco = DilocoConfig(replicas=2, period=9, fragments=9)
    rule = r"config field diloco.fragments: got 9, expected few enough .* \[7\] have none of 7 layers"
    with pytest.raises(ConfigError, match=rule):
        ops.fragment_parts(TWO_STACKS, diloco, LEAVES)


def test_a_parameter_of_the_decoder_in_no_stack_is_refused():
    with pytest.raises(
        ValueError, match=r"got the parameter decoder/elsewhere/scale, expected one of a stack"
    ):
        ops.fragment_parts(TWO_STACKS, PLAIN, {"decoder/elsewhere/scale": (("norm",), (3,))})


def test_replicas_synchronise_on_schedule():
    due = [ops.due(STREAMING, step, 0) for step in range(15)]
    assert due == [0, 0, 1, 0, 2, 0, 3, 0, 1, 0, 2, 0, 3, 0, 1]
    took = [ops.due(STREAMING, step, STREAMING.delay) for step in range(15)]
    assert took == [0, *due[:-1]]


BAD = [
    ({"replicas": 1}, "diloco.replicas: got 1, expected at least 2"),
    ({"replicas": 0}, "replicas: got 0, expected a whole number above 0"),
    ({"period": 0}, "period: got 0, expected a whole number above 0"),
    ({"fragments": 4}, "diloco.fragments: got 4, expected a divisor of period=6"),
    ({"fragments": 2.0}, "fragments: got 2.0, expected a whole number above 0"),
    ({"delay": 2}, r"diloco.delay: got 2, expected a whole number in \[0, period / fragments\) = \[0, 2\)"),
    ({"delay": -1}, "diloco.delay: got -1"),
    ({"delay": 0.5}, "diloco.delay: got 0.5"),
    ({"inner_share": 1.01}, r"diloco.inner_share: got 1.01, expected a share in \[0, 1\]"),
    ({"inner_share": -0.1}, "diloco.inner_share: got -0.1"),
    ({"inner_share": float("nan")}, "diloco.inner_share: got nan"),
    ({"learning_rate": 0.0}, "learning_rate: got 0.0, expected a number above 0"),
    ({"momentum": 1.0}, r"momentum: got 1.0, expected a rate in \[0, 1\)"),
]


@pytest.mark.parametrize("changes, message", BAD, ids=str)
def test_a_bad_config_is_refused(changes, message):
    with pytest.raises(ConfigError, match=f"config field {message}"):
        dataclasses.replace(STREAMING, **changes)


def test_experts_in_a_pipeline_are_refused_in_one_sentence():
    config = tiny(preset("mixtral-8x7b"))
    staged = dataclasses.replace(config, pipeline=PipelineConfig(stages=2, microbatches=2), layers=2)
    # Newer JAX makes unannotated mesh axes explicit, and dropless experts are refused on explicit axes.
    mesh = jax.sharding.AbstractMesh(
        (2, 2), (ops.REPLICA, "stage"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    with jax.sharding.use_abstract_mesh(mesh):
        assert ops.replica_axis(config) == ops.REPLICA
        with pytest.raises(ShardingError, match="got experts in a pipeline, expected layers in sequence"):
            ops.replica_axis(staged)


@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit], ids=str)
def test_an_axis_of_size_one_splits_no_replicas(kind):
    config = tiny(preset("llama2-7b"))
    for size, axis in ((1, None), (2, ops.REPLICA)):
        mesh = jax.sharding.AbstractMesh((size, 2), (ops.REPLICA, "data"), axis_types=(kind, kind))
        with jax.sharding.use_abstract_mesh(mesh):
            assert ops.replica_axis(config) == axis
