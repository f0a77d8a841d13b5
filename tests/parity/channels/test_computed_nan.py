"""A proved case that returns NaN, infinity, one constant or dead gradients is vacuous; else the record is clean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.cases.accepted import Waiver
from parity.compare import sample
from parity.run.request import Request
from parity.run.run import case_runner

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
        result.program: result.channels
        for result in map(case_runner(Request()), twins(function, **options).cases({}))
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
def test_a_program_that_computes_only_nan_is_vacuous(how):
    found = channels(COMPUTED[how])
    assert vacuous(found) == (ALL - {("train_step", "state")} if how == "mask" else ALL)
    assert {str(found[program]["program"].verdict) for program in found} == {"proved"}
    finding = found["forward"]["values"].findings[0]
    assert (finding.where, finding.candidate) == (
        "outputs",
        "entries that are not finite",
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
        lambda out, kernel: jnp.where(jnp.arange(B)[:, None] < B // 2, out, 0.0),
        lambda out, kernel: jnp.where(jnp.arange(B)[:, None] < B - 1, -jnp.inf, out),
        lambda out, kernel: jnp.where(jnp.isinf(jnp.exp(out + 1e3)), out, 0.0),
        lambda out, kernel: out - jnp.max(out),
        lambda out, kernel: jnp.broadcast_to(jnp.sum(out), (B, F)),
        lambda out, kernel: {
            "out": out,
            "tokens": jnp.sum(0 * out) + B,
            "step": jnp.zeros((1, 1)) * out[0, 0],
        },
        lambda out, kernel: {"out": out, "chosen": jnp.where(out > 1e9, 1, 0), "kept": out < 1e9},
        lambda out, kernel: {"out": out, "none": out[:0]},
    ],
    ids=[
        "one entry",
        "minus infinity",
        "half",
        "guarded",
        "padded rows",
        "hidden rows",
        "guarded infinity",
        "one zero",
        "the same in a batch",
        "scalars",
        "integers",
        "empty",
    ],
)
def test_other_outputs_are_no_finding(function):
    found = channels(function, programs=("forward",))
    assert not vacuous(found)


@pytest.mark.parametrize(
    ("function", "finding"),
    [
        (lambda out, kernel: jnp.exp(out + 1e3), "outputs"),
        (lambda out, kernel: -jnp.exp(1e3 + jnp.abs(out)), "outputs"),
        (lambda out, kernel: 1 / (out - out), "outputs"),
        (lambda out, kernel: jnp.where(out > 0, jnp.exp(out + 1e3), jnp.log(-jnp.abs(out) - 1)), "outputs"),
        (lambda out, kernel: {"out": out, "norm": jnp.sum(jnp.exp(out + 1e3))}, "outputs/norm"),
        (lambda out, kernel: {"out": out, "wave": jnp.log(out - 1e9) + 1j * out}, "outputs/wave"),
        (lambda out, kernel: (1e30 * (1 + jnp.abs(out))).astype(jnp.float16), "outputs"),
        (lambda out, kernel: out * 0, "values outputs"),
        (lambda out, kernel: jnp.floor(0.5 * jax.nn.sigmoid(out)), "values outputs"),
        (lambda out, kernel: jax.nn.relu(-1 - jnp.abs(out)), "values outputs"),
        (lambda out, kernel: jnp.clip(out, 5e8, 1e9), "values outputs"),
        (lambda out, kernel: jax.nn.softmax(jnp.sum(out, -1, keepdims=True)), "values outputs"),
        (lambda out, kernel: {"out": out, "gate": jnp.where(out > 1e9, out, 0.0)}, "values outputs/gate"),
        (lambda out, kernel: (1e-30 * out).astype(jnp.float16), "values outputs"),
    ],
    ids=[
        "infinity",
        "minus infinity",
        "division by zero",
        "infinity and NaN",
        "a scalar",
        "complex",
        "half overflows",
        "times zero",
        "floor",
        "relu",
        "clipped",
        "one class",
        "a mask that hides everything",
        "half underflows",
    ],
)
def test_outputs_that_are_infinite_or_one_constant_are_vacuous(function, finding):
    found = channels(function, programs=("forward",))
    assert vacuous(found) == {("forward", "values")}
    assert [one.where for one in found["forward"]["values"].findings] == [finding]


# with a value that depends on the kernel, and a gradient that is zero on all drawn inputs
DEAD = {
    "relu": lambda out: jax.nn.relu(-1e9 - out**2),
    "clip": lambda out: jnp.clip(out, 1e8, 1e9),
    "mask": lambda out: jnp.where(out > 1e9, out, 2.0),
    "saturated": lambda out: jnp.tanh(out + 1e9),
    "two relus": lambda out: jax.nn.relu(-jax.nn.relu(out)),
    "underflow": lambda out: out * jnp.exp(-1e3 - jnp.abs(jax.lax.stop_gradient(out))),
    "maximum": lambda out: jnp.maximum(out, 1e9),
}


@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "declared"])
@pytest.mark.parametrize("how", DEAD)
def test_gradients_that_are_zero_on_data_are_vacuous_unless_declared(how, declared):
    found = channels(
        lambda out, kernel: jax.lax.stop_gradient(out) + DEAD[how](out),
        programs=("grad",),
        zero_gradients=("*dense/*",) if declared else (),
    )
    assert vacuous(found) == (set() if declared else {("grad", "gradients")})
    if not declared:
        assert {one.where for one in found["grad"]["gradients"].findings} == {
            "params/dense/bias",
            "params/dense/kernel",
        }
        assert {one.candidate for one in found["grad"]["gradients"].findings} == {"a gradient of zeros"}
    assert found["grad"]["program"].verdict == "proved"


class OldGate(linen.Module):
    """A head, a gate and a scale that start at zero; some units of the layer are always off."""

    @linen.compact
    def __call__(self, x):
        zeros = linen.initializers.zeros
        hidden = jax.nn.relu(linen.Dense(16, name="dense")(x))
        hidden = hidden + self.param("gate", zeros, ()) * linen.Dense(16, name="branch")(hidden)
        hidden = jnp.where(jnp.arange(16) < 3, jax.nn.relu(-1 - hidden), hidden)
        return linen.Dense(F, kernel_init=zeros, name="head")(hidden)


class NewGate(nnx.Module):
    """The twin of `OldGate`."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense = nnx.Linear(D, 16, rngs=rngs)
        self.gate = nnx.Param(jnp.zeros(()))
        self.branch = nnx.Linear(16, 16, rngs=rngs)
        self.head = nnx.Linear(16, F, kernel_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, x):
        hidden = jax.nn.relu(self.dense(x))
        hidden = hidden + self.gate[...] * self.branch(hidden)
        hidden = jnp.where(jnp.arange(16) < 3, jax.nn.relu(-1 - hidden), hidden)
        return self.head(hidden)


