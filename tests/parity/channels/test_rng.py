"""The audit of random keys: the definition of a second use, and its findings."""

import dataclasses
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.cases.case import Case, Keys
from parity.channels.rng import _audited, rng
from parity.compare.evidence import Evidence
from parity.compare.origin.trace import evaluate
from parity.compare.session import Session
from parity.ir.jax_internals import content
from parity.ir.precision import retraced, round_all
from parity.values.rng.audit import audit, compare_draws, repeated_keys, unforeseen_draws
from parity.verdicts import Doubt, Verdict

KEY = jax.random.key(7)
L, B, D = 3, 4, 6


def drop(x, key):
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0.0)


def audited(function, *arguments, feedback=None, steps=1):
    """Audits a function of flat arguments."""
    jaxpr = jax.jit(function).trace(*arguments).jaxpr
    return audit(jaxpr, lambda index, step: arguments[index], feedback, steps)


def causes(found):
    return [finding.cause for finding in repeated_keys(found, "candidate", "nothing")]


def layers(key_of):
    def model(x, key):
        def body(x, index):
            return drop(x, key_of(key, index)), None

        return jax.lax.scan(body, x, jnp.arange(L))[0]

    return model


X = jnp.ones((B, D))


def test_draws_of_a_scan_are_distinguished_by_iteration():
    found = audited(layers(jax.random.fold_in), X, KEY)
    assert [draw.iterations[0][1] for draw in found.draws] == [0, 1, 2]
    assert [draw.shape for draw in found.draws] == [(B, D)] * L
    expected = [tuple(np.asarray(jax.random.key_data(jax.random.fold_in(KEY, i))).tolist()) for i in range(L)]
    assert [draw.key for draw in found.draws] == expected
    assert "test_rng.py" in found.draws[0].site and causes(found) == []


def test_one_key_for_all_iterations_is_named_with_the_loop():
    found = audited(layers(lambda key, index: key), X, KEY)
    (finding,) = repeated_keys(found, "candidate", "3 draws from 3 keys")
    assert finding.candidate.startswith("3 draws from 1 key, such as ")
    assert finding.reference == "3 draws from 3 keys"
    assert "turns 0 and 1 of the loop at" in finding.cause and "test_rng.py" in finding.cause


def test_two_places_with_one_key():
    found = audited(lambda x, key: drop(drop(x, key), key), X, KEY)
    (finding,) = repeated_keys(found, "reference", "")
    assert finding.cause == "two places draw from one key"
    assert re.search(r"in drop, called twice at \S+ in test_two_places", finding.where)


def inner(x, key):
    return drop(x, key)


def layer(x, key):
    return inner(x, key)


def twice(x, key):
    key, _ = jax.random.split(key)
    x = layer(x, key)
    return layer(x, key)


def test_two_draws_of_one_line_name_the_calls_that_differ_and_the_maker_of_the_key():
    (finding,) = repeated_keys(audited(twice, X, KEY), "candidate", "")
    made, one, other = (f"test_rng.py:{twice.__code__.co_firstlineno + line} in twice" for line in (1, 2, 3))
    assert finding.where.count(" in ") == 3 and one in finding.where and other in finding.where
    assert finding.candidate.endswith(made)


def deeper(x, key):
    return layer(x, key)


def other_layer(x, key):
    return inner(x, key) + 1


def other_deeper(x, key):
    return other_layer(x, key)


def both_layers(x, key):
    x = deeper(x, key)
    return other_deeper(x, key)


def test_two_draws_of_different_lines_name_the_calls_of_the_function_around_both():
    (finding,) = repeated_keys(audited(both_layers, X, KEY), "candidate", "")
    first = both_layers.__code__.co_firstlineno
    *_, called = finding.where.split(", called at ")
    assert f"test_rng.py:{first + 1} in both_layers" in called and f":{first + 2} in both_layers" in called


def test_what_both_sides_draw_twice_explains_no_difference():
    repeated, single = audited(twice, X, KEY), audited(layer, X, KEY)
    both, one_sided = _audited([repeated, repeated]), _audited([repeated, single])
    assert [one.doubts for one in both] == [(Doubt.HARMLESS,)] * 2
    assert [one.doubts for one in one_sided] == [()]


