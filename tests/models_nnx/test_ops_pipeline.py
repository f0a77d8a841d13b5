"""The loop of a pipeline with a small stage, against the same layers in sequence; and bugs planted in it."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle_decoder import SMALL

from models_nnx.shared import ops
from models_nnx.shared.config import Gather, LayerLayout, Loop, PipelineConfig
from models_nnx.shared.ops import pipeline as loops
from models_nnx.shared.ops import stages
from models_nnx.shared.schedule import Schedule
from models_nnx.shared.sharding import ShardingError, named_sharding
from parity.builds.meshes import MeshSpec
from parity.compare.inspection import collective_rows
from parity.ir.hlo.collectives import read_collectives
from parity.ir.hlo.memory import read_memory
from parity.ir.hlo.optimised import optimised_loops, optimised_module

LENGTH, WIDTH = 6, 8
ROWS = ("activation_batch", "activation_length", "activation_embed")
PREFETCH = {"gather": Gather.PER_REPEAT}
# Stages, microbatches over stages, repeats, further options, mode.
GRID = [
    (2, 1, 1, {}, "auto"),
    (2, 2, 2, {"gather": Gather.ONCE}, "explicit"),
    (2, 2, 3, {**PREFETCH, "repeat_loop": Loop.UNROLLED}, "auto"),
    (3, 1, 3, PREFETCH, "explicit"),
    (3, 2, 2, PREFETCH, "auto"),
    (3, 2, 2, {"delay": 2}, "explicit"),
    (3, 3, 2, {"delay": 2, "gather": Gather.ONCE}, "auto"),
    (4, 1, 2, {}, "explicit"),
    (4, 2, 3, {**PREFETCH, "iteration_loop": Loop.UNROLLED}, "auto"),
    (4, 2, 1, {"delay": 2}, "auto"),
]


def layer(x_BTD, w_DD, segments_BT, positions_BT):
    """One layer whose result depends on all its arguments."""
    scale = 1 + 0.1 * positions_BT[..., None] + 0.3 * (segments_BT[..., None] == 2)
    return x_BTD + jnp.tanh(x_BTD @ w_DD) * scale


def sow(out_BTD):
    return {"load_balance": jnp.mean(jnp.square(out_BTD)), "expert_load": jnp.sum(out_BTD, axis=(0, 1))}


@dataclasses.dataclass(frozen=True)
class Toy:
    """A pipeline of such layers, its weights and its batch."""

    stages: int
    times: int
    repeats: int
    options: dict
    mode: str
    width: int = WIDTH

    @property
    def config(self):
        pipeline = PipelineConfig(
            stages=self.stages,
            microbatches=self.stages * self.times,
            repeats=self.repeats,
            **self.options,
        )
        return dataclasses.replace(SMALL, layers=pipeline.layers_inside, pipeline=pipeline)

    @property
    def axes(self):
        return (*(name for name, _ in self.config.pipeline.axes), "embed", None)

    def arrays(self):
        rng = np.random.default_rng(self.stages + self.repeats)
        lengths = [length for _, length in self.config.pipeline.axes]
        shape = (2 * self.config.pipeline.microbatches, LENGTH)
        weights = rng.normal(size=(*lengths, self.width, self.width), scale=0.4)
        segments = np.sort(rng.integers(0, 3, shape))[:, ::-1]
        batch = {"segments": segments.astype("int32"), "positions": rng.integers(0, 9, shape).astype("int32")}
        return weights.astype("f"), rng.normal(size=(*shape, self.width)).astype("f"), batch

    def pipelined(self, weights, x_BTD, batch):
        pipe = ops.Pipe.of(self.config, [self.axes], [weights], x_BTD)

        def iterate(weights, inputs, x_SBTD, iteration):
            segments_SBT, positions_SBT, _ = pipe.of_stages(inputs, iteration)

            def stage(leaves, *rest):
                out_BTD = layer(rest[0], leaves[0], *rest[1:])
                return out_BTD, {"sown": sow(out_BTD)}

            run = jax.vmap(stage, spmd_axis_name=ops.STAGE)
            return run(pipe.chosen(weights, iteration), x_SBTD, segments_SBT, positions_SBT)

        inputs = pipe.inputs(batch["segments"], batch["positions"], None)
        return pipe.run(jax.checkpoint(iterate, prevent_cse=False), [weights], inputs, x_BTD)

    def sequential(self, weights, x_BTD, batch):
        """Microbatch by microbatch through one layer after the other."""
        M = self.config.pipeline.microbatches
        lead = weights.shape[:-2]
        flat = weights.reshape(-1, *weights.shape[-2:])
        out, sown, shares = [None] * M, [], []
        for number in range(M):
            x, *ids = (array[number::M] for array in (x_BTD, batch["segments"], batch["positions"]))
            found = []
            for w_DD in flat:
                x = layer(x, w_DD, *ids)
                found.append(sow(x))
            out[number] = x
            sown.append(
                jax.tree.map(lambda *leaves: jnp.stack(leaves).reshape(*lead, *leaves[0].shape), *found)
            )
            shares.append(jnp.sum(ids[0] != 0).astype("float32"))
        balance = sum(share * one["load_balance"] for share, one in zip(shares, sown, strict=True)) / sum(
            shares
        )
        load = sum(one["expert_load"] for one in sown)
        return jnp.stack(out, 1).reshape(x_BTD.shape), {
            "sown": {"load_balance": balance, "expert_load": load}
        }

    def gradients(self, run):
        """A function of weights and inputs that gives result, sown values and gradients."""

        def loss(weights, x_BTD, batch):
            out_BTD, aside = run(weights, x_BTD, batch)
            balance = jnp.sum(jnp.sin(aside["sown"]["load_balance"]))
            return jnp.sum(jnp.sin(out_BTD)) + balance, (out_BTD, aside)

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)

    def placed(self, mesh):
        weights, x_BTD, batch = self.arrays()
        rules = self.config.rules

        def put(array, axes):
            return jax.device_put(array, named_sharding(axes, array.shape, rules, mesh))

        return (
            put(weights, self.axes),
            put(x_BTD, ROWS),
            {name: put(x, ROWS[:2]) for name, x in batch.items()},
        )

    @functools.cached_property
    def mesh(self):
        return MeshSpec.parse(f"stage{self.stages}.fsdp2-{self.mode}").on(jax.devices())

    def lowered(self):
        with jax.set_mesh(self.mesh):
            return jax.jit(self.gradients(self.pipelined)).lower(*self.placed(self.mesh))

    def compiled(self):
        with jax.set_mesh(self.mesh):
            return self.lowered().compile()

    def differences(self):
        """``{leaf: relative difference}`` of pipeline and sequence."""
        with jax.set_mesh(self.mesh):
            found = jax.jit(self.gradients(self.pipelined))(*self.placed(self.mesh))
        wanted = jax.jit(self.gradients(self.sequential))(*self.arrays())
        names = ("output", "expert_load", "load_balance", "weights' gradient", "input's gradient")
        leaves = (
            map(np.asarray, jax.tree.leaves(tree)[1:]) for tree in (found, wanted)
        )  # the loss may cancel
        pairs = zip(names, *leaves, strict=True)
        return {name: np.linalg.norm(a - b) / np.linalg.norm(b) for name, a, b in pairs}

    def wrong(self):
        """Names of leaves that differ by more than float32 rounding."""
        return {name for name, gap in self.differences().items() if not gap < 1e-5}


def quick_first(cases, quick=2):
    """The inner loop runs the first few."""
    return [
        pytest.param(*case, marks=[] if number < quick else pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


@pytest.mark.long
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("stages", "times", "repeats", "options", "mode"), quick_first(GRID))
def test_results_sown_values_and_gradients_are_those_of_the_layers_in_sequence(
    stages, times, repeats, options, mode
):
    assert Toy(stages, times, repeats, options, mode).wrong() == set()


# --- bugs from released code, planted in code that both twins share: only an oracle detects them ---


def each_its_own_next(self, leaves, repeat):
    """History K2: prefetches, for each stage, the repeat that it works on at the next iteration."""
    iteration = repeat * self.config.microbatches + 1
    every = dataclasses.replace(self, config=dataclasses.replace(self.config, gather=Gather.ONCE))
    return every.chosen(loops.Stacked(leaves), iteration)


def upcoming_only(self, weights, iteration):
    """History K1: both slots hold the same repeat."""
    if isinstance(weights, loops.Window):
        return weights.upcoming
    return CHOSEN(self, weights, iteration)


CHOSEN = loops.Pipe.chosen
COLLECT = stages.StageTransfers.collect


def with_bubbles(self, aside, segments_MBT):
    """History K3: every stage's first iterations count, bubbles or not."""
    return COLLECT(
        dataclasses.replace(self, schedule=dataclasses.replace(self.schedule, delay=0)), aside, segments_MBT
    )


