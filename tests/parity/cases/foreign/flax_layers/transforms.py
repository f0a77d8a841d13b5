"""Lifted transforms of both flavours over the same dense layers, and weights with axes."""

import functools

import jax
import jax.numpy as jnp
from flax import linen, nnx

from flax_layers.rows import D, Row, of

L = 3  # layers


class LinenLayer(linen.Module):
    @linen.compact
    def __call__(self, x):
        return x + jnp.tanh(linen.Dense(D, name="dense")(x))


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x):
        return x + jnp.tanh(self.dense(x))


class LinenLifted(linen.Module):
    """Calls a function of the layer."""

    function: object

    def setup(self):
        self.layer = LinenLayer()

    def __call__(self, x):
        return self.layer(x) if self.is_initializing() else self.function(self.layer, x)


class NnxLifted(nnx.Module):
    def __init__(self, function, rngs):
        self.layer, self.function = NnxLayer(rngs), function

    def __call__(self, x):
        return self.function(self.layer, x)


def call(layer, x):
    return layer(x)


def total(layer, x):
    return jnp.sum(jnp.sin(layer(x)))


class LinenTwo(linen.Module):
    """Calls a function of two layers."""

    function: object

    def setup(self):
        self.layers = [LinenLayer(), LinenLayer()]

    def __call__(self, x):
        if self.is_initializing():
            return self.layers[1](self.layers[0](x))
        return self.function(self, x)


class NnxTwo(nnx.Module):
    def __init__(self, function, rngs):
        self.layers, self.function = nnx.List([NnxLayer(rngs), NnxLayer(rngs)]), function

    def __call__(self, x):
        return self.function(self, x)


class LinenScan(linen.Module):
    lifted: object
    options: dict

    @linen.compact
    def __call__(self, x):
        body = self.lifted(lambda layer, x, _: (layer(x), None))
        scan = linen.scan(
            body, variable_axes={"params": 0}, split_rngs={"params": True}, length=L, **self.options
        )
        return scan(LinenLayer(name="layers"), x, None)[0]


def stacked(rngs):
    return nnx.split_rngs(splits=L)(nnx.vmap(NnxLayer))(rngs)


class NnxScan(nnx.Module):
    def __init__(self, lifted, options, rngs):
        self.layers, self.lifted, self.options = stacked(rngs), lifted, options

    def __call__(self, x):
        body = self.lifted(lambda x, layer: layer(x))
        return nnx.scan(body, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry, **self.options)(x, self.layers)


class LinenVmap(linen.Module):
    @linen.compact
    def __call__(self, x):
        lifted = linen.vmap(LinenLayer, variable_axes={"params": 0}, split_rngs={"params": True}, axis_size=L)
        return lifted(name="layers")(jnp.stack([x, 2 * x, 3 * x]))


class NnxVmap(nnx.Module):
    def __init__(self, rngs):
        self.layers = stacked(rngs)

    def __call__(self, x):
        return nnx.vmap(call)(self.layers, jnp.stack([x, 2 * x, 3 * x]))


def lifted(linen_function, nnx_function, **row):
    return Row(linen=LinenLifted(linen_function), nnx=of(NnxLifted, nnx_function), **row)


def two(function):
    return Row(linen=LinenTwo(of(function, linen)), nnx=of(NnxTwo, of(function, nnx)))


def scanned(lift=lambda module: lambda function: function, **options):
    return Row(linen=LinenScan(lift(linen), options), nnx=of(NnxScan, lift(nnx), options))


def first(model, x):
    return model.layers[0](x)


def second(model, x):
    return 2 * model.layers[1](model.layers[0](x))


def linen_while(layer, x):
    def body(layer, carry):
        return layer(carry[0]), carry[1] + 1

    return linen.while_loop(lambda _, carry: carry[1] < L, body, layer, (x, 0), broadcast_variables="params")[
        0
    ]


def nnx_while(layer, x):
    def body(carry):
        layer, x, at = carry
        return layer, layer(x), at + 1

    return nnx.while_loop(lambda carry: carry[2] < L, body, (layer, x, 0))[1]


def linen_jvp(layer, x):
    zeros = {"params": _zeros(layer.variables["params"])}
    out, tangent = linen.jvp(call, layer, (x,), (jnp.ones_like(x),), variable_tangents=zeros)
    return out + tangent


def nnx_jvp(layer, x):
    graphdef, state = nnx.split(layer)
    zeros = nnx.merge(graphdef, _zeros(state))
    out, tangent = nnx.jvp(call, (layer, x), (zeros, jnp.ones_like(x)), graph=False)
    return out + tangent


def _zeros(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def linen_vjp(layer, x):
    out, pull = linen.vjp(call, layer, x)
    return out + pull(jnp.ones_like(out))[1]


def nnx_vjp(layer, x):
    out, pull = nnx.vjp(call, layer, x, graph=False)
    return out + pull(jnp.ones_like(out))[1]


class LinenBoxed(linen.Module):
    @linen.compact
    def __call__(self, x):
        init = linen.with_partitioning(linen.initializers.lecun_normal(), (None, "data"))
        return linen.Dense(8, kernel_init=init)(x)


class NnxBoxed(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "data"))
        self.dense = nnx.Linear(D, 8, kernel_init=init, rngs=rngs)

    def __call__(self, x):
        return self.dense(x)


ROWS = {
    "jit": lifted(linen.jit(call), nnx.jit(call)),
    "remat": lifted(linen.remat(call), nnx.remat(call)),
    "scan": scanned(),
    "scan: unrolled": scanned(unroll=2),
    "scan: reversed": scanned(reverse=True),
    "scan: remat": scanned(lambda flax: functools.partial(flax.remat, prevent_cse=False)),
    "vmap": Row(linen=LinenVmap(), nnx=NnxVmap),
    "cond": two(lambda flax, model, x: flax.cond(x.sum() > 0, first, second, model, x)),
    "switch": two(lambda flax, model, x: flax.switch(jnp.argmax(x[0, 0, :2]), [first, second], model, x)),
    "while_loop": lifted(linen_while, nnx_while, programs=("forward",)),
    "grad": lifted(
        lambda layer, x: linen.grad(total, layer, x)[0], lambda layer, x: nnx.grad(total, argnums=1)(layer, x)
    ),
    "value_and_grad": lifted(
        lambda layer, x: linen.value_and_grad(total, layer, x)[1][0],
        lambda layer, x: nnx.value_and_grad(total, argnums=1)(layer, x)[1],
    ),
    "vjp": lifted(linen_vjp, nnx_vjp),
    "jvp": lifted(linen_jvp, nnx_jvp),
    "with_partitioning": Row(
        linen=LinenBoxed(),
        nnx=NnxBoxed,
        options={"meshes": ("data2-auto",), "axis_rules": (("data", "data"),)},
    ),
}
