"""Evaluation of a model on a batch, without training."""

from models_linen.model import LanguageModel
from models_nnx.shared import ops
from models_nnx.shared.config import ModelConfig, TrainConfig

__all__ = ["evaluate"]

LEFT = ("sown", "routed", "mtp_losses", "mtp_acceptance")


def evaluate(config: ModelConfig, train: TrainConfig, variables, batch):
    """Returns ``(logits_BTV, metrics, routed)`` of a batch.

    Args:
        config, train: static.
        variables: the collections ``params`` and, if the model has one, ``routing_bias``.
        batch: as in `train_step`.

    Returns:
        Logits; ``loss`` and sown values, including ``mtp/depth_1/acceptance``, in the form of a train step's metrics;
        the routing of each layer.

    Raises:
        SownError: a layer with experts, or a predictor of a further token, sowed nothing.
    """
    ahead = ops.MtpInputs(batch, train, accept=True)
    logits_BTV, left = LanguageModel(config).apply(variables, ahead, mutable=LEFT, method="logits_with_mtp")
    loss_sum, weight_sum = ops.cross_entropy(logits_BTV, batch["targets"], batch["weights"], z_loss=0.0)
    sums = ops.sown_sums(left.get("sown", {}), weight_sum, config)
    losses, accepted = (ops.flat_sown(left.get(name, {})) for name in ("mtp_losses", "mtp_acceptance"))
    sums |= ops.mtp_sums({**losses, **accepted}, config, accepted=True)
    metrics = {"loss": loss_sum / weight_sum, **ops.sown_metrics(sums, weight_sum, config)}
    return logits_BTV, metrics, ops.by_layer(left.get("routed", {}), config)
