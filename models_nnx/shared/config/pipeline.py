"""Pipeline parallelism: stages, microbatches, repeats, and gathering of weights."""

import dataclasses
import enum

from models_nnx.shared.config.checks import require, require_choice, require_positive
from models_nnx.shared.config.layers import LayerLayout, Stack
from models_nnx.shared.config.remat import RematConfig, RematPolicy
from models_nnx.shared.schedule import Schedule

__all__ = [
    "Gather",
    "Loop",
    "PipelineConfig",
    "PipelinedStack",
    "with_pipeline",
]

OUTSIDE = "layers_outside_pipeline"


class Gather(enum.StrEnum):
    """Time at which weights sharded over ``fsdp`` are gathered.

    At each iteration that uses them; once, before the loop; or once per repeat, during the previous repeat.
    """

    PER_ITERATION = "per_iteration"
    ONCE = "once"
    PER_REPEAT = "per_repeat"


class Loop(enum.StrEnum):
    """Form of a loop in the program: one body and a trip count, or a copy of the body per iteration."""

    SCANNED = "scanned"
    UNROLLED = "unrolled"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """A pipeline over the mesh axis ``stage``.

    Args:
        stages: S, the size of the mesh axis.
        microbatches: M, parts of the batch; a multiple of S.
        repeats: R, number of times that a microbatch passes all stages.
        layers_per_stage: L, cycles of layers in one stage and repeat.
        layers_outside: cycles of layers that run after the pipeline, replicated over the stages.
        delay: iterations until a result reaches the next stage; 2 lets its transfer overlap with computation.
        gather: time at which weights sharded over ``fsdp`` are gathered.
        iteration_remat: residuals that an iteration keeps, in addition to the ``remat`` of each layer.
        iteration_loop: form of the loop over iterations.
        repeat_loop: form of the loop over repeats, which exists only with ``per_repeat``.
        stage_layout: layout of a stage's layers: scanned (stacked along an axis ``layers``) or unrolled.
    """

    stages: int
    microbatches: int
    repeats: int = 1
    layers_per_stage: int = 1
    layers_outside: int = 0
    delay: int = 1
    gather: Gather = Gather.PER_ITERATION
    iteration_remat: RematConfig = RematConfig(policy=RematPolicy.FULL)
    iteration_loop: Loop = Loop.SCANNED
    repeat_loop: Loop = Loop.SCANNED
    stage_layout: LayerLayout = LayerLayout.SCANNED

    def __post_init__(self):
        require_positive(self, "stages", "microbatches", "repeats", "layers_per_stage", "delay")
        require_choice(self, gather=Gather, iteration_loop=Loop, repeat_loop=Loop, stage_layout=LayerLayout)
        S, M, R, outside = self.stages, self.microbatches, self.repeats, self.layers_outside
        require(S > 1, "pipeline.stages", S, "at least 2; set pipeline to None for a model without stages")
        require(M % S == 0, "pipeline.microbatches", M, f"a multiple of stages={S}")
        require(self.delay in (1, 2), "pipeline.delay", self.delay, "1 or 2")
        require(
            R == 1 or S * self.delay <= M,
            "pipeline.microbatches",
            M,
            f"at least stages * delay = {S * self.delay} with repeats={R}: else a microbatch comes round too late",
        )
        whole = isinstance(outside, int) and outside >= 0
        require(whole, "pipeline.layers_outside", outside, "a whole number >= 0")
        prefetch = self.gather is Gather.PER_REPEAT
        rule = "per_iteration or once: with repeats=1 there is nothing to fetch ahead"
        require(not prefetch or R > 1, "pipeline.gather", str(self.gather), rule)
        rule = f"per_iteration or once with delay={self.delay}; or delay 1"
        require(not prefetch or self.delay == 1, "pipeline.gather", str(self.gather), rule)
        keeps_all = self.iteration_remat.policy is RematPolicy.NONE
        rule = "another policy with gather=per_repeat: none keeps the weights of each iteration for its backward pass"
        require(not (prefetch and keeps_all), "pipeline.iteration_remat", "none", rule)
        rule = "scanned: only gather=per_repeat has a loop over repeats"
        unused = self.repeat_loop is Loop.UNROLLED and not prefetch
        require(not unused, "pipeline.repeat_loop", str(self.repeat_loop), rule)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the microbatches."""
        return Schedule(
            stages=self.stages, microbatches=self.microbatches, repeats=self.repeats, delay=self.delay
        )

    @property
    def axes(self) -> list[tuple[str, int]]:
        """Names and lengths of the leading axes of stacked parameters: repeats, if several, and stages."""
        return [("repeats", self.repeats)] * (self.repeats > 1) + [("stage", self.stages)]

    @property
    def layers_inside(self) -> int:
        """Cycles of layers in the pipeline."""
        return self.stages * self.repeats * self.layers_per_stage


class PipelinedStack(Stack):
    """A stack that runs in the pipeline."""


def with_pipeline(stacks: tuple[Stack, ...], pipeline: PipelineConfig | None) -> tuple[Stack, ...]:
    """Returns the stacks, with the main one split into the layers of the pipeline and the layers after it.

    Raises:
        ConfigError: the main stack has more or fewer cycles than the pipeline and ``layers_outside`` together.
    """
    if pipeline is None:
        return stacks
    cut = []
    for stack in stacks:
        if stack.name != "layers":
            cut.append(stack)
            continue
        inside, outside, period = pipeline.layers_inside, pipeline.layers_outside, len(stack.cycle)
        rule = (
            f"stages * repeats * layers_per_stage + layers_outside = {inside + outside} cycles of {period}; "
            "change one of them or the layers"
        )
        require(stack.repeats == inside + outside, "layers", stack.repeats * period, rule)
        first, layout = stack.first, stack.layout
        cut.append(
            PipelinedStack(name="pipeline", first=first, cycle=stack.cycle, repeats=inside, layout=layout)
        )
        if outside:
            first += inside * period
            cut.append(dataclasses.replace(stack, name=OUTSIDE, first=first, repeats=outside, axis=OUTSIDE))
    return tuple(cut)