PLANTS = {
    "each stage gathers its own next repeat": (
        (loops.Pipe, "_gather", each_its_own_next),
        Toy(3, 1, 3, PREFETCH, "auto"),
        {"output", "weights' gradient"},
    ),
    "both slots hold the same repeat": (
        (loops.Pipe, "chosen", upcoming_only),
        Toy(2, 2, 2, PREFETCH, "auto"),
        {"output", "weights' gradient"},
    ),
    "bubbles counted in sown values": (
        (stages.StageTransfers, "collect", with_bubbles),
        Toy(2, 2, 2, {}, "auto"),
        {"load_balance", "expert_load", "weights' gradient"},
    ),
    "rotation of the outputs forgotten": (
        (Schedule, "first_slot", 0),
        Toy(2, 2, 1, {}, "auto"),
        {"output"},
    ),
    "delay missing from the microbatch arithmetic": (
        (Schedule, "microbatch", lambda self, i, s: jnp.maximum(i - s, 0) % self.microbatches),
        Toy(2, 2, 1, {"delay": 2}, "explicit"),
        {"output"},
    ),
    "no storage where microbatches come round early": (
        (Schedule, "has_storage", False),
        Toy(2, 2, 2, {}, "auto"),
        {"output"},
    ),
    "mover written one iteration early": (
        (Schedule, "storing", lambda self, i: (i - self.lag) % self.microbatches),
        Toy(2, 2, 2, {}, "auto"),
        {"output"},
    ),
}


