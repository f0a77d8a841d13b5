"""Shared code of multi-token prediction and of the batch split, against loops, which detect bugs in both twins."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracle_mtp
import pytest
from jax.sharding import PartitionSpec as P
from meshes import make_mesh, parse_mesh

import models_nnx
from models_nnx.shared import ops
from models_nnx.shared.config import ConfigError, LayerSchedule, MtpConfig, PipelineConfig, override
from models_nnx.shared.config.batch_split import without_context
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.sharding import DEFAULT_RULES, ShardingError, ShardMode

EXPERTS = tiny(preset("deepseek3-671b"))
TWO = dataclasses.replace(EXPERTS, mtp=MtpConfig(depth=2, loss_scale=0.7))
NAMES = ("tokens", "targets", "segments", "positions", "weights")


def batch_of(rows=3, length=17, padding=True):
    """Documents of several lengths, one that fills a row, tokens with weight zero."""
    rng = np.random.default_rng(5)
    batch = {name: rng.integers(1, 90, (rows, length)).astype(np.int32) for name in NAMES}
    batch["weights"] %= 2
    cuts = [[4, 9, 15], [7, 8, 12], [length]] if padding else [[length]] * rows
    for row, ends in enumerate(cuts):
        batch["segments"][row] = [sum(t >= end for end in ends) + 1 for t in range(length)]
        batch["segments"][row, ends[-1] :] = 0
    batch["weights"] *= batch["segments"] > 0
    return batch


def module(name, *edits):
    """The names of a module of ``models_nnx/shared/ops``, after edits of its text."""
    text = (Path(models_nnx.__file__).parent / "shared" / "ops" / f"{name}.py").read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    names = {"__name__": f"edited_{name}"}
    exec(compile(text, f"{name}.py", "exec"), names)
    return names


def check_rolled(roll_batch):
    for batch in (batch_of(), batch_of(padding=False)):
        rolled = batch
        for depth in (1, 2, 3):
            rolled = roll_batch(rolled, DEFAULT_RULES)
            for name, expected in oracle_mtp.ahead(batch, depth).items():
                np.testing.assert_array_equal(rolled[name], expected, err_msg=f"{name} at depth {depth}")


def check_rate(mtp_rate):
    batch = batch_of()
    weights = sum(oracle_mtp.ahead(batch, depth)["weights"].sum() for depth in (1, 2))
    assert weights > 0 and set(np.unique(batch["weights"])) == {0, 1}
    np.testing.assert_allclose(mtp_rate(batch, TWO), 0.7 * batch["weights"].sum() / weights, rtol=1e-6)
    alone = {**batch, "segments": np.arange(51, dtype=np.int32).reshape(3, 17)}
    assert np.isfinite(mtp_rate(alone, TWO))


def check_halves(in_halves, join_halves):
    x = np.arange(8 * 5 * 3).reshape(8, 5, 3)
    halves = in_halves(jnp.asarray(x), 2, DEFAULT_RULES)
    for number, half in enumerate(halves):
        np.testing.assert_array_equal(half, np.stack([x[row] for row in range(number, 8, 2)]))
    np.testing.assert_array_equal(join_halves(halves), x)


def test_a_batch_rolls_like_the_loop_and_never_across_documents():
    check_rolled(ops.roll_batch)


def test_the_rate_weighs_positions_by_0_or_1_over_all_depths():
    check_rate(ops.mtp_rate)
    assert ops.mtp_rate(batch_of(), dataclasses.replace(TWO, mtp=None)) is None


def test_halves_have_every_other_row_and_come_back_in_order():
    check_halves(ops.in_halves, ops.join_halves)
    with pytest.raises(
        ShardingError, match=r"batch split: got 7 rows, expected a multiple of 2: .* layer_schedule"
    ):
        ops.in_halves(jnp.zeros((7, 5)), 2, DEFAULT_RULES)


BOTH_SIDED = {
    "L2-roll-crosses-a-document": (
        "inside_BT = (segments_BT != 0) & (segments_BT == left(segments_BT))",
        "inside_BT = segments_BT != 0",
    ),
    "roll-comes-round-the-end": (
        "return jnp.pad(x_BT[:, 1:], ((0, 0), (0, 1)))",
        "return jnp.roll(x_BT, -1, axis=1)",
    ),
    "targets-stay-where-they-are": ("left(x_BT), 0)", 'x_BT if name == "targets" else left(x_BT), 0)'),
    "weights-of-the-main-model": ("left(x_BT), 0)", 'x_BT if name == "weights" else left(x_BT), 0)'),
    "positions-stay-where-they-are": ("left(x_BT), 0)", 'x_BT if name == "positions" else left(x_BT), 0)'),
    "the-last-of-a-document-keeps-its-segment": (
        "left(x_BT), 0)",
        'left(x_BT), x_BT if name == "segments" else 0)',
    ),
    "L1-segment-ids-as-weights": ('rolled["weights"]).astype', 'rolled["segments"]).astype'),
    "mean-of-the-last-depth": ("ahead_sum += ", "ahead_sum = "),
    "no-epsilon": ("/ (ahead_sum + EPSILON)", "/ ahead_sum"),
    "scale-left-out": ("return config.mtp.loss_scale * weight_sum", "return weight_sum"),
}


@pytest.mark.parametrize("bug", BOTH_SIDED)
def test_a_bug_that_both_twins_share_is_killed_by_the_loop(bug):
    edited = module("mtp", BOTH_SIDED[bug])
    with pytest.raises(AssertionError):
        check_rolled(edited["roll_batch"])
        check_rate(edited["mtp_rate"])


@pytest.mark.parametrize(
    "edit",
    [
        ("x_BH = jnp.stack(parts, axis=1)", "x_BH = jnp.stack(parts, axis=0)"),
        ("for part in range(parts))", "for part in reversed(range(parts)))"),
    ],
)
def test_halves_that_are_mixed_up_in_both_twins_are_killed(edit):
    edited = module("batch_split", edit)
    with pytest.raises(AssertionError):
        check_halves(edited["in_halves"], edited["join_halves"])


# --- sown values must be present ---

ALL = {f"mtp/depth_{k}/{name}": jnp.float32(k) for k in (1, 2) for name in ("loss_sum", "weight_sum")}


@pytest.mark.parametrize("missing", [None, *ALL])
def test_a_missing_sown_value_is_an_error_and_never_zero(missing):
    left = {path: value for path, value in ALL.items() if missing and path != missing}
    with pytest.raises(
        ops.SownError, match=r"got .* expected \['mtp/depth_1/loss_sum'.*before anything else takes it"
    ):
        ops.mtp_sums(left, TWO)
    with pytest.raises(ops.SownError):
        ops.mtp_sums(ALL, TWO, accepted=True)
    assert ops.mtp_sums(ALL, TWO) == ALL
    with pytest.raises(ops.SownError):
        ops.mtp_sums(ALL, EXPERTS)


# --- the sharding on exit ---

ROWS = ("activation_batch", "activation_length", "activation_embed")


@pytest.mark.parametrize("context", [1, 2])
def test_an_axis_kept_or_lost_inside_is_named_on_an_explicit_mesh(context):
    """The public failure of the batch split: ``context`` kept at size one, or not restored at its real size."""
    x_BTD = jnp.zeros((8, 6, 4))
    kept = P(("fsdp", "context"), None, None) if context == 1 else P("fsdp", None, None)

    def run(x_BTD, spec):
        x_BTD = jax.sharding.reshard(x_BTD, spec)
        return ops.require_placed(x_BTD, ROWS, DEFAULT_RULES, "the head")

    expected = P("fsdp", "context" if context > 1 else None, None)
    for mode in ShardMode:
        with jax.set_mesh(make_mesh(parse_mesh(f"fsdp2.context{context}"), mode)):
            if mode is ShardMode.AUTO:
                assert ops.require_placed(x_BTD, ROWS, DEFAULT_RULES, "the head") is x_BTD
                continue
            jax.eval_shape(lambda x: run(x, expected), x_BTD)
            with pytest.raises(ShardingError) as caught:
                jax.eval_shape(lambda x: run(x, kept), x_BTD)
    assert f"the head: got {kept} on the mesh" in str(caught.value)
    assert f"expected {expected}" in str(caught.value)


def test_rules_inside_have_no_context():
    inside = without_context(DEFAULT_RULES)
    assert ("activation_length", None) in inside and len(inside) == len(DEFAULT_RULES)
    assert "context" not in str(inside)


# --- configs ---


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"moe": None, "dense_layers": 0}, "layer_schedule: got 'batch_split', expected plain: without moe"),
        ({"dropout": 0.1}, "expected plain with dropout"),
        (
            {"pipeline": PipelineConfig(stages=2, microbatches=2, layers_per_stage=2)},
            "expected plain in a pipeline",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(EXPERTS, layer_schedule=LayerSchedule.BATCH_SPLIT, **changes)


@pytest.mark.parametrize(
    "field, value", [("depth", 0), ("depth", True), ("loss_scale", 0.0), ("loss_scale", np.nan)]
)
def test_a_predictor_that_cannot_be_is_refused(field, value):
    with pytest.raises(ConfigError, match=f"config field {field}: got"):
        dataclasses.replace(TWO.mtp, **{field: value})


def test_settings_reach_into_the_predictors():
    assert override(EXPERTS, {"mtp.depth": "3"}).ahead.names == ("depth_1", "depth_2", "depth_3")
    assert override(EXPERTS, {"mtp": "none"}).moe_layers == EXPERTS.moe_layers - 1
    with pytest.raises(ConfigError, match="mtp: got None"):
        _ = override(EXPERTS, {"mtp": "none"}).ahead
