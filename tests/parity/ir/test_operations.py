"""The table of operations: complete, as the dialects define it, and correct when the operations run."""

import functools
import itertools
import pathlib
import re

import jax
import numpy as np
import pytest
from campaigns.exact import evaluate
from campaigns.prover import mutate
from campaigns.prover.modules import compile_module, parse_module
from jax.extend.mlir.dialects import chlo, func, sdy, stablehlo

from parity.ir.jax_internals import stablehlo_module
from parity.ir.stablehlo.operations import (
    FUNCTIONS,
    OPERATIONS,
    Entries,
    Group,
    Operation,
    facts,
    has_effect,
)
from parity.prove.exact import Link, Named, Relation, equal, scalars
from parity.prove.exact.devices import COLLECTIVES
from parity.prove.exact.interpreter import REALS
from parity.prove.exact.rounded import ROUNDED
from parity.prove.rules import registry
from parity.values import constants

REPO = pathlib.Path(__file__).parents[3]
DIALECTS = (chlo, func, sdy, stablehlo)
ELEMENTWISE = [each for each in OPERATIONS.values() if each.group is Group.ELEMENTWISE]
COMPLEX = {"stablehlo.complex": ("f32", "complex<f32>"), "stablehlo.real": ("complex<f32>", "f32")}
COMPLEX["stablehlo.imag"] = COMPLEX["stablehlo.real"]
DTYPES = {"f32": np.float32, "i8": np.int8, "i32": np.int32, "ui32": np.uint32, "i1": np.bool_}
DTYPES["complex<f32>"] = np.complex64
"""Tested element types."""
ATTRIBUTES = {
    "stablehlo.compare": "{comparison_direction = #stablehlo<comparison_direction LE>}",
    "stablehlo.reduce_precision": "{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}",
}
NUMBERS = np.array([0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 20, -0.25, -0.5, -1, -1.5, -2, -3, -20])
FEWEST = 256
"""Rows that a module takes at least, so that most calls share one."""
STEP = 1e-5
"""Distance by which an argument is moved to find jumps."""
NOT_OF_REALS = {"chlo.next_after", "stablehlo.reduce_precision"}
"""Functions of floats that are undefined for real numbers."""
NO_BAD_NUMBER = {"stablehlo.atan2"}
"""Functions that have a floating-point value at an undefined point: the angle of the zero vector."""


def adaptors():
    """Returns the attributes of each dialect adaptor by operation: operands and attributes."""
    return {
        each.OPERATION_NAME: {name for name in vars(each) if not name.startswith("_")} - {"OPERATION_NAME"}
        for dialect in DIALECTS
        for each in vars(dialect).values()
        if isinstance(each, type) and hasattr(each, "OPERATION_NAME") and each.__name__.endswith("Adaptor")
    }


def types(each: Operation, element: str) -> tuple[tuple[str, ...], str] | None:
    """Returns the element types of operands and result if an operation is tested on elements of one type."""
    if each.name in COMPLEX:
        given, made = COMPLEX[each.name]
        return ((given,) * (each.arity or 0), made) if element == "f32" else None
    if each.name == "stablehlo.select":
        return ("i1", element, element), element
    made = "i1" if each.name in ("stablehlo.compare", "stablehlo.is_finite") else element
    return (element,) * (each.arity or 0), made


class Runner:
    """Runs elementwise operations, each as a module of one operation, compiled once for a number of rows."""

    def __init__(self):
        self.like = stablehlo_module(jax.jit(lambda x: x + 1).lower(1.0))
        self.compiled = functools.cache(self.compile)

    def module(self, each: Operation, given: tuple[str, ...], made: str, count: int):
        """Returns the module; None if the dialect refuses the types."""
        tensors = [f"tensor<{count}x{element}>" for element in given]
        arguments = ", ".join(f"%a{place}: {tensor}" for place, tensor in enumerate(tensors))
        operands = ", ".join(f"%a{place}" for place in range(len(given)))
        result = f"tensor<{count}x{made}>"
        text = f"""
          func.func public @main({arguments}) -> {result} {{
            %r = "{each.name}"({operands}) {ATTRIBUTES.get(each.name, "")} : ({", ".join(tensors)}) -> {result}
            return %r : {result}
          }}"""
        try:
            return parse_module(text, self.like)
        except Exception as error:  # MLIR's error type has no public name
            assert type(error).__name__ == "MLIRError", error
            return None

    def compile(self, each: Operation, given: tuple[str, ...], made: str, count: int):
        """Returns the compiled module; None if the dialect or the compiler has none."""
        module = self.module(each, given, made, count)
        if module is None or (each.name == "stablehlo.clamp" and given[0] == "i1"):
            return None
        return compile_module(module, level=0)

    def __call__(self, each: Operation, element: str, rows, made: str = ""):
        """Returns the result of an operation on rows of operands; None if it is not defined for the type."""
        found = types(each, element)
        if found is None:
            return None
        given, count = found[0], max(FEWEST, 2 ** (len(rows) - 1).bit_length())
        compiled = self.compiled(each, given, made or found[1], count)
        if compiled is None:
            return None
        columns = zip(np.resize(rows, (count, len(given))).T, given, strict=True)
        (made,) = compiled([column.astype(DTYPES[kind]) for column, kind in columns])
        return made[: len(rows)]


