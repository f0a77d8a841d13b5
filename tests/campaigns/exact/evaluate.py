"""Evaluates terms as numbers: an independent interpretation of every node, to test the proofs."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from parity.prove.exact.scalars import COMPARE, is_signed, width
from parity.prove.exact.tensors import Tensor
from parity.prove.exact.terms import REAL, Node, Terms

__all__ = ["Evaluator"]

Array = np.ndarray


def _truncated(a: Array, b: Array) -> Array:
    return np.where((a < 0) == (b < 0), np.abs(a) // np.abs(b), -(np.abs(a) // np.abs(b)))


MAPS: dict[str, Callable[..., Any]] = {
    "exponential": np.exp,
    "log": np.log,
    "log_plus_one": np.log1p,
    "exponential_minus_one": np.expm1,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sine": np.sin,
    "cosine": np.cos,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "reciprocal": lambda x: 1 / x,
    "power": np.power,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _truncated,
    "remainder": lambda a, b: a - b * _truncated(a, b),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negate": np.negative,
    "select": lambda chosen, yes, no: np.where(chosen, yes, no),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "shift_left": np.left_shift,
    "shift_right_logical": np.right_shift,
}
OVER: dict[str, Any] = {
    "add": np.add.reduce,
    "maximum": np.maximum.reduce,
    "minimum": np.minimum.reduce,
    "and": np.logical_and.reduce,
    "or": np.logical_or.reduce,
    "multiply": np.multiply.reduce,
}


def dtype_of(sort: str) -> Any:
    """Returns the NumPy dtype in which a sort is computed: float64 for reals."""
    if sort == REAL:
        return np.float64
    return np.bool_ if sort == "i1" else np.dtype(f"{'int' if is_signed(sort) else 'uint'}{width(sort)}")


class Evaluator:
    """Computes terms in float64.

    Args:
        terms: the table.
        inputs: an array for each input, by name.
    """

    def __init__(self, terms: Terms, inputs: Mapping[str, Array]):
        self.terms, self.inputs = terms, inputs
        self._known: dict[int, Array] = {}

    def tensor(self, x: Tensor) -> Array:
        """Returns the value of a tensor."""
        out = np.empty(x.shape, dtype_of(x.sort))
        for place in np.ndindex(x.cells.shape):
            index = tuple(
                slice(None) if length == 1 else at for at, length in zip(place, x.cells.shape, strict=True)
            )
            cell = x.cells[place].item()
            value, labels = self.term(self.terms.term(cell)), self.terms.labels(cell)
            kept = [dim for dim, length in enumerate(x.cells.shape) if length == 1]
            order = sorted(range(len(labels)), key=lambda i: labels[i])
            shape = [x.shape[dim] if dim in labels else 1 for dim in kept]
            out[index] = value.transpose(order).reshape(shape)
        return out

    def term(self, term: int) -> Array:
        """Returns the value of a term, an array over its axes."""
        stack = [term]
        while stack:
            top = stack[-1]
            node = self.terms.nodes[top]
            waiting = [arg for arg, _ in node.args if arg not in self._known]
            if top in self._known:
                stack.pop()
            elif waiting:
                stack += waiting
            else:
                with np.errstate(all="ignore"):
                    self._known[top] = np.asarray(self._node(node), dtype_of(node.sort))
                assert self._known[top].shape == node.shape, (node, self._known[top].shape)
                stack.pop()
        return self._known[term]

    def _args(self, node: Node) -> list[Array]:
        """Returns the arguments as arrays over all numbered axes, of length one along axes that they lack."""
        count = max([node.bound, *(axis + 1 for _, where in node.args for axis in where)])
        found = []
        for arg, where in node.args:
            value = self._known[arg]
            value = value.transpose(np.argsort(where)) if len(where) > 1 else value
            shape = [1] * count
            for axis, size in zip(sorted(where), value.shape, strict=True):
                shape[axis] = size
            found.append(value.reshape(shape))
        return found

    def _node(self, node: Node) -> Any:
        if not node.args:
            return self._leaf(node)
        args = self._args(node)
        if node.kind == "sum":
            return functools.reduce(
                np.add,
                [float(c) * x for c, x in zip(node.params, args, strict=True)],
            )
        if node.kind == "prod":
            return functools.reduce(np.multiply, args)
        if node.kind == "extreme":
            return functools.reduce(MAPS[node.params], args)
        if node.kind == "over":
            return OVER[node.params](args[0], axis=tuple(range(node.bound)))
        if node.kind == "map":
            return self._map(node, args)
        return getattr(self, f"_{node.kind}")(node, args)

    def _leaf(self, node: Node) -> Any:
        if node.kind == "input":
            return np.asarray(self.inputs[node.params]).reshape(node.shape)
        if node.kind == "data":
            data: Any = node.params
            return np.frombuffer(data.raw, data.dtype).reshape(node.shape)
        if node.kind == "iota":
            return np.arange(node.shape[0])
        if node.kind == "sum":
            return 0.0
        return (
            {"one": 1.0}.get(node.kind, node.params if node.kind == "const" else None)
            if node.kind != "word"
            else float(node.params)
        )

    @staticmethod
    def _map(node: Node, args: list[Array]) -> Any:
        name, *detail = (node.params,) if isinstance(node.params, str) else node.params
        if name == "compare":
            return COMPARE[detail[0]](*args)
        if name == "table":
            ((low, values),) = detail
            return np.take(np.array(values), np.asarray(args[0], np.int64) - low)
        if name == "convert":
            source, target = detail
            if target == "i1":
                return args[0] != 0
            if source != REAL or target == REAL:
                return args[0].astype(dtype_of(target))
            ends = np.iinfo(dtype_of(target))
            return np.vectorize(
                lambda x: 0 if np.isnan(x) else int(max(min(x, ends.max), ends.min)), [object]
            )(args[0])
        return MAPS[name](*args)

    @staticmethod
    def _part(node: Node, args: list[Array]) -> Any:
        x = args[0]
        for role, (start, length, stride) in enumerate(node.params):
            x = x.take(range(start, start + length * stride, stride), role)
        fresh = [role for role, (_, length, _) in enumerate(node.params) if length > 1]
        x = x.squeeze(tuple(role for role, (_, length, _) in enumerate(node.params) if length == 1))
        return np.moveaxis(x, range(len(fresh)), range(x.ndim - len(fresh), x.ndim))

    @staticmethod
    def _concat(node: Node, args: list[Array]) -> Any:
        lengths = np.broadcast_shapes(*(x.shape[node.bound :] for x in args))
        parts = []
        for role, (x, size) in enumerate(zip(args, node.params, strict=True)):
            part = np.moveaxis(x, role, -1).reshape(*x.shape[node.bound :], x.shape[role])
            parts.append(np.broadcast_to(part, (*lengths, size)))
        return np.concatenate(parts, -1)

    @staticmethod
    def _reshape(node: Node, args: list[Array]) -> Any:
        (before, after), (x,) = node.params, args
        whole = np.broadcast_to(x, (*before, *x.shape[node.bound :]))
        last = np.moveaxis(whole, range(node.bound), range(x.ndim - node.bound, x.ndim))
        return last.reshape(*x.shape[node.bound :], *after)

    @staticmethod
    def _take(node: Node, args: list[Array]) -> Any:
        table, index = args
        rows = np.broadcast_arrays(table, np.clip(index, 0, node.params - 1))
        return np.take_along_axis(rows[0], rows[1][:1].astype(int), 0).squeeze(0)

    @staticmethod
    def _put(node: Node, args: list[Array]) -> Any:
        update, index = np.broadcast_arrays(*args)
        hit = index[..., None] == np.arange(node.params)
        return (update[..., None] * hit).sum(axis=tuple(range(node.bound)))

    @staticmethod
    def _fold(node: Node, args: list[Array]) -> Any:
        name, missing = node.params
        out = OVER[name](args[0], axis=tuple(range(node.bound))) if node.bound else args[0]
        times = int(np.prod(missing))
        return out * times if name == "add" else out**times if name == "multiply" else out
