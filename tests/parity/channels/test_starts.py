"""Initial states: constants are equal up to rounding, drawn leaves have one distribution and repeat the same parts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from parity.builds.build import linen_build
from parity.builds.weights.map import Rule
from parity.builds.weights.transforms import Stack
from parity.cases.case import Case, Keys
from parity.channels import starts
from parity.channels.rng import rng
from parity.channels.starts import _states
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.verdicts import Verdict

D = 32
BOTH = (Keys.SHARED, Keys.INDEPENDENT)


def build(name, create):
    return linen_build(
        name,
        create,
        {"forward": (lambda state, inputs: {"values": {"y": inputs["x"]}}, {})},
        inputs=lambda seed: {"x": np.ones((2, D), np.float32)},
        specs=lambda tree, mesh: {},
        input_specs=lambda leaves, mesh: {},
    )


def compared(reference, candidate, keys=Keys.INDEPENDENT, rules=()):
    """Returns the result of `rng` for two functions of a key that make a state."""
    left, right = (
        build("linen toy", reference),
        dataclasses.replace(build("nnx toy", candidate), flavour="nnx"),
    )
    case = Case(
        id="toy/forward@single",
        reference=lambda: left,
        candidate=lambda: right,
        program="forward",
        keys=keys,
        rules=rules,
    )
    return rng.judge(Evidence.of(case, Session()))


def found(reference, candidate, keys=Keys.INDEPENDENT, rules=()):
    result = compared(reference, candidate, keys, rules)
    assert (result.verdict is Verdict.FAILED) == bool(result.findings), result
    return [finding.where for finding in result.findings]


def drawn(key, shape=(D, D)):
    return jax.random.normal(key, shape) * 0.1


# --- leaves that no key changes ---


def with_constant(value, place="params"):
    """A state of one drawn kernel and one leaf that no key changes."""

    def create(key):
        state = {"params": {"kernel": drawn(key)}}
        state.setdefault(place, {})["fixed"] = value()
        return state

    return create


def optimized(transform):
    """A state of one drawn kernel and an optimizer's initial state."""

    def create(key):
        params = {"kernel": drawn(key), "bias": jnp.zeros(D)}
        return {"params": params, "opt_state": transform().init(params)}

    return create


def counted(number):
    """Adam, resumed at a different count."""

    def create(key):
        state = optimized(lambda: optax.adam(1e-3))(key)
        first, *rest = state["opt_state"]
        return {**state, "opt_state": (first._replace(count=first.count + number), *rest)}

    return create


CHAIN = lambda rate, start: optax.chain(  # noqa: E731
    optax.clip_by_global_norm(1.0), optax.masked(optax.adagrad(rate, start), {"kernel": True, "bias": False})
)
CONSTANTS = {
    "an accumulator of Adagrad": [
        optimized(lambda start=start: optax.adagrad(1e-2, start)) for start in (0.1, 0.9)
    ],
    "a count of Adam": [counted(0), counted(1000)],
    "a masked chain": [optimized(lambda start=start: CHAIN(1e-2, start)) for start in (0.1, 0.9)],
    "an injected rate": [
        optimized(lambda rate=rate: optax.inject_hyperparams(optax.adam)(learning_rate=rate))
        for rate in (1e-3, 2e-3)
    ],
    "steps that are collected": [
        optimized(lambda start=start: optax.MultiSteps(optax.adagrad(1e-2, start), 2)) for start in (0.1, 0.9)
    ],
    "a counter of the model": [with_constant(lambda n=n: jnp.int32(n), "counters") for n in (0, 50)],
    "a table of integers": [with_constant(lambda n=n: jnp.arange(D).at[7].add(n), "tables") for n in (0, 1)],
    "a flag": [with_constant(lambda flag=flag: jnp.asarray(flag), "flags") for flag in (True, False)],
    "a mask": [with_constant(lambda n=n: jnp.tril(jnp.ones((D, D), bool), n), "masks") for n in (0, 1)],
    "a buffer in bfloat16": [
        with_constant(lambda value=value: jnp.full(D, value, jnp.bfloat16), "buffers")
        for value in (1.0, 1.0078125)
    ],
    "a complex buffer": [
        with_constant(lambda value=value: jnp.full(D, value), "buffers") for value in (1j, -1j)
    ],
    "the sign of zero": [with_constant(lambda value=value: jnp.full(D, value)) for value in (0.0, -0.0)],
    "a digit of one entry": [
        with_constant(lambda n=n: jnp.ones(D).at[3].mul(1 + n * 2.0**-19)) for n in (0, 1)
    ],
    "a small entry next to a large one": [
        with_constant(lambda n=n: jnp.ones(D).at[3].set(1e6).at[4].mul(1 + n * 1e-3)) for n in (0, 1)
    ],
    "numbers drawn from a key in the source": [
        with_constant(lambda n=n: drawn(jax.random.key(n))) for n in (0, 1)
    ],
    "a value that a loop computes": [
        with_constant(lambda n=n: jax.lax.fori_loop(0, n, lambda index, x: x * 0.5, jnp.ones(D)))
        for n in (3, 4)
    ],
}


