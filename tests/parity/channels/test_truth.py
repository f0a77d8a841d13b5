"""Checks that a proof does not settle: batches, dead results, flavours; and the rules for passing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.build import linen_build
from parity.cases.case import Accept, Case
from parity.compare import sample
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 5, 4, 3
REPLICATED = jax.sharding.PartitionSpec()


def batch(seed, shift=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((B, D), np.float32),
        "targets": np.roll(np.arange(B, dtype=np.int32), shift),
    }


def apply(params, inputs):
    return jnp.tanh(inputs["x"] @ params["w"]) + params["b"][None]


def forward(state, inputs):
    return {"values": {"out": apply(state["params"], inputs) * inputs["targets"][:, None]}}


def build(name, function, inputs=batch, collections=("params",), **options):
    def create(key):
        weights = jax.random.normal(key, (D, F))
        return {name: {"w": weights, "b": jnp.zeros(F)} for name in collections}

    return linen_build(
        name,
        create,
        {"step": (function, options)},
        inputs=inputs,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def outcome(
    reference,
    candidate=None,
    *,
    channels=None,
    inputs=(batch, batch),
    paranoid=False,
    collections=("params",),
    **rest,
):
    sides = [
        build(name, function, given, collections)
        for name, function, given in zip("ab", (reference, candidate or reference), inputs, strict=True)
    ]
    case = Case(
        id="toy/step@single",
        reference=lambda: sides[0],
        candidate=lambda: sides[1],
        program="step",
        **rest,
    )
    bench = Session(paranoid=paranoid)
    return run_case(case, bench, channels) if channels else run_case(case, bench)


# --- batches ---


def test_batches_of_the_two_sides_are_compared_though_the_program_is_proved():
    result = outcome(forward, inputs=(batch, functools.partial(batch, shift=1)))
    assert result.channels["program"].verdict is Verdict.PROVED
    assert result.verdict == "failed"
    sentence = result.sentence()
    assert "input targets[0]" in sentence and "reference 0" in sentence and "candidate 4" in sentence


def test_an_input_of_another_dtype_or_that_one_side_lacks_is_a_finding():
    def wide(seed):
        return {**batch(seed), "x": batch(seed)["x"].astype(np.float64)}

    def more(seed):
        return {**batch(seed), "mask": np.ones(B)}

    assert "reference float32, candidate float64" in outcome(forward, inputs=(batch, wide)).sentence()
    assert "input mask: reference not given" in outcome(forward, inputs=(batch, more)).sentence()


# --- results independent of the parameters ---


def without_parameters(state, inputs):
    return {"values": {"out": jnp.tanh(inputs["x"])}}


def without_inputs(state, inputs):
    return {"values": {"out": jnp.tanh(state["params"]["w"]) @ state["params"]["b"]}}


def not_a_number(state, inputs):
    return {"values": {"out": apply(state["params"], inputs), "loss": jnp.sum(inputs["x"]) * jnp.nan}}


def nothing(state, inputs):
    return {}


def empty(state, inputs):
    return {"values": {}}


def dead(state, inputs):
    """The bias is stopped inside a scan, so that its gradient is a carry of zeros."""

    def loss(params):
        bias = jax.lax.stop_gradient(params["b"])
        total, _ = jax.lax.scan(
            lambda sum_, row: (sum_ + jnp.tanh(row @ params["w"] + bias), None), bias, inputs["x"]
        )
        return jnp.sum(total**2)

    value, grads = jax.value_and_grad(loss)(state["params"])
    return {"values": {"loss": value}, "gradients": {"params": grads}}


def untrained(state, inputs):
    """A step that forgets one parameter."""
    params = state["params"]
    return {
        "values": {"loss": jnp.sum(apply(params, inputs))},
        "state": {"params": {**params, "w": params["w"] * 0.5}},
    }


@pytest.mark.parametrize(
    ("function", "channel", "words"),
    [
        (without_parameters, "values", "no value depends on the parameters"),
        (without_inputs, "values", "no value depends on the inputs"),
        (not_a_number, "values", "loss: expected numbers"),
        (nothing, "program", "both sides return no array"),
        (empty, "program", "both sides return no array"),
        (dead, "gradients", "params/b: expected a gradient that is not zero"),
        (untrained, "state", "params/b: expected a parameter that the program moves"),
    ],
)
def test_a_proved_idle_case_is_vacuous_and_nothing_runs(function, channel, words, monkeypatch):
    monkeypatch.setattr(sample, "MOST_OPERATIONS", 0)
    result = outcome(function)
    assert result.verdict == "vacuous"
    assert result.channels[channel].verdict is Verdict.VACUOUS
    assert words in result.channels[channel].findings[0].sentence().replace("reference ", "")
    assert result.seconds["compile"] == 0


def test_values_of_the_average_of_parameters_depend_on_parameters():
    def sample(state, inputs):
        return {"values": {"y": apply(state["average"], inputs)}}

    assert outcome(sample, collections=("params", "average")).verdict == "passed"


def test_a_dead_gradient_that_is_declared_passes_and_so_does_a_metric_without_parameters():
    assert outcome(dead, accept=Accept(zero_gradients=["params/b"])).verdict == "passed"

    def rated(state, inputs):
        return {
            "values": {"out": apply(state["params"], inputs), "rate": jnp.float32(0.1) * inputs["x"][0, 0]}
        }

    assert outcome(rated).verdict == "passed"


# --- passing cases ---


def doubled(state, inputs):
    params = {**state["params"], "w": jax.lax.pow(state["params"]["w"], jnp.float32(1.0))}
    return forward({"params": params}, inputs)


def clamped(state, inputs):
    w = state["params"]["w"]
    return forward({"params": {**state["params"], "w": jnp.maximum(w, w - 1)}}, inputs)


def test_a_case_run_for_its_proof_only_does_not_pass_without_one():
    assert outcome(forward, channels=("program",)).verdict == "passed"
    assert outcome(forward, doubled, channels=("program",)).verdict == "unproved"


@pytest.mark.long
def test_equal_numbers_of_different_programs_are_counted_separately():
    assert not outcome(forward).numbers_only
    assert outcome(forward, clamped).numbers_only
    matching = outcome(forward, doubled)
    assert "compile to one program" in matching.channels["values"].detail and not matching.numbers_only


# --- flavours ---


class LinenMlp(linen.Module):
    """Two layers."""

    @linen.compact
    def __call__(self, x):
        return linen.Dense(F, name="out")(jnp.tanh(linen.Dense(7, name="hidden")(x)))


class NnxMlp(nnx.Module):
    """The layers of `LinenMlp`."""

    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(D, 7, rngs=rngs), nnx.Linear(7, F, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))


def foreign(linen_side, nnx_side):
    pair = parity.twins(
        "mlp",
        linen=linen_side,
        nnx=nnx_side,
        inputs=lambda seed: {"x": batch(seed)["x"]},
        loss=lambda outputs, inputs: jnp.sum(outputs**2),
    )
    (case,) = (case for case in pair.cases({}) if case.program == "grad")
    return case


def bridged(rngs):
    return nnx.bridge.ToNNX(LinenMlp(), rngs=rngs).lazy_init(jnp.ones((B, D)))


def program_of(case, channels=("program",)):
    return run_case(case, Session(), channels).channels["program"]


def test_linen_against_linen_through_a_bridge_is_not_two_flavours():
    result = program_of(foreign(LinenMlp, bridged))
    assert result.verdict is Verdict.FAILED
    assert "operations of modules are of linen modules" in result.findings[0].sentence()


def test_nnx_against_nnx_through_a_bridge_is_not_two_flavours():
    result = program_of(foreign(lambda: nnx.bridge.to_linen(NnxMlp), NnxMlp))
    assert result.verdict is Verdict.FAILED
    assert "operations of modules are of nnx modules" in result.findings[0].sentence()


def test_factories_without_files_are_attested_by_their_modules():
    result = program_of(foreign(lambda: LinenMlp(), lambda rngs: NnxMlp(rngs)))
    assert result.verdict is Verdict.PROVED and result.detail.startswith("attested linen and nnx")


def test_a_bridge_that_is_meant_is_declared():
    case = foreign(LinenMlp, bridged).with_accept(bridged="half migrated")
    assert program_of(case).verdict is not Verdict.FAILED


# --- other programs by intent, proved in exact arithmetic ---


def in_halves(state, inputs, scale=1.0):
    x, (w, b) = inputs["x"], (state["params"][name] for name in "wb")
    rows = jnp.concatenate([jnp.tanh(x[:2] @ w) + b[None], jnp.tanh(scale * x[2:] @ w) + b[None]])
    return {"values": {"out": rows * inputs["targets"][:, None]}}


@pytest.mark.parametrize("paranoid", [False, True])
@pytest.mark.parametrize("require", [Verdict.EXACT, Verdict.FLOOR])
def test_a_program_that_differs_by_intent_is_proved_exactly_and_run_where_asked(require, paranoid):
    accept = Accept(
        require=require, prove_exact=True, not_applicable={"program": "rows in halves", "dots": "two of them"}
    )
    right = outcome(forward, in_halves, accept=accept, paranoid=paranoid)
    assert right.verdict == "passed", right.sentence()
    settled = require is Verdict.EXACT and not paranoid
    assert (right.channels["values"].verdict is Verdict.EXACT) is settled
    wrong = outcome(forward, functools.partial(in_halves, scale=1.01), accept=accept, paranoid=paranoid)
    assert {wrong.channels[name].verdict for name in ("exact", "values")} == {Verdict.FAILED}


# --- small constants behind another difference ---


def normed(state, inputs, epsilon=1e-7, other=False):
    x, w = inputs["x"], state["params"]["w"]
    y = x[:, :2] @ w[:2] + x[:, 2:] @ w[2:] if other else x @ w
    y = y / jnp.sqrt(1 + jnp.mean(y * y, axis=-1, keepdims=True) + epsilon)
    return {"values": {"out": (y + state["params"]["b"][None]) * inputs["targets"][:, None]}}


def test_another_epsilon_behind_a_harmless_difference_fails_though_no_number_shows_it():
    harmless = outcome(normed, functools.partial(normed, other=True))
    assert harmless.verdict == "passed" and harmless.channels["program"].verdict is Verdict.UNPROVED
    wrong = outcome(normed, functools.partial(normed, other=True, epsilon=2e-7))
    assert wrong.channels["values"].verdict is not Verdict.FAILED
    assert wrong.channels["program"].verdict is Verdict.FAILED
    assert "add 2e-07 once, at" in wrong.sentence() and "in normed" in wrong.sentence()
