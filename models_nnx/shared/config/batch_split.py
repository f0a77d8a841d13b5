"""Order in which layers with experts process a batch."""

import enum

from models_nnx.shared.config.checks import require
from models_nnx.shared.mesh import Rules, as_axes, as_entry

__all__ = ["LayerSchedule", "check_schedule", "without_context"]

CONTEXT = "context"


class LayerSchedule(enum.StrEnum):
    """Schedule of layers with experts: the whole batch at once, or two halves one after the other.

    With ``batch_split`` the halves are independent, so the experts of one half may communicate during the other's
    attention.
    """

    PLAIN = "plain"
    BATCH_SPLIT = "batch_split"


def check_schedule(schedule: LayerSchedule, *, experts: bool, pipeline: bool, dropout: float) -> None:
    """Checks that a model supports its schedule.

    Raises:
        ConfigError: it does not.
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
    """Returns the rules without the mesh axis ``context``; they place the activations of the halves."""
    return tuple((name, as_entry([a for a in as_axes(axes) if a != CONTEXT])) for name, axes in rules)
