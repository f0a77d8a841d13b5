"""A training step in plain NumPy: warm-up and cosine, clip, AdamW, skip of non-finite gradients and of spikes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import oracle_decoder


def learning_rate(count, config):
    """Returns a rate linear from 0 over ``warmup_steps``, then half a cosine to the final rate at ``total_steps``."""
    if count < config.warmup_steps:
        return config.learning_rate * count / config.warmup_steps
    span = config.total_steps - config.warmup_steps
    progress = min(count - config.warmup_steps, span) / span
    final = config.final_learning_rate
    return final + (config.learning_rate - final) * (1 + math.cos(math.pi * progress)) / 2


def norm(tree):
    """Returns the global norm."""
    return math.sqrt(sum(float(np.sum(leaf**2)) for leaf in tree.values()))


class AdamW:
    """Adam (Kingma and Ba 2015) with decoupled decay (Loshchilov and Hutter 2019) after a global-norm clip.

    Attributes:
        params, mu, nu: dicts of float64 arrays.
        step: calls; count: updates made; bad: consecutive non-finite calls; bad_total: all of them.
        spikes: consecutive losses far above the last ones; spikes_total: all of them; losses: the last ones.
    """

    def __init__(self, params, config):
        self.config = config
        self.params = {name: np.array(leaf) for name, leaf in params.items()}
        self.mu = {name: np.zeros_like(leaf) for name, leaf in params.items()}
        self.nu = {name: np.zeros_like(leaf) for name, leaf in params.items()}
        self.step = self.count = self.bad = self.bad_total = self.spikes = self.spikes_total = 0
        self.losses = []

    def spiked(self, loss):
        """Returns True if an update is skipped because its loss is far above the last ones; counts spikes, stores
        losses."""
        cfg = self.config
        if not cfg.spike_window:
            return False
        last = self.losses[-cfg.spike_window :]
        spike = len(last) == cfg.spike_window and loss > np.mean(last) + cfg.spike_factor * np.std(last)
        self.spikes = self.spikes + 1 if spike else 0
        self.spikes_total += bool(spike)
        if spike and self.spikes <= cfg.max_bad_steps:
            return True
        self.losses += [loss] if np.isfinite(loss) else []
        return False

    def update(self, grads, loss=None):
        """Makes one call of the optimizer."""
        cfg = self.config
        self.step += 1
        finite = all(np.all(np.isfinite(grad)) for grad in grads.values())
        self.bad = 0 if finite else self.bad + 1
        self.bad_total += not finite
        if (not finite and self.bad <= cfg.max_bad_steps) or self.spiked(loss):
            return
        rate = learning_rate(self.count, cfg)
        self.count += 1
        size = norm(grads)
        shrink = 1.0 if size < cfg.clip_norm else cfg.clip_norm / size
        for name, grad in grads.items():
            grad = grad * shrink
            self.mu[name] = cfg.b1 * self.mu[name] + (1 - cfg.b1) * grad
            self.nu[name] = cfg.b2 * self.nu[name] + (1 - cfg.b2) * grad * grad
            mean = self.mu[name] / (1 - cfg.b1**self.count)
            square = self.nu[name] / (1 - cfg.b2**self.count)
            direction = mean / (np.sqrt(square) + cfg.epsilon) + cfg.weight_decay * self.params[name]
            self.params[name] = self.params[name] - rate * direction


@functools.cache
def gradients(config, z_loss):
    """Returns ``(params, batch) -> (loss, grads)`` of the oracle's full-batch mean, under x64.

    Segments and positions are constants of a program, so there is one for each arrangement of documents.
    """
    compiled = {}

    def compute(params, batch):
        still = {name: batch[name] for name in ("segments", "positions")}

        def loss(params, moving):
            return oracle_decoder.mean_loss(params, {**still, **moving}, config, z_loss, jnp)

        function = compiled.setdefault(still["segments"].tobytes(), jax.jit(jax.value_and_grad(loss)))
        moving = {name: jnp.asarray(batch[name]) for name in ("tokens", "targets", "weights")}
        value, grads = function({name: jnp.asarray(leaf) for name, leaf in params.items()}, moving)
        return float(value), {name: np.asarray(grad) for name, grad in grads.items()}

    return compute