@pytest.mark.parametrize("keys", BOTH)
@pytest.mark.parametrize("name", CONSTANTS)
def test_leaves_that_no_key_changes_are_equal(name, keys):
    reference, candidate = CONSTANTS[name]
    assert found(reference, candidate, keys), name
    assert found(candidate, reference, keys), name
    assert compared(reference, reference, keys).findings == ()


@pytest.mark.parametrize("keys", BOTH)
def test_rounding_of_two_formulas_of_a_constant_is_no_difference(keys):
    places = np.arange(D, dtype=np.float32) / D
    jaxs = with_constant(lambda: -5 + 8 * jnp.asarray(places) ** 0.7)
    rounded = np.float32(-5 + 8 * places.astype(np.float64) ** 0.7)
    numpys = with_constant(lambda: jnp.asarray(rounded))
    assert (np.asarray(jaxs(jax.random.key(0))["params"]["fixed"]) != rounded).any()
    result = compared(jaxs, numpys, keys)
    assert result.findings == () and result.verdict is Verdict.EQUAL


def test_the_seed_of_an_optimizer_is_compared_where_keys_are_shared():
    seeds = [optimized(lambda seed=seed: optax.add_noise(0.1, 0.5, seed)) for seed in (1, 2)]
    assert found(seeds[0], seeds[1], Keys.SHARED) and found(seeds[0], seeds[1]) == []


def test_a_constant_is_named_with_both_values():
    (finding,) = compared(*CONSTANTS["a count of Adam"]).findings
    assert finding.leaf == "opt_state/0/count"
    assert "initial opt_state/0/count: reference starts 0, candidate starts 1000" in finding.sentence()
    assert "no key changes this leaf" in finding.cause


def spelled_otherwise(key):
    return {
        "params": {"kernel": drawn(key), "fixed": jax.lax.fori_loop(0, 3, lambda index, x: x, jnp.zeros(D))}
    }


def test_constants_made_differently_are_equal_and_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *args, **rest: pytest.fail("compiled"))
    plain = with_constant(lambda: jnp.zeros(D))
    for keys, verdict in zip(BOTH, (Verdict.PROVED, Verdict.EQUAL), strict=True):
        assert compared(plain, spelled_otherwise, keys).verdict is verdict


@pytest.mark.parametrize("keys", BOTH)
def test_counters_of_other_integers_are_compared_as_numbers(keys):
    counters = [
        with_constant(lambda kind=kind: jnp.zeros((), kind), "counters") for kind in ("int32", "uint32")
    ]
    assert found(counters[0], counters[1], keys) == []
    later = with_constant(lambda: jnp.ones((), "uint32"), "counters")
    assert found(counters[0], later, keys) == ["initial counters/fixed"]


LAYERS = tuple(f"layer_{index}" for index in range(3))


