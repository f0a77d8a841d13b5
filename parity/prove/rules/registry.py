"""The rules as data: what each rewrites, on what condition, why no bit changes, and what attacks it."""

import dataclasses

__all__ = ["EXACT", "LOOSE", "MOVED", "NARROW", "RULES", "VANISHING", "RewriteRule"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewriteRule:
    """One rule of the normaliser.

    Args:
        name: as proofs say it.
        rewrites: what becomes what.
        condition: when.
        argument: why every bit stays, for every input.
        loose: whether compiled programs gave other bits, or may; then it serves the rung ``reordered`` only.
        narrow: whether it keeps the bits of compiled bf16, f16 and f8, too; if not, `NARROW` must allow it on these.
    """

    name: str
    rewrites: str
    condition: str
    argument: str
    loose: bool = False
    narrow: bool = False


NARROW = "narrow-floats"
"""The rule that lets others act on floats of fewer than 32 bits."""
MOVED = "moved-weights"
"""The rule that views arguments and results through the transforms of the weight map."""
VANISHING = "vanishing-floats"
"""The rule that lets others take an operation on floats away."""


def _rules(*rules: RewriteRule) -> dict[str, RewriteRule]:
    return {rule.name: rule for rule in rules}


RULES: dict[str, RewriteRule] = _rules(
    RewriteRule(
        name="reshape",
        rewrites="reshape -> the same elements in the same order",
        condition="any",
        argument="StableHLO defines reshape by row-major order; places do not change.",
        narrow=True,
    ),
    RewriteRule(
        name="unit-dims",
        rewrites="broadcast_in_dim that adds axes of size one only -> reshape",
        condition="as many elements as before, axes in ascending order",
        argument="Each element occurs once and in the old order.",
        narrow=True,
    ),
    RewriteRule(
        name="broadcast",
        rewrites="broadcast_in_dim -> a digit of stride zero; broadcasts of broadcasts and of other views composed",
        condition="the source's digits fall on its axes",
        argument="The result's place is a function of the source's place; functions compose.",
        narrow=True,
    ),
    RewriteRule(
        name="transpose",
        rewrites="transpose -> digits in another order; compositions merged, identities removed",
        condition="digits fall on axes",
        argument="As for broadcast.",
        narrow=True,
    ),
    RewriteRule(
        name="reverse",
        rewrites="reverse -> digits that count backwards",
        condition="digits fall on axes",
        argument="i becomes size - 1 - i in an axis, hence in each of its digits.",
    ),
    RewriteRule(
        name="slice",
        rewrites="slice -> an offset and shorter digits; slices of slices composed, whole slices removed",
        condition="the slice cuts one digit, or whole inner ones",
        argument="As for broadcast.",
        narrow=True,
    ),
    RewriteRule(
        name="static-slice",
        rewrites="dynamic_slice -> slice",
        condition="the starts are known integers, or the slice is as long as the axis",
        argument="StableHLO clamps starts to [0, size - length]; the rule does the same to numbers it knows.",
        narrow=True,
    ),
    RewriteRule(
        name="empty-pad",
        rewrites="pad by nothing -> its operand",
        condition="low and high padding zero, interior zero or an axis of size one",
        argument="No element is added or dropped.",
        narrow=True,
    ),
    RewriteRule(
        name="pad",
        rewrites="a pad of a pad with the same element -> one pad; axes of size one that are not padded -> none; "
        "negative edges -> a slice",
        condition="one element around both, no holes where edges are negative",
        argument="Place p of the inner array becomes low + p * (1 + gap) of the outer; such functions compose; "
        "but compiled code had other bits at level 3.",
        loose=True,
    ),
    RewriteRule(
        name="update-as-pad",
        rewrites="dynamic_update_slice of one element everywhere -> pad of the update with that element",
        condition="the starts are known integers, or the update is as long as the axis; starts are clamped",
        argument="Both hold the update's elements in its place and the one element around it; but see pad.",
        loose=True,
    ),
    RewriteRule(
        name="concatenate",
        rewrites="concatenate of neighbouring slices -> the slice of both; nested ones flattened; "
        "a slice of one part -> that part's slice",
        condition="one source, one step, the second starts where the first ends; the same axis up to unit axes",
        argument="Both say for each place of the result the same place of the same source.",
    ),
    RewriteRule(
        name="past-unit-dims",
        rewrites="an elementwise operation on operands with axes of size one -> of it without them",
        condition="every element depends on the operands' elements at one place; no float of fewer than 32 bits",
        argument="The same function is applied to the same elements. An axis of size one is no loop, so compiled code "
        "is the same.",
    ),
    RewriteRule(
        name="integers-past-moves",
        rewrites="past-reshape, past-broadcast and past-transpose of integers and booleans",
        condition="all operands and the result are integers or booleans",
        argument="As for past-reshape; nothing rounds, so it does not matter what a compiler fuses.",
    ),
    RewriteRule(
        name="constant",
        rewrites="a constant -> its one element repeated, or its elements in order",
        condition="the values are at hand; floats by what MLIR prints or by their bytes",
        argument="A constant is its elements.",
        narrow=True,
    ),
    RewriteRule(
        name="iota",
        rewrites="iota along an axis -> a count, repeated",
        condition="any",
        argument="The specification says so.",
        narrow=True,
    ),
    RewriteRule(
        name="fold",
        rewrites="integer and boolean arithmetic, comparison, selection, conversion of known values -> the values",
        condition="whole bytes, at most 2**14 elements; no division, no shift, no float",
        argument="Two's complement arithmetic modulo 2**bits is the same in NumPy and in StableHLO.",
    ),
    RewriteRule(
        name="neutral-integer",
        rewrites="x + 0, x - 0, x * 1, x & ~0, x | 0, x ^ 0 -> x; x & false -> false, x | true -> true",
        condition="integers and booleans only: of floats -0 + 0 is 0",
        argument="Exact in arithmetic modulo 2**bits.",
    ),
    RewriteRule(
        name="compare-direction",
        rewrites="a > b -> b < a, a >= b -> b <= a, a == b -> b == a, a != b -> b != a",
        condition="any type and order of comparison",
        argument="Holds for each pair of numbers, NaN included: all are false but !=, in both spellings.",
        narrow=True,
    ),
    RewriteRule(
        name="negated-compare",
        rewrites="not (a == b) -> a != b and back; of integers not (a < b) -> b <= a, not (a <= b) -> b < a",
        condition="order relations of integers only: with NaN both a < b and b <= a are false",
        argument="== and != are opposite for NaN, too.",
        narrow=True,
    ),
    RewriteRule(
        name="boolean-round-trip",
        rewrites="convert(boolean) != 0 -> the boolean",
        condition="through integers",
        argument="false and true become 0 and 1.",
    ),
    RewriteRule(
        name="double-negation",
        rewrites="not not x -> x, -(-x) -> x",
        condition="any type; of floats see vanishing-floats",
        argument="Of floats negate flips the sign bit, of NaNs too (IEEE 754 calls it a quiet operation on bits).",
    ),
    RewriteRule(
        name="select-known",
        rewrites="select by a known predicate -> the branch",
        condition="the predicate is one known boolean everywhere; of floats see vanishing-floats",
        argument="Selection does not touch the branch not taken.",
    ),
    RewriteRule(
        name="select-negated",
        rewrites="select(not p, a, b) -> select(p, b, a)",
        condition="any",
        argument="Case by case.",
        narrow=True,
    ),
    RewriteRule(
        name="select-equal",
        rewrites="select(p, a, a) -> a",
        condition="both branches are one value; of floats see vanishing-floats",
        argument="Case by case.",
    ),
    RewriteRule(
        name="same-type",
        rewrites="convert to its own type -> its operand",
        condition="element types are one",
        argument="The identity.",
        narrow=True,
    ),
    RewriteRule(
        name="through-wider",
        rewrites="convert of a widening convert -> one convert",
        condition="integers; narrow to wide keeps every value; then back, or on to a type as wide as the narrow one",
        argument="The first conversion changes no value, so the second sees the same.",
    ),
    RewriteRule(
        name="sum-of-one",
        rewrites="a sum over axes of size one, from zero -> its operand",
        condition="the reducer is one addition of its two parameters, the initial value 0.0 or -0.0",
        argument="The specification leaves open whether the initial value takes part; XLA's simplifier, which all "
        "its backends run, leaves it out, so that -0 stays -0.",
    ),
    RewriteRule(
        name="dot-axes",
        rewrites="free and batch axes of dot_general of size one -> none; neighbouring free axes, or axes that are "
        "neighbours in the batch of both operands -> one axis",
        condition="neighbours in the same order in the operand, so that no element moves",
        argument="The same products are added in the same order; XLA makes one free axis of several before it "
        "chooses how to compute.",
    ),
    RewriteRule(
        name="dot-contracted",
        rewrites="contracted axes of dot_general of size one -> none; neighbours on both sides -> one axis",
        condition="as for dot-axes",
        argument="The same products in the same order; but compiled code adds them up otherwise.",
        loose=True,
    ),
    RewriteRule(
        name=MOVED,
        rewrites="an argument or result that the weight map reshapes, stacks, splits or joins -> a view of its parts",
        condition="the map's transform is a reshape or a join, after reshapes, of whole arrays",
        argument="Both sides are given the same elements; the map says where each lies. Reshapes and joins are views.",
        narrow=True,
    ),
    RewriteRule(
        name="turned-weights",
        rewrites="an argument or result that the weight map transposes -> a view of its parts",
        condition="as for moved-weights, transpositions among the steps",
        argument="As for moved-weights; but compiled loops and products then run in another order.",
        loose=True,
        narrow=True,
    ),
    RewriteRule(
        name="past-reshape",
        rewrites="an elementwise operation on reshaped operands -> reshape of it on the flat operands",
        condition="every element depends on the operands' elements at one place",
        argument="The same function is applied to the same elements; only where they lie differs.",
        loose=True,
    ),
    RewriteRule(
        name="past-broadcast",
        rewrites="an elementwise operation on operands repeated along a digit -> repeated result",
        condition="all operands are constant along the digit",
        argument="As for past-reshape; equal inputs give equal results.",
        loose=True,
    ),
    RewriteRule(
        name="reduce-unit-dims",
        rewrites="a reduction's axes of size one -> none",
        condition="any",
        argument="The same elements meet in the same order; but the compiler makes one sum of a sum of sums in one "
        "spelling and not in the other.",
        loose=True,
    ),
    RewriteRule(
        name="reduce-merged",
        rewrites="neighbouring axes of a reduction that are both reduced, or both kept -> one axis",
        condition="neighbours",
        argument="The same elements meet in the same order.",
        loose=True,
    ),
    RewriteRule(
        name="dot-moved",
        rewrites="dot_general of transposed operands -> of the operands",
        condition="digits fall on axes",
        argument="The same products in the same order; but a library may add them up otherwise for another layout.",
        loose=True,
    ),
    RewriteRule(
        name="past-transpose",
        rewrites="an elementwise operation on transposed or reversed operands -> transposed, reversed result",
        condition="the same digits in all operands",
        argument="As for past-reshape; but compiled loops then run in another order, which decides what is contracted.",
        loose=True,
    ),
    RewriteRule(
        name="narrow-floats",
        rewrites="bf16, f16 and f8 by the rules that leave these alone",
        condition="as for each rule",
        argument="As for each rule; but the CPU compiler computes these in f32 and drops a rounding between "
        "neighbours, which an operation in between, even one that changes nothing, keeps.",
        loose=True,
    ),
    RewriteRule(
        name="vanishing-floats",
        rewrites="double-negation, select-known and select-equal of floats",
        condition="as for each rule",
        argument="As for each rule; but XLA may find out too late that both branches are one, and what stands between "
        "a product and a sum keeps these from becoming one operation.",
        loose=True,
        narrow=True,
    ),
    RewriteRule(
        name="float-through-wider",
        rewrites="through-wider of floats",
        condition="as for through-wider",
        argument="As for through-wider; but see narrow-floats.",
        loose=True,
        narrow=True,
    ),
    RewriteRule(
        name="boolean-through-wider",
        rewrites="convert of a converted boolean -> one convert",
        condition="integers and common floats",
        argument="False and true are 0 and 1 in all of them; but the compiler makes a product with a converted boolean "
        "a selection, which loses the sign of zero.",
        loose=True,
    ),
)
"""By name, in the order of the documentation."""

EXACT: frozenset[str] = frozenset(name for name, rule in RULES.items() if not rule.loose)
LOOSE: frozenset[str] = frozenset(RULES)
