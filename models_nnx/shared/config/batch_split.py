"""In what order the layers with experts take a batch."""

import enum

from models_nnx.shared.config.checks import require
from models_nnx.shared.mesh import Rules, as_axes, as_entry

__all__ = ["LayerSchedule", "check_schedule", "without_context"]

CONTEXT = "context"


class LayerSchedule(enum.StrEnum):
    """How layers with experts run: on the whole batch, or on two halves in turn.

    With ``batch_split`` neither half waits for the other, so one's experts may communicate while the other attends.
    """

    PLAIN = "plain"
    BATCH_SPLIT = "batch_split"


def check_schedule(schedule: LayerSchedule, *, experts: bool, pipeline: bool, dropout: float) -> None:
    """Checks that a model can have its schedule.

    Raises:
        ConfigError: it cannot.
    """
    if schedule is LayerSchedule.PLAIN:
        return
    require(experts, "layer_schedule", str(schedule), "plain: without moe there is no communication to hide")
    require(
        not pipeline, "layer_schedule", str(schedule), "plain in a pipeline: its microbatches overlap already"
    )
    rule = "plain with dropout: masks are drawn for the whole batch; or dropout 0"
    require(dropout == 0, "layer_schedule", str(schedule), rule)


def without_context(rules: Rules) -> Rules:
    """Returns rules that put nothing on the mesh axis ``context``; the halves' activations lie so."""
    return tuple((name, as_entry([a for a in as_axes(axes) if a != CONTEXT])) for name, axes in rules)
