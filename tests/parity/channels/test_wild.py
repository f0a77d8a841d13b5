"""Programs that agree on tame data: differences that stress data show, and those that it must not report."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import parity
from parity.builds.build import SEED, Group, linen_build
from parity.cases.case import Case
from parity.compare import stress
from parity.compare.runs import Trial
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 5, 16, 3
REPLICATED = jax.sharding.PartitionSpec()
SCHEDULE = optax.linear_schedule(0.1, 0.01, 40)


def build(name, model, rate=SCHEDULE):
    optimizer = optax.adam(rate)

    def create(key):
        params = {"w": jax.random.normal(key, (D, F)), "g": jnp.ones(D)}
        return {"params": params, "opt_state": optimizer.init(params)}

    def forward(state, inputs):
        return {"values": {"out": model(state["params"], inputs["x"])}}

    def step(state, inputs):
        def loss(params):
            return jnp.mean((model(params, inputs["x"]) - 1) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        moves, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
        after = {"params": optax.apply_updates(state["params"], moves), "opt_state": opt_state}
        return {"values": {"loss": value}, "state": after}

    return linen_build(
        name,
        create,
        {"forward": (forward, {}), "train_step": (step, {"steps": 3})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def normed(params, x, eps=1e-6):
    return (x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + eps) * params["g"][None]) @ params["w"]


def outcome(candidate, program="forward", **rest):
    sides = [build("left", normed), build("right", candidate, **rest)]
    case = Case(
        id=f"toy/{program}@single", reference=lambda: sides[0], candidate=lambda: sides[1], program=program
    )
    return run_case(case, Session())


def clipped(params, x):
    return jnp.clip(normed(params, x), -40.0, 40.0)


def cleaned(params, x):
    """Hides non-finite numbers, as nan_to_num around a gradient would."""
    return jnp.nan_to_num(normed(params, jnp.minimum(x, 30.0)))


@pytest.mark.parametrize("candidate", [clipped, cleaned, lambda params, x: normed(params, x, eps=1e-9)])
def test_bugs_that_the_standard_batch_does_not_reach_are_found_on_stress_inputs(candidate):
    result = outcome(candidate)
    assert result.verdict == "failed"
    assert result.channels["values"].verdict is Verdict.FAILED
    found = result.channels["values"].findings[0].sentence()
    assert "stress inputs" in found or "x noise" in found


@pytest.mark.long
def test_a_schedule_past_its_end_is_found():
    """For its first 40 steps the candidate's schedule equals the reference's."""
    longer = optax.join_schedules([SCHEDULE, optax.constant_schedule(0.05)], [40])
    result = outcome(normed, "train_step", rate=longer)
    assert result.channels["state"].verdict is Verdict.FAILED
    assert "stress inputs" in result.channels["state"].findings[0].sentence()


def test_an_integer_that_only_another_batch_changes_is_found():
    """In the first batches two inputs are equal, so that reading one for the other changes nothing."""

    def inputs(seed):
        given = np.random.default_rng(seed).standard_normal((B, D), np.float32)
        row = np.random.default_rng(seed).integers(0, B, (), np.int32)
        return {"x": given, "row": row, "other": row if seed < SEED + 3 else (row + 1) % B}

    def reading(name):
        def run(state, inputs):
            return {"values": {"out": jnp.sin(inputs["x"][inputs[name]] @ state["params"]["w"])}}

        return linen_build(
            name,
            lambda key: {"params": {"w": jax.random.normal(key, (D, F))}},
            {"forward": (run, {})},
            inputs=inputs,
            specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
            input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
        )

    left, right = reading("row"), reading("other")
    case = Case(id="toy/forward@single", reference=lambda: left, candidate=lambda: right, program="forward")
    result = run_case(case, Session()).channels["values"]
    assert result.verdict is Verdict.FAILED and "stress inputs" in result.findings[0].sentence()


def in_other_order(params, x):
    """Equals `normed` up to rounding: the scale is multiplied into the kernel."""
    return (x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)) @ (
        params["g"][:, None] * params["w"]
    )


def by_division(params, x):
    return (x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * params["g"][None]) @ params["w"]


def reshaped(params, x):
    mean = jnp.mean(x**2, -1).reshape(-1, 1)
    return (x * jax.lax.rsqrt(mean + 1e-6) * params["g"].reshape(1, -1)) @ params["w"]


@pytest.mark.parametrize("program", ["forward", "train_step"])
@pytest.mark.parametrize(
    ("candidate", "words"),
    [(in_other_order, "not proved, but as close on"), (by_division, "both compile to one program")],
)
def test_a_difference_by_rounding_passes(candidate, words, program):
    result = outcome(candidate, program)
    differing = [
        result.channels[name].verdict for name in ("values", "state")
    ]  # `dots` rightly finds a different root
    assert Verdict.FAILED not in differing, result.sentence()
    assert words in result.channels["values"].detail


def deviated(params, x):
    """A deviation of a logarithm of a variance: large ones overflow."""
    return jnp.exp(0.5 * (x @ params["w"]))


def rooted(params, x):
    return jnp.sqrt(jnp.exp(x @ params["w"]))


def weighted(params, x):
    return jax.nn.softmax(x @ params["w"])


def weighted_without_maximum(params, x):
    """Overflows on large numbers, where the reference never does."""
    exponentials = jnp.exp(x @ params["w"])
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "candidate", "fails"),
    [
        (deviated, rooted, False),
        (deviated, lambda params, x: jnp.minimum(rooted(params, x), 1e6), True),
        (weighted, weighted_without_maximum, True),
    ],
    ids=["overflows", "overflows and clipped", "overflows alone"],
)
def test_numbers_that_overflow_in_the_reference_are_no_evidence(reference, candidate, fails):
    sides = [build("left", reference), build("right", candidate)]
    case = Case(
        id="toy/forward@single", reference=lambda: sides[0], candidate=lambda: sides[1], program="forward"
    )
    assert (run_case(case, Session()).channels["values"].verdict is Verdict.FAILED) is fails


def entropic(logits, shares):
    """A divergence with the entropy of the shares, which is guarded where a share is zero."""
    entropy = jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1)), 0).sum(-1)
    return entropy - (shares * jax.nn.log_softmax(logits)).sum(-1)


def summed(logits, shares):
    """Equals `entropic` for shares that add up to one."""
    entropy = jax.scipy.special.xlogy(shares, shares).sum(-1)
    return entropy + jax.nn.logsumexp(logits, -1) - (shares * logits).sum(-1)


def unguarded(logits, shares):
    return summed(logits, shares) + 0 * jnp.log(shares).sum(-1)


def masked_loss(fill):
    """A loss of weighted rows, whose scores are filled by ``fill`` where the weight is zero."""

    def loss(params, batch):
        shares = jax.nn.softmax(fill(batch["x"] @ params["w"], batch["m"][:, None]), 0)
        return (((shares * params["b"] - 1) ** 2).mean(-1) * batch["m"]).sum() / batch["m"].sum()

    return loss


def differentiated(objective):
    """Returns a build with the gradient of an objective of a batch that has shares and weights."""

    def shared(seed):
        rng = np.random.default_rng(seed)
        shares = np.exp(rng.standard_normal((B, F)))
        return {
            "x": rng.standard_normal((B, D), np.float32),
            "p": (shares / shares.sum(-1, keepdims=True)).astype(np.float32),
            "m": (np.arange(B) < 3).astype(np.float32),
        }

    def grad(state, batch):
        value, grads = jax.value_and_grad(objective)(state["params"], batch)
        return {"values": {"loss": value}, "gradients": {"params": grads}}

    return linen_build(
        "any",
        lambda key: {"params": {"w": jax.random.normal(key, (D, F)), "b": 1 + jnp.arange(F)[None] / 8}},
        {"grad": (grad, {})},
        inputs=shared,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def diverging(form):
    return lambda params, batch: form(batch["x"] @ params["w"] * params["b"], batch["p"]).mean()


def chosen(scores, mask):
    return jnp.where(mask > 0, scores, -1e9)


def added(scores, mask):
    return scores + jnp.where(mask != 0, 0.0, -1e9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "candidate", "fails"),
    [
        (diverging(entropic), diverging(summed), False),
        (diverging(entropic), diverging(unguarded), True),
        (masked_loss(chosen), masked_loss(added), False),
        (masked_loss(chosen), lambda *given: jnp.nan_to_num(masked_loss(chosen)(*given)), True),
    ],
    ids=["shares", "shares of zero", "no rows", "no rows, but a loss"],
)
def test_stress_inputs_keep_shares_and_a_loss_that_is_nan_settles_no_gradient(reference, candidate, fails):
    sides = [differentiated(each) for each in (reference, candidate)]
    case = Case(id="toy/grad@single", reference=lambda: sides[0], candidate=lambda: sides[1], program="grad")
    result = run_case(case, Session())
    assert str(result.verdict) == ("failed" if fails else "passed"), result.sentence()


def without_rows(objective):
    """A loss whose gradient is zero if no row has a weight."""

    @jax.custom_vjp
    def loss(params, batch):
        return objective(params, batch)

    def forward(params, batch):
        value, grads = jax.value_and_grad(objective)(params, batch)
        rows = batch["m"].sum() > 0
        return value, jax.tree.map(lambda grad: jnp.where(rows, grad, 0), (grads, batch))

    def backward(kept, cotangent):
        grads, batch = kept
        return jax.tree.map(lambda grad: cotangent * grad, grads), jax.tree.map(jnp.zeros_like, batch)

    loss.defvjp(forward, backward)
    return loss


@pytest.mark.slow
def test_a_gradient_that_only_one_side_guards_is_found_although_the_loss_is_nan():
    sides = [differentiated(each) for each in (without_rows(masked_loss(chosen)), masked_loss(chosen))]
    case = Case(id="toy/grad@single", reference=lambda: sides[0], candidate=lambda: sides[1], program="grad")
    found = run_case(case, Session()).channels["gradients"]
    assert str(found.verdict) == "failed" and "finite on one side only" in found.findings[0].distance, found


@pytest.mark.parametrize(
    ("off", "noise", "found"),
    [(1e-5, 1e-5, False), (1e-5, 1e-7, True), (1e-2, 1e-2, True)],
    ids=["within its own noise", "beyond it", "large"],
)
def test_small_differences_within_the_candidate_s_own_noise_are_none(off, noise, found):
    """Such as those of ``exp(x - logsumexp(x))``, which rounds more than a softmax."""
    values = np.random.default_rng(0).normal(size=200).astype("float32")

    def results(array):
        return {stress.Group.VALUES: {"out": array.astype("float32")}}

    def nudged(place, seed):
        moved = np.random.default_rng(seed).normal(size=200)
        return results(values * (1 + (off if place else 0) + (noise if place else 1e-7) * moved))

    sides = results(values), results(values * (1 + off))
    run = types.SimpleNamespace(trial=Trial(name="any", state={}), outputs=sides, perturbed=nudged)
    assert bool(list(stress._differences(run, run, {}))) == found


@pytest.mark.parametrize(("rough", "close"), [(0.0, [False, True]), (stress.ROUGH, [True, True])])
def test_narrow_programs_that_are_fused_in_two_ways_may_differ_by_a_part_of_the_largest_entry(rough, close):
    guarded, bare = np.array([0.01, 1.0, np.nan]), np.array([0.02, 1.0, 1.0])
    assert stress._close(guarded, bare, rough).tolist() == [*close, False]


@pytest.mark.parametrize("program", ["forward", "train_step"])
def test_a_difference_by_unit_axes_is_proved_by_rules(program):
    result = outcome(reshaped, program)
    assert result.channels["program"].verdict is Verdict.PROVED, result.sentence()
    assert "moves" in result.channels["values"].detail


class LinenToy(linen.Module):
    """A layer and its bias."""

    @linen.compact
    def __call__(self, x):
        return linen.Dense(F, name="out", kernel_init=linen.initializers.lecun_normal())(x)


LECUN = nnx.initializers.lecun_normal()


def nnx_toy(scale=1.0, draw=LECUN):
    class NnxToy(nnx.Module):
        def __init__(self, rngs):
            def init(key, shape, dtype, **rest):
                return scale * draw(key, shape, dtype)

            self.out = nnx.Linear(D, F, kernel_init=init, rngs=rngs)

        def __call__(self, x):
            return self.out(x)

    return NnxToy


def drawn(candidate):
    pair = parity.twins(
        "toy",
        linen=LinenToy,
        nnx=candidate,
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        loss=lambda outputs, inputs: jnp.sum(outputs**2),
    )
    return run_case(pair.cases({})[0], Session(), ("rng",)).channels["rng"]


@pytest.mark.long
def test_initial_numbers_of_sides_that_share_no_keys_are_compared_as_samples():
    assert drawn(nnx_toy()).verdict is Verdict.EQUAL
    wider = drawn(nnx_toy(scale=1.2))
    assert wider.verdict is Verdict.FAILED and "standard deviations 1.2 to 1" in wider.findings[0].sentence()
    flat = drawn(nnx_toy(draw=nnx.initializers.variance_scaling(1.0, "fan_in", "uniform")))
    assert flat.verdict is Verdict.FAILED and "other shapes" in flat.findings[0].sentence()


@pytest.mark.parametrize("small", [stress.SMALL, np.inf])
def test_in_narrow_types_the_own_noise_of_the_candidate_explains_differences_of_any_size(small):
    """Such as the sign of a gradient of rounding alone, which Adam turns into a whole step."""

    def outputs(step):
        return {Group.STATE: {"w": np.array([1, 0.5 + step], np.float32)}}

    run = types.SimpleNamespace(
        trial=Trial(name="usual", state={}),
        outputs=(outputs(0), outputs(0.01)),
        perturbed=lambda place, seed: outputs(0 if place == 0 or seed % 2 else -0.02),
    )
    found = stress._differences(run, run, {}, small)
    assert [off.deviation.path for off in found] == (["w"] if small < 1 else [])
