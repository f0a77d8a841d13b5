"""Programs in another precision: with the other rounding of each narrow cast, and with narrow floats widened.

Narrow floats are bfloat16 and float16. A unit in the last place of a float32 weight mostly disappears in its cast, so
that only casts that round the other way show the rounding noise of such a program. Widened programs show the
differences that no rounding explains.
"""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from parity.ir.interpreter import Interpreter, Position, along
from parity.ir.jax_internals import is_transposed, scan_split
from parity.ir.jaxprs import all_bodies, bind_placed, bodies, equations, is_call, opened

Hook = Callable[[Any, list[Any]], Sequence[Any]]
"""Returns the results of an equation, given its operands."""
Bind = Callable[[Any, list[Any]], list[Any]]
WIDE = np.dtype(np.float32)
NARROW = (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16))
SPREAD = 2_654_435_769
"""An odd number whose multiples have high bits that depend on all bits of a number."""
CAST = "convert_element_type"
ARITHMETIC = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "pow",
        "integer_pow",
        "square",
        "sin",
        "cos",
        "tan",
        "tanh",
        "erf",
        "cumsum",
    }
)
"""Operations that round, except those whose types the channel ``dots`` compares."""
ROUNDED = ARITHMETIC | {"dot_general", "conv_general_dilated", "reduce_sum"}


def is_narrow(value: Any) -> bool:
    """True if an array, variable or type holds narrow floats."""
    return getattr(value, "dtype", None) in NARROW


def rounds(jaxpr: Any) -> bool:
    """True if a program computes narrow floats."""
    return any(is_narrow(out.aval) for equation in equations(jaxpr) for out in equation.outvars)


def changed_types(reference: Any, candidate: Any) -> list[str]:
    """Returns the arithmetic that two programs do in different types, and casts that only one does, as text.

    Operations correspond if they have one name and one shape. Their types differ if one side uses a type that the
    other does not use, or if both do the operation equally often, but not equally often in each type. Casts of the
    forward pass to a narrow type must round equally many entries, in any layout and any number of parts: rounding an
    operand once more is another precision. The same cast of the same operand counts once. A gradient is cast wherever
    the forward pass reads a value in a wider type, which formulas of one function do differently often.
    """
    found = []
    left, right = _types(reference), _types(candidate)
    for key in sorted(left.keys() | right.keys(), key=lambda key: (key[0] == CAST, key)):
        one, other = left[key], right[key]
        typed = bool(one and other) and (one.keys() != other.keys() or one.total() == other.total())
        if one != other and (typed or key[0] == CAST):
            texts = [
                ", ".join(f"{count} in {name}" for name, count in sorted(each.items())) or "none"
                for each in (one, other)
            ]
            name = f"{key[0]} {list(key[1])}" if key[1] else f"entries of {key[0]}"
            found.append(f"{name}: {texts[0]} -> {texts[1]}")
    return found


Types = Mapping[tuple[str, tuple[int, ...]], collections.Counter[str]]


def _types(jaxpr: Any) -> Types:
    """Returns how often a program does each arithmetic in each type, and the entries that the forward pass casts."""
    found: Types = collections.defaultdict(collections.Counter)
    _count_types(found, jaxpr, 1, backward=False)
    return found


def _count_types(found: Types, jaxpr: Any, count: int, *, backward: bool) -> None:
    casts: dict[tuple[Any, str], int] = {}
    for equation, inner in zip(opened(jaxpr).eqns, all_bodies(opened(jaxpr)), strict=True):
        name, outs = equation.primitive.name, [each.aval for each in equation.outvars]
        later = backward or is_transposed(equation)
        for body in inner:
            _count_types(found, body, count * equation.params.get("length", 1), backward=later)
        if not later and name == CAST and _is_lossy(equation) and outs[0].shape:
            casts[equation.invars[0], str(outs[0].dtype)] = outs[0].size
        for out in outs if name in ARITHMETIC else ():
            if out.shape and jnp.issubdtype(out.dtype, np.floating):
                found[name, out.shape][str(out.dtype)] += count
    for (_, kind), entries in casts.items():
        found[CAST, ()][kind] += entries * count


def _is_lossy(equation: Any) -> bool:
    """True if a cast rounds floats to a narrow type."""
    before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    return after in NARROW and jnp.issubdtype(before, np.floating) and before != after


def round_other_way(equation: Any, inputs: list[Any]) -> list[Any]:
    """Returns the results of an equation, with a narrow cast rounded to either neighbour, by the bits of each entry.

    Exact casts stay, such as those of masks and zeros.
    """
    outputs = bind_placed(equation, inputs)
    if equation.primitive.name != CAST or not _is_lossy(equation):
        return outputs
    wide, near = jnp.asarray(inputs[0]), outputs[0]  # a number of Python may be passed to a call
    back = lax.convert_element_type(near, wide.dtype)
    limit = np.asarray(np.inf, near.dtype)
    other = lax.nextafter(near, jnp.where(back < wide, limit, -limit))
    return [jnp.where(_odd(wide) & (back != wide) & jnp.isfinite(other), other, near)]


def _odd(wide: jax.Array) -> jax.Array:
    """Returns True for about half of the entries, by their bits and places, so that equal entries part."""
    words = lax.bitcast_convert_type(wide, jnp.uint64 if wide.dtype.itemsize == 8 else jnp.uint32)
    places = lax.iota(jnp.uint32, wide.size).reshape(wide.shape)
    return (lax.convert_element_type(words, jnp.uint32) + places) * np.uint32(SPREAD) >= np.uint32(1 << 31)


