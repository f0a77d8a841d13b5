"""DiLoCo as a plain Python loop over replicas in NumPy, layer by layer; pseudo-gradients wait until they are applied.

Source: Douillard et al., arXiv:2311.08105, algorithm 1, and arXiv:2501.18512, algorithm 2.
"""

import re

import numpy as np


def layers(leaves, first, scan_axis=1):
    """Returns ``{(name, layer number or None): view}`` of whole arrays by path, without the replica axis.

    Args:
        leaves: ``{path: array}``; layers stacked along ``scan_axis`` or, if there are fewer axes, the last.
        first: ``{name of a stack: number of its first layer}``.
    """
    views = {}
    for path, array in leaves.items():
        stacked = re.match(r"decoder/([a-z_]+)/(.*)", path)
        alone = re.match(r"decoder/layers_(\d+)/(.*)", path)
        if alone:
            views[alone[2], int(alone[1])] = array
        elif stacked:
            for number, view in enumerate(np.moveaxis(array, min(scan_axis, array.ndim - 1), 0)):
                views[stacked[2], first[stacked[1]] + number] = view
        else:
            views[path, None] = array
    return views


def fragment_of(name, number, fragments):
    """Returns the fragment: of a layer its number modulo ``fragments``, of the embedding the first, of the rest the
    last."""
    if number is not None:
        return number % fragments
    return 0 if name.startswith("embedder") else fragments - 1


class Replicas:
    """State of R replicas, each ``{(name, number): array}``, changed in place, and their shared state.

    Attributes:
        inner: a dict for each replica.
        outer, momentum: dicts.
        step: steps made.
    """

    def __init__(self, inner, outer, config):
        self.inner, self.config, self.step = inner, config, 0
        self.outer = {name: np.array(array, np.float64) for name, array in outer.items()}
        self.momentum = {name: np.zeros_like(array) for name, array in self.outer.items()}
        self.waiting = []

    def after_step(self):
        """Computes pseudo-gradients and applies those that are due, after each replica has made its step."""
        cfg = self.config
        self.step += 1
        for fragment in range(cfg.fragments):
            begin = (fragment + 1) * (cfg.period // cfg.fragments)
            if self.step >= begin and (self.step - begin) % cfg.period == 0:
                names = [name for name in self.outer if fragment_of(*name, cfg.fragments) == fragment]
                self.waiting.append((self.step + cfg.delay, {name: self.gradient(name) for name in names}))
        due = [gradients for when, gradients in self.waiting if when == self.step]
        self.waiting = [(when, gradients) for when, gradients in self.waiting if when > self.step]
        for gradients in due:
            for name, gradient in gradients.items():
                self.apply(name, gradient)

    def gradient(self, name):
        """Returns the outer parameters minus the replicas' mean."""
        total = sum(np.asarray(replica[name], np.float64) for replica in self.inner)
        return self.outer[name] - total / len(self.inner)

    def apply(self, name, gradient):
        """Applies Nesterov momentum, then moves every replica towards the outer parameters."""
        cfg = self.config
        self.momentum[name] = gradient + cfg.momentum * self.momentum[name]
        logits_with_mtp = gradient + cfg.momentum * self.momentum[name]
        self.outer[name] = self.outer[name] - cfg.learning_rate * logits_with_mtp
        for replica in self.inner:
            replica[name][...] = cfg.inner_share * replica[name] + (1 - cfg.inner_share) * self.outer[name]
