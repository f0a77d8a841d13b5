"""A decoder, composed of its parts."""

import dataclasses
import enum
import functools
import math

from models_nnx.shared.config.attention import AttentionConfig
from models_nnx.shared.config.batch_split import LayerSchedule, check_schedule, without_context
from models_nnx.shared.config.checks import (
    ConfigError,
    require,
    require_choice,
    require_number,
    require_positive,
)
from models_nnx.shared.config.layers import (
    FeedForward,
    LayerKind,
    LayerLayout,
    Stack,
    layer_kinds,
    make_stacks,
)
from models_nnx.shared.config.mlp import MlpConfig
from models_nnx.shared.config.moe import MoeConfig
from models_nnx.shared.config.mtp import MtpConfig
from models_nnx.shared.config.norms import NormPlacement, NormScale
from models_nnx.shared.config.pipeline import PipelineConfig, with_pipeline
from models_nnx.shared.config.remat import RematConfig
from models_nnx.shared.sharding import DEFAULT_RULES, Rules

__all__ = [
    "EmbeddingScale",
    "Head",
    "ModelConfig",
]

DTYPES = ("float32", "bfloat16", "float64")


class Head(enum.StrEnum):
    """Kernel of the logits: a separate one, or the embedding table."""

    UNTIED = "untied"
    TIED = "tied"