@pytest.fixture(scope="module")
def run():
    return Runner()


def grid(each: Operation) -> np.ndarray:
    """Returns rows of operands: all combinations of a few numbers."""
    arity = each.arity or 0
    numbers = NUMBERS if arity < 3 else NUMBERS[[0, 2, 4, 8, 10, 14]]
    return np.array(list(itertools.product(numbers, repeat=arity)))


def on_functions(test):
    return pytest.mark.parametrize("each", ELEMENTWISE, ids=lambda each: each.name)(test)


# --- the dialects ---


def test_no_name_is_wrong():
    """``collective_reduce`` is new in JAX 0.12."""
    assert set(OPERATIONS) - set(adaptors()) <= {"stablehlo.collective_reduce"}


@pytest.mark.parametrize("each", [each for each in OPERATIONS.values() if each.attributes or each.arity])
def test_arity_and_attributes_are_those_of_the_dialect(each):
    known = adaptors()[each.name]
    assert each.attributes <= known
    if each.arity is not None:
        assert len(known - each.attributes) == each.arity


def test_every_operation_that_is_named_in_the_code_exists():
    named = re.compile(r"""["']((?:stablehlo|chlo|sdy|func)\.\w+)["']""")
    for path in (*(REPO / "parity").rglob("*.py"), *(REPO / "tests" / "campaigns").rglob("*.py")):
        texts = set(named.findall(path.read_text()))
        assert texts <= set(OPERATIONS) | set(adaptors()) | {"sdy.sharding"}, path


# --- facts, by running ---


@pytest.mark.slow
@on_functions
def test_an_elementwise_operation_works_index_by_index(each, run):
    """The result at an index stays the same if all other operands change."""
    tried = 0
    for element in ("f32", "i32", "i1"):
        rows = grid(each)
        whole = run(each, element, rows)
        if whole is None:
            continue
        tried += 1
        order = np.random.default_rng(0).permutation(len(rows))
        assert run(each, element, rows[order]).tobytes() == whole[order].tobytes()
    assert tried


@pytest.mark.slow
@on_functions
def test_operands_commute_exactly_if_the_table_says_so(each, run):
    if each.arity != 2:
        assert not each.commutes
        return
    rows = grid(each)
    same = []
    for element in ("f32", "i32", "i1"):
        made = run(each, element, rows)
        if made is not None:
            same.append(np.array_equal(made, run(each, element, rows[:, ::-1]), equal_nan=made.dtype != bool))
    assert all(same) == each.commutes or (each.name == "stablehlo.compare" and not each.commutes)


@pytest.mark.slow
@on_functions
def test_a_total_function_has_a_value_everywhere(each, run):
    made = run(each, "f32", grid(each))
    if made is None or each.name in COMPLEX:
        assert not each.total
        return
    pole = run(each, "f32", np.full((1, each.arity or 0), np.pi / 2))
    has_values = np.isfinite(made).all() and abs(float(pole[0])) < 1e6
    assert has_values if each.total else not has_values or each.name in NO_BAD_NUMBER | NOT_OF_REALS


@pytest.mark.slow
@on_functions
def test_a_function_without_jumps_is_continuous(each, run):
    rows = grid(each)
    made = run(each, "f32", rows)
    if made is None or each.name in COMPLEX | {"stablehlo.is_finite": ()} or each.name in NOT_OF_REALS:
        return  # a finite number stays finite
    if each.name == "stablehlo.power":
        rows = rows[rows[:, 0] > 0]
    jumps, first = [], 1 if each.name == "stablehlo.select" else 0
    results = "i32" if each.name == "stablehlo.convert" else ""
    for place in range(first, each.arity or 0):
        ends = []
        for step in (-STEP, STEP):
            moved = rows.copy()
            moved[:, place] += step
            ends.append(np.asarray(run(each, "f32", moved, results), np.float64))
        size = np.abs(ends[0]) + np.abs(ends[1])
        sane = np.isfinite(size) & (size < 1e3)
        left, right = (end[sane] for end in ends)
        jumps.append((np.abs(left - right) > 0.1 * np.maximum(size[sane], 1)).any())
    assert any(jumps) == each.jumps


