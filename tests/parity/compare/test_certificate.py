"""The certificate: perturbing one leaf on both sides must change both outputs equally."""

import io
import itertools

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from flax import linen, nnx
from rich.console import Console

import parity
from parity.builds.build import linen_build
from parity.builds.tree import Role
from parity.builds.weights.map import MapError, normalise
from parity.cases.case import Case
from parity.channels import CHANNELS
from parity.compare.certificate import certify, export
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.side import Side
from parity.report.formats.annotations import annotations
from parity.report.formats.html import html
from parity.report.formats.junit import junit
from parity.report.formats.markdown import markdown
from parity.report.table import print_table
from parity.run.explain import explain
from parity.run.record import CaseResult, Report
from parity.run.run import run_case
from parity.verdicts import Verdict, plain

# B batch, D embed, F hidden
B, D, F = 8, 6, 10
REPLICATED = jax.sharding.PartitionSpec()


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, D)).astype("float32") for name in ("x", "y")}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


class LinenGated(linen.Module):
    @linen.compact
    def __call__(self, x):
        gate, up, down = (
            linen.Dense(size, name=name) for name, size in (("gate", F), ("up", F), ("down", D))
        )
        return down(jax.nn.silu(gate(x)) * up(x))


class NnxGated(nnx.Module):
    """``used`` are the attributes that act as gate and up."""

    def __init__(self, rngs, used=("gate", "up")):
        self.gate, self.up = nnx.Linear(D, F, rngs=rngs), nnx.Linear(D, F, rngs=rngs)
        self.down = nnx.Linear(F, D, rngs=rngs)
        self.used = used

    def __call__(self, x):
        gate, up = (getattr(self, name) for name in self.used)
        return self.down(jax.nn.silu(gate(x)) * up(x))


class NnxUnproved(NnxGated):
    """Gives equal bits by a different program, so that the probe decides."""

    def __call__(self, x):
        return jax.lax.pow(super().__call__(x), jnp.float32(1.0))


class LinenUnused(LinenGated):
    @linen.compact
    def __call__(self, x):
        self.param("spare", linen.initializers.ones, (D,))
        return super().__call__(x)


class NnxUnused(NnxUnproved):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.spare = nnx.Param(jnp.ones(D))


class LinenLarge(LinenGated):
    """Its outputs are so large that their rounding is a hundredth of what a parameter moves them."""

    @linen.compact
    def __call__(self, x):
        return super().__call__(x) + 1e4


class NnxLarge(NnxGated):
    def __call__(self, x):
        return super().__call__(x) * (1 + 2.0**-12) + 1e4


def comparison(linen_module=LinenGated, nnx_module=NnxGated, program="forward", **options):
    pair = parity.twins("gated", linen=linen_module, nnx=nnx_module, inputs=inputs, loss=loss, **options)
    case = next(case for case in pair.cases({}) if case.program == program)
    return Evidence.of(case, Session())


def parameters(work):
    """Returns ``{leaf: certified}`` of the parameters."""
    found = [one for one in certify(work) if one.role is Role.PARAMS]
    return {normalise(one.reference[0]): one for one in found}