class EmbeddingScale(enum.StrEnum):
    """Factor of embedded tokens: none, or the root of the embedding's width."""

    NONE = "none"
    ROOT = "root"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder.

    Args:
        vocab, embed, layers: sizes; ``embed`` is a multiple of the query heads.
        attention, mlp, remat: the parts of a block; ``mlp`` is that of dense layers.
        moe: experts in place of the MLP; None for a dense model.
        dense_layers: number of first layers that have the MLP in a model with experts.
        pipeline: stages that the main stack of layers runs in; None for no pipeline.
        mtp: predictors of further tokens; None to predict the next token only.
        layer_schedule: schedule of layers with experts.
        norm_epsilon: added to the mean square in every RMS norm.
        norm_scale: stored form of a norm's scale.
        norms: placement of a block's norms.
        embedding_scale: factor of embedded tokens.
        head: tied or untied logits.
        logits_soft_cap: logits become ``cap * tanh(logit / cap)``; None for no cap.
        layout: scanned (stacked parameters) or unrolled layers.
        scan_axis: position of the layer axis in stacked parameters of rank >= 2 (rank 1 clips it).
        dropout: rate of the two residual dropouts of a block, in [0, 1).
        param_dtype: dtype parameters are stored in.
        compute_dtype: dtype activations are computed in (norms, softmax and losses use float32).
        rules: ordered logical axis rules.
    """

    vocab: int
    embed: int
    layers: int
    attention: AttentionConfig
    mlp: MlpConfig
    norm_epsilon: float = 1e-6
    norm_scale: NormScale = NormScale.DIRECT
    norms: NormPlacement = NormPlacement.PRE
    embedding_scale: EmbeddingScale = EmbeddingScale.NONE
    head: Head = Head.UNTIED
    logits_soft_cap: float | None = None
    layout: LayerLayout = LayerLayout.SCANNED
    scan_axis: int = 1
    remat: RematConfig = RematConfig()
    dropout: float = 0.0
    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    rules: Rules = DEFAULT_RULES
    moe: MoeConfig | None = None
    dense_layers: int = 0
    pipeline: PipelineConfig | None = None
    mtp: MtpConfig | None = None
    layer_schedule: LayerSchedule = LayerSchedule.PLAIN

    def __post_init__(self):
        require_positive(self, "vocab", "embed", "layers")
        require_choice(self, head=Head, layout=LayerLayout, norm_scale=NormScale, norms=NormPlacement)
        require_choice(self, embedding_scale=EmbeddingScale, layer_schedule=LayerSchedule)
        heads = self.attention.heads
        require(self.embed % heads == 0, "embed", self.embed, f"a multiple of attention.heads={heads}")
        require(self.norm_epsilon > 0, "norm_epsilon", self.norm_epsilon, "a number above 0")
        require(self.scan_axis in (0, 1), "scan_axis", self.scan_axis, "0 or 1")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "a rate in [0, 1)")
        if self.logits_soft_cap is not None:
            require_number(self, "logits_soft_cap", math.ulp(0.0), math.inf, "a number above 0, or none")
        for field in ("param_dtype", "compute_dtype"):
            require(getattr(self, field) in DTYPES, field, getattr(self, field), f"one of {DTYPES}")
        self._check_layers()

    def _check_layers(self):
        period, dense = len(self.attention.cycle), self.dense_layers
        require(self.layers >= period, "layers", self.layers, f"at least one attention.cycle of {period}")
        require(isinstance(dense, int) and dense >= 0, "dense_layers", dense, "a whole number >= 0")
        require(dense < self.layers, "dense_layers", dense, f"less than layers={self.layers}")
        require(dense == 0 or self.moe is not None, "dense_layers", dense, "0: without moe all are dense")
        _ = self.stacks  # refuses layers that do not divide
        staged, experts = self.pipeline is not None, self.moe is not None
        check_schedule(self.layer_schedule, experts=experts, pipeline=staged, dropout=self.dropout)

    @functools.cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of layers, in the order they run."""
        dense = self.dense_layers if self.moe else self.layers
        feed_forwards = (FeedForward.DENSE,) * dense + (FeedForward.MOE,) * (self.layers - dense)
        kinds = layer_kinds(self.attention.cycle, feed_forwards)
        stacks = make_stacks(kinds, len(self.attention.cycle), self.layout)
        return with_pipeline(stacks, self.pipeline)

    @property
    def staging(self) -> PipelineConfig:
        """The pipeline.

        Raises:
            ConfigError: the model has none.
        """
        if self.pipeline is None:
            raise ConfigError("pipeline", None, "a PipelineConfig in a model that runs in stages")
        return self.pipeline

    @functools.cached_property
    def stage(self) -> "ModelConfig":
        """The part of a pipeline that one stage runs in one repeat, as the configuration of a separate decoder."""
        cycles = self.staging.layers_per_stage
        return dataclasses.replace(
            self,
            layers=cycles * len(self.attention.cycle),
            layout=self.staging.stage_layout if cycles > 1 else LayerLayout.UNROLLED,
            scan_axis=0,
            dense_layers=0,
            pipeline=None,
            mtp=None,
        )

    @functools.cached_property
    def halved(self) -> "ModelConfig":
        """This configuration without the axis ``context`` in its rules, for blocks that process halves of a batch."""
        return dataclasses.replace(self, rules=without_context(self.rules))

    def is_split(self, stack: Stack) -> bool:
        """Returns True if a stack processes the batch in halves."""
        split = self.layer_schedule is LayerSchedule.BATCH_SPLIT
        return split and stack.cycle[0].feed_forward is FeedForward.MOE

    @property
    def ahead(self) -> MtpConfig:
        """The predictors of further tokens.

        Raises:
            ConfigError: the model has none.
        """
        if self.mtp is None:
            raise ConfigError("mtp", None, "an MtpConfig in a model that predicts further tokens")
        return self.mtp

    @property
    def ahead_layer(self) -> LayerKind:
        """Kind of a predictor's block: that of the last layer."""
        return self.stacks[-1].cycle[-1]

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts, including those of predictors."""
        if self.moe is None:
            return 0
        return self.layers - self.dense_layers + (self.mtp.depth if self.mtp else 0)

    @property
    def mixture(self) -> MoeConfig:
        """The experts.

        Raises:
            ConfigError: the model has none.
        """
        if self.moe is None:
            raise ConfigError("moe", None, "a MoeConfig in a model whose layers have experts")
        return self.moe