@pytest.mark.slow
@on_functions
def test_a_choice_is_an_operand(each, run):
    made = run(each, "f32", rows := grid(each))
    if made is None:
        assert not each.chooses
        return
    rows = rows if each.name != "stablehlo.select" else rows[:, 1:]
    chosen = (made[:, None] == rows.astype(np.float32)).any(axis=1).all()
    assert chosen if each.chooses else not chosen or each.arity == 1


@pytest.mark.slow
@on_functions
def test_signs_hold(each, run):
    if each.sign:
        made = run(each, "f32", grid(each))
        made = made[~np.isnan(made)]
        assert (made > 0).all() if each.sign == "positive" else (made >= 0).all()


def suffices(each, run, number, element):
    """Returns the largest choice of operands that make the result a number if they are this number."""
    count = each.arity - (each.name == "stablehlo.select")
    others = {"i1": [1], "i32": [1, 2, 3, -1, -2, 5]}.get(element, NUMBERS)
    others = [other for other in others if other or number]
    choices = {
        Entries.ANY: [{place} for place in range(count)],
        Entries.FIRST: [{0}],
        Entries.ALL: [set(range(count))],
    }
    for choice, several in choices.items():
        rows = [
            [number if place in held else other[place] for place in range(count)]
            for held in several
            for other in itertools.product(others, repeat=count)
        ]
        if each.name == "stablehlo.select":
            rows = [(flag, *row) for flag in (0, 1) for row in rows]
        made = run(each, element, np.array(rows))
        if made is None:
            return None
        if (np.isnan(made) if np.isnan(number) else made == 0).all():
            return choice
    return Entries.NONE


ORDER = [Entries.NONE, Entries.ALL, Entries.FIRST, Entries.ANY]


@pytest.mark.slow
@on_functions
def test_zeros_make_zero(each, run):
    """The table has the weakest property that holds for all element types."""
    found = [suffices(each, run, 0.0, element) for element in ("f32", "i32", "i1")]
    assert min([x for x in found if x is not None], key=ORDER.index) is each.zero


@pytest.mark.slow
@on_functions
def test_nan_makes_nan(each, run):
    if each.name in COMPLEX | {"stablehlo.convert": ()} or types(each, "f32")[1] != "f32":
        assert each.nan is Entries.NONE
        return
    assert (suffices(each, run, float("nan"), "f32") or Entries.NONE) is each.nan


def placed(x, y):
    return jax.lax.dynamic_update_slice(x, y[:2], (1, 2))


SAMPLES = {
    "stablehlo.broadcast_in_dim": lambda x, y: jax.lax.broadcast_in_dim(x, (2, 4, 3), (1, 2)),
    "stablehlo.reshape": lambda x, y: x.reshape(2, 6),
    "stablehlo.reverse": lambda x, y: jax.lax.rev(x, (0,)),
    "stablehlo.transpose": lambda x, y: x.T,
    "stablehlo.dynamic_slice": lambda x, y: jax.lax.dynamic_slice(x, (1, 2), (2, 1)),
    "stablehlo.gather": lambda x, y: x.at[np.array([1, 3, 3])].get(mode="promise_in_bounds"),
    "stablehlo.slice": lambda x, y: jax.lax.slice(x, (1, 0), (4, 3), (2, 1)),
    "stablehlo.concatenate": lambda x, y: jax.lax.concatenate([x, y], 0),
    "stablehlo.dynamic_update_slice": placed,
    "stablehlo.pad": lambda x, y: jax.lax.pad(x, y[0, 0], [(1, 2, 1), (0, -1, 0)]),
    "stablehlo.optimization_barrier": lambda x, y: jax.lax.optimization_barrier(x),
    "stablehlo.dot_general": lambda x, y: x.T @ y,
    "stablehlo.convolution": lambda x, y: jax.lax.conv(x[None, None], y[None, None], (1, 1), "SAME"),
}
"""Functions of two arrays ``[4, 3]``, each containing one of the operations."""
UNTRIED = {"sdy.reshard", "sdy.sharding_constraint"}
"""They need several devices."""


