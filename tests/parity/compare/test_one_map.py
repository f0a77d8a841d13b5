"""One weight map for all programs of two builds; a guess supports a verdict only once something confirms it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.builds.weights.map import Rule
from parity.cases.case import Case, Placement
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Doubt, Verdict

# B batch, D width
B, D = 5, 4
REPLICATED = jax.sharding.PartitionSpec()


def build(name, leaves, programs, group="values"):
    """A model of square matrices; each program is a function of them in the order of ``leaves``."""

    def made(function):
        def run(state, inputs):
            out = function(inputs["x"], *(state["params"][leaf] for leaf in leaves))
            return {group: out if isinstance(out, dict) else {"out": out}}

        return run

    def create(key):
        keys = jax.random.split(key, len(leaves))
        return {
            "params": {leaf: jax.random.normal(one, (D, D)) for leaf, one in zip(leaves, keys, strict=True)}
        }

    return linen_build(
        name,
        create,
        {program: (made(function), {}) for program, function in programs.items()},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def forward(x, one, two):
    return jnp.tanh(x @ one) @ two


def swapped(x, one, two):
    return forward(x, two, one)


def outcome(reference, candidate, program="forward", **rest):
    case = Case(
        id=f"toy/{program}@single",
        reference=lambda: reference,
        candidate=lambda: candidate,
        program=program,
        **rest,
    )
    return run_case(case, Session())


REFERENCE = build("reference", ("one", "two"), {"forward": forward, "decode": forward})


@pytest.mark.parametrize("program", ["forward", "decode"])
def test_programs_that_demand_different_maps_are_a_finding_in_each_of_them(program):
    """No checkpoint serves a candidate whose decode exchanges its two matrices."""
    candidate = build("candidate", ("left", "right"), {"forward": forward, "decode": swapped})
    result = outcome(REFERENCE, candidate, program)
    assert result.verdict == "failed"
    sentence = result.sentence()
    assert "decode uses it as params/right" in sentence and "forward uses it as params/left" in sentence


@pytest.mark.parametrize("program", ["forward", "decode"])
def test_names_that_only_use_identifies_are_paired_for_all_programs(program):
    candidate = build("candidate", ("b", "a"), {"forward": forward, "decode": forward})
    result = outcome(REFERENCE, candidate, program)
    assert result.verdict == "passed" and result.channels["program"].verdict is Verdict.PROVED


def test_a_candidate_that_exchanges_leaves_of_related_names_fails():
    """Its use alone would pair first with two_w and hide the exchange, even from a proof."""
    reference = build("reference", ("first", "two"), {"forward": forward})
    straight, exchanged = (
        build("candidate", names, {"forward": forward})
        for names in (("first_w", "two_w"), ("two_w", "first_w"))
    )
    assert outcome(reference, straight).channels["program"].verdict is Verdict.PROVED
    found = outcome(reference, exchanged)
    assert {found.channels[name].verdict for name in ("tree", "values")} == {Verdict.FAILED}
    (finding,) = found.channels["tree"].findings
    assert "params/first_w: reference params/first" in finding.sentence()
    assert "although the programs use it like two_w" in finding.sentence()
    rules = tuple(
        Rule(reference=(one,), candidate=(other,)) for one, other in (("first", "two_w"), ("two", "first_w"))
    )
    assert outcome(reference, exchanged, rules=rules).verdict == "passed"  # if the names mislead


@pytest.mark.parametrize("program", ["average", "forward"])
def test_leaves_are_paired_in_the_order_of_the_program_that_uses_most(program):
    def chain(x, last, one, two, three):
        return jnp.tanh(jnp.tanh(x @ one) @ two) @ three

    def slower(x, last, one, two, three):
        return chain(x * 3.0, last, one, two, three) + 1.0

    def average(x, last, one, two, three):
        return x @ last

    reference = build("reference", ("mean", "q", "r", "s"), {"average": average, "forward": chain})
    candidate = build("candidate", ("mean", "z", "y", "x"), {"average": average, "forward": slower})
    work = Evidence.of(
        Case(id="toy", reference=lambda: reference, candidate=lambda: candidate, program=program), Session()
    )
    pairs = {entry.reference[0]: entry.candidate[0] for entry in work.weights.entries}
    names = {"mean": "mean", "q": "z", "r": "y", "s": "x"}
    assert pairs == {f"params/{one}": f"params/{other}" for one, other in names.items()}


@pytest.mark.parametrize("group", ["values", "gradients"])
@pytest.mark.parametrize("looped", [False, True])
def test_leaves_are_paired_by_the_operations_that_process_them_before_the_order_of_statements(looped, group):
    """Also in a loop, and probed where the program returns gradients only."""

    def waves(x, one, two):
        side = jnp.sin(x @ one)
        return side * jnp.exp(x @ two + 0.5)

    def reordered(x, left, right):
        main = jnp.exp(jnp.einsum("bd,de->eb", x, right).T + 0.5)
        return main * jnp.sin(jnp.einsum("bd,de->eb", x, left).T)

    def in_loop(function):
        def run(x, *leaves):
            def step(carry, _):
                return carry + function(x, *leaves), None

            return (
                jax.lax.scan(step, jnp.zeros((B, D)), None, length=3)[0] if looped else function(x, *leaves)
            )

        return run

    made = (("reference", ("a", "b"), waves), ("candidate", ("u", "v"), reordered))
    sides = [build(name, leaves, {"forward": in_loop(each)}, group) for name, leaves, each in made]
    result = outcome(*sides)
    assert result.verdict == "passed", result.sentence()
    tree = result.channels["tree"]
    assert "2 guessed" in tree.detail and "probed" in tree.detail


def test_a_factor_on_either_of_two_leaves_does_not_pair_them_crosswise():
    def of_first(x, one, two):
        return jax.nn.softmax(jnp.einsum("bd,cd->bc", 0.5 * (x @ one), x @ two)) @ (x @ one)

    def of_second(x, one, two):
        return jax.nn.softmax(jnp.einsum("bd,cd->bc", x @ one, 0.5 * (x @ two))) @ (x @ one)

    sides = [
        build(name, leaves, {"forward": program})
        for name, leaves, program in (
            ("reference", ("a", "b"), of_first),
            ("candidate", ("u", "v"), of_second),
        )
    ]
    pairs = {
        entry.reference[0]: entry.candidate[0]
        for entry in Evidence.of(
            Case(id="toy", reference=lambda: sides[0], candidate=lambda: sides[1], program="forward"),
            Session(),
        ).weights.entries
    }
    assert pairs == {"params/a": "params/u", "params/b": "params/v"}


def test_one_rule_may_pair_several_leaves_one_to_one():
    rule = Rule(reference=("one", "two"), candidate=("b", "a"))
    programs = {"forward": forward}
    reference = build("reference", ("one", "two"), programs)
    result = outcome(reference, build("candidate", ("b", "a"), programs), rules=(rule,))
    assert result.verdict == "passed" and result.channels["program"].verdict is Verdict.PROVED
    other = outcome(reference, build("candidate", ("a", "b"), programs), rules=(rule,))
    assert other.verdict == "failed" and other.channels["values"].verdict is Verdict.FAILED


def test_a_map_is_inferred_once_for_all_cases_of_two_builds():
    candidate, bench = build("candidate", ("b", "a"), {"forward": forward, "decode": forward}), Session()
    works = [
        Evidence.of(
            Case(id=name, reference=lambda: REFERENCE, candidate=lambda: candidate, program=name), bench
        )
        for name in ("forward", "decode")
    ]
    assert works[0].weights is works[1].weights


def test_a_map_goes_by_both_builds_and_by_the_rules():
    """A session shares maps: that of another candidate, or under other rules, pairs other leaves."""
    session, programs = Session(), {"forward": forward}
    wanted = {
        (("b", "a"), ()): ("params/b", "params/a"),
        (("a", "b"), ()): ("params/a", "params/b"),
        (("b", "a"), (Rule(reference=("one", "two"), candidate=("a", "b")),)): ("params/a", "params/b"),
    }
    candidates = {names: build("candidate", names, programs) for names, _ in wanted}
    for (names, rules), leaves in wanted.items():
        candidate = candidates[names]
        case = Case(
            id="toy/forward@single",
            reference=lambda: REFERENCE,
            candidate=lambda candidate=candidate: candidate,
            program="forward",
            rules=rules,
        )
        weights = Evidence.of(case, session).weights
        found = {
            old: new
            for each in weights.entries
            for old, new in zip(each.reference, each.candidate, strict=True)
        }
        assert (found["params/one"], found["params/two"]) == leaves


def test_a_program_that_differs_does_not_hide_the_findings_of_others():
    """A bug in decode changes its use of leaves; forward alone determines the map, and decode fails by its values."""
    wrong = {"forward": forward, "decode": lambda x, one, two: jnp.sin(x @ one) @ two}
    candidate = build("candidate", ("b", "a"), wrong)
    assert outcome(REFERENCE, candidate, "forward").verdict == "passed"
    failed = outcome(REFERENCE, candidate, "decode")
    assert failed.channels["tree"].verdict is Verdict.EQUAL
    assert failed.channels["values"].verdict is Verdict.FAILED


def differing(x, one, two):
    """Different operations from `forward`, so that use determines nothing, and the same numbers."""
    return jax.lax.pow(jnp.tanh(jax.lax.pow(x, jnp.float32(1.0)) @ one), jnp.float32(1.0)) @ two


def test_a_guess_is_shown_and_probed_if_nothing_is_proved():
    right = build("candidate", ("bone", "twin"), {"forward": differing})
    tree = outcome(build("reference", ("one", "two"), {"forward": forward}), right).channels["tree"]
    assert tree.verdict is Verdict.EQUAL
    assert tree.detail.startswith("2 guessed, such as params/one with params/bone, probed")


def test_a_wrong_guess_is_named_by_its_leaves():
    """Related names pair one with a matrix that the candidate uses as two."""
    wrong = build("candidate", ("two_b", "one_b"), {"forward": differing})
    tree = outcome(build("reference", ("one", "two"), {"forward": forward}), wrong).channels["tree"]
    assert tree.verdict is Verdict.FAILED
    (first, *_) = tree.findings
    assert (first.doubts, first.leaf) == ((Doubt.GUESS,), "params/one")
    assert "params/one_b: reference params/one, candidate paired by related name" in first.sentence()


def test_a_guess_is_open_if_outputs_differ_for_another_reason():
    right = build("candidate", ("bone", "twin"), {"forward": lambda *given: 1.1 * differing(*given)})
    tree = outcome(build("reference", ("one", "two"), {"forward": forward}), right).channels["tree"]
    assert tree.verdict is Verdict.OPEN and not tree.findings
    assert (
        "2 guessed, such as params/one with params/bone, confirmed by nothing while outputs differ"
        in tree.detail
    )


def test_noise_of_one_output_hides_no_wrong_guess_of_another():
    def noisy(function):
        return lambda x, one, two: {"out": function(x, one, two), "noise": 1e3 * jnp.sin(1e8 * x)}

    wrong = build("candidate", ("two_b", "one_b"), {"forward": noisy(differing)})
    tree = outcome(build("reference", ("one", "two"), {"forward": noisy(forward)}), wrong).channels["tree"]
    assert tree.verdict is Verdict.FAILED and tree.findings[0].leaf == "params/one"


def test_outputs_of_one_side_only_do_not_stop_the_probe():
    def named(function, name):
        return lambda x, one, two: {"out": function(x, one, two), name: x @ one}

    right = build("candidate", ("bone", "twin"), {"forward": named(differing, "b")})
    result = outcome(build("reference", ("one", "two"), {"forward": named(forward, "a")}), right)
    assert (
        result.channels["tree"].verdict is Verdict.EQUAL
        and result.channels["values"].verdict is Verdict.FAILED
    )


def test_a_guess_that_nothing_can_confirm_blocks():
    candidate = build("candidate", ("bone", "twin"), {"forward": differing})
    reference = build("reference", ("one", "two"), {"forward": forward})
    case = Case(
        id="toy/forward@single",
        reference=lambda: reference,
        candidate=lambda: candidate,
        program="forward",
        placement=Placement(backend="lower:v5p:2x2x1"),
    )
    tree = run_case(case, Session(), ("tree",)).channels["tree"]
    assert tree.verdict is Verdict.OPEN and "confirmed by nothing here" in tree.detail
