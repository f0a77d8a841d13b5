"""The attacks named by rules: one function in two forms, and a third form that misses the rule's condition by one."""

# B batch, T positions, D features

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from layouts import LAYOUTS, Layout, lowered, moves  # pyright: ignore[reportMissingImports]
from measure import STEPS, compare, gradient  # pyright: ignore[reportMissingImports]
from steps import B, D, Step, T  # pyright: ignore[reportMissingImports]

from parity.prove import Proof, prove
from parity.prove.rules import elementwise, numbering
from parity.prove.rules import moves as movements
from parity.prove.rules.registry import NORMAL_FORMS, SIMPLIFICATIONS, RewriteRule
from parity.prove.rules.terms import Application, Term, Terms, Value
from parity.prove.rules.types import Array, numpy_type
from parity.prove.rules.views import View, whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack.

    Args:
        equal: returns the proofs that the first form equals the second.
        missed: returns the proofs that the first form equals the third, which must not succeed.
    """

    equal: Callable[[], list[Proof]]
    missed: Callable[[], list[Proof]]


def _of_step(step: Step) -> Attack:
    def against(other: Any) -> list[Proof]:
        return [compare(derive(step.one), derive(other))[2] for derive in (lambda run: run, gradient)]

    return Attack(equal=lambda: against(step.other), missed=lambda: against(step.miss))


def _of_layout(layout: Layout) -> Attack:
    def against(other: Any) -> list[Proof]:
        with jax.numpy_rank_promotion("allow"):
            sides = lowered(layout.left, layout.shapes), lowered(other, (layout.whole,))
            return [prove(*sides, arguments=[(0, 0)], results=[(0, 0)], alone=moves(layout))]

    return Attack(equal=lambda: against(layout.right), missed=lambda: against(layout.near))


TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)


def _spread(k: Any) -> Any:
    return jnp.broadcast_to(k[..., None], (B, T, D))


def _heads(x: Any) -> Any:
    return x.reshape(B, T, 2, D // 2)


def _stacked(x: Any) -> Any:
    return jnp.stack([-_heads(x)[:, :, 1], _heads(x)[:, :, 0]], 2).reshape(x.shape)


SINGLE = (
    Step(
        name="product on a unit axis or without",
        one=lambda x, y, v, t, k: (jnp.tanh(x[:, None]) * y[:, None])[:, 0],
        other=lambda x, y, v, t, k: jnp.tanh(x) * y,
        miss=lambda x, y, v, t, k: (jnp.tanh(x[:, None]) * jnp.broadcast_to(y[:1], y.shape)[:, None])[:, 0],
    ),
    Step(
        name="whole numbers tripled before or after broadcast",
        one=lambda x, y, v, t, k: x * _spread(k * 3).astype(jnp.float32),
        other=lambda x, y, v, t, k: x * (_spread(k) * 3).astype(jnp.float32),
        miss=lambda x, y, v, t, k: x * _spread(jnp.broadcast_to(k[:1], k.shape) * 3).astype(jnp.float32),
    ),
    Step(
        name="choice of true or false",
        one=lambda x, y, v, t, k: jnp.where(jnp.where(x > y, False, True), x * y, 0.0),
        other=lambda x, y, v, t, k: jnp.where(~(x > y), x * y, 0.0),
        miss=lambda x, y, v, t, k: jnp.where(jnp.where(x > y, True, False), x * y, 0.0),
    ),
    Step(
        name="shifted rows by concatenation or pad",
        one=lambda x, y, v, t, k: jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1) * y,
        other=lambda x, y, v, t, k: jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0))) * y,
        miss=lambda x, y, v, t, k: jnp.pad(x[:, :-1], ((0, 0), (0, 1), (0, 0))) * y,
    ),
    Step(
        name="row put in place or joined, then added to",
        one=lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, 2, 0)) + y,
        other=lambda x, y, v, t, k: jnp.concatenate([x[:, :2], y[:, :1], x[:, 3:]], 1) + y,
        miss=lambda x, y, v, t, k: lax.dynamic_update_slice(x, y[:, :1], (0, 1, 0)) + y,
    ),
    Step(
        name="table of whole numbers, less one",
        one=lambda x, y, v, t, k: x * (jnp.asarray(TABLE + 1) - 1).astype(jnp.float32),
        other=lambda x, y, v, t, k: x * jnp.asarray(TABLE).astype(jnp.float32),
        miss=lambda x, y, v, t, k: x * (jnp.asarray(TABLE) - 1).astype(jnp.float32),
    ),
    Step(
        name="columns counted, or rows",
        one=lambda x, y, v, t, k: x * lax.broadcasted_iota(jnp.float32, (B, T, D), 2),
        other=lambda x, y, v, t, k: x * lax.broadcasted_iota(jnp.float32, (D,), 0),
        miss=lambda x, y, v, t, k: x * lax.broadcasted_iota(jnp.float32, (B, T, D), 1),
    ),
    Step(
        name="mask from a table or counted",
        one=lambda x, y, v, t, k: jnp.where((k < np.arange(T))[..., None], x * y, 0.0),
        other=lambda x, y, v, t, k: jnp.where((k < jnp.arange(T))[..., None], x * y, 0.0),
        miss=lambda x, y, v, t, k: jnp.where((k < np.arange(1, T + 1))[..., None], x * y, 0.0),
    ),
    Step(
        name="sum over one of two axes of one length, and a unit axis",
        one=lambda x, y, v, t, k: x[:, :, :T][:, None].sum((1, 3))[..., None] * y,
        other=lambda x, y, v, t, k: x[:, :, :T].sum(2)[..., None] * y,
        miss=lambda x, y, v, t, k: x[:, :, :T][:, None].sum((1, 2))[..., None] * y,
    ),
    Step(
        name="dynamic slice at one known start or another",
        one=lambda x, y, v, t, k: lax.dynamic_slice(x, (0, 1, 0), (B, 1, D)) * y,
        other=lambda x, y, v, t, k: x[:, 1:2] * y,
        miss=lambda x, y, v, t, k: lax.dynamic_slice(x, (0, 2, 0), (B, 1, D)) * y,
    ),
    Step(
        name="remainder greater than zero or not zero",
        one=lambda x, y, v, t, k: jnp.where((k % 4 > 0)[..., None], x, 0.0) * y,
        other=lambda x, y, v, t, k: jnp.where((k % 4 != 0)[..., None], x, 0.0) * y,
        miss=lambda x, y, v, t, k: jnp.where((lax.rem(k, 4) != 0)[..., None], x, 0.0) * y,
    ),
)
"""Steps for rules, or parts of them, that no step of the rewrites isolates."""
ATTACKS: dict[str, Attack] = {
    **{step.name: _of_step(step) for step in (*STEPS, *SINGLE) if step.miss},
    **{name: _of_layout(layout) for name, layout in LAYOUTS.items()},
}


def make_careless(rule: RewriteRule, monkeypatch: Any) -> bool:
    """Replaces the function of a rule by one that ignores the condition: all its inputs become one value.

    Returns:
        False for the rules that only enable others, and for those of the weight map.
    """
    for operation, function in NORMAL_FORMS.items():
        if function is rule.function:
            monkeypatch.setitem(NORMAL_FORMS, operation, _one_value(rule))
            return True
    for operation in rule.on:
        monkeypatch.setitem(
            SIMPLIFICATIONS,
            operation,
            [
                (one, _one_value(rule) if one.name == rule.name else function)
                for one, function in SIMPLIFICATIONS[operation]
            ],
        )
    if rule.on:
        return True
    called = CALLED.get(rule.name)
    if called is not None:
        module, name, careless = called
        monkeypatch.setattr(module, name, careless(rule))
    return called is not None


def _one_value(rule: RewriteRule) -> Any:
    def careless(table: Terms, call: Any) -> View:
        table.use(rule.name)
        count = call.out.count if isinstance(call, Application) else call.operands[-1].count
        return _anything(table, count)

    return careless


def _anything(table: Terms, count: int) -> View:
    return whole(table.number("#careless"), 1).moved([[(count, 0)]])


def _any_sum(rule: RewriteRule) -> Any:
    def careless(table: Terms, operand: Value, start: Value, axes: Any, body: Any) -> View:
        table.use(rule.name)
        return _anything(
            table, math.prod(operand.type.shape) // math.prod(operand.type.shape[k] for k in axes)
        )

    return careless


def _no_pattern(rule: RewriteRule) -> Any:
    def careless(table: Terms, shape: Any, axes: Any) -> list[Any]:
        table.use(rule.name)
        return []

    return careless


def _any_integer(rule: RewriteRule) -> Any:
    def careless(table: Terms, term: Term, count: int) -> View:
        if numpy_type(term.element) is None:
            return table.term(term, count)
        table.use(rule.name)
        return _anything(table, count)

    return careless


def _zero(rule: RewriteRule) -> Any:
    def careless(table: Terms, call: Any, operands: Any, count: int) -> View | None:
        kind = numpy_type(call.element)
        if kind is None or any(table.literal(view) is None for view in operands):
            return None
        table.use(rule.name)
        return table.constant(np.zeros(1, kind), call.element).moved([[(count, 0)]])

    return careless


def _no_elements(rule: RewriteRule) -> Any:
    constant = Terms.constant

    def careless(table: Terms, data: np.ndarray, element: str) -> View:
        table.use(rule.name)
        return constant(table, np.zeros_like(data), element)

    return careless


def _unmoved(rule: RewriteRule) -> Any:
    def careless(table: Terms, call: Any, shape: tuple[int, ...]) -> View:
        table.use(rule.name)
        operands = tuple(whole(view.source, view.size) for view in call.operands)
        return table.term(dataclasses.replace(call, operands=operands), math.prod(shape))

    return careless


def _first_branch(rule: RewriteRule) -> Any:
    def careless(table: Terms, index: int, count: int, certain: bool) -> Any:
        table.use(rule.name)
        return None, [0]

    return careless


def _unchanged(rule: RewriteRule) -> Any:
    def careless(table: Terms, out: Any, operand: Value, *others: Any) -> View:
        table.use(rule.name)
        return operand.view

    return careless


def _first_window(rule: RewriteRule) -> Any:
    def careless(table: Terms, text: str, out: Any, operands: Any) -> View:
        table.use(rule.name)
        return operands[0].view

    return careless


def _no_padding(rule: RewriteRule) -> Any:
    def careless(table: Terms, out: Array, *others: Any) -> View:
        table.use(rule.name)
        return _anything(table, out.count)

    return careless


def _anywhere(rule: RewriteRule) -> Any:
    def careless(table: Terms, view: View | None) -> View | None:
        table.use(rule.name)
        return None if view is None else _anything(table, view.count)

    return careless


CALLED: dict[str, tuple[Any, str, Callable[[RewriteRule], Any]]] = {
    "sum-of-one": (numbering, "sum_of_one", _any_sum),
    "moved-integers": (elementwise, "_of_remainder", _any_integer),
    "reduce-merged": (numbering, "reduction_pattern", _no_pattern),
    "known-branch": (numbering, "branch", _first_branch),
    "moves": (movements, "_moved", _anywhere),
    "scatter-in-place": (numbering, "window_replaced", _first_window),
    **dict.fromkeys(("moved-update", "update-in-place"), (movements, "_replaced", _unchanged)),
    "fold": (elementwise, "_folded", _zero),
    "integers-by-value": (Terms, "constant", _no_elements),
    "pad": (movements, "_padded", _no_padding),
    **dict.fromkeys(
        ("past-unit-dims", "past-moves", "integers-past-moves"), (elementwise, "_hoisted", _unmoved)
    ),
}
"""The rules that the normaliser does not dispatch: module, function, and how to write it carelessly."""
