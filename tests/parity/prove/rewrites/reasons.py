"""Reasons why some rewrites are not proved. ``reordered`` ones name their rules instead."""

__all__ = ["REASONS"]

_ADDED_ZEROS = "the gradient of slices is a sum of padded pieces: x + 0 is no rule, -0 + 0 is 0"
_ANOTHER_SUM = "one side sums in two steps, the other in one: another order of additions"
_OTHER_ORDER = "the gradient multiplies and sums in another order: it is another program"
_PADS = "one pad or several: no rule, because compiled code had other bits"
_OTHER_AXES = "products over two axes or over one: compiled code adds them up otherwise"
_OTHER_LAYOUT = "a transposed operand: a library may add up in another order"
_OTHER_CARRY = "the loops carry gradients of other shapes"
_CONVERSIONS = "conversions in a row: no rule, no case needs one"
_NEGATIONS = "negations in a row: no rule, no case needs one"
_ADDED = "compiled code adds the gradient up: the rule on places holds only where nothing is added"
_MERGED = "neighbouring slices are not merged: no rule, no case needs one"
_REVERSED = "reversals: no rule, no case needs one"

REASONS: dict[str, str] = {
    "matmul of the flattened, gradient": _OTHER_AXES,
    "heads in the weights, gradient": _OTHER_AXES,
    "operand with a unit axis, gradient": _OTHER_AXES,
    "inside of a branch, gradient": _OTHER_AXES,
    "weights written transposed, forward": _OTHER_LAYOUT,
    "weights written transposed, gradient": _OTHER_LAYOUT,
    "heads moved before or after the scores, forward": _OTHER_LAYOUT,
    "heads moved before or after the scores, gradient": _OTHER_LAYOUT,
    "broadcast at once or twice, gradient": _ANOTHER_SUM,
    "slices put together again, forward": _MERGED,
    "slices put together again, gradient": _ADDED_ZEROS,
    "slices of the last axis put together again, forward": _MERGED,
    "slices of the last axis put together again, gradient": _ADDED_ZEROS,
    "stack of unstacked, forward": _MERGED,
    "stack of unstacked, gradient": _ADDED_ZEROS,
    "concatenate of concatenated, forward": "nested concatenations are not flattened: no rule, no case needs one",
    "concatenate of concatenated, gradient": "as forward",
    "boolean to number at once, forward": "a product with a converted boolean becomes a selection: other bits",
    "boolean to number at once, gradient": "as forward",
    "half of a concatenation, gradient": _ADDED_ZEROS,
    "slice of a slice, gradient": _PADS,
    "strided slice of a strided slice, gradient": _PADS,
    "on the transposed and back, gradient": "sums of transposed arrays: no rule",
    "product before or after broadcast, gradient": _OTHER_ORDER,
    "product of broadcasts added to, gradient": _OTHER_ORDER,
    "product and sum before or after broadcast, gradient": _OTHER_ORDER,
    "vmap over the last axis, gradient": "sums of transposed arrays: no rule",
    "rotary halves, gradient": _ADDED_ZEROS,
    "rows at a remainder, with bounds or without, gradient": _ADDED,
    "row at a remainder, put in place, gradient": _ADDED,
    "row at a remainder, by dynamic_slice or take, gradient": _ADDED,
    "gelu on heads, gradient": "another order of the sums of cotangents",
    "selection by a constant, gradient": "one side adds the zero cotangent of the branch not taken",
    "selection between equals, forward": "XLA may find out too late that both are one",
    "selection between equals, gradient": "one side adds the cotangents of two branches",
    "table looked up by rows, clipped, or one row at a time, forward": "negative indices count from the end on one",
    "table looked up by rows, clipped, or one row at a time, gradient": "as forward",
    "hoisted out of a loop, forward": "compilers simplify and fuse a loop body by itself",
    "hoisted out of a loop, gradient": _OTHER_CARRY,
    "hoisted and reshaped out of a loop, gradient": _OTHER_CARRY,
    "flattened inside of a loop, gradient": _OTHER_CARRY,
    "square or product, gradient": "2 x g against x g + x g: another rounding",
    "maximum of the lowest, gradient": "a maximum has a gradient of its own: one of NaN",
    "clip by bounds in either order, gradient": "the gradient compares with the bounds in another order",
    "branch by a constant, gradient": "the branches return residuals and zeros, which are added",
    "row put in place or joined, gradient": _ADDED_ZEROS,
    "row set or joined, gradient": _ADDED_ZEROS,
    "parts repeated, gradient": "a sum of two parts against a reduction",
    "bytes widened twice, forward": _CONVERSIONS,
    "bytes widened twice, gradient": _CONVERSIONS,
    "half there and back, forward": _CONVERSIONS,
    "half there and back, gradient": _CONVERSIONS,
    "there and back through a wider type, forward": _CONVERSIONS,
    "there and back through a wider type, gradient": _CONVERSIONS,
    "minus minus, forward": _NEGATIONS,
    "minus minus, gradient": _NEGATIONS,
    "minus on the flattened, minus again, forward": _NEGATIONS,
    "minus on the flattened, minus again, gradient": _NEGATIONS,
    "on the reversed and back, forward": _REVERSED,
    "on the reversed and back, gradient": _REVERSED,
    "reverse across a merged axis, forward": _REVERSED,
    "reverse across a merged axis, gradient": _REVERSED,
    "reverse twice, forward": _REVERSED,
    "reverse twice, gradient": _REVERSED,
    "parts repeated, forward": "compiled code adds up a concatenation in parts, a repeated array at once",
    "attention of Linen and NNX, forward": "Linen divides the queries by a root, NNX multiplies the scores: exact only",
    "attention of Linen and NNX, gradient": "as forward",
}
"""Reasons by name of the rewrite."""
