"""Multi-token prediction in plain NumPy, float64: a direct loop over depths, rows and positions.

B batch, T position, V vocab.
"""

import numpy as np
from oracle_families import Family
from oracle_weights import draw


def ahead(batch, depth):
    """Returns the batch of a depth: position t has the entry at t + depth if that is in the same document."""
    segments = batch["segments"]
    rolled = {name: np.zeros_like(x) for name, x in batch.items()}
    rows, length = segments.shape
    for b in range(rows):
        for t in range(length - depth):
            if segments[b, t] == 0 or any(segments[b, t + k] != segments[b, t] for k in range(depth + 1)):
                continue
            for name in rolled:
                rolled[name][b, t] = batch[name][b, t] if name == "segments" else batch[name][b, t + depth]
    return rolled


def token_losses(logits_BTV, targets_BT):
    """Returns the cross-entropy of every token, one at a time."""
    losses = np.zeros(targets_BT.shape)
    for b, t in np.ndindex(targets_BT.shape):
        row = logits_BTV[b, t] - logits_BTV[b, t].max()
        losses[b, t] = np.log(np.exp(row).sum()) - row[targets_BT[b, t]]
    return losses


class Predicting(Family):
    """A model whose parameters may be moved by ``step`` times a random direction for each."""

    step = 0.0

    def get(self, name, *shape):
        value = super().get(name, *shape)
        return value + self.step * direction(name, shape, self.config) if self.step else value

    def judged(self, batch):
        """Returns ``(main logits, per depth {loss_sum, weights, accepted})``."""
        config, hidden = self.config, self.hidden(batch)
        main = self.head(self.norm(hidden, "final_norm"))
        depths = []
        for depth in range(1, config.mtp.depth + 1):
            seen, name = ahead(batch, depth), f"mtp.depth_{depth}"
            embedded = self.norm(self.embed(seen["tokens"]), f"{name}.embed_norm")
            both = np.concatenate([embedded, self.norm(hidden, f"{name}.hidden_norm")], axis=-1)
            hidden = self.project(both, f"{name}.projection", config.embed)
            hidden = self.block(hidden, config.layers - 1, seen, name=f"{name}.block")
            logits = self.head(self.norm(hidden, f"{name}.final_norm"))
            accepted = 0
            for b, t in zip(*np.nonzero(seen["weights"]), strict=True):
                accepted += int(logits[b, t].argmax() == main[b, t + depth].argmax())
            losses, weights = token_losses(logits, seen["targets"]), seen["weights"]
            depths.append({"loss_sum": (losses * weights).sum(), "weights": weights, "accepted": accepted})
        return main, depths

    def mean_loss(self, batch):
        """Returns the cross-entropy of the next token, plus that of further ones times its scale; no z-loss, no
        balance."""
        main, depths = self.judged(batch)
        weights = batch["weights"]
        loss = (token_losses(main, batch["targets"]) * weights).sum() / weights.sum()
        total = sum(depth["weights"].sum() for depth in depths) + 1e-8
        return loss + self.config.mtp.loss_scale * sum(depth["loss_sum"] for depth in depths) / total


def direction(name, shape, config):
    """Returns a random direction for one parameter, by its unrolled name; zeros for a routing bias, which is not
    trained."""
    if name.endswith("routing_bias"):
        return np.zeros(shape)
    return draw(f"direction.{name}", shape, config).astype(np.float64)