def test_every_operation_that_moves_has_a_sample():
    groups = (Group.REARRANGES, Group.PICKS, Group.JOINS, Group.SAME)
    assert {name for name, each in OPERATIONS.items() if each.group in groups} - UNTRIED <= SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_facts_of_operations_that_move_or_multiply(name):
    each, function = facts(name), jax.jit(SAMPLES[name])
    x, y = (np.random.default_rng(seed).uniform(0.5, 1, (4, 3)).astype(np.float32) for seed in (0, 1))
    assert name in function.lower(x, y).as_text()
    made, entries = set(np.asarray(function(x, y)).ravel()), ({*x.ravel()}, {*y.ravel()})
    if each.group in (Group.REARRANGES, Group.SAME):
        assert made == entries[0]
    elif each.group is Group.PICKS:
        assert made < entries[0]
    elif each.group is Group.JOINS:
        assert made <= entries[0] | entries[1] and made & entries[0] and made & entries[1]
    count = 2 if each.group in (Group.JOINS, Group.WHOLE) else 1
    for number, needed in ((0.0, each.zero), (np.nan, each.nan)):
        for flags in itertools.product((True, False), repeat=count):
            held = [np.full_like(x, number) if flags[0] else x, np.full_like(y, number) if flags[-1] else y]
            made = np.asarray(function(*held))
            whole = np.isnan(made).all() if np.isnan(number) else not made.any()
            assert whole or not needed.suffice(flags)


# --- effects ---


def test_effects():
    assert has_effect("stablehlo.outfeed", 1)
    assert has_effect("stablehlo.custom_call", 1, declared=True)
    assert has_effect("stablehlo.custom_call", 0)
    assert has_effect("tpu.unheard_of", 1)
    assert not has_effect("stablehlo.custom_call", 1)
    assert not has_effect("stablehlo.return", 0)
    assert not has_effect("func.call", 0)
    assert facts("stablehlo.of_tomorrow") == Operation("stablehlo.of_tomorrow")


# --- clients ---


READ = {
    name for name, each in OPERATIONS.items() if each.group not in (Group.OPAQUE, Group.ENDS, Group.CONTROL)
}
"""Operations that a client covers, or that are named here."""
EFFECTS = {name for name, each in OPERATIONS.items() if each.group is Group.EFFECT}
DEVICES = {
    *("stablehlo.all_to_all", "stablehlo.collective_broadcast", "stablehlo.collective_reduce"),
    *("stablehlo.reduce_scatter", "stablehlo.partition_id", "stablehlo.replica_id"),
}
"""Exchanges that the exact prover refuses, and device numbers, which have no handler."""
PLACES = {"sdy.reshard", "sdy.sharding_constraint"}
WHOLES = {name for name, each in OPERATIONS.items() if each.group is Group.WHOLE}
UNREAD = {
    "real numbers": {
        *(NOT_OF_REALS | EFFECTS | DEVICES | PLACES | WHOLES | COMPLEX.keys()),
    }
    - {"stablehlo.bitcast_convert", "stablehlo.dot_general", "stablehlo.reduce", "stablehlo.scatter"},
    "floats that round": EFFECTS | DEVICES | PLACES,
    "rules": {
        *(EFFECTS | DEVICES | PLACES | WHOLES | COLLECTIVES.keys()),
        *("stablehlo.optimization_barrier", "stablehlo.reverse"),
    }
    - {"stablehlo.dot_general"},
}
"""Operations that a client does not handle: they are refused, or remain unchanged."""
BARRIER = {"stablehlo.optimization_barrier"}
"""The walk of the exact prover passes its operands on."""
CLIENTS = {
    "real numbers": REALS.handlers.keys() | COLLECTIVES.keys() | BARRIER,
    "floats that round": ROUNDED.handlers.keys() | COLLECTIVES.keys() | BARRIER,
    "rules": registry.NORMAL_FORMS.keys() | {each.name for each in ELEMENTWISE},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reads_an_operation_or_leaves_it_alone_on_purpose(client):
    assert CLIENTS[client] | UNREAD[client] == READ
    assert not CLIENTS[client] & UNREAD[client]


NOT_FOLLOWED = {
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "complex", "cosh", "cosine"),
    *(
        "count_leading_zeros",
        "digamma",
        "erf",
        "erf_inv",
        "erfc",
        "imag",
        "is_finite",
        "lgamma",
        "next_after",
    ),
    *("not", "or", "polygamma", "popcnt", "real", "shift_left", "sign", "sine", "sinh", "tan", "xor", "zeta"),
}
"""Functions whose results are computed numbers: no constant is followed through them."""