def layers(key, start=0.1, own=True):
    """Three layers, each with an accumulator."""
    keys = jax.random.split(key, len(LAYERS)) if own else [key] * len(LAYERS)
    return {
        "params": {name: {"w": drawn(one)} for name, one in zip(LAYERS, keys, strict=True)},
        "accumulators": {name: {"a": jnp.full(D, start)} for name in LAYERS},
    }


def stack(key, start=0.1, own=True):
    """The layers of `layers` as one stack."""
    keys = jax.random.split(key, len(LAYERS))
    once = drawn(key)
    made = jax.lax.scan(lambda carry, one: (carry, drawn(one) if own else once), 0, keys)[1]
    return {"params": {"layers": {"w": made}}, "accumulators": {"layers": {"a": jnp.full((3, D), start)}}}


STACKED = tuple(
    Rule(
        reference=tuple(f"{top}{name}/{leaf}" for name in ("layer/0", "layer/1", "layer/2")),
        candidate=(f"{top}layers/{leaf}",),
        transform=Stack(axis=0, number=3),
    )
    for top, leaf in (("", "w"), ("accumulators/", "a"))
)


@pytest.mark.parametrize(
    ("candidate", "where"),
    [
        (stack, []),
        (functools.partial(stack, start=0.9), [f"initial accumulators/{name}/a" for name in LAYERS]),
        (functools.partial(stack, own=False), [f"initial params/{name}/w" for name in LAYERS[1:]]),
    ],
)
def test_stacks_are_compared_layer_by_layer(candidate, where):
    assert found(layers, candidate, rules=STACKED) == where


# --- leaves that are drawn ---


def kernels(make):
    def create(key):
        return {"params": make(*jax.random.split(key, 4))}

    return create


def experts(key):
    return jax.random.normal(key, (8, D, D)) * 0.1


def scaled(key, axis, scales, size=D):
    """Four layers, with a scale for each index along an axis."""
    shape = [-1 if axis == place else 1 for place in range(3)]
    return drawn(key, (4, size, size)) * jnp.asarray(scales).reshape(shape)


