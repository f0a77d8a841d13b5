"""The certificate: moving one leaf on both sides must move both outputs alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.comparison.certificate import certify
from parity.comparison.comparison import Comparison, Workbench
from parity.comparison.side import Side
from parity.programs.tree import Role
from parity.weights.map import MapError, normalise

# B batch, D embed, F hidden
B, D, F = 8, 6, 10


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
    """``used`` are the attributes that play gate and up; ``spare`` adds a parameter that nothing uses."""

    def __init__(self, rngs, used=("gate", "up")):
        self.gate, self.up = nnx.Linear(D, F, rngs=rngs), nnx.Linear(D, F, rngs=rngs)
        self.down = nnx.Linear(F, D, rngs=rngs)
        self.used = used

    def __call__(self, x):
        gate, up = (getattr(self, name) for name in self.used)
        return self.down(jax.nn.silu(gate(x)) * up(x))


class NnxUnproved(NnxGated):
    """The same bits by another program, so that the probe decides."""

    def __call__(self, x):
        return super().__call__(x) * 1.0


class LinenUnused(LinenGated):
    @linen.compact
    def __call__(self, x):
        self.param("spare", linen.initializers.ones, (D,))
        return super().__call__(x)


class NnxUnused(NnxUnproved):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.spare = nnx.Param(jnp.ones(D))


def comparison(linen_module=LinenGated, nnx_module=NnxGated, program="forward", **options):
    pair = parity.twins("gated", linen=linen_module, nnx=nnx_module, inputs=inputs, loss=loss, **options)
    case = next(case for case in pair.cases({}) if case.program == program)
    return Comparison(case, Workbench())


def parameters(work):
    """Returns ``{leaf: certified}`` of the parameters."""
    found = [one for one in certify(work) if one.entry.role is Role.PARAMS]
    return {normalise(one.entry.reference[0]): one for one in found}


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
        expected = "probe" if one.entry.role is Role.PARAMS else "one-to-one"
        assert (one.confirmed_by, one.contradicted) == (expected, False)


@pytest.mark.parametrize("program", ["forward", "train_step"])
def test_a_proof_confirms_what_the_program_reads_and_runs_nothing(program, monkeypatch):
    monkeypatch.setattr(Side, "run", None)
    found = certify(comparison(program=program))
    read = {one.entry.role for one in found if one.confirmed_by == "proof"}
    assert read == {Role.PARAMS} | ({Role.OPTIMIZER} if program == "train_step" else set())
    assert {one.confirmed_by for one in found if one.entry.role is Role.PARAMS} == {"proof"}
    assert not any(one.contradicted for one in found)


@pytest.mark.slow
def test_a_swap_of_gate_and_up_is_contradicted():
    """Names, shapes and dtypes all fit; only use tells the two apart."""
    found = parameters(comparison(nnx_module=lambda rngs: NnxGated(rngs, used=("up", "gate"))))
    assert all(one.entry.matched_by == "name" for one in found.values())
    for name in ("gate/kernel", "up/kernel", "gate/bias", "up/bias"):
        assert found[name].contradicted and "outputs move" in found[name].confirmed_by
    assert not found["down/bias"].contradicted


def test_swapped_names_with_a_rule_that_says_so_are_confirmed():
    found = parameters(
        comparison(nnx_module=lambda rngs: NnxGated(rngs, used=("up", "gate")), weight_rules=crossed())
    )
    assert {name: one.contradicted for name, one in found.items()} == dict.fromkeys(found, False)
    assert found["gate/kernel"].entry.candidate == ("model/up/kernel",)


@pytest.mark.slow
def test_a_rule_that_crosses_what_is_straight_is_contradicted():
    found = parameters(comparison(weight_rules=crossed()))
    assert found["gate/kernel"].contradicted and found["up/kernel"].contradicted


@pytest.mark.slow
def test_a_leaf_that_moves_nothing_is_not_confirmed():
    found = parameters(comparison(LinenUnused, NnxUnused))
    assert found["spare"].contradicted and "do not depend on it" in found["spare"].confirmed_by
    assert not any(one.contradicted for name, one in found.items() if name != "spare")


def test_without_a_total_map_there_is_no_certificate():
    with pytest.raises(MapError, match="spare"):
        certify(comparison(LinenUnused, NnxGated))


@pytest.mark.slow
def test_the_state_of_the_comparison_is_left_alone():
    work = comparison(nnx_module=NnxUnproved)
    before = {path: array.tobytes() for path, array in work.state.items()}
    certify(work)
    assert {path: array.tobytes() for path, array in work.state.items()} == before


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
        assert f"mlp/{name}/kernel  identity; by name; nothing: outputs move" in ended.out
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
