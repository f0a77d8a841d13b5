"""The channels of compiled structure: checks that a proof saves, differences that they catch, and harmless ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from rich.console import Console

from parity.builds.build import linen_build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case
from parity.channels import ALL
from parity.compare.clock import SideError
from parity.compare.session import Session
from parity.compare.side import Side
from parity.ir.hlo.memory import Memory
from parity.report.table import COLUMNS, MARKS, print_table
from parity.run.record import CaseResult, Report
from parity.run.run import run_case
from parity.verdicts import ChannelResult, Verdict

# B batch, D model, L layers
B, D, L = 16, 8, 3
SPLIT, WHOLE = jax.sharding.PartitionSpec("fsdp"), jax.sharding.PartitionSpec()
MESH = MeshSpec.parse("fsdp8-auto")


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def create(key):
    return {"params": {"w": jax.random.normal(key, (D, D))}}


def build(name, function, create=create, **options):
    return linen_build(
        name,
        create,
        {"step": (function, options)},
        inputs=batch,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: SPLIT, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, SPLIT),
    )


def outcome(reference, candidate, mesh=MESH, paranoid=False, **rest):
    sides = [build("left", **reference), build("right", **candidate)]
    case = Case(
        id=f"toy/step@{mesh}",
        reference=lambda: sides[0],
        candidate=lambda: sides[1],
        program="step",
        mesh=mesh,
        **rest,
    )
    return run_case(case, Session(paranoid=paranoid)).channels


def words(channel):
    return "\n".join(finding.sentence() for finding in channel.findings)


def gather(state, inputs, inside=False):
    def body(x, _):
        w = state["params"]["w"]
        return jnp.tanh(x @ w) + x * (jax.lax.with_sharding_constraint(x, WHOLE).sum() if inside else 1), None

    return {"values": {"y": jax.lax.scan(body, inputs["x"], None, length=L)[0]}}


def softmax(state, inputs, dtype=jnp.float32):
    logits = inputs["x"] @ state["params"]["w"]
    return {"values": {"y": jax.nn.softmax(logits.astype(dtype), axis=-1).astype(jnp.float32)}}


def shapes(state, inputs, fused=False):
    """One product, or its two halves: different operations on the same types."""
    x, w = inputs["x"], state["params"]["w"]
    halves = [x @ w[:, : D // 2], x @ w[:, D // 2 :]]
    return {"values": {"y": x @ w if fused else jnp.concatenate(halves, axis=1)}}


def step(state, inputs):
    return {"values": {"y": inputs["x"].sum()}, "state": {"params": {"w": state["params"]["w"] * 0.5}}}


def test_a_proof_spares_the_compiler_and_is_noted():
    channels = outcome({"function": gather}, {"function": gather})
    assert {name: str(channels[name].verdict) for name in ("dots", "collectives", "memory")} == {
        "dots": "proved",
        "collectives": "proved",
        "memory": "proved",
    }


def test_an_extra_gather_inside_the_loop_is_named():
    channels = outcome({"function": gather}, {"function": functools.partial(gather, inside=True)})
    assert channels["collectives"].verdict is Verdict.FAILED
    text = words(channels["collectives"])
    assert "of the candidate" in text and f"{L} times in loops" in text
    assert "test_structure_channels.py" in text


def test_one_device_moves_nothing():
    channels = outcome(
        {"function": softmax}, {"function": functools.partial(softmax, dtype=jnp.bfloat16)}, mesh=MeshSpec()
    )
    assert (str(channels["collectives"].verdict), channels["collectives"].detail) == (
        "skipped",
        "one device, nothing to move",
    )


def test_softmax_in_bfloat16_is_named():
    channels = outcome({"function": softmax}, {"function": functools.partial(softmax, dtype=jnp.bfloat16)})
    assert channels["dots"].verdict is Verdict.FAILED
    assert "reference f32 -> f32, candidate bf16 -> bf16; likely a softmax" in words(channels["dots"])


def test_the_same_types_in_other_shapes_raise_no_alarm():
    channels = outcome({"function": shapes}, {"function": functools.partial(shapes, fused=True)})
    assert channels["program"].verdict is Verdict.UNPROVED
    assert channels["dots"].verdict is Verdict.EQUAL


def test_a_dropped_donation_is_named():
    channels = outcome({"function": step, "donate": True}, {"function": step})
    assert channels["program"].verdict is Verdict.UNPROVED
    assert channels["memory"].verdict is Verdict.FAILED
    assert "arguments f32[1,8]: reference 1 reused in place, candidate 0" in words(channels["memory"])
    assert "the candidate does not donate them" in words(channels["memory"])


def test_a_compiled_program_is_parsed_once(monkeypatch):
    from parity.compare import side

    parsed = []
    read = side.optimised_module
    monkeypatch.setattr(side, "optimised_module", lambda compiled: parsed.append(compiled) or read(compiled))
    channels = outcome({"function": step, "donate": True}, {"function": step})
    assert channels["loops"].verdict is Verdict.EQUAL
    assert len(parsed) == 2


def test_a_program_that_cannot_be_read_is_an_error_of_that_side(monkeypatch):
    monkeypatch.setattr(Side, "compiled", "no HLO")
    channels = outcome({"function": step, "donate": True}, {"function": step})
    (finding,) = channels["loops"].findings
    assert channels["loops"].verdict is Verdict.ERROR
    assert finding.where == "left, reading the optimised program"
    assert SideError("left", "reading the optimised program", ValueError("why")).build == "left"


@pytest.mark.parametrize("name", ["dots", "collectives"])
def test_a_case_may_leave_them_out(name):
    channels = outcome(
        {"function": gather}, {"function": gather}, accept=Accept(not_applicable={name: "not today"})
    )
    assert (str(channels[name].verdict), channels[name].detail) == ("skipped", "not today")


@pytest.mark.parametrize("blocks", [None, "rng", "flags", "retrace"])
def test_a_long_id_and_all_channels_fit_100_columns(capsys, blocks):
    """Ten columns fill the width; a channel that shares a column is visible in it if it blocks."""
    id = "llama2-scan-against-unroll-linen/train_step@single"
    word = {"program": Verdict.UNPROVED, "values": Verdict.BITWISE, "state": Verdict.FLOOR}
    word |= {blocks: Verdict.FAILED} if blocks else {}
    channels = {name: ChannelResult(name=name, verdict=word.get(name, Verdict.EQUAL)) for name in ALL}
    case = Case(id=id, reference=lambda: None, candidate=lambda: None, program="train_step")
    result = CaseResult.of(case, channels, {"compile": 99.9})
    print_table(Console(width=100), Report(environment={}, seconds=1, cases=(result,)))
    shown = [blocks if blocks in names else names[0] for names in COLUMNS.values()]
    cells = [MARKS[channels[name].verdict][0] for name in shown]
    assert sorted(name for names in COLUMNS.values() for name in names) == sorted(ALL)
    head, _, row, *_ = capsys.readouterr().out.splitlines()
    assert row.split() == [id.removesuffix("@single"), *cells, "99.9"]
    assert head.split()[-3:] == ["coll", "mem", "s"]


@pytest.mark.parametrize(
    ("names", "candidate", "verdict"),
    [
        ("vw", 101_000, "equal"),
        ("vw", 102_000, "failed"),
        ("ba", 105_000, "equal"),
        ("ba", 106_000, "failed"),
    ],
)
def test_arguments_in_another_order_may_move_the_packing(names, candidate, verdict, monkeypatch):
    numbers = iter([100_000, candidate])

    def read(compiled):
        return Memory(values={"argument": 1, "output": 1, "temp": next(numbers)}, reasons={})

    def side(rows, matrix):
        def shifted(state, inputs):
            return {"values": {"y": inputs["x"] @ state["params"][matrix] + state["params"][rows]}}

        shapes = {rows: (B, D), matrix: (D, D)}
        draw = functools.partial(jax.tree.map, jnp.ones, is_leaf=lambda shape: isinstance(shape, tuple))
        return {"function": shifted, "create": lambda key: {"params": draw(shapes)}}

    monkeypatch.setattr("parity.channels.memory.read_memory", read)
    result = outcome(side(*"vw"), side(*names), paranoid=True)["memory"]
    assert str(result.verdict) == verdict


def recomputed(scale=None, **options):
    def loss(w, x):
        layer = jax.checkpoint(lambda x: jnp.tanh(jnp.tanh(x @ w) @ w), **options)
        x = layer(layer(x))
        return jnp.sum((x if scale is None else scale * x) ** 2)

    def step(state, inputs):
        return {"gradients": {"params": {"w": jax.grad(loss)(state["params"]["w"], inputs["x"])}}}

    return {"function": step}


def test_a_checkpoint_that_the_compiler_may_undo_precedes_its_collectives():
    found = outcome(recomputed(), recomputed(prevent_cse=False))["collectives"]
    assert found.verdict is Verdict.FAILED
    first = found.findings[0]
    assert (first.where, first.reference.partition(" at ")[0]) == ("checkpoint", "prevent_cse=True")
    assert "prevent_cse=False at " in first.candidate and "test_structure_channels.py" in first.candidate
    assert outcome(recomputed(), recomputed())["collectives"].verdict is not Verdict.FAILED


def test_a_checkpoint_is_no_cause_beside_another_operation():
    found = outcome(recomputed(), recomputed(scale=3.0, prevent_cse=False))["collectives"]
    assert found.verdict is Verdict.FAILED
    assert all(finding.where != "checkpoint" for finding in found.findings)


def written_out(state, inputs, remat=lambda layer: layer, last=jnp.tanh):
    """The gradient of two layers outside of any loop."""

    def loss(w):
        layer, x = remat(lambda x: jnp.tanh(x @ w)), inputs["x"]
        return last(layer(layer(x))).sum()

    return {"gradients": {"w": jax.grad(loss)(state["params"]["w"])}}


def deep(state, inputs, layers=4, kept=4, narrow=False, swapped=jnp.flip):
    """The gradient of layers, some of them checkpointed."""

    def loss(w):
        def layer(x, w):
            parts = jnp.split(w, 2, axis=1) if narrow else [w]
            return jnp.tanh(jnp.concatenate([x @ part for part in parts], axis=1))

        recomputing = jax.checkpoint(layer)
        x = inputs["x"]
        for number in range(layers):
            x = (recomputing if number < kept else layer)(x, swapped(w[number], 0))
        return x.sum()

    w = jnp.stack([state["params"]["w"] * (1 + number / 8) for number in range(layers)])
    return {"gradients": {"w": jax.grad(loss)(w).sum(0)}}


def times_a_permutation(w, axis):
    return jnp.flip(jnp.eye(w.shape[axis]), axis) @ w


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (dict(kept=3), "recomputes products of 3,072 multiplications"),
        (dict(kept=2), "recomputes products of 2,048 multiplications"),
        (dict(kept=2, narrow=True), "recomputes products of 2,048 multiplications"),
        (dict(kept=1, swapped=times_a_permutation), "recomputes products of 1,024 multiplications"),
        (dict(narrow=True), ""),
        (dict(swapped=times_a_permutation), ""),
        (dict(), ""),
    ],
    ids=[
        "one of four",
        "two of four",
        "two of four, as other products",
        "three of four, with other products",
        "as other products",
        "with other products",
        "none",
    ],
)
def test_some_of_the_layers_lose_their_checkpoint(changed, said):
    found = outcome({"function": deep}, {"function": functools.partial(deep, **changed)}, mesh=MeshSpec())
    text = words(found["loops"])
    assert (found["loops"].verdict is Verdict.FAILED) == bool(said) and said in text
    assert not said or (
        "test_structure_channels.py" in text
        and "products of 4,096 multiplications, such as dot_general" in text
    )


def test_a_checkpoint_that_is_lost_comes_before_the_loops_that_it_recomputed():
    def summed(around):
        def step(carry, row):
            carry = jnp.tanh(carry @ jnp.diag(row))
            return carry, carry

        def function(state, inputs):
            def loss(w):
                return around(lambda x: jax.lax.scan(step, x @ w, jnp.cos(w))[1])(inputs["x"]).sum()

            return {"gradients": {"w": jax.grad(loss)(state["params"]["w"])}}

        return {"function": function}

    found = outcome(summed(jax.checkpoint), summed(lambda layer: layer), mesh=MeshSpec())["loops"]
    first, *others = found.findings
    assert first.where.startswith("checkpoint at ") and "remat dropped" in first.cause
    assert others and all("loop" in one.where for one in others)


def saving(*names):
    """The gradient of a layer whose checkpoint saves some names."""

    def function(state, inputs):
        policy = jax.checkpoint_policies.save_only_these_names(*names)

        @functools.partial(jax.checkpoint, policy=policy)
        def layer(x, w):
            h = jnp.tanh(checkpoint_name(x @ w, "inner"))
            return jnp.tanh(checkpoint_name(h @ w, "outer"))

        gradient = jax.grad(lambda w: layer(inputs["x"], w).sum())
        return {"gradients": {"w": gradient(state["params"]["w"])}}

    return {"function": function}


def test_names_that_only_one_checkpoint_policy_saves_are_listed_with_their_place():
    found = outcome(saving("inner", "outer"), saving("outer"), mesh=MeshSpec())["loops"]
    step = found.findings[0].next_step
    assert step.startswith("only the reference saves inner, as listed at "), step
    assert "test_structure_channels.py:" in step


def in_a_call(layer):
    """A layer whose operations are inside a call that the checkpoint recomputes."""
    return jax.checkpoint(jax.jit(lambda x: jnp.tanh(layer(x)) * 1.5 + x))


def in_line(layer):
    return jax.checkpoint(lambda x: jnp.tanh(layer(x)) * 1.5 + x)


def of_a_choice(around):
    """A layer with a call of which nothing is left to recompute if all is saved."""
    return lambda layer: around(lambda x: jnp.where(x > 0, layer(x), x))


def checkpoint(policy=None):
    return functools.partial(jax.checkpoint, policy=policy and getattr(jax.checkpoint_policies, policy))


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (checkpoint(), lambda layer: layer, "reference recomputes products, such as dot_general"),
        (lambda layer: layer, checkpoint("dots_saveable"), "candidate recomputes operations, such as tanh"),
        (checkpoint("dots_saveable"), checkpoint(), "candidate recomputes products, such as dot_general"),
        (checkpoint("everything_saveable"), lambda layer: layer, ""),
        (of_a_choice(checkpoint("everything_saveable")), of_a_choice(lambda layer: layer), ""),
        (checkpoint(), checkpoint(), ""),
        (in_a_call, in_line, ""),
    ],
    ids=[
        "dropped",
        "only elementwise",
        "another policy",
        "nothing recomputed",
        "an empty call",
        "both",
        "in a call",
    ],
)
def test_a_checkpoint_outside_of_loops_that_one_side_lacks(left, right, said):
    """Both sides also differ in a harmless way, so that no proof covers them."""
    found = outcome(
        {"function": functools.partial(written_out, remat=left)},
        {
            "function": functools.partial(
                written_out, remat=right, last=lambda x: 2 * jax.nn.sigmoid(2 * x) - 1
            )
        },
        mesh=MeshSpec(),
    )
    assert found["program"].verdict is Verdict.UNPROVED
    assert found["gradients"].verdict in (Verdict.BITWISE, Verdict.FLOOR)
    text = words(found["loops"])
    assert (found["loops"].verdict is Verdict.FAILED) == bool(said) and said in text
    assert not said or "test_structure_channels.py" in text