def test_a_key_of_each_step_is_named_with_the_function_that_begins_the_step():
    found = audited(lambda x, key: (twice(x, key), key), X, KEY, feedback={1: 1}, steps=2)
    steps = [each for each in repeated_keys(found, "candidate", "") if "steps" in each.cause]
    assert steps and all(
        re.search(r" < \.\.\. < .* < \S+ in test_a_key_of_each", each.where) for each in steps
    )


def test_a_batch_of_equal_keys():
    def model(x, key):
        return jax.vmap(drop)(x, jnp.stack([key] * B))

    assert causes(audited(model, X, KEY)) == ["the same key for entries 0 and 1 of a batch of keys"]
    split = audited(lambda x, key: jax.vmap(drop)(x, jax.random.split(key, B)), X, KEY)
    assert causes(split) == [] and [draw.lane for draw in split.draws] == list(range(B))


@pytest.mark.parametrize("folds", [True, False])
def test_steps_are_chained_by_the_results_of_the_program(folds):
    def step(x, key, number):
        return drop(x, jax.random.fold_in(key, number)).sum(), number + (1 if folds else 0)

    found = audited(step, X, KEY, jnp.uint32(0), feedback={2: 1}, steps=3)
    assert [draw.step for draw in found.draws] == [1, 2, 3]
    words = ["the same key in steps 1 and 2: the step is not folded into it"]
    assert causes(found) == ([] if folds else words)


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.everything_saveable])
def test_rematerialised_repeats_are_no_second_use(policy):
    def loss(w, x, key):
        block = jax.checkpoint(lambda w, x: layers(jax.random.fold_in)(jnp.tanh(x * w), key), policy=policy)
        return block(w, x).sum()

    found = audited(jax.value_and_grad(loss), jnp.float32(0.3), X, KEY)
    again = [draw for draw in found.draws if draw.again]
    assert len(found.forward) == L and causes(found) == [] and unforeseen_draws(found, "candidate") == []
    assert len(again) == (L if policy is None else 0)


def test_a_backward_pass_that_draws_something_else():
    @jax.custom_vjp
    def noisy(x, key):
        return drop(x, key)

    noisy.defvjp(
        lambda x, key: (drop(x, key), key), lambda key, g: (drop(g, jax.random.fold_in(key, 1)), None)
    )
    found = audited(jax.grad(lambda x, key: noisy(x, key).sum()), X, KEY)
    (finding,) = unforeseen_draws(found, "candidate")
    assert finding.candidate == "1 draws of the backward pass that the forward pass did not make"


@pytest.mark.slow
def test_branches_and_while_loops_are_followed():
    def model(x, key, count):
        x = jax.lax.cond(count > 1, lambda x: drop(x, key), lambda x: x, x)
        body = lambda state: (state[0] + 1, drop(state[1], jax.random.fold_in(key, state[0])))  # noqa: E731
        return jax.lax.while_loop(lambda state: state[0] < count, body, (0, x))[1]

    assert len(audited(model, X, KEY, jnp.int32(2)).draws) == 3
    assert len(audited(model, X, KEY, jnp.int32(1)).draws) == 1


def test_only_the_inputs_of_keys_are_computed():
    asked = []

    def model(key, weights, x):
        return drop(x @ weights, jax.random.split(key)[0])

    arguments = (KEY, jnp.ones((D, D)), X)
    jaxpr = jax.jit(model).trace(*arguments).jaxpr
    audit(jaxpr, lambda index, step: asked.append(index) or arguments[index])
    assert asked == [0]


def test_draws_that_cannot_be_followed_are_said():
    mesh = jax.make_mesh((8,), ("data",))
    spec = jax.sharding.PartitionSpec

    local = jax.shard_map(drop, mesh=mesh, in_specs=(spec("data"), spec()), out_specs=spec("data"))
    x = jax.device_put(jnp.ones((8, 2)), jax.sharding.NamedSharding(mesh, spec("data")))
    found = audited(local, x, KEY)
    assert found.draws == () and "1 not followed (shard_map)" in found.sentence()


