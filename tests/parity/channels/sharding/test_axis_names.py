"""Axis names through rules: Linen declares logical axes, NNX the mesh axes that rules give, as in Flax's lm1b."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.channels.axes import AxisNames
from parity.run.request import Request
from parity.run.run import case_runner

# B batch, D model, F hidden
B, D, F = 8, 4, 12
RULES = (("embed", "fsdp"), ("mlp", "tensor"))
MESH = "fsdp2.tensor2-auto"
NAMES = {"up": ("embed", "mlp"), "down": ("mlp", "embed")}


class Linen(linen.Module):
    named: bool = True

    @linen.compact
    def __call__(self, x):
        def dense(name, size):
            if not self.named:
                return linen.Dense(size, name=name)
            init = linen.with_logical_partitioning(linen.initializers.lecun_normal(), NAMES[name])
            bias = linen.with_logical_partitioning(linen.initializers.zeros, NAMES[name][1:])
            return linen.Dense(size, kernel_init=init, bias_init=bias, name=name)

        return dense("down", D)(jnp.tanh(dense("up", F)(x)))


class Nnx(nnx.Module):
    def __init__(self, rngs, rules, wrong=None):
        def linear(name, *sizes, wrong=None):
            axes = tuple(rules[axis] for axis in NAMES[name])
            init = nnx.with_partitioning(nnx.initializers.lecun_normal(), wrong or axes)
            bias = nnx.with_partitioning(nnx.initializers.zeros_init(), axes[1:])
            return nnx.Linear(*sizes, kernel_init=init, bias_init=bias, rngs=rngs)

        self.up = linear("up", D, F, wrong=wrong)
        self.down = linear("down", F, D)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


def run(mesh, given=RULES, rules=RULES, wrong=None, named=True):
    def inputs(seed):
        return {"x": np.random.default_rng(seed).normal(size=(B, D)).astype("float32")}

    pair = parity.twins(
        "axes",
        linen=lambda: Linen(named=named),
        nnx=lambda rngs: Nnx(rngs, dict(rules), wrong),
        inputs=inputs,
        loss=lambda out, batch: jnp.mean(out**2),
        programs=("forward",),
        meshes=(mesh,),
        axis_rules=given,
    )
    (result,) = map(case_runner(Request(channels=("tree", "sharding"))), pair.cases({}))
    return result


@pytest.mark.parametrize("mesh", ["single", MESH])
def test_mesh_axes_agree_with_the_logical_axes_that_the_rules_resolve_to_them(mesh):
    result = run(mesh)
    assert result.verdict == "passed", result.sentence()


@pytest.mark.parametrize("mesh", ["single", MESH])
def test_one_leaf_with_the_wrong_mesh_axes_fails_and_is_the_only_one_named(mesh):
    result = run(mesh, wrong=("tensor", "fsdp"))
    for name in ("tree", "sharding"):
        channel = result.channels[name]
        assert channel.verdict == "failed"
        assert all(finding.where.endswith("up/kernel") for finding in channel.findings), channel.findings
        assert (
            "made by the candidate at tests/parity/channels/sharding/test_axis_names.py"
            in channel.findings[0].next_step
        )


@pytest.mark.parametrize("mesh", ["single", MESH])
def test_a_rule_that_one_side_lacks_fails(mesh):
    result = run(mesh, rules=(("embed", "fsdp"), ("mlp", None)))
    assert {str(channel.verdict) for channel in result.channels.values()} == {"failed"}


def test_without_rules_on_one_device_leaves_must_agree_on_the_rules():
    result = run("single", given=())
    assert result.verdict == "passed", result.sentence()
    assert "embed is fsdp, mlp is tensor (no axis_rules given)" in result.channels["tree"].detail
    wrong = run("single", given=(), wrong=("tensor", "fsdp"))
    assert next(finding.where for finding in wrong.channels["tree"].findings).endswith("up/kernel")
    assert wrong.verdict == "failed"


@pytest.mark.parametrize(("given", "verdict"), [((), "passed"), (RULES, "failed")])
def test_a_reference_without_names_leaves_the_candidates_open_unless_the_pair_has_rules(given, verdict):
    """Such as the parameters of a Linen train step, out of their boxes."""
    result = run("single", given=given, named=False)
    assert result.verdict == verdict, result.sentence()
    assert (
        given or "axes are not compared, because the reference names none" in result.channels["tree"].detail
    )


def test_a_candidate_without_the_names_of_the_reference_fails():
    bare = (("embed", None), ("mlp", None))
    result = run("single", given=(), rules=bare)
    assert {str(channel.verdict) for channel in result.channels.values()} == {"failed"}, result.sentence()


def test_a_missing_rule_is_told_from_names_that_are_swapped():
    related = AxisNames(rules=(*RULES, ("fsdp", "fsdp"), ("tensor", "tensor")))
    assert related.difference(("embed", "kv"), ("fsdp", "tensor")) == "no axis rule names kv"
    assert related.difference(("embed", "mlp"), ("tensor", "fsdp")).startswith("axis names swapped")
    assert AxisNames().difference(("embed", "kv"), ("kv", "embed")).startswith("axis names swapped")