def test_constants_are_followed_through_a_function_or_not_on_purpose():
    followed = {facts(name).short for name in constants.STAY | constants.JOINED} & FUNCTIONS.keys()
    followed |= (constants.INVERSES.keys() | constants.FOLDS.keys() | constants.MEETINGS.keys()) - {
        "from",
        "into",
    }
    assert FUNCTIONS.keys() - followed == NOT_FOLLOWED


NOT_EVALUATED = {"compare", "convert"}  # in a separate function
NOT_EVALUATED |= {facts(name).short for name in NOT_OF_REALS | COMPLEX.keys()}
NOT_EVALUATED |= {
    *(
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "cosh",
        "count_leading_zeros",
        "digamma",
    ),
    *("erf", "erf_inv", "erfc", "lgamma", "polygamma", "popcnt", "round_nearest_afz", "round_nearest_even"),
    *("shift_right_arithmetic", "sinh", "square", "tan", "zeta"),
}


def test_the_evaluator_of_the_campaigns_knows_a_function_or_not_on_purpose():
    assert evaluate.MAPS.keys() - {"reciprocal"} == FUNCTIONS.keys() - NOT_EVALUATED


EVALUATED_ON = {
    **dict.fromkeys(("divide", "remainder"), ("i32", "ui32")),
    **dict.fromkeys(("shift_left", "shift_right_logical"), ("ui32",)),
    "power": ("f32",),
}
"""Element types of functions that the evaluator does not compute on all types; others test a sum or a product."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(evaluate.MAPS.keys() - {"reciprocal"}))
def test_the_evaluator_computes_what_the_machine_computes(name, run):
    each, tried = FUNCTIONS[name], 0
    for element in EVALUATED_ON.get(name, ("f32", "i32", "ui32", "i1")):
        rows = grid(each) if element != "ui32" else abs(grid(each))
        if name in ("divide", "remainder"):
            rows = rows[abs(rows[:, 1]) >= 1]
        made, kinds = run(each, element, rows), types(each, element)
        if made is None or kinds is None:
            continue
        tried += 1
        columns = [np.array(x).astype(DTYPES[kind]) for x, kind in zip(rows.T, kinds[0], strict=True)]
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(evaluate.MAPS[name](*columns), made, rtol=1e-5, atol=1e-6)
    assert tried


@pytest.mark.slow
@pytest.mark.parametrize("name", scalars.FOLDS)
def test_integers_are_folded_as_the_machine_computes_them(name, run):
    ends = np.array([-128, -7, -1, 0, 1, 3, 100, 127])
    rows = np.array(list(itertools.product(ends, repeat=FUNCTIONS[name].arity)))
    if name in ("divide", "remainder"):
        rows = rows[(rows[:, 1] != 0) & ~((rows[:, 0] == -128) & (rows[:, 1] == -1))]
    if name == "clamp":
        rows = rows[rows[:, 0] <= rows[:, 2]]
    made = run(FUNCTIONS[name], "i8", rows)
    assert [scalars.fold(name, row, "i8", None) for row in rows.tolist()] == made.tolist()


def claim(arithmetic, left, right, names, others):
    """Returns the result of exact arithmetic for two modules whose arguments are linked by name."""
    sides = [Named(program=each, arguments=names, results=["y"]) for each in (left, right)]
    links = [Link(reference=(x,), candidate=(y,)) for x, y in zip(names, others, strict=True)]
    result = [Link(reference=("y",), candidate=("y",))]
    return equal(*sides, Relation(arguments=links, results=result), arithmetic=arithmetic)


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", [REALS, ROUNDED], ids=["real numbers", "floats that round"])
@pytest.mark.parametrize("element", ["f32", "i32", "i1"])
def test_no_function_is_taken_for_another_or_for_itself_with_operands_exchanged(arithmetic, element, run):
    """Else a fact of the table, or a client's use of it, leads to a wrong proof."""
    modules = {}
    for each in ELEMENTWISE:
        kinds = types(each, element)
        module = run.module(each, *kinds, 4) if kinds is not None and each.arity in (1, 2) else None
        if module is not None:
            modules[each.name] = (kinds, module)
    for (one, left), (other, right) in itertools.product(modules.items(), repeat=2):
        if left[0] != right[0]:
            continue
        names = ["a", "b"][: len(left[0][0])]
        for others in {tuple(names), tuple(names[::-1])}:
            kept = others == tuple(names)
            same = facts(one).short == facts(other).short and (kept or facts(one).commutes)
            found = claim(arithmetic, left[1], right[1], names, others)
            assert found.proved == same or (same and found.refusal), (one, other, others)


def test_families_of_mutants_are_functions_of_as_many_operands():
    for family in mutate._FAMILIES:
        assert len({FUNCTIONS[name].arity for name in family}) == 1
