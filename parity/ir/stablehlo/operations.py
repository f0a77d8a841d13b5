"""Table of the known operations of StableHLO, CHLO and Shardy: each fact that a client needs is written here, once.

Nothing is assumed of any other operation. Tests compare the names, arities and attributes with the
dialects of jaxlib, and run each elementwise operation to check the other facts.
"""

import dataclasses
import enum
import functools
from collections.abc import Sequence


class Group(enum.Enum):
    """The kind of function that an operation is."""

    OPAQUE = "nothing is known of it"
    ELEMENTWISE = "every entry of the result is one function of the operands' entries at the same index"
    REARRANGES = "the entries of the operand in other places, none left out"
    PICKS = "some entries of the first operand"
    JOINS = "the entries of several operands in one array"
    WHOLE = "a pure function of its operands as wholes"
    MAKES = "made from attributes, or from the device that runs it"
    SAME = "the operands; it sets their placement, or an order that the compiler must keep"
    COLLECTIVE = "an exchange between devices"
    CONTROL = "runs regions or functions"
    ENDS = "ends a region"
    EFFECT = "must run, in order, even if nothing uses its results"


class Entries(enum.Enum):
    """The operands that must consist of one number so that the result consists of it; the largest choice that holds."""

    NONE = "no operands suffice"
    ALL = "all operands"
    FIRST = "the first operand"
    ANY = "any operand"

    def suffice(self, flags: Sequence[bool]) -> bool:
        """True if operands suffice, given for each whether it consists of the number."""
        if self is Entries.ANY:
            return any(flags)
        if self is Entries.FIRST:
            return any(flags[:1])
        return self is Entries.ALL and bool(flags) and all(flags)


NONE, ALL, FIRST, ANY = Entries


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """An operation.

    Args:
        name: with its dialect.
        group: the kind of function that it is.
        arity: number of operands; None if it varies, or if the operation is not elementwise.
        attributes: all that the dialect defines; empty if no client reads them.
        commutes: True if the two operands may be exchanged. Integers and booleans keep every bit; with floats, which of
            two NaNs is returned and which of two products is fused into a sum may change.
        total: True if the result is defined for all real operands.
        jumps: True if it is not continuous where it is defined. ``convert`` is continuous between floats.
        chooses: True if each entry of the result is an entry of an operand.
        sign: ``positive`` or ``nonnegative`` if all real results are; else, or if no client needs it, empty.
        zero: operands that make the result zero if they are zero and the others are finite and not zero.
        nan: float operands that make the result NaN if they are NaN; none if the result need not be floats.
        first_index: position of the first operand that is an index; None if there is none.
    """

    name: str
    group: Group = Group.OPAQUE
    arity: int | None = None
    attributes: frozenset[str] = frozenset()
    commutes: bool = False
    total: bool = False
    jumps: bool = False
    chooses: bool = False
    sign: str = ""
    zero: Entries = NONE
    nan: Entries = NONE
    first_index: int | None = None

    @property
    def short(self) -> str:
        """The name without its dialect."""
        return self.name.partition(".")[2]


_unary = functools.partial(Operation, group=Group.ELEMENTWISE, arity=1, nan=ANY)
_binary = functools.partial(Operation, group=Group.ELEMENTWISE, arity=2, nan=ANY)
_bits = functools.partial(Operation, group=Group.ELEMENTWISE)
_move = functools.partial(Operation, zero=ANY, nan=ANY)
_join = functools.partial(Operation, group=Group.JOINS, zero=ALL, nan=ALL)
_collective = functools.partial(Operation, group=Group.COLLECTIVE)
_ACCURACY = frozenset({"result_accuracy"})


def _each(group: Group, dialect: str, *names: str) -> list[Operation]:
    """Returns operations of which only the group is known; a text of names, with spaces between them."""
    return [Operation(f"{dialect}.{name}", group) for text in names for name in text.split()]