def round_all(equation: Any, inputs: list[Any]) -> list[Any]:
    """Returns the results of an equation; arithmetic in float32 rounds to either neighbour, except to whole numbers."""
    outputs = bind_placed(equation, inputs)
    return [*map(_moved, outputs)] if equation.primitive.name in ROUNDED else outputs


def _moved(near: jax.Array) -> jax.Array:
    if near.dtype != WIDE:
        return near
    words = lax.bitcast_convert_type(near, jnp.uint32)
    step = lax.select(_odd(near), lax.full_like(words, 1), lax.full_like(words, 2**32 - 1))
    other = lax.bitcast_convert_type(words + step, near.dtype)  # fewer operations than `nextafter`
    whole = (near == lax.round(near)) & (lax.abs(near) < 2**24)
    return lax.select(whole | ~lax.is_finite(near - other), near, other)


def widen(equation: Any, inputs: list[Any], bind: Bind = bind_placed) -> list[Any]:
    """Returns the results of an equation in float32 instead of a narrow type; an equation with a body runs unchanged.

    ``bind`` runs an equation; with its shardings by default.
    """
    name = equation.primitive.name
    if name == "reduce_precision":
        return inputs
    if name == "bitcast_convert_type" or (bodies(equation) and not name.startswith("scatter")):
        narrow = [
            lax.convert_element_type(value, variable.aval.dtype) if is_narrow(variable.aval) else value
            for value, variable in zip(inputs, equation.invars, strict=True)
        ]
        return [widened(value) for value in bind(equation, narrow)]
    types = {key: kind for key, kind in equation.params.items() if isinstance(kind, np.dtype | type)}
    params = equation.params | {key: WIDE for key, kind in types.items() if kind in NARROW}
    if params.get("update_jaxpr") is not None and is_narrow(equation.invars[0].aval):
        combine, two = params["update_jaxpr"], (jax.ShapeDtypeStruct((), WIDE),) * 2  # of a scatter
        params["update_jaxpr"] = jax.make_jaxpr(lambda *given: _Retrace(widen).run(combine, given))(
            *two
        ).jaxpr
    return bind(equation.replace(params=params), inputs)


def widened(value: Any) -> Any:
    """Returns an array with narrow floats as float32; others unchanged."""
    return lax.convert_element_type(value, WIDE) if is_narrow(value) else value


def retraced(function: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    """Returns a function whose equations are evaluated by a hook, to be traced.

    Args:
        function: of trees of arrays.
        hook: `round_other_way` or `widen`, whose narrow arguments and constants come widened.
    """

    @functools.wraps(function)
    def changed(*arguments: Any) -> Any:
        closed, out = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results = _Retrace(hook).run(closed, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(out), results)

    return changed


class _Retrace(Interpreter):
    """Traces control flow as it is, with bodies whose equations are evaluated by a hook."""

    def __init__(self, hook: Hook):
        self._hook = hook

    def constant(self, value: Any) -> Any:
        return widened(value) if self._hook is widen else value

    def run(self, closed: Any, arguments: Sequence[Any]) -> list[Any]:
        return self.body(closed, [*map(self.constant, arguments)], Position())

    def intercept(self, equation: Any, inputs: list[Any], here: Position) -> Sequence[Any] | None:
        if followed := FOLLOWED.get(equation.primitive.name):
            return followed(self, equation, inputs)
        return None if is_call(equation) else self._hook(equation, inputs)

    def scan(self, equation: Any, inputs: list[Any]) -> list[Any]:
        (inner,), (constants, carries) = bodies(equation), scan_split(equation)
        fixed, carry = inputs[:constants], inputs[constants : constants + carries]

        def iteration(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
            outputs = self.run(inner, [*fixed, *carry, *row])
            return outputs[:carries], outputs[carries:]

        options = {key: equation.params[key] for key in ("length", "reverse", "unroll")}
        last, stacked = lax.scan(iteration, carry, inputs[constants + carries :], **options)
        return [*last, *stacked]

    def loop(self, equation: Any, inputs: list[Any]) -> list[Any]:
        params = equation.params
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

        def decided(carry: list[Any]) -> jax.Array:
            return self.run(params["cond_jaxpr"], [*inputs[:first], *carry])[0]

        def iteration(carry: list[Any]) -> list[Any]:
            mask, new = decided(carry), self.run(params["body_jaxpr"], [*inputs[first:second], *carry])
            pairs = zip(new, carry, strict=True)
            return [jnp.where(along(mask, one), one, old) for one, old in pairs] if mask.ndim else new

        return lax.while_loop(lambda carry: jnp.any(decided(carry)), iteration, inputs[second:])

    def branch(self, equation: Any, inputs: list[Any]) -> list[Any]:
        branches = [lambda *given, inner=inner: self.run(inner, given) for inner in bodies(equation)]
        return lax.switch(lax.convert_element_type(inputs[0], np.int32), branches, *inputs[1:])

    def manual(self, equation: Any, inputs: list[Any]) -> list[Any]:
        options = {key: equation.params[key] for key in ("mesh", "in_specs", "out_specs", "check_vma")}
        options["axis_names"] = equation.params["newly_manual_axes"]
        options["out_specs"] = list(options["out_specs"])
        return jax.shard_map(lambda *given: self.run(equation.params["jaxpr"], given), **options)(*inputs)


FOLLOWED: Mapping[str, Callable[[_Retrace, Any, list[Any]], list[Any]]] = {
    "scan": _Retrace.scan,
    "while": _Retrace.loop,
    "cond": _Retrace.branch,
    "shard_map": _Retrace.manual,
}
