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
        count = 1 + max((axis for _, where in node.args for axis in where), default=-1)
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
            return OVER[node.params](args[0], axis=node.bound)
        if node.kind == "map":
            return self._map(node, args)
        return getattr(self, f"_{node.kind}")(node, args)

    def _leaf(self, node: Node) -> Any:
        if node.kind == "input":
            return np.asarray(self.inputs[self.terms.names[node.params]]).reshape(node.shape)
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
    def _moved(x: Array, bound: int) -> Array:
        """Returns the array with one numbered axis last."""
        return np.moveaxis(x, bound, -1)

    def _at(self, node: Node, args: list[Array]) -> Any:
        index, (ref,) = node.params
        return self._moved(args[0], ref)[..., index]

    def _slice(self, node: Node, args: list[Array]) -> Any:
        (start, stop, stride), (ref,) = node.params
        return self._moved(args[0], ref)[..., start:stop:stride]

    def _concat(self, node: Node, args: list[Array]) -> Any:
        sizes, refs = node.params
        kept = [axis for axis in range(args[0].ndim) if axis not in node.bound]
        lengths = [max(x.shape[axis] for x in args) for axis in kept]
        parts = []
        for x, size, ref in zip(args, sizes, refs, strict=True):
            last = x.shape[ref] if ref is not None else 1
            part = np.transpose(
                x, [*kept, *([ref] if ref is not None else []), *[a for a in node.bound if a != ref]]
            )
            parts.append(np.broadcast_to(part.reshape(*(x.shape[a] for a in kept), last), (*lengths, size)))
        return np.concatenate(parts, -1)

    def _reshape(self, node: Node, args: list[Array]) -> Any:
        (before, after), refs = node.params
        x = args[0]
        kept = [axis for axis in range(x.ndim) if axis not in node.bound]
        order = [*kept, *(ref for ref in refs if ref is not None)]
        lengths = [x.shape[axis] for axis in kept]
        inner = [1 if ref is None else x.shape[ref] for ref in refs]
        whole = np.broadcast_to(x.transpose(order).reshape(*lengths, *inner), (*lengths, *before))
        return whole.reshape(*lengths, *after)

    def _take(self, node: Node, args: list[Array]) -> Any:
        size, (ref,) = node.params
        table, index = args
        rows = np.broadcast_arrays(table, np.clip(index, 0, size - 1))
        first = np.take(rows[1], [0], ref)
        return np.take_along_axis(rows[0], first.astype(int), ref).squeeze(ref)

    def _put(self, node: Node, args: list[Array]) -> Any:
        size = node.params[0]
        update, index = np.broadcast_arrays(*args)
        hit = index[..., None] == np.arange(size)
        return (update[..., None] * hit).sum(axis=node.bound)

    def _fold(self, node: Node, args: list[Array]) -> Any:
        (name, missing), _ = node.params
        out = OVER[name](args[0], axis=node.bound) if node.bound else args[0]
        times = int(np.prod(missing))
        return out * times if name == "add" else out**times if name == "multiply" else out
