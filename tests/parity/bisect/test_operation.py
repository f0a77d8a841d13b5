"""Twins of stock Flax layers, whose programs differ everywhere: the operation at fault is still named."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.bisect.axis import Question, Signature, Status, signature_of
from parity.bisect.config import search_settings
from parity.bisect.report import bisect_case
from parity.compare.evidence import Evidence
from parity.compare.origin.evaluated import evaluate_case, on_one_device
from parity.compare.session import Session
from parity.run.run import run_case

# B batch, T position, D in, F width
B, T, D, F = 8, 6, 10, 7


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", 3))}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


def along(param):
    """Returns a vector aligned with the last axis of an activation."""
    return param[...][None, None]


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = linen.Dense(F, name="up")(x)
        h = linen.LayerNorm(name="norm")(h)
        h = h + linen.Dense(F, name="mixed")(linen.silu(h))
        return linen.Dense(3, name="down")(h)


class Net(nnx.Module):
    """A twin by different formulas: a variance written out, a transposed kernel, a scan over positions."""

    def __init__(self, rngs):
        self.up, self.norm = nnx.Linear(D, F, rngs=rngs), nnx.LayerNorm(F, rngs=rngs)
        self.mixed, self.down = nnx.Linear(F, F, rngs=rngs), nnx.Linear(F, 3, rngs=rngs)

    def __call__(self, x):
        h = self.residual(self.normed(self.raised(x)))
        return self.lowered(h)

    def raised(self, x):
        return jnp.einsum("fd,btd->btf", self.up.kernel[...].T, x) + along(self.up.bias)

    def normed(self, h):
        centred = h - jnp.mean(h, -1, keepdims=True)
        spread = jnp.mean(centred * centred, -1, keepdims=True)
        return centred / jnp.sqrt(spread + 1e-6) * along(self.norm.scale) + along(self.norm.bias)

    def residual(self, h):
        return h + self.mixed(self.activated(h))

    def activated(self, h):
        return h / (1 + jnp.exp(-h))

    def lowered(self, h):
        return jax.lax.map(self.down, h)


class OtherEpsilon(Net):
    def normed(self, h):
        return self.norm((h - jnp.mean(h)) * 1.0) * 1.01


class NoResidual(Net):
    def residual(self, h):
        return self.mixed(self.activated(h))


class NoGradient(Net):
    def residual(self, h):
        return h + self.mixed(jax.lax.stop_gradient(self.activated(h)))


class LastRow(Net):
    def lowered(self, h):
        turned = jnp.concatenate([h[:-1], 1.5 * h[-1:]])
        return jax.lax.map(self.down, turned)


def case(model, program="grad"):
    pair = parity.twins("net", linen=LinenNet, nnx=model, inputs=inputs, loss=loss)
    return next(each for each in pair.cases({}) if each.program == program)


@pytest.mark.long
def test_the_function_that_differs_is_named_behind_harmless_differences():
    report = bisect_case(case(OtherEpsilon, "forward"), ("op", "module"))
    op, module = report.axes
    first = op.facts["first"]
    assert first["blamed"][1][2] == "OtherEpsilon.normed" and not first["backward"], op.sentence
    assert "OtherEpsilon.normed" in report.sentence and "test_operation.py" in report.sentence
    assert module.facts["first"] == "mixed", module.rows
    assert {backward for *_, backward in module.facts["modules"]} == {
        None
    }  # a forward pass has no cotangents
    assert {row[2] for row in module.rows} == {"-"}


@pytest.mark.long
@pytest.mark.parametrize(("model", "backward"), [(LastRow, False), (NoGradient, True)])
def test_the_backward_pass_is_evaluated_only_if_the_values_are_equal(model, backward):
    found = evaluate_case(Evidence.of(on_one_device(case(model)), Session()), "values")
    groups = {result.group for result in found.failing}
    assert groups == ({"gradients"} if backward else {"values"})
    for trace in found.alignment.traces:
        assert any(node.around.backward for node in trace.nodes) is backward


@pytest.mark.long
def test_an_omission_is_named_by_the_line_of_the_other_side():
    (op,) = bisect_case(case(NoResidual, "forward"), ("op",)).axes
    first = op.facts["first"]
    assert (first["operations"][0], first["blamed"][0][2]) == ("add", "LinenNet.__call__"), op.sentence


@pytest.mark.long
def test_a_stopped_gradient_is_named_by_the_line_that_stops_it():
    (op,) = bisect_case(case(NoGradient), ("op",)).axes
    first = op.facts["first"]
    assert first["operations"][1] == "stop_gradient", op.sentence
    assert first["blamed"][1][2] == "NoGradient.residual", op.sentence


@pytest.mark.long
def test_a_check_that_is_not_deterministic_is_ambiguous():
    """Each run builds again, as a script that is started twice does."""
    fixed = case(LastRow, "forward")
    made = iter([fixed.candidate, case(Net, "forward").candidate])
    report = bisect_case(dataclasses.replace(fixed, candidate=lambda: next(made)()))
    assert report.ambiguous and report.axes == ()
    assert "ambiguous" in report.sentence and "names no culprit" in report.sentence


@pytest.mark.long
def test_the_batch_shrinks_and_fails_in_the_same_way():
    (size,) = bisect_case(case(LastRow, "forward"), ("size",)).axes
    assert size.facts["sizes"] == {"batch": 2, "sequence": 2}, size.sentence


class Crossed(Net):
    """Reads two leaves of equal shape in exchanged places."""

    def normed(self, h):
        centred = h - jnp.mean(h, -1, keepdims=True)
        spread = jnp.mean(centred * centred, -1, keepdims=True)
        return centred / jnp.sqrt(spread + 1e-6) * along(self.norm.bias) + along(self.norm.scale)


@pytest.mark.long
def test_the_weights_that_are_exchanged_are_named():
    (weight,) = bisect_case(case(Crossed, "forward"), ("weight",)).axes
    assert weight.found
    assert "params/norm/bias" in weight.sentence and "params/norm/scale" in weight.sentence


@pytest.mark.long
def test_the_settings_that_a_failure_needs_are_one_minimal():
    bad, good = case(LastRow, "forward"), case(Net, "forward")
    given = {"a": "1", "b": "2", "c": "3", "d": "4"}
    bench = Session()
    signature = signature_of(run_case(bad, bench, ("values",)))
    expected = Signature(channel="values", leaf="outputs", kind="failed")
    assert signature == expected

    def remade(settings):
        return bad if {"b", "d"} <= set(settings) else good

    question = Question(case=bad, signature=expected, bench=bench, given=given, remade=remade)
    finding = search_settings(question)
    assert finding.facts["needed"] == [{"b": "2"}, {"d": "4"}]
    assert [row[1] for row in finding.rows] == [Status.PASSES, Status.PASSES]
    assert "fails only while b=2 and d=4" in finding.sentence


class Tied(linen.Module):
    @linen.compact
    def __call__(self, tokens):
        table = linen.Embed(7, 5, name="table")
        h = linen.Dense(5, name="inner")(table(tokens))
        return table.attend(linen.Dense(5, name="outer")(jnp.tanh(2.0 * h)))


class TiedPort(nnx.Module):
    """Another factor between two layers, before the second use of the embedding."""

    def __init__(self, rngs):
        self.table = nnx.Embed(7, 5, rngs=rngs)
        self.inner, self.outer = nnx.Linear(5, 5, rngs=rngs), nnx.Linear(5, 5, rngs=rngs)

    def __call__(self, tokens):
        h = self.inner(self.table(tokens))
        return self.table.attend(self.outer(jnp.tanh(2.5 * h)))


def test_a_module_that_is_used_again_after_the_difference_is_not_the_first():
    pair = parity.twins(
        "tied",
        linen=Tied,
        nnx=TiedPort,
        inputs=lambda seed: {"tokens": np.random.default_rng(seed).integers(0, 7, (3, 4))},
        arguments=("tokens",),
        loss=lambda out, batch: out.sum(),
        programs=("forward",),
    )
    (found,) = bisect_case(pair.cases({})[0], ("module",)).axes
    assert found.sentence.startswith("the first module that diverges is outer: "), found.sentence
