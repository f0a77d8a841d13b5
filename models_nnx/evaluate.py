"""Evaluation of a model on a batch, without training."""

from flax import nnx

from models_nnx.model import LanguageModel
from models_nnx.shared import ops
from models_nnx.shared.config import TrainConfig
from models_nnx.state import MtpAcceptance, MtpLosses, Routed, Sown

__all__ = ["evaluate"]

LEFT = (MtpLosses, MtpAcceptance, Sown, Routed)


def evaluate(model: LanguageModel, train: TrainConfig, batch):
    """Returns ``(logits_BTV, metrics, routed)`` of a batch.

    Args:
        model: the values that it sows are removed again.
        train: static.
        batch: as in `train_step`.

    Returns:
        Logits; ``loss`` and sown values, including ``mtp/depth_1/acceptance``, in the form of a train step's metrics;
        the routing of each layer.

    Raises:
        SownError: a layer with experts, or a predictor of a further token, sowed nothing.
    """
    logits_BTV = model.logits_with_mtp(ops.MtpInputs(batch, train, accept=True))
    losses, accepted, sown, routed = map(nnx.to_pure_dict, nnx.pop(model, *LEFT))
    loss_sum, weight_sum = ops.cross_entropy(logits_BTV, batch["targets"], batch["weights"], z_loss=0.0)
    sums = ops.sown_sums(sown, weight_sum, model.config)
    sums |= ops.mtp_sums({**ops.flat_sown(losses), **ops.flat_sown(accepted)}, model.config, accepted=True)
    metrics = {"loss": loss_sum / weight_sum, **ops.sown_metrics(sums, weight_sum, model.config)}
    return logits_BTV, metrics, ops.by_layer(routed, model.config)