def crossed():
    return [
        parity.Rule(reference=(rf"(.*){name}/(kernel|bias)",), candidate=(rf"\1{other}/\2",))
        for name, other in (("gate", "up"), ("up", "gate"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["forward", "grad", "train_step"])
def test_without_a_proof_the_probe_confirms_parameter_by_parameter(program):
    work = comparison(nnx_module=NnxUnproved, program=program)
    found = certify(work)
    assert len(found) == len(work.weights.entries) > 6
    for one in found:
        expected = "probe" if one.role is Role.PARAMS else "one-to-one"
        assert (one.confirmed_by, one.contradicted) == (expected, False)


@pytest.mark.parametrize("program", ["forward", "train_step"])
def test_a_proof_confirms_what_the_program_reads_and_runs_nothing(program, monkeypatch):
    monkeypatch.setattr(Side, "run", None)
    found = certify(comparison(program=program))
    read = {one.role for one in found if one.confirmed_by == "proof"}
    assert read == {Role.PARAMS} | ({Role.OPTIMIZER} if program == "train_step" else set())
    assert {one.confirmed_by for one in found if one.role is Role.PARAMS} == {"proof"}
    assert not any(one.contradicted for one in found)


@pytest.mark.slow
def test_a_swap_of_gate_and_up_is_contradicted():
    """Names, shapes and dtypes all fit; only their use distinguishes the two."""
    found = parameters(comparison(nnx_module=lambda rngs: NnxGated(rngs, used=("up", "gate"))))
    assert all(one.matched_by == "name" for one in found.values())
    for name in ("gate/kernel", "up/kernel", "gate/bias", "up/bias"):
        assert found[name].contradicted and "change differently" in found[name].confirmed_by
    assert not found["down/bias"].contradicted


@pytest.mark.slow
def test_rounding_of_large_outputs_contradicts_nothing():
    found = parameters(comparison(LinenLarge, NnxLarge))
    assert {name: one.confirmed_by for name, one in found.items()} == dict.fromkeys(found, "probe")
    crossed = parameters(comparison(LinenLarge, lambda rngs: NnxLarge(rngs, used=("up", "gate"))))
    assert crossed["gate/kernel"].contradicted


def test_swapped_names_with_a_rule_for_it_are_confirmed():
    found = parameters(
        comparison(nnx_module=lambda rngs: NnxGated(rngs, used=("up", "gate")), weight_rules=crossed())
    )
    assert {name: one.contradicted for name, one in found.items()} == dict.fromkeys(found, False)
    assert found["gate/kernel"].candidate == ("model/up/kernel",)


@pytest.mark.slow
def test_a_rule_that_swaps_equal_leaves_is_contradicted():
    found = parameters(comparison(weight_rules=crossed()))
    assert found["gate/kernel"].contradicted and found["up/kernel"].contradicted


@pytest.mark.slow
def test_a_leaf_that_moves_nothing_is_not_confirmed():
    found = parameters(comparison(LinenUnused, NnxUnused))
    assert "do not depend on it" in found["spare"].confirmed_by
    assert not any(one.contradicted for one in found.values())


def test_without_a_total_map_there_is_no_certificate():
    with pytest.raises(MapError, match="spare"):
        certify(comparison(LinenUnused, NnxGated))


@pytest.mark.slow
def test_the_state_of_the_comparison_is_left_alone():
    work = comparison(nnx_module=NnxUnproved)
    before = {path: array.tobytes() for path, array in work.state.items()}
    certify(work)
    assert {path: array.tobytes() for path, array in work.state.items()} == before


# --- leaves that the program uses in the same way ---


def unread(w, one, two, x):
    return jnp.tanh(x @ w), one, two


def added(w, one, two, x):
    return jnp.tanh(x @ w) * (one + two)[None], one, two


def averaged(w, one, two, x):
    return jnp.tanh(x @ w), one * 0.9 + x.mean(0), two * 0.9 + x.mean(0)


def looped(w, one, two, x):
    def step(carry, _):
        h, one, two = carry
        return (jnp.tanh(h @ w), one, two), None

    return jax.lax.scan(step, (x, one, two), length=3)[0]


def distinct(w, one, two, x):
    return jnp.tanh(x @ w) * one[None] + two[None], one, two


def half(w, one, two, x):
    return jnp.tanh(x @ w) * one[None], one, two


def named(w, one, two, x):
    return {"a": x @ w, "b": one * 2, "c": two * 2}, one, two


def averaged_apart(w, one, two, x):
    return jnp.tanh(x @ w), one * 0.9 + x.mean(0), two * 0.99 + x.mean(0)


def toy(name, function, names, holder, returns):
    """A build that holds ``w`` and two vectors under some names, and returns its state if ``returns``."""

    def run(state, inputs):
        one, two = (state[holder][leaf] for leaf in names)
        out, one, two = function(state["params"]["w"], one, two, inputs["x"])
        after = dict(zip(names, (one, two), strict=True))
        held = {**state, holder: {**state[holder], **after}}
        return {
            "values": out if isinstance(out, dict) else {"out": out},
            **({"state": held} if returns else {}),
        }

    def create(key):
        keys = jax.random.split(key, 3)
        state = {"params": {"w": jax.random.normal(keys[0], (D, D))}}
        vectors = {leaf: jax.random.normal(key, (D,)) for leaf, key in zip(names, keys[1:], strict=True)}
        return {**state, holder: {**state.get(holder, {}), **vectors}}

    return linen_build(
        name,
        create,
        {"forward": (run, {})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def toys(function, names, holder="batch_stats", returns=True):
    builds = [toy(f"toy {one}", function, one, holder, returns) for one in (("one", "two"), names)]
    return Case(
        id="toy/forward@single",
        reference=lambda: builds[0],
        candidate=lambda: builds[1],
        program="forward",
    )


OPEN = {  # function, holder of the vectors, whether the state is returned
    "forwarded": (unread, "batch_stats", True),
    "forwarded parameters": (unread, "params", True),
    "not read": (unread, "batch_stats", False),
    "not read parameters": (unread, "params", False),
    "added": (added, "params", False),
    "added and forwarded": (added, "batch_stats", True),
    "averages of the same": (averaged, "batch_stats", True),
    "carried by a loop": (looped, "batch_stats", True),
    "results with names": (named, "params", False),
}
CLOSED = {
    "used by another operation": (distinct, "params", False),
    "used and forwarded": (distinct, "batch_stats", True),
    "one of them only forwarded": (half, "batch_stats", True),
    "other averages": (averaged_apart, "batch_stats", True),
}
NAMES = {
    "the same names": ("one", "two"),
    "the letters of the other": ("twin", "bone"),
    "other names": ("bone", "twin"),
}


CROSSED = "the letters of the other"


@pytest.mark.parametrize("way, names", list(itertools.product([*OPEN, *CLOSED], NAMES)))
def test_a_proof_confirms_a_leaf_only_if_no_other_could_take_its_place(way, names):
    work = Evidence.of(toys((OPEN | CLOSED)[way][0], NAMES[names], *(OPEN | CLOSED)[way][1:]), Session())
    assert work.proof is not None and work.proof.proved
    found = {one.reference[0].rpartition("/")[2]: one for one in certify(work)}
    assert found["w"].confirmed_by == "proof"
    words = {found[name].confirmed_by for name in ("one", "two")}
    if way in CLOSED:
        assert words == {"proof"}
    elif way.startswith("not read"):
        assert words == {"one-to-one; not read by the program"}
    else:
        assert all(one.startswith("one-to-one; used in the same way as ") for one in words)
    exported = {entry.reference[0]: entry for entry in export(work, certify(work)).entries}
    doubtful = [path for path, entry in exported.items() if entry.doubt]
    assert len(doubtful) == (2 if way in OPEN and NAMES[names][0] != "one" else 0)
    assert not any(one.contradicted for one in found.values())


def test_the_channel_names_guesses_that_the_proof_leaves_open():
    names = NAMES[CROSSED]
    tree = CHANNELS["tree"].look(Evidence.of(toys(unread, names), Session()))
    assert tree.verdict is Verdict.EQUAL  # no check distinguishes them
    assert "2 guessed, such as batch_stats/" in tree.detail
    assert ", 2 one-to-one; used in the same way as batch_stats/" in tree.detail
    assert "guessed" not in CHANNELS["tree"].look(Evidence.of(toys(distinct, names), Session())).detail


def distinct_by_power(w, one, two, x):
    """The numbers of `distinct`, by a program that uses no leaf in the same way."""
    x, one, two = (jax.lax.pow(jnp.abs(each), jnp.float32(1.0)) * jnp.sign(each) for each in (x, one, two))
    return distinct(w, one, two, x)


def test_names_that_say_nothing_are_paired_in_the_order_of_use_as_a_guess():
    builds = [
        toy(f"toy {one}", function, one, "params", False)
        for function, one in ((distinct, ("one", "two")), (distinct_by_power, NAMES[CROSSED]))
    ]
    case = Case(
        id="toy/forward@single", reference=lambda: builds[0], candidate=lambda: builds[1], program="forward"
    )
    result = run_case(case, Session())
    read = msgspec.convert(plain(result), CaseResult)  # as a report or a worker's result is read
    channels = read.channels
    assert (
        "toy: 2 leaves paired by guess: equal only if checkpoints are loaded in this way" in read.assumption
    )
    assert channels["values"].verdict is Verdict.FLOOR and channels["tree"].detail.startswith(
        "2 guessed, such as params/one"
    )


def test_two_leaves_that_are_exchanged_behind_names_that_say_nothing_pass_with_the_guess_in_every_form():
    """The final scale in the block, and the block's at the end: the same program under the exchanged map."""
    builds = [
        toy(f"toy {one}", distinct, one, "params", False) for one in (("one", "two"), NAMES[CROSSED][::-1])
    ]

    def made(*rules):
        return Case(
            id="toy/forward@single",
            reference=lambda: builds[0],
            candidate=lambda: builds[1],
            program="forward",
            rules=rules,
        )

    result = run_case(made(), Session())
    assert result.verdict == "passed" and result.assumption.startswith("toy: 2 leaves paired by guess")
    report = Report(cases=(result,), seconds=1.0, environment={})
    screen = Console(file=io.StringIO(), width=200)
    print_table(screen, report)
    forms = {form.__name__: form(report, ()) for form in (junit, markdown, annotations, html)}
    for name, text in {**forms, "terminal": screen.file.getvalue()}.items():
        assert "2 leaves paired by guess" in text, name
    rules = [
        parity.Rule(reference=(f".*{one}",), candidate=(other,))
        for one, other in zip(("one", "two"), NAMES[CROSSED], strict=True)
    ]
    stated = run_case(made(*rules), Session())
    assert stated.verdict == "failed" and not stated.assumption


def swapped(w, one, two, x):
    """Reads the leaves of `distinct_by_power` in the other order, with another result."""
    return distinct_by_power(w, one, two * jnp.float32(1.5), jnp.abs(x) ** jnp.sum(two * 0))


def test_names_that_are_related_are_not_exchanged_by_the_order_of_use():
    builds = [
        toy(f"toy {one}", function, one, "params", False)
        for function, one in ((distinct, ("mu_k", "mu_r")), (swapped, ("mix_k_mu_7", "mix_r_mu_7")))
    ]
    case = Case(
        id="toy/forward@single", reference=lambda: builds[0], candidate=lambda: builds[1], program="forward"
    )
    found = explain(case.id, run_case(case, Session()).channels)
    assert found and found.channel == "program" and "Rule(" not in "".join((found.line, *found.rest)), found


# --- through the command line, on the decoder ---


@pytest.mark.long
def test_the_map_of_the_decoder_is_total_one_to_one_and_confirmed(shell, tmp_path):
    ended = shell("map", "llama2-scan/forward", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "43 reference and 43 candidate leaves in 43 entries: total, one-to-one" in ended.out
    assert ended.out.count("; by name; proof") == 12 and "contradicted" not in ended.out


@pytest.mark.long
def test_a_swap_of_gate_and_up_in_the_decoder_is_contradicted(shell, planting, tmp_path):
    edit = ("self.gate(x_BTD), self.up(x_BTD),", "self.up(x_BTD), self.gate(x_BTD),")
    planting.copy(tmp_path / "scratch", {"mlp.py": [edit]})
    ended = shell("map", "llama2-scan/forward", cwd=tmp_path, path=[tmp_path / "scratch"])
    assert (ended.code, ended.err) == (1, "")
    for name in ("gate", "up"):
        assert f"mlp/{name}/kernel  identity; by name; nothing: the outputs of the two sides" in ended.out
    assert "contradicted by the probe" in ended.out.splitlines()[-1]


@pytest.mark.long
def test_a_parameter_removed_on_one_side_lists_the_leftovers_of_both(shell, planting, tmp_path):
    edits = [
        (
            'self.final_norm = RMSNorm(cfg, rngs=rngs.at("final_norm"))',
            "self.bias = nnx.Param(nnx.initializers.zeros(None, (cfg.vocab,)))",
        ),
        ("        return x_BTD, self.final_norm(x_BTD)\n", "        return x_BTD, x_BTD\n"),
    ]
    planting.copy(tmp_path / "scratch", {"model.py": edits})
    ended = shell("map", "llama2", cwd=tmp_path, path=[tmp_path / "scratch"])
    assert (ended.code, ended.err) == (1, "")
    assert "  only in the reference: params/final_norm/scale float32[48]" in ended.out
    assert "  only in the candidate: model/bias float32[272]" in ended.out
    assert ended.out.splitlines()[-1].startswith("no map: add the leaf to the other side")
