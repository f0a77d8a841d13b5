"""A separate program: JAX hoists constants only if its environment requests it before the import."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from parity.builds.build import linen_build
from parity.cases.case import Case
from parity.compare.session import Session
from parity.ir.jax_internals import hoisted_constants, kept_arguments, main_position, stablehlo_module
from parity.prove import argument_fingerprints, prove
from parity.run.run import run_case

# B batch, D in, F out
B, D, F = 5, 4, 3
RNG = np.random.default_rng(0)
TABLE_DF, SHIFT_BF = (RNG.standard_normal(shape).astype(np.float32) for shape in ((D, F), (B, F)))


def payload(table, bits):
    changed = table.copy()
    changed[0, 0] = np.uint32(bits).view(np.float32)
    return changed


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def state(key):
    return {"params": {"w": jax.random.normal(key, (D, F)), "b": jnp.ones(F)}}


def functions(table, shift):
    table, shift = jnp.asarray(table), jnp.asarray(shift)

    def apply(params, x):
        return jnp.tanh(x @ (params["w"] + table)) + params["b"][None] * shift

    def forward(state, inputs):
        return {"values": {"out": apply(state["params"], inputs["x"])}}

    def step(state, inputs):
        loss = lambda params: jnp.sum(apply(params, inputs["x"]) ** 2)  # noqa: E731
        value, grads = jax.value_and_grad(loss)(state["params"])
        after = jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, state["params"], grads)
        return {"values": {"loss": value}, "gradients": {"params": grads}, "state": {"params": after}}

    return {"forward": forward, "step": step}


def build(name, tables):
    return linen_build(
        name,
        state,
        {key: (function, {}) for key, function in functions(*tables).items()},
        inputs=batch,
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: jax.sharding.PartitionSpec(), tree),
        input_specs=lambda leaves, mesh: {name: jax.sharding.PartitionSpec() for name in leaves},
    )


def verdicts(program, other, paranoid):
    sides = [build(f"{name} {id(other)}", each) for name, each in (("l", (TABLE_DF, SHIFT_BF)), ("r", other))]
    case = Case(id="toy/case@single", reference=lambda: sides[0], candidate=lambda: sides[1], program=program)
    result = run_case(case, Session(paranoid=paranoid))
    return {name: str(channel.verdict) for name, channel in result.channels.items()}


def lower(table):
    table = jnp.asarray(table)
    return jax.jit(lambda x, unused, y: (x + table) * y).lower(
        *[jax.ShapeDtypeStruct((D, F), jnp.float32)] * 3
    )


def crossed(first, second, swapped):
    first, second = jnp.asarray(first), jnp.asarray(second)

    def run(x):
        if swapped:
            right = x - second
            return (x + first) * right
        left = x + first
        return left * (x - second)

    return jax.jit(run).lower(jax.ShapeDtypeStruct((D, F), jnp.float32))


def cases():
    """Returns the verdicts of twins that close over the same tables or over others."""
    same, other = (TABLE_DF, SHIFT_BF), (TABLE_DF, payload(SHIFT_BF, 0x7FC00001))
    return {
        f"{program} {kind}": verdicts(program, tables, paranoid)
        for program in ("forward", "step")
        for kind, tables, paranoid in (
            ("same", same, False),
            ("paranoid", same, True),
            ("other", other, False),
        )
    }


def programs():
    """Returns what is read from lowered programs, and the proofs between them."""
    found = {}
    nans = [payload(TABLE_DF, bits) for bits in (0x7FC00001, 0x7FC00002, 0x7FC00001)]
    lowered = [lower(table) for table in nans]
    pairs = [(1, 1), (2, 2)]
    found["marks"] = [
        len(hoisted_constants(lowered[0])),
        kept_arguments(lowered[0]),
        main_position(lowered[0]),
    ]
    found["payloads"] = [
        prove(lowered[0], each, arguments=pairs, results=[(0, 0)]).proved for each in lowered[1:]
    ]
    found["prints"] = [
        argument_fingerprints(lowered[0])[1:] == argument_fingerprints(each)[1:] for each in lowered[1:]
    ]
    tables = TABLE_DF, payload(TABLE_DF, 0)
    sides = [crossed(*tables, False), crossed(*tables, True), crossed(*reversed(tables), False)]
    found["crossed"] = [
        prove(sides[0], each, arguments=[(2, 2)], results=[(0, 0)]).proved for each in sides[1:]
    ]
    modules = [stablehlo_module(each) for each in lowered]
    found["values not at hand"] = prove(modules[0], modules[2], arguments=pairs, results=[(0, 0)]).proved
    found["refused"] = []
    for arguments in ([(0, 0), (1, 1), (2, 2)], [(1, 1)]):
        try:
            prove(lowered[0], lowered[2], arguments=arguments, results=[(0, 0)])
        except ValueError as error:
            found["refused"].append(str(error))

    def ordered(x):
        jax.debug.print("{}", x[0, 0], ordered=True)
        return x + TABLE_DF

    try:
        kept_arguments(jax.jit(ordered).lower(jax.ShapeDtypeStruct((D, F), jnp.float32)))
    except ValueError as error:
        found["refused"].append(str(error))
    return found


if __name__ == "__main__":
    json.dump({"cases": cases, "programs": programs}[sys.argv[1]](), sys.stdout)
