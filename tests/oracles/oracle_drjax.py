"""DiLoCo as placed programs of drjax with optax's SGD; each entry of an array has the number of its fragment.

Source: Rush et al., DrJAX, arXiv:2403.07128; Douillard et al., arXiv:2501.18512, algorithm 2.
"""

import drjax
import jax
import jax.numpy as jnp
import optax


class Placed:
    """Replicas that train, synchronise and apply the results.

    Attributes:
        states: ``{path: [R, ...]}`` of the replicas.
        outer: ``{path: [...]}`` of the trained parameters that they share.
        taken: number of results applied so far.

    Args:
        train: ``(state, batch) -> {"state": state}`` of one replica.
        numbers: ``{path: number of each entry's fragment}``.
        config: a ``DilocoConfig``.
    """

    def __init__(self, train, states, outer, numbers, config):
        self.states, self.outer, self.numbers, self.config = states, outer, numbers, config
        self.optimizer = optax.sgd(config.learning_rate, momentum=config.momentum, nesterov=True)
        self.opt_state, self.waiting, self.taken = self.optimizer.init(outer), {}, 0
        placed = drjax.program(placements={"replicas": config.replicas})
        self._inner = jax.jit(
            placed(lambda states, batch: drjax.map_fn(lambda s, b: train(s, b)["state"], (states, batch)))
        )
        self._meet = jax.jit(placed(self._pseudo_gradient))
        self._take = jax.jit(placed(self._update), static_argnums=0)

    def step(self, number, batch):
        """Makes step ``number``, counted from 1."""
        cfg = self.config
        with jax.set_mesh(jax.make_mesh((1,), ("replicas",), (jax.sharding.AxisType.Auto,))):
            self.states = self._inner(self.states, batch)
            for fragment in range(cfg.fragments):
                since = number - (fragment + 1) * cfg.period // cfg.fragments
                if since >= 0 and since % cfg.period == 0:
                    self.waiting[number + cfg.delay] = fragment, self._meet(self.states, self.outer)
            if number in self.waiting:
                fragment, gradient = self.waiting.pop(number)
                self.outer, self.opt_state, self.states = self._take(
                    fragment, gradient, self.outer, self.opt_state, self.states
                )
                self.taken += 1

    def _pseudo_gradient(self, states, outer):
        mean = drjax.reduce_mean({path: states[path] for path in outer})
        return jax.tree.map(jnp.subtract, outer, mean)

    def _update(self, fragment, gradient, outer, opt_state, states):
        def chosen(new, old):
            return {path: jnp.where(self.numbers[path] == fragment, new[path], x) for path, x in old.items()}

        def towards(mine, right):
            share = self.config.inner_share
            return chosen({path: share * mine[path] + (1 - share) * x for path, x in right.items()}, mine)

        updates, (momentum, *rest) = self.optimizer.update(gradient, opt_state, outer)
        momentum = momentum._replace(trace=chosen(momentum.trace, opt_state[0].trace))
        outer = chosen(optax.apply_updates(outer, updates), outer)
        mine = {path: states[path] for path in outer}
        taken = drjax.map_fn(towards, (mine, drjax.broadcast(outer)))
        return outer, (momentum, *rest), {**states, **taken}