def test_another_key_of_one_twin_is_named():
    left, right = (audited(layers(fold), X, KEY) for fold in (jax.random.fold_in, _folded_twice))
    findings = compare_draws(left, right)
    assert [finding.where.rsplit(" ", 1)[1] for finding in findings] == ["reference", "candidate"]
    assert findings[1].candidate.startswith(f"3 draws, the first [{B}, {D}] from ")
    assert compare_draws(left, left) == []


def test_a_draw_that_one_twin_leaves_out_is_named():
    def both(x, key):
        return drop(drop(x, jax.random.fold_in(key, 0)), jax.random.fold_in(key, 1))

    left, right = audited(both, X, KEY), audited(lambda x, key: drop(x, jax.random.fold_in(key, 0)), X, KEY)
    for first, second, side in ((left, right, "reference"), (right, left, "candidate")):
        (finding,) = compare_draws(first, second)
        assert finding.where.endswith(f"of the {side}")


def _folded_twice(key, index):
    return jax.random.fold_in(jax.random.fold_in(key, index), 0)


# --- the channel ---


def create(key, same=False, other=False):
    first, second = jax.random.split(key)
    if other:
        first, second = second, first
    return {
        "params": {
            "a": jax.random.normal(first, (D, D)),
            "b": jax.random.normal(first if same else second, (D, D)),
        },
        "key": jax.random.key(3),
    }


def outcome(reference, candidate, **rest):
    def build(name, options):
        def forward(state, inputs):
            x = inputs["x"] @ state["params"]["a"] @ state["params"]["b"]
            return {"values": {"y": drop(x, options.get("fold", lambda key: key)(state["key"]))}}

        made = lambda key: create(key, **options.get("create", {}))  # noqa: E731
        return linen_build(
            name,
            made,
            {"forward": (forward, {})},
            inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
            specs=lambda tree, mesh: {},
            input_specs=lambda leaves, mesh: {},
        )

    left = build("linen toy", reference)
    right = dataclasses.replace(build("nnx toy", candidate), flavour="nnx")
    case = Case(
        id="toy/forward@single", reference=lambda: left, candidate=lambda: right, program="forward", **rest
    )
    return rng.judge(Evidence.of(case, Session()))


def test_equal_twins_are_proved_and_counted():
    result = outcome({}, {})
    assert (result.verdict, result.findings) == (Verdict.PROVED, ())
    assert result.detail == "1 draws from 1 keys; initial state 2 draws from 2 keys"


@pytest.mark.slow
def test_two_parameters_from_one_key_are_named():
    result = outcome({}, {"create": {"same": True}})
    text = "\n".join(finding.sentence() for finding in result.findings)
    assert result.verdict is Verdict.FAILED
    assert "draws at params/a (" in text and "and at params/b (" in text
    assert "initial params/b" in text and "36 of 36 entries differ" in text


@pytest.mark.slow
def test_other_keys_fail_unless_the_pair_declares_them():
    folded = {"fold": lambda key: jax.random.fold_in(key, 5)}
    assert outcome({}, folded).verdict is Verdict.FAILED
    swapped = {"create": {"other": True}, **folded}
    result = outcome({}, swapped, keys=Keys.INDEPENDENT)
    assert (result.verdict, result.findings) == (Verdict.EQUAL, ())
    assert "need not share keys" in result.detail
    both = {"create": {"same": True}}
    assert outcome(both, both, keys=Keys.INDEPENDENT).verdict is Verdict.FAILED


# --- initial states that builds share ---


def looked(monkeypatch, *creates):
    """Checks pairs of equal twins in sequence in one session; returns results and compiled programs."""
    compiled = []
    run = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda self, **kw: compiled.append(self) or run(self, **kw)
    )
    bench, results = Session(), []
    for number, (left, right) in enumerate(creates):
        pair = [
            linen_build(
                f"toy {number}",
                made,
                {"forward": (lambda state, inputs: {"values": {"y": inputs["x"]}}, {})},
                inputs=lambda seed: {"x": np.ones((B, D), np.float32)},
                specs=lambda tree, mesh: {},
                input_specs=lambda leaves, mesh: {},
            )
            for made in (left, right)
        ]
        pair[1] = dataclasses.replace(pair[1], flavour="nnx")
        case = Case(
            id=f"toy{number}/forward@single",
            reference=lambda pair=pair: pair[0],
            candidate=lambda pair=pair: pair[1],
            program="forward",
        )
        results.append(rng.judge(Evidence.of(case, bench)))
    return results, compiled