@pytest.mark.long
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", PLANTS)
def test_the_sequence_catches_a_bug_that_both_twins_share(name, monkeypatch):
    (where, attribute, bug), toy, expected = PLANTS[name]
    monkeypatch.setattr(where, attribute, bug)
    assert expected <= toy.wrong()


@pytest.mark.long
@pytest.mark.usefixtures("quick")
def test_gathering_the_next_repeat_of_each_stage_is_right_for_two_stages(monkeypatch):
    """Two stages hide the bug, so two twins could both ship it."""
    monkeypatch.setattr(loops.Pipe, "_gather", each_its_own_next)
    assert Toy(2, 1, 3, PREFETCH, "auto").wrong() == set()


# --- structure of the prefetch ---


def gathers(compiled):
    """``{direction: how many all-gathers of one repeat's weights ran}``."""
    found = {"forward": 0, "backward": 0}
    for row in collective_rows(read_collectives(optimised_module(compiled))):
        if row["kind"] == "all-gather" and row["bytes"] == 64 * 64 * 4:
            found[row["direction"]] += row["count"] * row["times"]
    return found


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_prefetch_gathers_once_per_repeat_in_each_direction(mode):
    assert gathers(Toy(2, 2, 5, PREFETCH, mode, width=64).compiled()) == {"forward": 5, "backward": 5}


def test_activations_move_to_the_next_stage_and_to_no_other():
    """History E8: every stage gathered the results of all stages and kept one part."""
    text = Toy(2, 2, 2, {}, "explicit").lowered().as_text()
    assert "stablehlo.collective_permute" in text and "stablehlo.all_gather" not in text


@pytest.mark.long
def test_two_gathers_per_repeat_are_counted(monkeypatch):
    gather = loops.Pipe._gather

    def both(self, leaves, repeat):
        ahead = gather(self, leaves, jnp.minimum(repeat + 1, self.config.repeats - 1))
        return [a + 0 * b for a, b in zip(gather(self, leaves, repeat), ahead, strict=True)]

    monkeypatch.setattr(loops.Pipe, "_gather", both)
    assert gathers(Toy(2, 2, 5, PREFETCH, "auto", width=64).compiled())["forward"] == 10


@pytest.mark.long
def test_prefetch_scans_in_five_loops_and_unrolls_to_three_per_repeat():
    counts = [
        optimised_loops(
            optimised_module(Toy(2, 2, 6, {**PREFETCH, "repeat_loop": loop}, "auto").compiled())
        ).count
        for loop in Loop
    ]
    assert counts == [5, 18]


@pytest.mark.long
def test_temp_bytes_of_prefetch_grow_with_the_activations_only():
    """Doubling the microbatches at constant size adds activations, never weights."""
    temp = [
        read_memory(Toy(2, times, 4, PREFETCH, "auto", width=256).compiled()).values["temp"]
        for times in (2, 4, 8)
    ]
    activation = 1 * LENGTH * 256 * 4  # one microbatch on one device
    weights = 256 * 256 * 4
    slopes = [(temp[1] - temp[0]) / 4, (temp[2] - temp[1]) / 8]
    assert max(slopes) < 10 * activation < weights / 4


# --- refused ---


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ("fsdp8-auto", "expected an axis 'stage' of size 2"),
        ("stage4.fsdp2-auto", "'stage': 4"),
        ("single", "no axes"),
    ],
)
def test_a_mesh_without_a_place_for_each_stage_is_refused(mesh, said):
    spec, toy = MeshSpec.parse(mesh), Toy(2, 1, 1, {}, "auto")
    context = jax.set_mesh(spec.on(jax.devices())) if spec.axes else jax.default_device(jax.devices()[0])
    with context, pytest.raises(ShardingError, match=re.escape(said)):
        jax.eval_shape(toy.pipelined, *toy.arrays())


def test_a_batch_that_does_not_divide_is_refused():
    toy = Toy(2, 2, 1, {}, "auto")
    weights, x_BTD, batch = toy.arrays()
    with jax.set_mesh(toy.mesh), pytest.raises(ShardingError, match="got 7 rows for 4 microbatches"):
        jax.eval_shape(toy.pipelined, weights, x_BTD[:7], batch)


# --- keys ---


def test_keys_differ_by_iteration_and_stage_and_a_stream_not_used_has_none():
    key = jax.random.key(3)
    data = {
        tuple(np.asarray(jax.random.key_data(ops.stage_key(key, i, s)["dropout"])).tolist())
        for i in range(9)
        for s in range(4)
    }
    assert len(data) == 36
    assert ops.stage_key(None, 0, 0) is None


@pytest.mark.parametrize("layout", LayerLayout)
def test_a_stage_is_a_separate_decoder(layout):
    config = Toy(2, 1, 2, {"layers_per_stage": 3, "stage_layout": layout}, "auto").config
    (stack,) = config.stage.stacks
    assert (stack.repeats, stack.layout, config.stage.pipeline) == (3, layout, None)
