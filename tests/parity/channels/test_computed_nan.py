"""A proved case that returns only NaN is vacuous, whatever makes the NaN; the record says where nothing was run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.cases.waivers import Waiver
from parity.compare import sample
from parity.run.run import run_cases

# B batch, D in, F out
B, D, F = 8, 6, 4


def batch(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, size)).astype("float32") for name, size in (("x", D), ("y", F))}


def loss(out, given):
    return jnp.mean((out - given["y"]) ** 2)


def twins(function, **options):
    """A dense layer and a function of its output and its kernel, in both flavours."""

    class Old(linen.Module):
        @linen.compact
        def __call__(self, x):
            dense = linen.Dense(F, name="dense")
            out = dense(x)
            return function(out, dense.variables["params"]["kernel"])

    class New(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.dense = nnx.Linear(D, F, rngs=rngs)

        def __call__(self, x):
            return function(self.dense(x), self.dense.kernel[...])

    return parity.twins("own", linen=Old, nnx=New, **{"inputs": batch, "loss": loss, **options})


def channels(function, **options):
    """Returns ``{program: {channel: result}}`` of all cases."""
    return {
        result.case.program: result.channels for result in run_cases(twins(function, **options).cases({}))
    }


def vacuous(found):
    return {
        (program, name)
        for program, results in found.items()
        for name, result in results.items()
        if result.verdict == "vacuous"
    }


def hidden(out, kernel):
    """A mask that hides everything, made of data."""
    return jax.nn.softmax(jnp.where(jnp.abs(out) > 1e9, out, -jnp.inf), axis=-1)


ALL = {
    *((program, "values") for program in ("forward", "grad", "train_step")),
    ("grad", "gradients"),
    ("train_step", "state"),
}
COMPUTED = {
    "logarithm": lambda out, kernel: jnp.log(-jnp.abs(out) - 1),
    "square root": lambda out, kernel: jnp.sqrt(-jnp.abs(out) - 1),
    "arcus": lambda out, kernel: jnp.arccos(2 + jnp.abs(out)),
    "zero by zero": lambda out, kernel: (out - out) / (out - out),
    "infinity less infinity": lambda out, kernel: jnp.exp(out + 1e3) - jnp.exp(out + 1e3),
    "power": lambda out, kernel: (-jnp.abs(out) - 1) ** (1.5 + 0 * out),
    "mask": hidden,
    "weights": lambda out, kernel: out * jax.lax.rsqrt(-jnp.sum(kernel**2)),
    "loop": lambda out, kernel: jax.lax.fori_loop(0, 3, lambda _, one: jnp.log(one), -jnp.abs(out) - 1),
}


@pytest.mark.parametrize("how", COMPUTED)
def test_what_computes_nothing_but_nan_is_vacuous(how):
    found = channels(COMPUTED[how])
    assert vacuous(found) == ({one for one in ALL if one[1] == "values"} if how == "mask" else ALL)
    assert {str(found[program]["program"].verdict) for program in found} == {"proved"}
    finding = found["forward"]["values"].findings[0]
    assert (finding.where, finding.candidate) == (
        "outputs",
        "both sides: NaN in every entry, on two batches and two states",
    )


def test_batches_of_nan_are_vacuous():
    found = channels(
        lambda out, kernel: out, inputs=lambda seed: {**batch(seed), "x": np.full((B, D), np.nan, "f")}
    )
    assert vacuous(found) >= ALL - {("train_step", "state")}


def test_gradients_alone_may_be_nan():
    """A norm has no gradient at zero."""
    found = channels(lambda out, kernel: out + jnp.sqrt(jnp.sum((out - out) ** 2)))
    assert vacuous(found) == {("grad", "gradients"), ("train_step", "state")}


@pytest.mark.parametrize(
    "function",
    [
        lambda out, kernel: out.at[0, 0].set(jnp.where(out[0, 0] > 1e9, 1.0, jnp.nan)),
        lambda out, kernel: jnp.where(jnp.arange(F) < 1, -jnp.inf, out),
        lambda out, kernel: jnp.where(out > 0, out, jnp.nan),
        lambda out, kernel: jnp.where(jnp.isnan(jnp.log(-jnp.abs(out) - 1)), out, 0.0),
        lambda out, kernel: jnp.exp(out + 1e3),
    ],
    ids=["one entry", "minus infinity", "half", "guarded", "infinity"],
)
def test_other_outputs_are_no_finding(function):
    found = channels(function, programs=("forward",))
    assert not vacuous(found)


def test_a_state_moved_out_of_its_domain_is_no_finding():
    """A buffer starts at zero and stays positive; the random state has it below zero."""

    class Old(linen.Module):
        @linen.compact
        def __call__(self, x):
            kept = self.variable("batch_stats", "square", lambda: jnp.zeros(()))
            return x * self.param("scale", linen.initializers.ones, (1, D)) / (1 + jnp.sqrt(kept.value))

    class New(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.scale = nnx.Param(jnp.ones((1, D)))
            self.square = nnx.BatchStat(jnp.zeros(()))

        def __call__(self, x):
            return x * self.scale[...] / (1 + jnp.sqrt(self.square[...]))

    pair = parity.twins("own", linen=Old, nnx=New, inputs=batch, loss=lambda out, given: jnp.mean(out**2))
    for result in run_cases(pair.cases({})):
        assert result.verdict == "passed", result.sentence()


def test_what_is_meant_is_waived():
    waiver = Waiver(channel="values", where="outputs", reason="a placeholder")
    found = channels(COMPUTED["logarithm"], programs=("forward",), waivers=(waiver,))
    assert found["forward"]["values"].verdict == "waived"


@pytest.mark.parametrize(("limit", "value"), [("MOST_OPERATIONS", 5), ("MOST_BYTES", 10)])
def test_the_record_says_what_was_not_looked_at(limit, value, monkeypatch):
    monkeypatch.setattr(sample, limit, value)
    found = channels(COMPUTED["logarithm"], programs=("forward", "train_step"))
    for results in found.values():
        assert results["values"].verdict == "proved"
        assert "not run to look for NaN: " in results["values"].detail
        assert f"more than {value}" in results["values"].detail
    assert "not run to look for NaN" not in found["forward"]["program"].detail


def test_a_run_that_would_fill_the_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(sample, "MOST_BYTES", 4_000)
    found = channels(
        lambda out, kernel: jnp.log(-(jnp.sort(jnp.tile(out, 500), -1)[..., -1] ** 2)), programs=("forward",)
    )
    assert "a run takes more than 4,000 bytes" in found["forward"]["values"].detail


def test_a_backend_that_runs_nothing_says_so():
    from parity.compare.placement import place

    cases = place(twins(COMPUTED["logarithm"], programs=("forward",)).cases({}), "lower:v5p:2x2x1")
    (result,) = run_cases(cases)
    assert result.channels["values"].detail.endswith("not run to look for NaN: lower:v5p:2x2x1 runs nothing")
