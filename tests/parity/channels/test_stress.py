"""Steps and numbers that a run does not reach: constants of the programs, and the counters compared with them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from parity.builds.build import linen_build
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Permute
from parity.cases.accepted import Waiver
from parity.cases.case import Accept, Case
from parity.cases.shared import widened
from parity.channels import ALL
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 6, 16, 4
REPLICATED = jax.sharding.PartitionSpec()
LONG = 150_001


def dense(params, inputs):
    return jnp.tanh(inputs["x"] @ params["w"] + params["b"][None])


def sgd(rate, by=1):
    """An optimizer without moments that follows a function of its count."""

    def update(grads, state, params):
        return jax.tree.map(lambda g: -rate(state) * g, grads), state + by

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


def build(name, model=dense, optimizer=None, *, scale=1.0, clock=False, shape=(D, F)):
    optimizer = optimizer or sgd(lambda count: 0.1)

    def create(key):
        params = {"w": 0.3 * jax.random.normal(key, shape), "b": jnp.zeros(F)}
        return {"params": params, "opt_state": optimizer.init(params), "step": jnp.zeros((), jnp.int32)}

    def forward(state, inputs):
        return {"values": {"out": model(state["params"], inputs)}}

    def step(state, inputs):
        def loss(params):
            return jnp.mean((model(params, inputs) - 1) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        moves, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], moves)
        after = {"params": params, "opt_state": opt_state, "step": state["step"] + 1}
        return {"values": {"loss": value}, "state": after}

    def inputs(seed):
        batch = {"x": scale * np.random.default_rng(seed).standard_normal((B, D), np.float32)}
        return {**batch, "clock": np.asarray(seed % 7, np.int32)} if clock else batch

    return linen_build(
        name,
        create,
        {"forward": (forward, {}), "train_step": (step, {"steps": 3})},
        inputs=inputs,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def outcome(left, right, program="train_step", channels=ALL, **rest):
    sides = {"reference": lambda: left, "candidate": lambda: right}
    return run_case(Case(id=f"toy/{program}@single", **sides, program=program, **rest), Session(), channels)


def test_stress_inputs_run_unless_a_judged_channel_fails_without_them():
    left, right = (
        build(name, optimizer=sgd(lambda count: 0.1, by)) for name, by in (("left", 1), ("right", 2))
    )
    values, state = (outcome(left, right).channels[name] for name in ("values", "state"))
    assert state.verdict is Verdict.FAILED
    assert values.detail.endswith("not compared on stress inputs, because state fails")
    alone = outcome(left, right, channels=("values",)).channels["values"]
    waived = outcome(left, right, accept=Accept(waivers=(Waiver(reason="known", channel="state"),))).channels[
        "values"
    ]
    assert all("not compared on stress inputs" not in one.detail for one in (alone, waived)), alone.detail


def of_rates(left, right, optimizer=sgd):
    return outcome(build("left", optimizer=optimizer(left)), build("right", optimizer=optimizer(right)))


def cosine(count):
    return 0.05 * (1 + jnp.cos(jnp.pi * jnp.minimum(count, LONG) / LONG))


def cosine_by_halves(count):
    """``0.05 (1 + cos t)`` is ``0.1 cos(t / 2)`` squared."""
    return 0.1 * jnp.cos(0.5 * jnp.pi * jnp.minimum(count / LONG, 1.0)) ** 2


WARM = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 15_000, LONG, 1e-5)
TABLE = np.linspace(0.1, 0.01, 30).astype(np.float32)
TABLE_AFTER = np.where(np.arange(30) == 20, 0.5, TABLE).astype(np.float32)


def late(rate):
    return lambda count: rate(jnp.maximum(count - 1, 0))


def warm_by_select(count):
    up = 1e-3 * count / 15_000
    done = jnp.clip((count - 15_000) / (LONG - 15_000), 0.0, 1.0)
    down = 1e-5 + (1e-3 - 1e-5) * jnp.cos(0.5 * jnp.pi * done) ** 2
    return jnp.where(count >= 15_000, down, up)


def steps_at(*boundaries):
    return lambda count: 0.1 * 0.5 ** sum(jnp.where(count < at, 0.0, 1.0) for at in boundaries)


DIFFERENT_RATES = {
    "a boundary": (steps_at(1000), steps_at(2000)),
    "a boundary one step late": (steps_at(1000), steps_at(1001)),
    "one of many boundaries": (steps_at(10, 100, 1000, 10_000), steps_at(10, 100, 1000, 10_001)),
    "a cosine one step late": (cosine, late(cosine)),
    "warm-up and cosine one step late": (WARM, late(WARM)),
    "another length": (cosine, lambda c: 0.05 * (1 + jnp.cos(jnp.pi * jnp.minimum(c, LONG) / (LONG - 1)))),
    "a cosine that begins again": (cosine, lambda c: 0.05 * (1 + jnp.cos(jnp.pi * c / LONG))),
    "every hundredth step": (lambda c: 0.1, lambda c: jnp.where(c % 100 == 99, 0.2, 0.1)),
    "every 128th step by a mask": (lambda c: 0.1, lambda c: jnp.where(c & 127 == 127, 0.2, 0.1)),
    "a staircase": (lambda c: 0.1 / (1 + c // 500), lambda c: 0.1 / (1 + c // 600)),
    "a staircase by shifts": (lambda c: 0.1 / (1 + (c >> 9)), lambda c: 0.1 / (1 + (c >> 10))),
    "a table": (lambda c: jnp.asarray(TABLE)[c], lambda c: jnp.asarray(TABLE_AFTER)[c]),
    "boundaries in an array": (
        lambda c: 0.1 * 0.5 ** jnp.sum(c[None] >= jnp.array([300, 700])),
        lambda c: 0.1 * 0.5 ** jnp.sum(c[None] >= jnp.array([300, 800])),
    ),
    "after conversion and scaling": (
        lambda c: jnp.where(c.astype(jnp.float32) * 0.01 + 1 > 26, 0.2, 0.1),
        lambda c: jnp.where(c.astype(jnp.float32) * 0.01 + 1 > 27, 0.2, 0.1),
    ),
    "a branch": (
        lambda c: jax.lax.cond(c < 900, lambda: 0.1, lambda: 0.05),
        lambda c: jax.lax.cond(c < 950, lambda: 0.1, lambda: 0.05),
    ),
    "a switch": (
        lambda c: jax.lax.switch(c // 250, [lambda: 0.1, lambda: 0.2, lambda: 0.3]),
        lambda c: jax.lax.switch(c // 250, [lambda: 0.1, lambda: 0.2, lambda: 0.4]),
    ),
    "a single step": (lambda c: 0.1, lambda c: jnp.where(c == 777, 0.0, 0.1)),
}

SAME_RATES = {
    "a boundary": (steps_at(1000), lambda c: jnp.where(c >= 1000, 0.05, 0.1)),
    "a cosine": (cosine, cosine_by_halves),
    "a cosine in steps": (cosine, lambda c: 0.05 + 0.05 * jnp.cos(jnp.minimum(c * (np.pi / LONG), np.pi))),
    "warm-up and cosine": (WARM, warm_by_select),
    "a remainder": (
        lambda c: jnp.where(c % 100 == 99, 0.2, 0.1),
        lambda c: jnp.where(c - 100 * (c // 100) > 98, 0.2, 0.1),
    ),
    "a mask": (
        lambda c: jnp.where(c & 127 == 127, 0.2, 0.1),
        lambda c: jnp.where(jax.lax.rem(c, 128) == 127, 0.2, 0.1),
    ),
    "a table": (lambda c: jnp.asarray(TABLE)[c], lambda c: jnp.asarray(TABLE)[jnp.minimum(c, 29)]),
    "a branch": (
        lambda c: jax.lax.cond(c < 900, lambda: 0.1, lambda: 0.05),
        lambda c: jnp.where(2 * c < 1800, 0.1, 0.05),
    ),
    "an inverse root": (
        lambda c: jnp.minimum((c + 1) ** -0.5, (c + 1) * 4000**-1.5),
        lambda c: 4000**-0.5 * jnp.minimum(jax.lax.rsqrt((c + 1) / 4000), (c + 1) / 4000),
    ),
    "infinite at a boundary": (
        lambda c: 0.1 / jnp.abs(jnp.where(c < 500, 1, c - 500)),
        lambda c: jnp.where(c >= 500, 0.2 / (2 * c - 1000), 0.1),
    ),
    "a power": (lambda c: 0.1 * 0.999**c, lambda c: 0.1 * jnp.exp(c * np.log(0.999))),
    "fast rotation": (lambda c: 0.1 + 0.01 * jnp.sin(c * 1.3), lambda c: 0.1 + 0.01 * jnp.sin(c / (1 / 1.3))),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DIFFERENT_RATES)
def test_a_step_that_a_run_does_not_reach_is_found(name):
    result = of_rates(*DIFFERENT_RATES[name])
    assert result.channels["state"].verdict is Verdict.FAILED, result.channels["state"].detail


@pytest.mark.parametrize("name", SAME_RATES)
def test_a_schedule_written_differently_passes(name):
    result = of_rates(*SAME_RATES[name])
    for channel in ("values", "state"):
        verdict = result.channels[channel].verdict
        assert verdict in (Verdict.BITWISE, Verdict.FLOOR), result.sentence()
        assert (
            "starts of counters" in result.channels[channel].detail
            or "one program" in result.channels[channel].detail
        )


@pytest.mark.long
@pytest.mark.parametrize(
    "optimizer", [optax.adam, optax.adagrad, optax.lion, optax.adamw, optax.lamb, optax.rmsprop]
)
def test_stock_optimizers_a_step_late_are_found_and_another_spelling_passes(optimizer):
    wrong = of_rates(WARM, late(WARM), optimizer)
    assert wrong.channels["state"].verdict is Verdict.FAILED, wrong.channels["state"].detail
    right = of_rates(WARM, warm_by_select, optimizer)
    assert right.channels["state"].verdict in (Verdict.BITWISE, Verdict.FLOOR), right.sentence()


@pytest.mark.long
def test_counters_of_accumulated_steps_start_at_other_values_than_the_schedule():
    def accumulated(rate):
        return optax.MultiSteps(optax.adam(rate), 2).gradient_transformation()

    wrong = of_rates(steps_at(1000), steps_at(2000), accumulated)
    assert wrong.channels["state"].verdict is Verdict.FAILED, wrong.channels["state"].detail
    right = of_rates(steps_at(1000), lambda c: jnp.where(c >= 1000, 0.05, 0.1), accumulated)
    assert right.channels["state"].verdict in (Verdict.BITWISE, Verdict.FLOOR), right.sentence()


@pytest.mark.long
def test_an_integer_of_the_batch_is_a_counter():
    def until(limit):
        return lambda params, inputs: jnp.where(inputs["clock"] < limit, dense(params, inputs), 0.0)

    sides = [build(name, until(limit), clock=True) for name, limit in (("left", 5000), ("right", 6000))]
    assert outcome(*sides, "forward").channels["values"].verdict is Verdict.FAILED
    other = build("right", lambda p, i: dense(p, i) * (i["clock"] <= 4999), clock=True)
    assert outcome(sides[0], other, "forward").channels["values"].verdict in (Verdict.BITWISE, Verdict.FLOOR)


def cached(write):
    def model(params, inputs):
        rows = jnp.arange(10.0)[:, None] * write(jnp.zeros((10, F)), inputs["clock"], params["w"][0])
        return dense(params, inputs) + jnp.sum(rows, 0, keepdims=True)

    return model


def slice_written(cache, at, row):
    return jax.lax.dynamic_update_slice(cache, jnp.tanh(row)[None], (at, 0))


def scattered(cache, at, row):
    return cache.at[at].set(jnp.tanh(row))


def in_scan(write):
    """Writes four rows, one in each iteration."""

    def one(carry, row):
        cache, at = carry
        return (write(cache, at, row), at + 1), None

    return lambda cache, at, row: jax.lax.scan(one, (cache, at), row[None] * jnp.arange(1.0, 5.0)[:, None])[
        0
    ][0]


@pytest.mark.parametrize(
    ("write", "other", "verdicts"),
    [
        (slice_written, scattered, (Verdict.BITWISE, Verdict.FLOOR)),
        (in_scan(slice_written), in_scan(scattered), (Verdict.BITWISE, Verdict.FLOOR)),
        (
            in_scan(slice_written),
            in_scan(lambda cache, at, row: slice_written(cache, jnp.minimum(at, 8), row)),
            (Verdict.FAILED,),
        ),
        (
            slice_written,
            lambda cache, at, row: slice_written(cache, jnp.minimum(at, 8), row),
            (Verdict.FAILED,),
        ),
        (lambda cache, at, row: slice_written(cache, at % 10, row), slice_written, (Verdict.FAILED,)),
    ],
    ids=["same", "scan", "another end of the last write", "another end", "no ring"],
)
def test_a_cache_is_filled_past_its_end_only_if_it_is_a_ring(write, other, verdicts):
    sides = [build(name, cached(each), clock=True) for name, each in (("left", write), ("right", other))]
    found = outcome(*sides, "forward").channels["values"]
    assert found.verdict in verdicts, found


@pytest.mark.long
def test_counters_of_layers_are_counters():
    """A stack keeps one counter for each layer."""

    def stacked(rate):
        def update(grads, state, params):
            return jax.tree.map(lambda g: -jnp.mean(rate(state)) * g, grads), state + 1

        return optax.GradientTransformation(lambda params: jnp.zeros(3, jnp.int32), update)

    wrong = of_rates(
        lambda c: jnp.where(c < 1000, 0.1, 0.2), lambda c: jnp.where(c < 1001, 0.1, 0.2), stacked
    )
    assert wrong.channels["state"].verdict is Verdict.FAILED, wrong.channels["state"].detail


@pytest.mark.long
def test_rates_that_the_state_carries_stay_as_they_are():
    """Else a decay of thousands makes everything infinite, which hides differences."""

    def injected(rate):
        return optax.inject_hyperparams(optax.adam)(learning_rate=rate, b1=0.9, b2=0.99)

    wrong = of_rates(steps_at(1000), steps_at(1001), injected)
    assert wrong.channels["state"].verdict is Verdict.FAILED, wrong.channels["state"].detail
    right = of_rates(steps_at(1000), lambda c: jnp.where(c >= 1000, 0.05, 0.1), injected)
    assert right.channels["state"].verdict in (Verdict.BITWISE, Verdict.FLOOR), right.sentence()


@pytest.mark.long
def test_sides_with_other_layouts_are_run_on_stress_inputs():
    """A weight rule that moves numbers leaves no operations to compare one by one."""
    moved = Rule(reference=("w",), candidate=("w",), transform=Permute((1, 0)))

    def flipped(params, inputs):
        return jnp.tanh(jnp.einsum("bd,fd->bf", inputs["x"], params["w"]) + params["b"][None])

    left = build("left", optimizer=sgd(steps_at(1000)))
    for boundary, verdict in ((1001, {Verdict.FAILED}), (1000, {Verdict.BITWISE, Verdict.FLOOR})):
        rate = sgd(lambda c, boundary=boundary: jnp.where(c >= boundary, 0.05, 0.1))
        right = build("right", flipped, rate, shape=(F, D))
        result = outcome(left, right, rules=(moved,))
        assert result.channels["state"].verdict in verdict, result.channels["state"].detail


@pytest.mark.parametrize("limits", [(1.0, 2.0), (30.0, 1000.0), (0.01, 0.02)])
def test_another_limit_of_gradients_is_found(limits):
    def limited(limit):
        return optax.chain(optax.clip_by_global_norm(limit), optax.sgd(0.1))

    sides = [build(f"up to {limit}", optimizer=limited(limit), model=hidden(kept)) for limit in limits]
    result = outcome(*sides)
    assert result.channels["state"].verdict is Verdict.FAILED, result.channels["state"].detail


def on_x(change):
    return lambda params, inputs: dense(params, {**inputs, "x": change(inputs["x"])})


def on_w(change):
    return lambda params, inputs: dense({**params, "w": change(params["w"])}, inputs)


def hidden(change):
    return lambda params, inputs: change(inputs["x"] @ params["w"] * 0.2) + params["b"][None]


def kept(x):
    return x


BANDS = {
    "an input": on_x(lambda x: jnp.where((x > 7) & (x < 7.1), 0.0, x)),
    "a narrow band": on_x(lambda x: jnp.where((x > 7) & (x < 7.02), 0.0, x)),
    "a negative band": on_x(lambda x: jnp.where((x < -50) & (x > -51), 0.0, x)),
    "a magnitude": on_x(lambda x: jnp.where(jnp.abs(x) > 900, 0.0, x)),
    "a square": on_x(lambda x: jnp.where((x**2 > 4000) & (x**2 < 4100), 0.0, x)),
    "scaled and shifted": on_x(lambda x: jnp.where((3 * x - 2 > 77) & (3 * x - 2 < 78), 0.0, x)),
    "a logarithm": on_x(lambda x: jnp.where((jnp.exp(x) > 500) & (jnp.exp(x) < 510), 0.0, x)),
    "a clip": on_x(lambda x: jnp.clip(x, -60, 60)),
    "one number": on_x(lambda x: jnp.where(x == 12.5, 0.0, x)),
    "a parameter": on_w(lambda w: jnp.where((w > 7) & (w < 7.1), 0.0, w)),
    "a clipped parameter": on_w(lambda w: jnp.clip(w, -25.0, 25.0)),
}


@pytest.mark.parametrize("name", BANDS)
def test_a_rare_range_of_numbers_is_found(name):
    result = outcome(build("left"), build("right", BANDS[name]), "forward")
    assert result.channels["values"].verdict is Verdict.FAILED, result.channels["values"].detail


SAME_BANDS = {
    "a band": (BANDS["an input"], on_x(lambda x: jnp.where(jnp.logical_or(x <= 7, x >= 7.1), x, 0.0))),
    "a scaled threshold": (
        on_x(lambda x: jnp.where(x > 7, 0.0, x)),
        on_x(lambda x: jnp.where(x * 0.1 > 0.7, 0.0, x)),
    ),
    "a square": (on_x(lambda x: jnp.where(x**2 > 49, 0.0, x)), on_x(lambda x: jnp.where(abs(x) > 7, 0.0, x))),
    "a clip": (BANDS["a clip"], on_x(lambda x: jnp.where(x > 60, 60.0, jnp.where(x < -60, -60.0, x)))),
    "a hidden threshold": (
        hidden(lambda h: jnp.where(h > 0.5, 0.0, h)),
        lambda p, i: jnp.where((i["x"] * 0.2) @ p["w"] > 0.5, 0.0, (i["x"] * 0.2) @ p["w"]) + p["b"][None],
    ),
    "a relu": (hidden(jax.nn.relu), hidden(lambda h: jnp.where(h > 0, h, 0.0))),
    "a saturated gate": (hidden(jax.nn.sigmoid), hidden(lambda h: 1 / (1 + jnp.exp(-h)))),
}


@pytest.mark.parametrize("program", ["forward", "train_step"])
@pytest.mark.parametrize("name", SAME_BANDS)
def test_thresholds_written_differently_pass(name, program):
    left, right = SAME_BANDS[name]
    result = outcome(build("left", left), build("right", right), program)
    for channel in ("values", "state"):
        if channel in result.channels:
            assert result.channels[channel].verdict is not Verdict.FAILED, result.sentence()


def normed(eps, offset=0.0):
    def model(params, inputs):
        x = inputs["x"] + offset
        centred = x - jnp.mean(x, -1, keepdims=True)
        return (
            centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + eps) @ params["w"]
            + params["b"][None]
        )

    return model


def over_root(eps):
    def model(params, inputs):
        x = inputs["x"]
        centred = x - jnp.mean(x, -1, keepdims=True)
        return (centred @ params["w"]) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + eps) + params["b"][None]

    return model


def hidden_norm(eps):
    def model(params, inputs):
        h = inputs["x"] @ params["w"]
        return h / jnp.sqrt(jnp.mean(h**2, -1, keepdims=True) + eps)

    return model


def unit(eps):
    return lambda params, inputs: (
        inputs["x"] / (jnp.sum(abs(inputs["x"]), -1, keepdims=True) + eps) @ params["w"]
    )


def unit_by_maximum(eps):
    def model(params, inputs):
        size = jnp.sum(abs(inputs["x"]), -1, keepdims=True)
        return inputs["x"] / jnp.maximum(size, eps) @ params["w"]

    return model


@pytest.mark.parametrize("scale", [1.0, pytest.param(1000.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("sizes", [(1e-3, 1e-6), (1e-5, 2e-5), (1e-12, 1e-10)])
@pytest.mark.parametrize("model", [normed, over_root, hidden_norm, unit, unit_by_maximum])
def test_another_epsilon_is_found(model, sizes, scale):
    left, right = (build(f"with {eps}", model(eps), scale=scale) for eps in sizes)
    result = outcome(left, right, "forward")
    assert result.channels["values"].verdict is Verdict.FAILED, result.channels["values"].detail


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_same_epsilon_written_differently_passes(scale):
    left, right = (build(model.__name__, model(1e-5), scale=scale) for model in (normed, over_root))
    for program in ("forward", "train_step"):
        result = outcome(left, right, program)
        assert result.channels["values"].verdict is not Verdict.FAILED, result.sentence()


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(1e-8, 1e-6), (1e-8, 1e-7)])
def test_another_epsilon_of_an_optimizer_is_found(sizes):
    left, right = (build(f"with {eps}", optimizer=optax.adam(1e-3, eps=eps)) for eps in sizes)
    result = outcome(left, right)
    assert result.channels["state"].verdict is Verdict.FAILED, result.channels["state"].detail


@pytest.mark.long
def test_numbers_that_are_not_finite_are_found():
    cleaned = build("right", hidden(jnp.nan_to_num))
    result = outcome(build("left", hidden(kept)), cleaned, "forward")
    assert result.channels["values"].verdict is Verdict.FAILED, result.channels["values"].detail
    zeroed = build("right", hidden(lambda h: jnp.where(jnp.isnan(h), 0.0, h)))
    result = outcome(build("left", hidden(kept)), zeroed, "forward")
    assert result.channels["values"].verdict is Verdict.FAILED, result.channels["values"].detail
    cut = build("right", hidden(lambda h: jnp.where(jnp.isinf(h), 0.0, h)))
    result = outcome(build("left", hidden(kept)), cut, "forward")
    assert result.channels["values"].verdict is Verdict.FAILED, result.channels["values"].detail


def test_a_check_that_keeps_nothing_finite_is_no_reason_for_a_difference():
    """A NaN is not above zero: a comparison with infinity next to it changes nothing."""
    selected = build("right", hidden(lambda h: jnp.where((h > 0) & (h != -jnp.inf), h, 0.0)))
    result = outcome(build("left", hidden(lambda h: jnp.maximum(h, 0.0))), selected, "forward")
    assert result.channels["values"].verdict is Verdict.BITWISE, result.channels["values"].detail


def centred(masked, guarded):
    """Subtracts the largest entry of each half; the second half is masked, so that it has none."""
    keep = jnp.array([[True, True], [False, False]])[None]

    def change(h):
        halves = masked(h.reshape(-1, 2, 2), keep)
        largest = jnp.where(keep, halves, -jnp.inf).max(-1, keepdims=True)
        return (halves - guarded(largest)).reshape(h.shape)

    return change


@pytest.mark.parametrize("cleans", [False, True])
def test_a_check_for_what_is_empty_is_no_check_for_nan(cleans):
    """A product with a mask keeps a NaN, a choice does not, and neither checks for one."""
    left = centred(jnp.multiply, lambda top: jnp.where(top < -3e38, 0, top))
    clean = jnp.nan_to_num if cleans else kept
    right = centred(
        lambda h, keep: jnp.where(keep, clean(h), 0), lambda top: jnp.where(jnp.isneginf(top), 0, top)
    )
    result = outcome(build("left", hidden(left)), build("right", hidden(right)), "forward")
    verdict = result.channels["values"].verdict
    assert (verdict is Verdict.FAILED) is cleans, result.channels["values"]


def test_numbers_that_are_not_finite_reach_a_model_of_tokens():
    def embedded(change):
        return lambda p, i: change(p["w"][jnp.abs(i["x"]).astype(jnp.int32) % D]).sum(1) + p["b"][None]

    result = outcome(build("left", embedded(kept)), build("right", embedded(jnp.nan_to_num)), "forward")
    assert result.channels["values"].verdict is Verdict.FAILED, result.channels["values"].detail


def each_is_finite(grads):
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))


def sum_is_finite(grads):
    return jnp.isfinite(sum(jnp.abs(g * 0).sum() for g in jax.tree.leaves(grads)))


def skipping(rate, is_fine=each_is_finite, counts=False):
    """Adam that keeps everything, or everything but its count, where a gradient is not finite."""
    plain = optax.adam(rate)

    def update(grads, state, params):
        fine = is_fine(grads)
        moves, after = plain.update(grads, state, params)
        moves, kept = jax.tree.map(
            lambda new, old: jnp.where(fine, new, old),
            (moves, after),
            (jax.tree.map(jnp.zeros_like, moves), state),
        )
        return moves, (kept[0]._replace(count=after[0].count), *kept[1:]) if counts else kept

    return optax.GradientTransformation(plain.init, update)


@pytest.mark.parametrize("counts", [False, True])
def test_a_count_of_skipped_steps_is_found_and_another_check_is_none(counts):
    sides = skipping(0.1), skipping(0.1, sum_is_finite, counts)
    result = outcome(
        *(build(name, optimizer=each) for name, each in zip(("left", "right"), sides, strict=True))
    )
    found = result.channels["state"]
    assert (found.verdict is Verdict.FAILED) == counts, found
    assert not counts or "count" in found.findings[0].where


def backing_off(factor, is_fine=each_is_finite):
    """Adam with a loss scale, which shrinks where a gradient is not finite."""
    plain = optax.adam(0.1)

    def update(grads, state, params):
        (inner, scale), fine = state, is_fine(grads)
        moves, after = plain.update(grads, inner, params)
        still = jax.tree.map(jnp.zeros_like, moves), inner
        moves, kept = jax.tree.map(lambda new, old: jnp.where(fine, new, old), (moves, after), still)
        return moves, (kept, jnp.where(fine, scale, scale * factor))

    return optax.GradientTransformation(lambda params: (plain.init(params), jnp.float32(512)), update)


@pytest.mark.parametrize("factor", [0.5, 0.25])
def test_what_both_sides_do_with_a_gradient_that_is_not_finite_is_compared(factor):
    sides = backing_off(0.5), backing_off(factor, sum_is_finite)
    found = outcome(
        *(build(name, optimizer=each) for name, each in zip(("left", "right"), sides, strict=True))
    ).channels["state"]
    assert (found.verdict is Verdict.FAILED) == (factor != 0.5), found
    assert factor == 0.5 or "inputs with nan" in found.findings[0].distance


@pytest.mark.long
def test_a_step_that_keeps_gradients_which_are_not_finite_is_found():
    sides = build("left", optimizer=optax.adam(0.1)), build("right", optimizer=skipping(0.1))
    result = outcome(*sides)
    assert result.channels["state"].verdict is Verdict.FAILED, result.channels["state"].detail


def test_constants_that_no_run_aims_at_are_listed():
    rare = build("right", hidden(lambda h: jnp.where((h > 77) & (h < 77.001), 0.0, h)))
    result = outcome(build("left", hidden(kept)), rare, "forward").channels["values"]
    assert result.verdict is Verdict.FAILED or ("77" in result.detail and "test_stress.py" in result.detail)


def rare_rate(condition):
    return lambda count: jnp.where(condition(count), 0.2, 0.1)


UNREACHED = {
    "a computed count": (lambda count: jax.lax.population_count(count) == 13, "13 compared"),
    "a product of counts": (lambda count: count * count // 7 * count == 4321, "4321 compared"),
    "the end of an integer": (lambda count: count == 2**31 - 1, "2.14748e+09 compared"),
    "near the end of an integer": (lambda count: count > 2**31 - 9, "2.14748e+09 compared"),
    "a number below zero": (lambda count: count == -5, "-5 compared"),
    "any number below zero": (lambda count: count < 0, "0 compared"),
}


@pytest.mark.parametrize("name", UNREACHED)
def test_numbers_that_no_counter_reaches_are_listed(name):
    condition, said = UNREACHED[name]
    result = of_rates(rare_rate(lambda count: count == 1000), rare_rate(lambda c: condition(c) | (c == 1000)))
    detail = result.channels["state"].detail
    assert "computed numbers may not have reached" in detail and f" {said}" in detail, result.sentence()


def test_numbers_that_counters_reach_are_not_listed():
    same = of_rates(lambda count: jnp.minimum(count, 900) * 1e-4, lambda c: jnp.minimum(c * 1e-4, 0.09))
    assert "may not have reached" not in same.channels["state"].detail


@pytest.mark.parametrize("number", [4321, 777])
def test_a_sum_of_integers_of_the_batch_is_listed(number):
    def model(params, inputs):
        return jnp.where((inputs["clock"] * jnp.arange(3)).sum() == number, 0.0, 1.0) * dense(params, inputs)

    result = outcome(build("left", clock=True), build("right", model, clock=True), "forward")
    assert f"not have reached {number} compared" in result.channels["values"].detail, result.sentence()


def rounded_log(h):
    """Returns ``h``, up to the rounding of an exponential, which no perturbation of ``h`` shows if that is tiny."""
    return jnp.log(jnp.minimum(jnp.exp(16 * jnp.tanh(h)), 1e30)) / 16


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        (rounded_log, jnp.tanh, "passed"),
        (jnp.tanh, rounded_log, "failed"),
        (rounded_log, lambda h: jnp.tanh(jnp.where(jnp.abs(h) < 1e-4, 2 * h, h)), "failed"),
    ],
    ids=["more exact", "less exact", "wrong where numbers are tiny"],
)
def test_a_float64_run_decides_where_the_reference_itself_is_inexact(left, right, verdict):
    def of(function):
        return build("toy", lambda params, inputs: function(inputs["x"] @ params["w"]))

    found = outcome(of(left), of(right), "forward", float64_reference=lambda: widened(of(left)))
    assert found.verdict == verdict, found.channels["values"]


def test_a_float64_run_that_draws_another_mask_decides_nothing():
    def of(seed):
        def dropped(params, inputs):
            h = inputs["x"] @ params["w"]
            return h + jnp.where(jax.random.bernoulli(jax.random.key(seed), 0.5, h.shape), h / 64, 0)

        return build("toy", dropped)

    found = outcome(of(1), of(2), "forward", float64_reference=lambda: widened(of(1))).channels["values"]
    assert found.verdict is Verdict.FAILED
    assert "no float64 run: it draws other random numbers in float64" in found.detail