def halves(key):
    return jnp.concatenate([drawn(key, (D // 2, D))] * 2)


DRAWN = {
    "a clone": (
        lambda a, b, *_: {"a": drawn(a), "b": drawn(b)},
        lambda a, *_: dict.fromkeys("ab", drawn(a)),
        ["initial params/b"],
    ),
    "a transposed clone": (
        lambda a, b, *_: {"a": drawn(a), "b": drawn(b)},
        lambda a, *_: {"a": (draw := drawn(a)), "b": draw.T},
        ["initial params/b"],
    ),
    "a negated clone": (
        lambda a, b, *_: {"a": drawn(a), "b": drawn(b)},
        lambda a, *_: {"a": (draw := drawn(a)), "b": -draw},
        ["initial params/b"],
    ),
    "a scaled clone": (
        lambda a, b, *_: {"a": drawn(a), "b": drawn(b) * 3},
        lambda a, *_: {"a": (draw := drawn(a)), "b": draw * 3},
        ["initial params/b"],
    ),
    "a clone of rows": (
        lambda a, b, *_: {"a": drawn(a), "b": drawn(b, (4, D))},
        lambda a, *_: {"a": (draw := drawn(a)), "b": draw[4:8]},
        ["initial params/b"],
    ),
    "all experts of one draw": (
        lambda a, *_: {"w": experts(a)},
        lambda a, *_: {"w": jnp.broadcast_to(drawn(a), (8, D, D))},
        ["initial params/w"],
    ),
    "two experts of one draw": (
        lambda a, *_: {"w": experts(a)},
        lambda a, *_: {"w": (w := experts(a)).at[5].set(w[2])},
        ["initial params/w"],
    ),
    "heads of one draw, along the last axis": (
        lambda a, *_: {"w": drawn(a, (D, 4 * D))},
        lambda a, *_: {"w": jnp.tile(drawn(a), (1, 4))},
        ["initial params/w"],
    ),
    "the upper half is the lower": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": halves(a)},
        ["initial params/w"],
    ),
    "a vector that repeats": (
        lambda a, *_: {"w": drawn(a, (64,))},
        lambda a, *_: {"w": jnp.tile(drawn(a, (32,)), 2)},
        ["initial params/w"],
    ),
    "rows in reverse, negated": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": jnp.concatenate([half := drawn(a, (D // 2, D)), -half[::-1, ::-1]])},
        ["initial params/w"],
    ),
    "bfloat16, widened": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": drawn(a).astype(jnp.bfloat16).astype(jnp.float32)},
        ["initial params/w"],
    ),
    "bfloat16, widened and scaled": (
        lambda a, *_: {"w": drawn(a) / 3},
        lambda a, *_: {"w": drawn(a).astype(jnp.bfloat16).astype(jnp.float32) / 3},
        ["initial params/w"],
    ),
    "float16, widened": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": drawn(a).astype(jnp.float16).astype(jnp.float32)},
        ["initial params/w"],
    ),
    "columns that one side normalises": (
        lambda a, *_: {"w": drawn(a, (12, D))},
        lambda a, *_: {"w": (w := drawn(a, (12, D))) / jnp.linalg.norm(w, axis=0, keepdims=True) * 12**0.5},
        ["initial params/w"],
    ),
    "a scale of 3 %": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": drawn(a) * 1.03},
        ["initial params/w"],
    ),
    "a scale of 3 % of a small leaf": (
        lambda a, *_: {"w": drawn(a, (16,))},
        lambda a, *_: {"w": drawn(a, (16,)) * 0.97},
        ["initial params/w"],
    ),
    "a scale of one layer of a stack": (
        lambda a, *_: {"w": jnp.stack([drawn(one) for one in jax.random.split(a, 2)])},
        lambda a, *_: {
            "w": jnp.stack([drawn(one) * s for one, s in zip(jax.random.split(a, 2), (1, 1.1), strict=True)])
        },
        ["initial params/w"],
    ),
    "layers in another order": (
        lambda a, *_: {"w": scaled(a, 0, (1.0, 0.7, 0.6, 0.5))},
        lambda a, *_: {"w": scaled(a, 0, (0.5, 0.6, 0.7, 1.0))},
        ["initial params/w"],
    ),
    "gate and up exchanged in a fused kernel": (
        lambda a, *_: {"w": scaled(a, 2, (1.0,) * 16 + (0.5,) * 16)},
        lambda a, *_: {"w": scaled(a, 2, (0.5,) * 16 + (1.0,) * 16)},
        ["initial params/w"],
    ),
    "one head that starts elsewhere": (
        lambda a, *_: {"w": drawn(a, (4, D, D)).at[3].add(0.1)},
        lambda a, *_: {"w": drawn(a, (4, D, D)).at[0].add(0.1)},
        ["initial params/w"],
    ),
    "another row of zeros": (
        lambda a, *_: {"w": drawn(a).at[0].set(0)},
        lambda a, *_: {"w": drawn(a).at[1].set(0)},
        ["initial params/w"],
    ),
    "layers in another order, of a large leaf": (
        lambda a, *_: {"w": scaled(a, 0, (1.0, 0.8, 0.8, 0.8), 256)},
        lambda a, *_: {"w": scaled(a, 0, (0.8, 0.8, 0.8, 1.0), 256)},
        ["initial params/w"],
    ),
    "uniform for normal": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": jax.random.uniform(a, (D, D), minval=-1, maxval=1) * 0.1 * 3**0.5},
        ["initial params/w"],
    ),
    "a shifted mean": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": drawn(a) + 0.01},
        ["initial params/w"],
    ),
    "integers of another range": (
        lambda a, *_: {"w": jax.random.randint(a, (D, D), 0, 100)},
        lambda a, *_: {"w": jax.random.randint(a, (D, D), 0, 90)},
        ["initial params/w"],
    ),
    "the same numbers with every key": (
        lambda a, *_: {"w": drawn(a), "v": jnp.zeros(D)},
        lambda a, *_: {"w": drawn(jax.random.key(3)), "v": jnp.zeros(D)},
        ["initial params/w"],
    ),
    "zeros for a draw": (
        lambda a, b, *_: {"w": drawn(a), "v": drawn(b)},
        lambda a, b, *_: {"w": drawn(a), "v": jnp.zeros((D, D))},
        ["initial params/v"],
    ),
    "zeros for all draws": (
        lambda a, *_: {"w": drawn(a)},
        lambda a, *_: {"w": jnp.zeros((D, D))},
        ["initial params/w"],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_leaves_repeat_the_same_parts_and_have_one_distribution(name):
    reference, candidate, where = DRAWN[name]
    assert found(kernels(reference), kernels(candidate)) == where
    assert sorted(found(kernels(candidate), kernels(reference))) == where


HARMLESS = {
    "a leaf without numbers": (
        lambda a, b, *_: {"w": drawn(a), "none": drawn(b, (0, D)), "empty": jnp.zeros((0, D))},
        lambda a, b, *_: {"w": drawn(a) + 0, "none": drawn(b, (D, 0)).T, "empty": jnp.ones((0, D))},
    ),
    "both tie": (
        lambda a, *_: dict.fromkeys("ab", drawn(a)),
        lambda a, b, *_: dict.fromkeys("ab", 0.1 * jax.random.normal(b, (D, D)) + 0),
    ),
    "one draw, cut into three": (
        lambda a, b, c, *_: {"q": drawn(a), "k": drawn(b), "v": drawn(c)},
        lambda a, *_: dict(zip("qkv", jnp.split(drawn(a, (D, 3 * D)), 3, axis=1), strict=True)),
    ),
    "experts mapped over keys": (
        lambda a, *_: {"w": experts(a)},
        lambda a, *_: {"w": jax.vmap(drawn)(jax.random.split(a, 8))},
    ),
    "experts of one draw on both sides": (
        lambda a, *_: {"w": jnp.broadcast_to(drawn(a), (8, D, D))},
        lambda a, *_: {"w": jnp.stack([drawn(a)] * 8)},
    ),
    "rows of one number on both sides": (
        lambda a, *_: {"w": jnp.broadcast_to(drawn(a, (D, 1)), (D, D))},
        lambda a, *_: {"w": jnp.outer(drawn(a, (D,)), jnp.ones(D))},
    ),
    "zeros and ones beside draws": (
        lambda a, *_: {"w": jnp.concatenate([drawn(a, (D, D)), jnp.zeros((D, D))])},
        lambda a, *_: {"w": jnp.zeros((2 * D, D)).at[:D].set(drawn(a, (D, D)))},
    ),
    "a small vector in bfloat16": (
        lambda a, *_: {"w": jax.random.normal(a, (64,), jnp.bfloat16)},
        lambda a, *_: {"w": jax.random.normal(a, (8, 8), jnp.bfloat16).reshape(64)},
    ),
    "one number": (
        lambda a, *_: {"w": jax.random.normal(a, ())},
        lambda a, *_: {"w": jax.random.normal(a, (1,))[0]},
    ),
    "signs": (
        lambda a, *_: {"w": jax.random.rademacher(a, (16,), jnp.float32)},
        lambda a, *_: {"w": jnp.where(jax.random.bernoulli(a, 0.5, (16,)), 1.0, -1.0)},
    ),
    "large leaves of rows of one number": (
        lambda a, b, *_: {"w": drawn(a, (2, 1, 512)) + 1e-3 * drawn(b, (2, 512, 512))},
        lambda a, b, *_: {"w": 1e-3 * drawn(b, (2, 512, 512)) + drawn(a, (2, 1, 512))},
    ),
    "long tails": (
        lambda a, *_: {"w": jnp.exp(drawn(a, (256, D)) * 30)},
        lambda a, *_: {"w": 1 / jnp.exp(drawn(a, (256, D)) * 30)},
    ),
    "scaled layers on both sides": (
        lambda a, *_: {"w": scaled(a, 0, (1.0, 0.7, 0.6, 0.5))},
        lambda a, *_: {"w": -scaled(a, 0, (1.0, 0.7, 0.6, 0.5))},
    ),
    "orthogonal": (
        lambda a, *_: {"w": jax.nn.initializers.orthogonal()(a, (D, D))},
        lambda a, *_: {"w": jax.nn.initializers.orthogonal()(a, (D, D)).T},
    ),
    "a permutation": (
        lambda a, *_: {"w": jax.random.permutation(a, 64)},
        lambda a, *_: {"w": jax.random.permutation(a, jnp.arange(64))[::-1]},
    ),
    "a product of two draws": (
        lambda a, b, *_: {"w": drawn(a) * drawn(b)},
        lambda a, b, *_: {"w": drawn(b) * drawn(a)},
    ),
    "complex numbers": (
        lambda a, *_: {"w": jax.random.normal(a, (D, D), jnp.complex64)},
        lambda a, *_: {"w": jax.random.normal(a, (D * D,), jnp.complex64).reshape(D, D)},
    ),
    "uniform floats on a finer grid": (
        lambda a, *_: {"w": jax.random.uniform(a, (D, D))},
        lambda a, *_: {"w": jax.random.beta(a, 1.0, 1.0, (D, D))},
    ),
    "moments that follow their draws": (
        lambda a, *_: {"w": (draw := drawn(a)), "ema": draw + 0},
        lambda a, b, *_: {"w": (draw := drawn(b).reshape(-1).reshape(D, D)), "ema": draw},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HARMLESS)
def test_equal_distributions_are_no_finding(name):
    reference, candidate = map(kernels, HARMLESS[name])
    result = compared(reference, candidate)
    assert result.findings == (), result.findings
    assert compared(candidate, reference).findings == ()


@pytest.mark.long
def test_the_power_is_in_the_detail():
    reference, candidate, _ = DRAWN["a scale of 3 %"]
    words = compared(kernels(reference), kernels(candidate)).detail
    assert "scales that differ by 0.02 are found (99.9 %, least of params/w)" in words


def test_ties_by_recipe_need_no_samples(monkeypatch):
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *args, **rest: pytest.fail("compiled"))
    tied = kernels(lambda a, *_: dict.fromkeys("ab", drawn(a)))
    other = kernels(lambda a, b, *_: dict.fromkeys("ab", drawn(b)))
    assert found(tied, other) == []


MADE = jax.random.normal(jax.random.key(7), (D, D)) * 0.1


@pytest.mark.parametrize("name", ["reference", "candidate"])
def test_a_side_that_is_a_built_module_has_no_initializers_to_compare(name):
    sides = [kernels(lambda a, *_: {"w": drawn(a)}), kernels(lambda *_: {"w": MADE})]
    result = compared(*(sides if name == "candidate" else sides[::-1]))
    assert not result.findings and f"the {name} is a built module" in result.detail


def test_one_array_among_drawn_leaves_is_no_built_module():
    left = kernels(lambda a, b, *_: {"w": drawn(a), "v": drawn(b)})
    right = kernels(lambda a, *_: {"w": drawn(a), "v": MADE})
    assert found(left, right) == ["initial params/v"]


def many(scale):
    """A state of many drawn leaves of one recipe, of which the middle one is drawn by another."""

    def create(key):
        keys = dict(zip("abcdefg", jax.random.split(key, 7), strict=True))
        made = {name: drawn(one) * scale for name, one in keys.items()}
        return {"params": {**made, "d": jax.random.uniform(keys["d"], (D, D))}}

    return create


def test_of_leaves_of_one_recipe_one_is_sampled_and_all_are_named(monkeypatch):
    sampled = []
    monkeypatch.setattr(
        starts,
        "_states",
        lambda session, build, paths, wanted: sampled.append(paths) or _states(session, build, paths, wanted),
    )
    differing = [f"initial params/{name}" for name in "abcefg"]
    assert found(many(1.0), many(1.5)) == differing
    assert sampled == 2 * [["params/a"]]