def started(constant, name="w"):
    """Two functions of a key that make states with equal bits, which no proof shows to be equal."""

    def plain(key):
        return {name: jax.random.normal(key, constant.shape) + constant}

    def branching(key):
        drawn = jax.random.normal(key, constant.shape)
        return {
            name: jax.lax.cond(jax.random.key_data(key)[0] >= 0, lambda x: x + constant, lambda x: x, drawn)
        }

    return plain, branching


@pytest.mark.slow
def test_builds_that_start_from_one_program_compile_it_once(monkeypatch):
    constant = np.random.default_rng(5).standard_normal((D, D), np.float32)
    results, compiled = looked(
        monkeypatch, started(constant), started(constant.copy()), started(constant[::-1])
    )
    assert [result.verdict for result in results] == [Verdict.BITWISE] * 3
    assert len(compiled) == 4


@pytest.mark.slow
def test_a_constant_of_another_value_is_another_program(monkeypatch):
    constant = jnp.asarray(np.random.default_rng(6).standard_normal((40, 41), np.float32))
    left, wrong = started(constant)[0], started(constant.at[2, 3].add(1.0))[1]
    results, compiled = looked(monkeypatch, started(constant), (left, wrong))
    assert [result.verdict for result in results] == [Verdict.BITWISE, Verdict.FAILED]
    assert "1 of 1,640 entries differ" in results[1].findings[0].sentence() and len(compiled) == 3


HOISTED = """
import jax, numpy as np
from parity.ir.jax_internals import content
constant = jax.numpy.asarray(np.random.default_rng(6).standard_normal((40, 41)))
lowered = jax.jit(lambda key: jax.random.normal(key, (40, 41)) + constant).trace(jax.random.key(0)).lower()
print(content(lowered) is None, len(lowered.as_text()) > 14_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("hoisted", ["0", "1"])
def test_a_text_without_its_constants_is_like_no_other(shell, hoisted):
    """JAX may pass a constant as a further argument, so that the program's text does not contain it."""
    environment = shell.environment(JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS=hoisted, JAX_PLATFORMS="cpu")
    ended = subprocess.run([sys.executable, "-c", HOISTED], env=environment, capture_output=True, text=True)
    unknown, whole = ended.stdout.split()
    assert (unknown == "True", whole == "True") == (hoisted == "1", hoisted == "0"), ended.stderr


def test_callbacks_into_python_equal_nothing():
    def calls(key):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.float32), jax.random.uniform(key))

    assert content(jax.jit(calls).trace(KEY).lower()) is None


@pytest.mark.slow
def test_other_names_are_another_program(monkeypatch):
    constant = np.ones((D, D), np.float32)
    _, compiled = looked(monkeypatch, started(constant), started(constant, "v"))
    assert len(compiled) == 4


def summed(key, count):
    """A sum of draws until a count, such as of decoded tokens."""

    def iteration(carry):
        index, key, total = carry
        key, own = jax.random.split(key)
        return index + 1, key, total + jax.random.normal(own)

    return jax.lax.while_loop(lambda carry: carry[0] < count, iteration, (0, key, jnp.float32(0)))[2]


def test_loops_of_a_batch_end_one_by_one():
    keys, counts = jax.random.split(KEY, 3), jnp.array([1, 4, 2])
    together = jax.vmap(summed)
    found = audited(together, keys, counts)
    assert len(found.draws) == counts.sum() and not found.unseen and not repeated_keys(found, "candidate", "")
    assert repeated_keys(audited(together, keys[jnp.array([0, 0, 1])], counts), "candidate", "")
    expected = together(keys, counts)
    (evaluated,) = evaluate(
        jax.make_jaxpr(together)(keys, counts), [keys, counts], ["keys", "counts"]
    ).results
    np.testing.assert_allclose(evaluated, expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(retraced(together, round_all))(keys, counts), expected, rtol=1e-5)