@pytest.mark.long
def test_layers_that_start_at_zero_and_dead_units_are_no_finding():
    pair = parity.twins("own", linen=OldGate, nnx=NewGate, inputs=batch, loss=loss)
    for result in map(case_runner(Request()), pair.cases({})):
        assert result.verdict == "passed", result.sentence()


def test_a_state_that_starts_at_infinity_may_stay_there():
    """It is the best loss so far, before its first update."""

    def step(state, given):
        value, slope = jax.value_and_grad(lambda w: loss(given["x"] @ w, given))(state["w"])
        count = state["count"] + 1
        best = jnp.where(count % 10 == 0, jnp.minimum(state["best"], value), state["best"])
        state = {"w": state["w"] - 0.1 * slope, "count": count, "best": best}
        return {"values": {"loss": value}, "state": state}

    def create(key):
        return {
            "w": jax.random.normal(key, (D, F)),
            "count": jnp.zeros((), int),
            "best": jnp.full(2, jnp.inf, "f"),
        }

    sides = [
        parity.CustomSide(create=create, programs={"train_step": step}, flavour=flavour)
        for flavour in (parity.Flavour.LINEN, parity.Flavour.NNX)
    ]
    pair = parity.twin_programs("own", linen=sides[0], nnx=sides[1], inputs=batch)
    (result,) = map(case_runner(Request()), pair.cases({}))
    assert result.verdict == "passed", result.sentence()


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
    for result in map(case_runner(Request()), pair.cases({})):
        assert result.verdict == "passed", result.sentence()


def test_intended_differences_are_waived():
    waiver = Waiver(channel="values", where="outputs", reason="a placeholder")
    found = channels(COMPUTED["logarithm"], programs=("forward",), waivers=(waiver,))
    assert found["forward"]["values"].verdict == "waived"


@pytest.mark.parametrize(("limit", "value"), [("MOST_OPERATIONS", 5), ("MOST_BYTES", 10)])
def test_the_record_lists_unchecked_channels(limit, value, monkeypatch):
    monkeypatch.setattr(sample, limit, value)
    found = channels(COMPUTED["logarithm"], programs=("forward", "train_step"))
    for results in found.values():
        assert results["values"].verdict == "proved"
        assert "not run to look for NaN and constants: " in results["values"].detail
        assert f"more than {value}" in results["values"].detail
    assert "not run to look for NaN and constants" not in found["forward"]["program"].detail


def test_a_run_that_would_fill_the_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(sample, "MOST_BYTES", 4_000)
    found = channels(
        lambda out, kernel: jnp.log(-(jnp.sort(jnp.tile(out, 500), -1)[..., -1] ** 2)), programs=("forward",)
    )
    assert "a run takes more than 4,000 bytes" in found["forward"]["values"].detail


def test_a_backend_that_runs_nothing_reports_it():
    from parity.compare.backends.registry import find
    from parity.compare.placement import place

    cases = place(twins(COMPUTED["logarithm"], programs=("forward",)).cases({}), find("lower:v5p:2x2x1"))
    (result,) = map(case_runner(Request()), cases)
    assert result.channels["values"].detail.endswith(
        "not run to look for NaN and constants: lower:v5p:2x2x1 runs nothing"
    )