_FUNCTIONS = (
    _unary("stablehlo.abs", total=True, sign="nonnegative", zero=ANY),
    _unary("stablehlo.cbrt", attributes=_ACCURACY, total=True, zero=ANY),
    _unary("stablehlo.ceil", total=True, jumps=True, zero=ANY),
    _unary("stablehlo.convert", total=True, jumps=True, zero=ANY, nan=NONE),
    _unary("stablehlo.cosine", attributes=_ACCURACY, total=True),
    _unary("stablehlo.exponential", attributes=_ACCURACY, total=True, sign="positive"),
    _unary("stablehlo.exponential_minus_one", attributes=_ACCURACY, total=True, zero=ANY),
    _unary("stablehlo.floor", total=True, jumps=True, zero=ANY),
    _unary("stablehlo.imag", zero=ANY, nan=NONE),
    _unary("stablehlo.is_finite", total=True, nan=NONE),
    _unary("stablehlo.log", attributes=_ACCURACY),
    _unary("stablehlo.log_plus_one", attributes=_ACCURACY, zero=ANY),
    _unary("stablehlo.logistic", attributes=_ACCURACY, total=True, sign="positive"),
    _unary("stablehlo.negate", total=True, zero=ANY),
    _unary("stablehlo.real", zero=ANY, nan=NONE),
    _unary(
        "stablehlo.reduce_precision",
        attributes=frozenset({"exponent_bits", "mantissa_bits"}),
        total=True,
        jumps=True,
        zero=ANY,
    ),
    _unary("stablehlo.round_nearest_afz", total=True, jumps=True, zero=ANY),
    _unary("stablehlo.round_nearest_even", total=True, jumps=True, zero=ANY),
    _unary("stablehlo.rsqrt", attributes=_ACCURACY),
    _unary("stablehlo.sign", total=True, jumps=True, zero=ANY),
    _unary("stablehlo.sine", attributes=_ACCURACY, total=True, zero=ANY),
    _unary("stablehlo.sqrt", attributes=_ACCURACY, sign="nonnegative", zero=ANY),
    _unary("stablehlo.tan", attributes=_ACCURACY, zero=ANY),
    _unary("stablehlo.tanh", attributes=_ACCURACY, total=True, zero=ANY),
    _unary("chlo.acos"),
    _unary("chlo.acosh"),
    _unary("chlo.asin", zero=ANY),
    _unary("chlo.asinh", total=True, zero=ANY),
    _unary("chlo.atan", total=True, zero=ANY),
    _unary("chlo.atanh", zero=ANY),
    _unary("chlo.cosh", total=True),
    _unary("chlo.digamma"),
    _unary("chlo.erf", total=True, zero=ANY),
    _unary("chlo.erf_inv", zero=ANY),
    _unary("chlo.erfc", total=True),
    _unary("chlo.lgamma"),
    _unary("chlo.sinh", total=True, zero=ANY),
    _unary("chlo.square", total=True, zero=ANY),
    _unary("chlo.tan", zero=ANY),
    _binary("stablehlo.add", commutes=True, total=True, zero=ALL),
    _binary("stablehlo.atan2", jumps=True, zero=ALL),
    _binary(
        "stablehlo.compare",
        attributes=frozenset({"comparison_direction", "compare_type"}),
        total=True,
        jumps=True,
        nan=NONE,
    ),
    _binary("stablehlo.complex", zero=ALL, nan=NONE),
    _binary("stablehlo.divide", zero=FIRST),
    _binary("stablehlo.maximum", commutes=True, total=True, chooses=True, zero=ALL),
    _binary("stablehlo.minimum", commutes=True, total=True, chooses=True, zero=ALL),
    _binary("stablehlo.multiply", commutes=True, total=True, zero=ANY),
    _binary("stablehlo.power", nan=ALL),
    _binary("stablehlo.remainder", jumps=True, zero=FIRST),
    _binary("stablehlo.subtract", total=True, zero=ALL),
    _binary("chlo.next_after", jumps=True, zero=ALL),
    _binary("chlo.polygamma"),
    _binary("chlo.zeta", nan=FIRST),
    _bits("stablehlo.clamp", arity=3, total=True, chooses=True, zero=ALL, nan=ANY),
    # For ``select``, `zero` and `nan` refer to the two operands that it chooses from.
    _bits("stablehlo.select", arity=3, total=True, chooses=True, zero=ALL, nan=ALL),
    # Integers and booleans.
    _bits("stablehlo.and", arity=2, commutes=True, zero=ANY),
    _bits("stablehlo.count_leading_zeros", arity=1),
    _bits("stablehlo.not", arity=1),
    _bits("stablehlo.or", arity=2, commutes=True, zero=ALL),
    _bits("stablehlo.popcnt", arity=1, zero=ANY),
    _bits("stablehlo.shift_left", arity=2, zero=FIRST),
    _bits("stablehlo.shift_right_arithmetic", arity=2, zero=FIRST),
    _bits("stablehlo.shift_right_logical", arity=2, zero=FIRST),
    _bits("stablehlo.xor", arity=2, commutes=True, zero=ALL),
)
_MOVES = (
    _move("stablehlo.broadcast_in_dim", Group.REARRANGES, attributes=frozenset({"broadcast_dimensions"})),
    _move("stablehlo.reshape", Group.REARRANGES),
    _move("stablehlo.reverse", Group.REARRANGES, attributes=frozenset({"dimensions"})),
    _move("stablehlo.transpose", Group.REARRANGES, attributes=frozenset({"permutation"})),
    _move("stablehlo.dynamic_slice", Group.PICKS, attributes=frozenset({"slice_sizes"}), first_index=1),
    _move(
        "stablehlo.gather",
        Group.PICKS,
        attributes=frozenset({"dimension_numbers", "slice_sizes", "indices_are_sorted"}),
        first_index=1,
    ),
    _move(
        "stablehlo.slice", Group.PICKS, attributes=frozenset({"start_indices", "limit_indices", "strides"})
    ),
    _join("stablehlo.concatenate", attributes=frozenset({"dimension"})),
    _join("stablehlo.dynamic_update_slice", first_index=2),
    _join(
        "stablehlo.pad", attributes=frozenset({"edge_padding_low", "edge_padding_high", "interior_padding"})
    ),
    _move("stablehlo.optimization_barrier", Group.SAME),
    _move("sdy.reshard", Group.SAME),
    _move("sdy.sharding_constraint", Group.SAME),
)
_OTHERS = (
    Operation(
        "stablehlo.dot_general",
        Group.WHOLE,
        attributes=frozenset({"dot_dimension_numbers", "precision_config", "algorithm"}),
        zero=ANY,
        nan=ANY,
    ),
    Operation("stablehlo.convolution", Group.WHOLE, zero=ANY),
    Operation("stablehlo.scatter", Group.WHOLE, first_index=1),
    *_each(
        Group.WHOLE,
        "stablehlo",
        "batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert cholesky fft reduce reduce_window",
        "rng_bit_generator select_and_scatter sort triangular_solve",
    ),
    *_each(Group.WHOLE, "chlo", "ragged_dot top_k"),
    Operation("stablehlo.constant", Group.MAKES, attributes=frozenset({"value"})),
    Operation("stablehlo.iota", Group.MAKES, attributes=frozenset({"iota_dimension"})),
    *_each(Group.MAKES, "stablehlo", "partition_id replica_id"),
    _collective("stablehlo.all_gather", zero=ANY, nan=ANY),
    _collective("stablehlo.all_reduce", zero=ANY, nan=ANY),
    _collective("stablehlo.all_to_all", zero=ANY, nan=ANY),
    _collective("stablehlo.collective_broadcast"),
    _collective("stablehlo.collective_permute", zero=ANY),  # a device without a source gets zeros
    _collective("stablehlo.collective_reduce"),
    _collective("stablehlo.reduce_scatter", zero=ANY, nan=ANY),
    Operation("func.call", Group.CONTROL),
    Operation("sdy.manual_computation", Group.CONTROL),
    *_each(Group.CONTROL, "stablehlo", "case if while"),
    *(Operation(f"{dialect}.return", Group.ENDS) for dialect in ("func", "sdy", "stablehlo")),
    *_each(Group.EFFECT, "stablehlo", "infeed outfeed recv rng send"),  # `rng` has hidden state
)
OPERATIONS = {each.name: each for each in (*_FUNCTIONS, *_MOVES, *_OTHERS)}
"""The table, by name."""
FUNCTIONS = {each.short: each for each in _FUNCTIONS}
"""The elementwise operations without their dialect, as named in terms of the exact prover."""
_DIALECTS = ("chlo.", "func.", "sdy.", "stablehlo.")


def facts(name: str) -> Operation:
    """Returns the facts of an operation; an unknown operation has no known facts."""
    return OPERATIONS.get(name) or Operation(name)


def names_of(*groups: Group | str) -> frozenset[str]:
    """Returns the names of groups of operations, and of single StableHLO operations given without their dialect.

    Raises:
        KeyError: an operation is not in the table.
    """
    single = {OPERATIONS[f"stablehlo.{each}"].name for each in groups if isinstance(each, str)}
    return frozenset(single | {name for name, each in OPERATIONS.items() if each.group in groups})


def has_effect(name: str, results: int, *, declared: bool = False) -> bool:
    """True if an operation must be kept, in order, even if nothing uses its results.

    Without ``results`` it can only have an effect; its attributes may have ``declared`` one.
    """
    group = facts(name).group
    if group is Group.ENDS:
        return False
    unknown = not name.startswith(_DIALECTS)
    return group is Group.EFFECT or declared or unknown or (results == 0 and name != "func.call")
