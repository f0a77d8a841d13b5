"""Constants and iotas: integers and booleans by their values, uniform floats as one scalar."""

import hashlib
from typing import Any

import numpy as np

from parity.ir.jax_internals import ir
from parity.ir.mlir import dense_array
from parity.prove.rules.registry import RewriteRule, normal_form
from parity.prove.rules.terms import FOLDED, Application, Terms
from parity.prove.rules.types import is_number, is_whole_number, numpy_type
from parity.prove.rules.views import View, whole

_LEAST = 2.0**-126
"""Smallest positive normal number of f32; processors may take smaller ones for zero."""


@normal_form("stablehlo.constant")
@RewriteRule(
    name="constant",
    rewrites="a constant -> its one element repeated, or its elements in order; iota -> a count, repeated",
    condition="the values are at hand; floats by what MLIR prints or by their bytes",
    argument="A constant is its elements. The specification defines iota so.",
    attacked_by="positions counted or added up",
    keeps_narrow=True,
)
def _constant(table: Terms, op: Application) -> View | None:
    """Returns a constant as a view; None if its values are not available."""
    value, out = op.attributes["value"], op.out
    if not isinstance(value, ir.DenseElementsAttr) or not table.applies("constant"):
        return None
    count, kind = out.count, numpy_type(out.element)
    if value.is_splat:
        known: Any = value.get_splat_value() if is_number(out.element) else None
        if kind is not None:
            made = table.constant(np.array([known.value]).astype(kind), out.element)
        elif known is not None and isinstance(known.value, float) and abs(known.value or 1) >= _LEAST:
            made = table.make_real(known.value, out.element)
        else:
            text = str(value).partition(" : ")[0]
            made = whole(table.number(f"#literal {out.element} {text}"), 1)
        return made.moved([[(count, 0)]])
    data = dense_array(value) if count <= FOLDED else None
    if data is None:
        return None
    if kind is not None and data.dtype == kind:
        return table.constant(data, out.element)
    if is_whole_number(out.element):
        return None
    digest = hashlib.blake2b(data.tobytes(), digest_size=20).hexdigest()
    return whole(table.number(f"#literals {out.element} {count} {data.dtype} {digest}"), count)


@normal_form("stablehlo.iota")
def _iota(table: Terms, op: Application) -> View | None:
    """Returns an iota along an axis as a view of a one-dimensional count."""
    axis, out = int(op.attributes["iota_dimension"]), op.out
    size, kind = out.shape[axis], numpy_type(out.element)
    if not table.applies("constant"):
        return None
    folds = (
        kind is not None and size <= FOLDED and size - 1 <= (1 if kind == np.bool_ else np.iinfo(kind).max)
    )
    if folds and table.is_by_value():
        base = table.constant(np.arange(size).astype(kind), out.element)
    else:
        base = whole(table.number(f"#count {out.element} {size}"), size)
    groups = [[(length, 0)] for length in out.shape]
    groups[axis] = list(base.factors)
    return base.moved(groups)
