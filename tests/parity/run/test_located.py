"""A failure that the proof does not place: the run searches by values, and its first line names the place."""

import dataclasses

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from flax import linen, nnx

import parity
from parity.bisect.report import bisect_case
from parity.builds.weights.transforms import Concat
from parity.channels.loops import DRAWN, STACKED
from parity.compare.origin import evaluated, operation
from parity.compare.origin.result import SearchResult
from parity.compare.session import Session
from parity.prove.grade import SETTING
from parity.report.assertion import TwinsDifferError
from parity.report.table import notes_text
from parity.run import run
from parity.run.explain import explain
from parity.run.record import CaseResult
from parity.run.request import Request
from parity.run.run import case_runner
from parity.verdicts import BLOCKING, ChannelResult, Doubt, Finding, Verdict, plain


def share(h):
    e = jnp.exp(h - h.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Left(linen.Module):
    @linen.compact
    def __call__(self, x):
        return self.end(share(linen.Dense(6, name="first")(x)))

    def end(self, h):
        return jnp.tanh(3.0 * h)


class Right(nnx.Module):
    """Another factor and, before it, a softmax that the proof does not follow."""

    def __init__(self, rngs, softmax=None):
        self.first, self.softmax = nnx.Linear(5, 6, rngs=rngs), softmax or self.weigh

    def __call__(self, x):
        return self.finish(self.softmax(self.first(x)))

    @staticmethod
    def weigh(h):
        return jnp.exp(h - jax.nn.logsumexp(h, -1, keepdims=True))

    def finish(self, h):
        return jnp.tanh(2.5 * h)


def batch(seed):
    return {"x": np.random.default_rng(seed).normal(size=(4, 5)).astype("float32")}


def case(softmax=None, linen=Left, nnx=None):
    pair = parity.twins(
        "two",
        linen=linen,
        nnx=nnx or (lambda rngs: Right(rngs, softmax)),
        inputs=batch,
        loss=lambda out, batch: out.sum(),
        programs=("forward",),
    )
    return pair.cases({})[0]


def line(result):
    assert result.explanation is not None
    return result.explanation.line


def forbidden(*arguments):
    raise AssertionError("a search by values")


def test_the_first_line_names_the_place_that_values_show():
    result = case_runner(Request())(case())
    assert "test_located.py" in line(result) and "in Left.end, candidate " in line(result)
    assert line(result).startswith(
        "program differs: values of one batch differ first at mul (forward): reference "
    )
    assert "in Right.finish (operand 0: 3 against 2.5); " in line(result)
    found = msgspec.convert(plain(result), CaseResult).explanation
    assert found is not None and found.line == line(result)
    assert not any("without a counterpart" in text for text in found.rest)  # harmless, if anything
    assert "differ first" not in notes_text(result)
    with pytest.raises(TwinsDifferError, match="program differs: values of one batch differ first at mul"):
        parity.assert_twins(Left(), Right(nnx.Rngs(0)), batch(0), programs=("forward",))


def test_bisect_says_the_same_and_evaluates_nothing_again(monkeypatch):
    evaluations = []
    evaluate = evaluated.evaluate
    monkeypatch.setattr(
        evaluated, "evaluate", lambda *given, **more: evaluations.append(1) or evaluate(*given, **more)
    )
    session, failing = Session(), case()
    result = run.run_case(failing, session)
    times = len(evaluations)
    report = bisect_case(failing, ("op",), result=result, bench=session)
    assert times and len(evaluations) == times
    located = result.channels["program"].located
    assert located is not None and located.sentence().endswith(report.axes[0].sentence)


def test_only_a_failure_without_a_place_is_searched(monkeypatch):
    monkeypatch.setattr(operation, "locate", forbidden)
    result = run.run_case(case(share), Session())
    assert line(result).startswith("program failed: multiply (operand 0: 3 against 2.5): reference ")
    assert not run.run_case(case(), Session(), ("values",)).channels["values"].notes
    (note,) = run.run_case(case(), Session()).channels["program"].notes
    assert "a search by values" in note.candidate


@pytest.mark.parametrize("error", [ValueError("no luck"), None], ids=["error", "time"])
def test_a_search_without_a_result_leaves_the_first_line(monkeypatch, error):
    if error is None:
        monkeypatch.setattr(run, "SEARCH_SECONDS", 0.0)
    else:
        monkeypatch.setattr(operation, "locate", lambda *given: (_ for _ in ()).throw(error))
    result = run.run_case(case(), Session())
    assert line(result).startswith("program differs: not sure, operations without a counterpart: ")
    assert line(result).endswith("next: parity bisect two/forward@single")
    (note,) = result.channels["program"].notes
    assert ("no luck" if error else "TimeoutError: exceeded 0 s") in note.candidate


def test_an_interrupt_ends_the_search_and_the_run(monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(operation, "locate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run_case(case(), Session())


class Shifted(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = linen.Dense(6, name="first")(x) + 0.5 * jnp.log(jnp.float32(17.0794678))
        return self.end(h)

    def end(self, h):
        return jnp.tanh(h) * (1 - jnp.exp(h))


class Moved(nnx.Module):
    """An equal constant, written as a number, before another function."""

    def __init__(self, rngs):
        self.first = nnx.Linear(5, 6, rngs=rngs)

    def __call__(self, x):
        return self.finish(self.first(x) + 1.41893852)

    def finish(self, h):
        return jnp.tanh(h) * (1 + jnp.exp(h))


def test_constants_that_may_be_equal_are_no_cause():
    with pytest.raises(TwinsDifferError) as caught:
        parity.assert_twins(Shifted(), Moved(nnx.Rngs(0)), batch(0), programs=("forward",))
    (result,) = caught.value.results
    assert "in Shifted.end, called at " in line(result) and "in Moved.finish" in line(result), line(result)


class Rotated(linen.Module):
    @linen.compact
    def __call__(self, x):
        return x[..., :3] * linen.Dense(3)(x) * np.sin(np.arange(12.0).reshape(4, 3)).astype("float32")


class Turned(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x):
        return x[..., :3] * self.dense(x) * np.sin(1.1 * np.arange(12.0).reshape(4, 3)).astype("float32")


def test_a_table_made_with_numpy_is_named_by_its_users():
    with pytest.raises(TwinsDifferError) as caught:
        parity.assert_twins(Rotated(), Turned(nnx.Rngs(0)), batch(0), programs=("forward",))
    words = "(operand 1: another table of constants, made outside the program): reference "
    (result,) = caught.value.results
    assert line(result).startswith(f"program differs: multiply {words}")
    assert "in Rotated.__call__, candidate " in line(result) and "in Turned.__call__; " in line(result)
    twins = case(linen=Rotated, nnx=Turned)
    by_values = operation.locate(twins, Session(), "values").sentence
    assert "in Rotated.__call__, candidate " in by_values
    assert "in Turned.__call__ (operand 1: another table of constants, made outside the program)" in by_values


def waves(factor):
    return np.sin(factor * np.arange(12.0).reshape(4, 3)).astype("float32")


class Rolled(linen.Module):
    @linen.compact
    def __call__(self, x):
        return x[..., :3] * linen.Dense(3)(x) * waves(1.2)


def test_the_function_that_makes_a_table_is_named():
    with pytest.raises(TwinsDifferError) as caught:
        parity.assert_twins(Rolled(), Turned(nnx.Rngs(0)), batch(0), programs=("forward",))
    (result,) = caught.value.results
    assert "in Rolled.__call__, with a constant from " in line(result) and " in waves, candidate " in line(
        result
    )


class Near(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.stack([jnp.tanh(linen.Dense(3)(x)).mean() / 4.0, 1e6 * jnp.exp(x).sum()])


class NearTheSum(nnx.Module):
    """Another divisor of the small one of two numbers."""

    def __init__(self, rngs):
        self.dense = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x):
        return jnp.stack([jnp.tanh(self.dense(x)).mean() / 4.004, 1e6 * jnp.exp(x).sum()])


def test_an_entry_much_smaller_than_another_one_is_searched():
    found = operation.locate(case(linen=Near, nnx=NearTheSum), Session(), "values")
    assert found.found and "in Near.__call__, candidate " in found.sentence, found.sentence
    assert "(operand 1: 4 against 4.004)" in found.sentence


def whitened(h):
    return h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-12)


class Fourth(linen.Module):
    @linen.compact
    def __call__(self, x):
        return whitened(self.centred(linen.Dense(6, name="first")(x)) / 4.0)

    def centred(self, h):
        return h - h.mean(-1, keepdims=True)


class Ninth(nnx.Module):
    """Centres by a product, which the proof does not follow, and divides by another number, which `whitened` hides."""

    def __init__(self, rngs):
        self.first = nnx.Linear(5, 6, rngs=rngs)

    def __call__(self, x):
        return whitened(self.first(x) @ (jnp.eye(6) - 1 / 6) / 9.0)


def test_a_difference_on_stress_inputs_only_is_searched_there():
    pair = parity.twins(
        "ends", linen=Fourth, nnx=Ninth, inputs=batch, loss=lambda out, b: out.sum(), programs=("forward",)
    )
    result = run.run_case(pair.cases({})[0], Session())
    assert result.channels["values"].detail.startswith("floor on the usual batch")
    assert "values of one batch differ first at div (forward): reference " in line(result)
    assert "in Fourth.__call__, candidate " in line(result)
    assert "(operand 1: 4 against 9)" in line(result)


def test_a_key_that_is_drawn_from_twice_comes_before_the_values_that_follow():
    def result(name, verdict, where, **rest):
        finding = Finding(where=where, reference="a.py:1 in a", candidate="b.py:2 in b", **rest)
        return ChannelResult(name=name, verdict=verdict, findings=(finding,))

    program, values = result("program", Verdict.UNPROVED, "add"), result("values", Verdict.FAILED, "loss")
    both = (Doubt.HARMLESS,)  # both sides draw so
    for leaf, doubts, first in (("", (), "rng"), ("w", (), "program"), ("", both, "program")):
        rng = result("rng", Verdict.FAILED, "draw", leaf=leaf, doubts=doubts)
        found = explain("case", {one.name: one for one in (program, values, rng)})
        assert found is not None and found.channel == first


@pytest.mark.parametrize(
    ("cause", "first"), [(DRAWN, "program"), (STACKED, "program"), ("unrolled", "loops")]
)
def test_loops_of_random_bits_or_of_other_gradients_are_no_cause_of_numbers(cause, first):
    """They follow from the draws or values, as the numbers do; a search by values finds the place."""
    values = ChannelResult(name="values", verdict=Verdict.FAILED)
    places = {"program": ("", "", ""), "loops": ("a.py:1 in a", "none", f"random bits that one side {cause}")}
    program, loops = (
        ChannelResult(
            name=name,
            verdict=Verdict.UNPROVED if name == "program" else Verdict.FAILED,
            findings=(Finding(where=name, reference=left, candidate=right, cause=why),),
        )
        for name, (left, right, why) in places.items()
    )
    found = explain("case", {one.name: one for one in (program, values, loops)})
    assert found is not None and found.channel == first


class Mixing(linen.Module):
    @linen.compact
    def __call__(self, h, shift):
        return self.weighed(linen.Dense(6, name="first")(h), shift)

    def weighed(self, h, shift):
        return jax.nn.softmax(h + shift)


class Displaced(linen.Module):
    @linen.compact
    def __call__(self, x):
        shift = self.shift(x)
        return jnp.tanh(Mixing(name="mixing")(x, shift)) - shift

    def shift(self, x):
        return jnp.where(x[:, :1] > 0, 0.0, -3.0) * jnp.arange(6.0)[None]


class MixingNnx(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(5, 6, rngs=rngs)

    def __call__(self, h, shift):
        return jax.nn.softmax(self.first(h) + shift)


class Plain(nnx.Module):
    def __init__(self, rngs):
        self.mixing = MixingNnx(rngs)

    def __call__(self, x):
        return jnp.tanh(self.mixing(x, 0.0)) - Displaced.shift(self, x)


def test_an_argument_of_a_caller_is_named_by_the_line_that_makes_it():
    result = run.run_case(case(linen=Displaced, nnx=Plain), Session())
    assert "a value made at tests/parity/run/test_located.py:" in line(result)
    assert " in Displaced.shift against 0.0" in line(result)
    assert "in Mixing.weighed, called at" in line(result) and "in MixingNnx.__call__, called at" in line(
        result
    )


def test_a_place_by_values_leads_also_if_it_is_not_sure(monkeypatch):
    locate = operation.locate

    def unsure(*given):
        found = locate(*given)
        facts = {**found.facts, "suspects": [], "doubt": "because a caller may be"}
        return dataclasses.replace(found, found=False, facts=facts)

    monkeypatch.setattr(operation, "locate", unsure)
    text = line(run.run_case(case(), Session()))
    assert text.startswith("program differs: values of one batch differ first at mul (forward): reference ")
    assert "; not sure of the cause, because a caller may be; next: " in text


class Two(linen.Module):
    """Two layers where `Fused` has one."""

    @linen.compact
    def __call__(self, x):
        one, two = (linen.Dense(3, name=name)(x) + self.shift(x) for name in ("one", "two"))
        return jnp.tanh(one) * linen.sigmoid(two)

    def shift(self, x):
        return 2.0 * x[:, :1]


class Fused(nnx.Module):
    def __init__(self, rngs):
        self.both = nnx.Linear(5, 6, rngs=rngs)

    def __call__(self, x):
        one, two = jnp.split(self.both(x) + self.moved(x), 2, -1)
        return jnp.tanh(one) * jax.nn.sigmoid(two)

    def moved(self, x):
        return 2.5 * x[:, :1]


def fused(candidate="both/"):
    """A case whose weight rules join two layers."""
    rules = [
        parity.Rule(
            reference=(f"one/{leaf}", f"two/{leaf}"),
            candidate=(f"{candidate}{leaf}",),
            transform=Concat(axis=-1, sizes=(3, 3)),
        )
        for leaf in ("kernel", "bias")
    ]
    pair = parity.twins(
        "fused",
        linen=Two,
        nnx=Fused,
        inputs=batch,
        loss=lambda out, batch: out.sum(),
        weight_rules=rules,
        programs=("forward",),
    )
    return pair.cases({})[0]


def test_a_product_with_a_joined_weight_is_no_difference():
    result = run.run_case(fused(), Session())
    assert "in Two.shift, candidate " in line(result) and "in Fused.moved" in line(result), line(result)


def test_a_rule_that_pairs_nothing_comes_before_the_leaves_that_it_leaves():
    found = line(run.run_case(fused("joint/"), Session()))
    assert found.startswith(
        "tree failed: weight rule one/kernel, two/kernel -> joint/kernel: it pairs one/kernel, but"
    )


def lost(*given):
    raise TimeoutError


ELSEWHERE = Finding(where="mul (forward)", reference="a.py:3 in scale", candidate="b.py:4 in scale")
LOCATED = {
    "lost": None,
    "unsure": SearchResult(
        axis="op", sentence="", found=False, finding=ELSEWHERE, facts={"doubt": "because"}
    ),
    "sure": SearchResult(axis="op", sentence="", found=True, finding=ELSEWHERE),
}


@pytest.mark.parametrize("searched", LOCATED)
def test_a_setting_of_a_library_is_the_cause_unless_values_show_another_place(monkeypatch, searched):
    monkeypatch.setattr(operation, "locate", lambda *given: LOCATED[searched] or lost())
    setting = Finding(
        where="minimum (operand 0: 2 against 1)",
        reference="a.py:7 in step",
        candidate="b.py:9 in step",
        cause=SETTING,
        doubts=(Doubt.NUMBERS,),
    )
    results = {
        "program": ChannelResult(name="program", verdict=Verdict.UNPROVED, findings=(setting,)),
        "values": ChannelResult(name="values", verdict=Verdict.FAILED, findings=(setting,)),
    }
    found = explain("two/forward", run._located(results, case(), Session()))
    assert found is not None
    place = "mul (forward)" if searched == "sure" else "minimum (operand 0: 2 against 1)"
    assert place in found.line and ("not sure" in found.line) is (searched == "lost"), found.line


MIXED = np.random.default_rng(2).normal(size=(3, 3)).astype("float32")


def stepped(errors, first):
    """Returns a side of plain functions; products in another order, so that numbers must decide."""
    optimizer = optax.apply_if_finite(optax.sgd(0.1), max_consecutive_errors=errors)

    def create(key):
        weights = {"w": jax.random.normal(key, (5, 3))}
        return {"params": weights, "opt_state": optimizer.init(weights)}

    def step(state, batch):
        def loss(weights):
            x = batch["x"] @ weights["w"]
            return jnp.sum(jnp.square(x @ MIXED if first else batch["x"] @ (weights["w"] @ MIXED)))

        value, grads = jax.value_and_grad(loss)(state["params"])
        updates, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, {
            "loss": value
        }

    return parity.CustomSide(create=create, programs={"train_step": step}, flavour=parity.Flavour.LINEN)


@pytest.mark.parametrize("errors", [2, 5])
def test_another_setting_of_a_library_fails_though_no_number_shows_it(errors):
    pair = parity.twin_programs("steps", linen=stepped(2, True), nnx=stepped(errors, False), inputs=batch)
    result = run.run_case(pair.cases({})[0], Session())
    assert result.channels["state"].verdict not in BLOCKING
    if errors == 2:
        assert result.channels["program"].verdict is Verdict.UNPROVED
    else:
        assert "2 against 5)" in line(result) and line(result).startswith("program failed: ")


def failed(name, *findings, verdict=Verdict.FAILED):
    return ChannelResult(name=name, verdict=verdict, detail=name, findings=findings)


def test_a_side_that_cannot_be_traced_comes_before_leaves_without_a_partner():
    error = failed(
        "program",
        Finding(where="nnx toy, trace", reference="", candidate="ValueError", traceback="Traceback"),
        verdict=Verdict.ERROR,
    )
    tree = failed("tree", Finding(where="params/w", reference="float32[3]", candidate="no such leaf"))
    found = explain("toy/forward@single", {"tree": tree, "program": error})
    assert found is not None and found.channel == "program"


@pytest.mark.parametrize(("names", "first"), [("logical axes ('embed',)", "tree"), ("float32[3]", "program")])
def test_an_error_of_shardings_follows_from_other_axes(names, first):
    error = failed(
        "program",
        Finding(
            where="nnx toy, trace",
            reference="",
            candidate="IndivisibleError: Sharding P(None)",
            traceback="Traceback",
        ),
        verdict=Verdict.ERROR,
    )
    tree = failed("tree", Finding(where="params/w", reference=names, candidate="logical axes None"))
    found = explain("toy/forward@single", {"tree": tree, "program": error})
    assert found is not None and found.channel == first


@pytest.mark.parametrize(("doubts", "first"), [((Doubt.HARMLESS,), "program"), ((), "dots")])
def test_an_operation_of_one_side_in_other_types_is_no_cause_of_numbers(doubts, first):
    dots = failed("dots", Finding(where="log", reference="bf16", candidate="none", doubts=doubts))
    values = failed("values", Finding(where="loss", reference="1", candidate="2"))
    program = failed(
        "program", Finding(where="add", reference="a.py:1 in a", candidate=""), verdict=Verdict.UNPROVED
    )
    found = explain("toy/forward@single", {"program": program, "values": values, "dots": dots})
    assert found is not None and found.channel == first


@pytest.mark.parametrize(("doubts", "channel"), [((Doubt.HARMLESS,), "program"), ((), "retrace")])
def test_a_type_that_is_only_weak_explains_no_number(doubts, channel):
    results = {
        "program": failed(
            "program", Finding(where="argument", reference="", candidate=""), verdict=Verdict.UNPROVED
        ),
        "values": failed("values", Finding(where="loss", reference="1", candidate="2")),
        "retrace": failed(
            "retrace", Finding(where="w", reference="stable", candidate="takes", doubts=doubts)
        ),
    }
    found = explain("toy/train_step@single", results)
    assert found is not None and found.channel == channel
