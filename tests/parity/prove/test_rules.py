"""The normaliser: its proofs, their rule names, and conditions that fail by one, which it must never prove."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.prover.modules import parse_module
from flax import linen, nnx

from parity.ir.jax_internals import stablehlo_module
from parity.prove import prove
from parity.prove.rules import EXACT, RULES
from parity.verdicts import Verdict

sys.path.append(str(Path(__file__).parent / "rewrites"))

from attacks import ATTACKS, SINGLE, make_careless  # pyright: ignore[reportMissingImports]
from measure import LEVELS, STEPS, compare, gradient  # pyright: ignore[reportMissingImports]


def _linen(p, x):
    return linen.LayerNorm().apply({"params": p}, x)


def _nnx(p, x):
    module = nnx.LayerNorm(8, rngs=nnx.Rngs(0))
    module.scale[...], module.bias[...] = p["scale"], p["bias"]
    return module(x)


def _summed(run):
    return jax.grad(lambda p, x: jnp.sum(run(p, x) ** 3), argnums=(0, 1))


NORM = ({"bias": jnp.ones(8), "scale": jnp.ones(8)}, jnp.ones((2, 5, 8)))


@pytest.mark.parametrize("derive", [lambda run: run, _summed], ids=["forward", "gradient"])
def test_the_layer_norm_of_linen_is_that_of_nnx(check, derive):
    proof = check(derive(_linen), derive(_nnx), NORM)
    assert (proof.rung, proof.same_program) == (Verdict.PROVED, False), proof.outcome()
    assert "moves" in proof.rules and min(proof.rules.values()) > 0
    assert proof.outcome().startswith(f"the same values (rules: {', '.join(proof.rules)}; ")
    assert proof.frontier == proof.unequal_results == ()


def test_another_epsilon_is_the_first_difference_and_not_the_reshape(check):
    """The planted bug of a migration is named, not the harmless reshape before it."""

    def other(p, x):
        module = nnx.LayerNorm(8, epsilon=1e-5, rngs=nnx.Rngs(0))
        module.scale[...], module.bias[...] = p["scale"], p["bias"]
        return module(x)

    proof = check(_linen, other, NORM)
    assert proof.rung is Verdict.UNPROVED and not proof.rules
    assert [entry.where for entry in proof.frontier] == ["stablehlo.add"], proof.frontier
    assert "1e-06 against 1e-05" in proof.frontier[0].sentence()


def test_one_program_needs_no_rule(check):
    proof = check(_linen, _linen, NORM)
    assert (proof.proved, proof.same_program, proof.rules) == (True, True, {})
    assert "rules" not in proof.outcome()


def test_no_rule_is_tried_if_arguments_differ(check):
    """Donation differs: then the strict proof decides."""
    donating = jax.jit(lambda x: x.reshape(6), donate_argnums=0).lower(jnp.ones((2, 3)))
    keeping = jax.jit(lambda x: x.reshape(3, 2).reshape(6)).lower(jnp.ones((2, 3)))
    from parity.prove import prove

    proof = prove(donating, keeping, arguments=[(0, 0)], results=[(0, 0)])
    assert not proof.proved and not proof.reordered and proof.frontier[0].where.startswith("argument")


ATTACKING = {rule.attacked_by for rule in RULES.values()}
"""Names of steps whose misses the tests of rules compare, further down."""


@pytest.mark.parametrize("kind", ["forward", "gradient"])
@pytest.mark.parametrize(
    "step",
    [step for step in (*STEPS, *SINGLE) if step.miss and step.name not in ATTACKING],
    ids=lambda step: step.name,
)
def test_a_condition_missed_by_one_is_never_proved(step, kind):
    derive = gradient if kind == "gradient" else lambda run: run
    *_, proof = compare(derive(step.one), derive(step.miss))
    assert proof.rung is Verdict.UNPROVED, proof.outcome()


def test_every_rule_says_what_it_does():
    assert set(RULES) > EXACT
    for rule in RULES.values():
        assert rule.rewrites and rule.condition and rule.argument and rule.function


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_the_attack_on_a_rule_needs_it_and_notices_one_without_its_condition(rule, monkeypatch):
    attack = ATTACKS[rule.attacked_by]
    assert any(rule.name in proof.rules for proof in attack.equal())
    # Integers are exact where more is fused with them, too.
    missed = {Verdict.UNPROVED, *([Verdict.REORDERED] if rule.name == "moved-integers" else [])}
    assert {proof.rung for proof in attack.missed()} == missed
    if not make_careless(rule, monkeypatch):
        assert rule.name in {"narrow-floats", "moved-weights", "turned-weights"}
        return
    proofs = attack.missed()
    assert any(proof.rung not in missed for proof in proofs), proofs[0].sentence()


def test_a_second_rule_of_one_name_is_refused():
    with pytest.raises(ValueError, match="rule fold: a rule of this name exists"):
        RULES["fold"](lambda table: None)


def test_a_sum_of_one_keeps_the_sign_of_zero():
    """The specification does not define whether the initial zero is added; XLA must not add it."""

    def total(x):
        return jax.lax.reduce(x, jnp.float32(0), jax.lax.add, (0, 1))

    zeros = np.full((1, 1, 8), -0.0, np.float32)
    for run in (total, lambda x: total(jnp.tanh(x)) * 3.0, lambda x: total(-jnp.abs(x))):
        for level in LEVELS:
            options = {"xla_backend_optimization_level": level}
            made = np.asarray(jax.jit(run).lower(zeros).compile(compiler_options=options)(zeros))
            assert np.signbit(made).all()


# Functions that must not be proved equal, in addition to the misses of the steps: each with a near miss.
NEAR = {
    "not a < b, of floats": (lambda x, k: ~(x < 1.0), lambda x, k: x >= 1.0),
    "0 - x is not -x": (lambda x, k: -x, lambda x, k: 0.0 - x),
    "x + 0 of floats": (lambda x, k: x + 0.0, lambda x, k: x),
    "0 - 0 of floats": (lambda x, k: 0.0 - (-x), lambda x, k: x),
    "0 - k is no neutral element": (lambda x, k: 0 - k, lambda x, k: k),
    "k * 0": (lambda x, k: k * 0 + 1, lambda x, k: k),
    "k & 1 of integers": (lambda x, k: k & 1, lambda x, k: k),
    "k | -1": (lambda x, k: k | -1, lambda x, k: k),
    "i32 through i8": (lambda x, k: k.astype(jnp.int8).astype(jnp.int32), lambda x, k: k),
    "i32 through f32": (lambda x, k: k.astype(jnp.float32).astype(jnp.int32), lambda x, k: k),
    "i8 through ui8 to i32": (
        lambda x, k: k.astype(jnp.int8).astype(jnp.uint8).astype(jnp.int32),
        lambda x, k: k.astype(jnp.int8).astype(jnp.int32),
    ),
    "boolean compared with one": (lambda x, k: (k > 1).astype(jnp.int32) != 1, lambda x, k: k > 1),
    "folded subtraction of unsigned": (
        lambda x, k: k.astype(jnp.uint32) + (jnp.uint32(1) - jnp.uint32(2)),
        lambda x, k: k.astype(jnp.uint32) + jnp.uint32(1),
    ),
    "folded constants of another type": (
        lambda x, k: jnp.int8(127) + jnp.int8(1) + k.astype(jnp.int8),
        lambda x, k: k.astype(jnp.int8) + jnp.int8(127),
    ),
    "sum of one from one": (
        lambda x, k: jax.lax.reduce(x[None], jnp.float32(1), jax.lax.add, (0,)),
        lambda x, k: x,
    ),
    "largest of one and zero": (
        lambda x, k: jax.lax.reduce(x[None], jnp.float32(0), jax.lax.max, (0,)),
        lambda x, k: x,
    ),
    "sum of two": (
        lambda x, k: jax.lax.reduce(jnp.stack([x, x]), jnp.float32(0), jax.lax.add, (0,)),
        lambda x, k: x,
    ),
    "-0.0 and 0.0": (lambda x, k: x + jnp.full(x.shape, -0.0), lambda x, k: x + jnp.full(x.shape, 0.0)),
    "two NaNs as constants": (
        lambda x, k: x + jnp.array(0x7FC00001, jnp.uint32).view(jnp.float32) * 0,
        lambda x, k: x + jnp.array(0x7FC00002, jnp.uint32).view(jnp.float32) * 0,
    ),
    "starts clamped to the end": (
        lambda x, k: jax.lax.dynamic_slice(x, (1, 3), (2, 3)),
        lambda x, k: jax.lax.dynamic_slice(x, (1, 2), (2, 3)),
    ),
    "starts clamped to the beginning": (
        lambda x, k: jax.lax.dynamic_slice_p.bind(x, jnp.int32(-1), jnp.int32(0), slice_sizes=(2, 2)),
        lambda x, k: x[1:3, :2],
    ),
    "overlapping neighbours": (
        lambda x, k: jnp.concatenate([x[:, :3], x[:, 2:]], 1),
        lambda x, k: jnp.concatenate([x[:, :3], x[:, 3:], x[:, 2:3]], 1),
    ),
    "neighbours of two arrays": (lambda x, k: jnp.concatenate([x[:2], (x + 1)[2:]]), lambda x, k: x),
    "another axis of a triangle": (
        lambda x, k: jnp.where(jnp.tril(jnp.ones((4, 4), bool)), x[:4, :4], 0),
        lambda x, k: jnp.where(jnp.triu(jnp.ones((4, 4), bool)), x[:4, :4], 0),
    ),
    "square transposed": (lambda x, k: x[:4, :4].T, lambda x, k: x[:4, :4]),
    "square dot transposed": (lambda x, k: x[:4, :4] @ x[:4, :4], lambda x, k: x[:4, :4] @ x[:4, :4].T),
    "square dot exchanged": (
        lambda x, k: x[:4, :4] @ jnp.tanh(x[:4, :4]),
        lambda x, k: jnp.tanh(x[:4, :4]) @ x[:4, :4],
    ),
    "batch of a dot or a free axis": (
        lambda x, k: jnp.einsum("bij,bjk->bik", x.reshape(2, 2, 6)[..., :2], x.reshape(2, 2, 6)[..., :2]),
        lambda x, k: jnp.einsum("ibj,bjk->bik", x.reshape(2, 2, 6)[..., :2], x.reshape(2, 2, 6)[..., :2]),
    ),
    "contracted axes in another order": (
        lambda x, k: jnp.einsum("aij,ijb->ab", x.reshape(6, 2, 2), x.reshape(2, 2, 6)),
        lambda x, k: jnp.einsum("aij,jib->ab", x.reshape(6, 2, 2), x.reshape(2, 2, 6)),
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_nearly_equal_programs_are_never_proved(check, name):
    one, other = NEAR[name]
    proof = check(one, other, (jnp.ones((4, 6)), jnp.ones((4, 6), jnp.int32)))
    assert proof.rung is Verdict.UNPROVED, proof.outcome()


def _comparison(order):
    return f"""module {{ func.func public @main(%x: tensor<4xi32>) -> tensor<4xi1> {{
      %c = stablehlo.constant dense<[1, -1, 2, -2]> : tensor<4xi32>
      %d = stablehlo.constant dense<0> : tensor<4xi32>
      %p = stablehlo.compare LT, %c, %d, {order} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %q = stablehlo.compare GT, %d, %x, {order} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %r = stablehlo.and %p, %q : tensor<4xi1> return %r : tensor<4xi1> }} }}"""


@pytest.mark.parametrize(("order", "rung"), [("SIGNED", Verdict.PROVED), ("UNSIGNED", Verdict.UNPROVED)])
def test_numbers_are_folded_in_their_written_order_only(order, rung):
    from campaigns.prover.modules import parse_module

    from parity.ir.jax_internals import stablehlo_module
    from parity.prove import prove

    like = stablehlo_module(jax.jit(lambda x: x).lower(jnp.ones(1)))
    reference = parse_module(_comparison(order), like)
    known = _comparison("SIGNED").replace(
        "%p = stablehlo.compare LT, %c, %d, SIGNED :", "%p = stablehlo.compare GT, %d, %c, SIGNED :"
    )
    candidate = parse_module(known, like)
    assert prove(reference, candidate, arguments=[(0, 0)], results=[(0, 0)]).rung is rung


def test_a_value_written_in_two_ways_on_one_side_only_is_reordered(check):
    """The compiler computes it once on the side with equal forms, and fuses it differently on the other."""

    def run(x, y, again):
        later = jnp.where(x >= y, x, y * 2.0) if again == "alike" else jnp.where(y <= x, x, y * 2.0)
        return jnp.where(x >= y, x, y * 2.0) @ y, later + y

    inputs = jnp.ones((4, 4)), jnp.ones((4, 4))
    proof = check(lambda x, y: run(x, y, "alike"), lambda x, y: run(x, y, "otherwise"), inputs)
    assert proof.rung is Verdict.REORDERED and proof.frontier, proof.outcome()
    assert check(
        lambda x, y: run(x, y, "otherwise"), lambda x, y: run(x, y, "otherwise"), inputs
    ).same_program


SUMMED = """module @m { func.func public @main(%x: tensor<3x1xf32>) -> tensor<3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%x init: %zero) across dimensions = [1]
      : (tensor<3x1xf32>, tensor<f32>) -> tensor<3xf32> reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %added = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return RETURNED : tensor<f32>
  }
  return %sum : tensor<3xf32> } }"""
RESHAPED = """module @m { func.func public @main(%x: tensor<3x1xf32>) -> tensor<3xf32> {
  %flat = stablehlo.reshape %x : (tensor<3x1xf32>) -> tensor<3xf32>
  return %flat : tensor<3xf32> } }"""


@pytest.mark.parametrize(("returned", "rung"), [("%added", "proved"), ("%a", "unproved"), ("%b", "unproved")])
def test_a_reducer_that_adds_and_returns_something_else_is_no_sum(returned, rung):
    like = stablehlo_module(jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((), jnp.float32)))
    sides = [parse_module(text, like) for text in (SUMMED.replace("RETURNED", returned), RESHAPED)]
    assert prove(*sides, arguments=[(0, 0)], results=[(0, 0)]).rung == rung


@pytest.mark.parametrize(
    ("start", "rung"),
    [
        *[(start, "proved") for start in ("0.0", "-0.0", "0x00000000", "0x80000000", "1.0e-60")],
        *[(start, "unproved") for start in ("1.0", "0x00000001", "0x80000001", "1.4e-45", "0x7FC00000")],
    ],
)
def test_the_start_of_a_sum_is_read_as_a_value(start, rung):
    like = stablehlo_module(jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((), jnp.float32)))
    summed = SUMMED.replace("RETURNED", "%added").replace("dense<0.0>", f"dense<{start}>")
    sides = [parse_module(text, like) for text in (summed, RESHAPED)]
    assert prove(*sides, arguments=[(0, 0)], results=[(0, 0)]).rung == rung


@pytest.mark.parametrize(
    "side",
    ["%x: tensor<3x1xf32> {k.note = 1 : i32}", "%x: tensor<3x1xf32> {k.note = dense<1> : tensor<1xi32>}"],
)
def test_decisions_do_not_depend_on_printing(side, monkeypatch):
    """A bug in the text of a difference must not make a proof."""
    monkeypatch.setattr("parity.prove.proof.attribute_differences", lambda *sides: ())
    like = stablehlo_module(jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((), jnp.float32)))
    texts = RESHAPED, RESHAPED.replace("@main(%x: tensor<3x1xf32>", f"@main({side}")
    sides = [parse_module(text, like) for text in texts]
    assert not prove(*sides, arguments=[(0, 0)], results=[(0, 0)]).proved
    module = RESHAPED.replace("module @m {", "module @m attributes {k.note = 1 : i32} {")
    sides = [parse_module(text, like) for text in (RESHAPED, module)]
    assert not prove(*sides, arguments=[(0, 0)], results=[(0, 0)]).proved


def test_the_number_of_differing_places_is_reported(check):
    x = jnp.ones((3, 4))
    proof = check(lambda a: (jnp.sin(a), jnp.exp(a)), lambda a: (jnp.cos(a), jnp.tanh(a)), (x,))
    assert len(proof.frontier) == 2 and proof.outcome().endswith("; 2 places differ")
    proof = check(lambda a: jnp.sin(jnp.sin(a)), lambda a: jnp.sin(jnp.cos(a)), (x,))
    assert len(proof.frontier) == 1 and "places differ" not in proof.outcome()


def test_operations_inside_a_reducer_that_rules_remove_are_no_values(check):
    """Both reducers had one number, so that one side seemed to compute a value in two forms."""
    one = lambda x: jnp.where(jnp.all((x > 0)[None], 0), jnp.sum(x[None], 0), 0.5 * x)  # noqa: E731
    other = lambda x: jnp.where(x > 0, jnp.sum(x[None], 0), 0.5 * x)  # noqa: E731
    proof = check(one, other, (jnp.ones((3, 8)),))
    assert proof.proved and "sum-of-one" in proof.rules, proof.outcome()


def test_a_conjunction_of_integers_keeps_its_initial_value(check):
    kept = lambda k: jax.lax.reduce(k[None], jnp.int32(1), jax.lax.bitwise_and, (0,))  # noqa: E731
    assert check(kept, lambda k: k, (jnp.ones((3, 8), jnp.int32),)).rung is Verdict.UNPROVED


def test_a_row_at_an_unknown_place_counts_on_one_device_only():
    """The compiler gathers from a part of an array on each device, and adds up zeros: -0.0 becomes 0.0."""
    step = next(step for step in STEPS if step.name == "row at a remainder, by dynamic_slice or take")
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("data",))
    placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    assert compare(step.one, step.other)[2].proved
    assert not compare(step.one, step.other, placed)[2].proved
