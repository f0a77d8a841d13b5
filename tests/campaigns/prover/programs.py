"""Small programs in plain JAX, each written twice the way twins differ, that the campaign edits."""

# B batch, T query, S key, N heads, H head_dim, D embed, F hidden, V vocabulary, L layers

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from campaigns.prover.indexing import indexed
from campaigns.prover.modules import parse_module
from campaigns.prover.textual import TEXTS
from parity.ir.jax_internals import main_position, stablehlo_module

__all__ = ["Sample", "Twins", "samples", "twin_samples"]

B, T, N, H, D, F, V, L = 4, 6, 2, 3, 8, 10, 14, 3
_OPTIMIZER = optax.adamw(1e-2, weight_decay=0.1)
_SHAPES = {
    "embed": (V, D),
    "scale": (L, D),
    "q": (L, D, N, H),
    "k": (L, D, N, H),
    "v": (L, D, N, H),
    "out": (L, N, H, D),
    "gate": (L, D, F),
    "up": (L, D, F),
    "down": (L, F, D),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """A program with the name it has in tables.

    Args:
        name: in tables.
        lowered: the program.
        runs: whether XLA can run it; False if its types and attributes only serve the program reader.
    """

    name: str
    lowered: Any
    runs: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Twins:
    """Two lowered programs with their pairs of arguments and results."""

    name: str
    reference: Any
    candidate: Any
    arguments: tuple[tuple[int, int], ...]
    results: tuple[tuple[int, int], ...]


def _mesh() -> Mesh:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def _constrain(x: jax.Array, *spec: str | None) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(_mesh(), PartitionSpec(*spec)))


def _params(dtype: Any) -> dict[str, jax.ShapeDtypeStruct]:
    sharded: dict[str, tuple] = {
        "gate": (None, None, "model"),
        "up": (None, None, "model"),
        "down": (None, "model", None),
    }
    return {
        name: jax.ShapeDtypeStruct(
            shape,
            dtype,
            sharding=NamedSharding(_mesh(), PartitionSpec(*sharded[name])) if name in sharded else None,
        )
        for name, shape in _SHAPES.items()
    }


def _normalise(x: jax.Array, scale_D: jax.Array) -> jax.Array:
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + 1e-6) * scale_D.reshape((1,) * (x.ndim - 1) + (-1,))


def _attend(q_BTNH: jax.Array, k_BSNH: jax.Array, v_BSNH: jax.Array) -> jax.Array:
    scores_BNTS = jnp.einsum("btnh,bsnh->bnts", q_BTNH, k_BSNH) * H**-0.5
    causal_TS = jnp.tril(jnp.ones((T, T), bool))[None, None]
    weights_BNTS = jax.nn.softmax(jnp.where(causal_TS, scores_BNTS, -1e9), axis=-1)
    return jnp.einsum("bnts,bsnh->btnh", weights_BNTS, v_BSNH)


def _drop(x: jax.Array, key: jax.Array) -> jax.Array:
    keep = jax.random.bernoulli(key, 0.9, x.shape)
    return jnp.where(keep, x / 0.9, jnp.zeros_like(x))


def _update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer power
        return _OPTIMIZER.update(grads, state, params)


# --- the reference: a dictionary of parameters, carry (x, key) ---


def _layer(x_BTD: jax.Array, w: dict[str, jax.Array], key: jax.Array) -> jax.Array:
    h_BTD = _normalise(x_BTD, w["scale"])
    q, k, v = (jnp.einsum("btd,dnh->btnh", h_BTD, w[name]) for name in ("q", "k", "v"))
    x_BTD = x_BTD + jnp.einsum("btnh,nhd->btd", _attend(q, k, v), w["out"])
    hidden_BTF = jax.nn.silu(x_BTD @ w["gate"]) * (x_BTD @ w["up"])
    hidden_BTF = _constrain(hidden_BTF, "data", None, "model")
    return x_BTD + _drop(hidden_BTF @ w["down"], key)


def _forward(params: dict[str, jax.Array], tokens_BT: jax.Array, key: jax.Array) -> jax.Array:
    layers = {name: leaf for name, leaf in params.items() if name != "embed"}

    def body(carry: tuple[jax.Array, jax.Array], w: dict[str, jax.Array]) -> tuple[Any, None]:
        x_BTD, key = carry
        key, drop_key = jax.random.split(key)
        return (jax.checkpoint(_layer)(x_BTD, w, drop_key), key), None

    x_BTD = _constrain(params["embed"][tokens_BT], "data", None, None)
    (x_BTD, _), _ = jax.lax.scan(body, (x_BTD, key), layers)
    return x_BTD @ params["embed"].T


def _loss(params: dict[str, jax.Array], tokens_BT: jax.Array, key: jax.Array) -> jax.Array:
    logits_BTV = _forward(params, tokens_BT, key)[:, :-1]
    return optax.softmax_cross_entropy_with_integer_labels(logits_BTV, tokens_BT[:, 1:]).mean()


def _train_step(params: Any, state: Any, tokens_BT: jax.Array, key: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(_loss)(params, tokens_BT, key)
    updates, state = _update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


# --- the twin: a list of parameters in another order, carry (key, x, step), more jit boundaries ---

_ORDER: tuple[str, ...] = ("up", "down", "gate", "v", "k", "q", "out", "scale", "embed")


class _TwinLayer:
    def __init__(self, leaves: tuple[jax.Array, ...]):
        self.leaves: dict[str, jax.Array] = dict(zip(_ORDER, leaves, strict=False))

    def project(self, name: str, h_BTD: jax.Array) -> jax.Array:
        return jax.jit(functools.partial(jnp.einsum, "btd,dnh->btnh"))(h_BTD, self.leaves[name])

    def hidden(self, x_BTD: jax.Array) -> jax.Array:
        activated = jax.nn.silu(x_BTD @ self.leaves["gate"])
        return _constrain(activated * (x_BTD @ self.leaves["up"]), "data", None, "model")

    def __call__(self, x_BTD: jax.Array, key: jax.Array) -> jax.Array:
        h_BTD = _normalise(x_BTD, self.leaves["scale"])
        q, k, v = self.project("q", h_BTD), self.project("k", h_BTD), self.project("v", h_BTD)
        x_BTD = x_BTD + jnp.einsum("btnh,nhd->btd", _attend(q, k, v), self.leaves["out"])
        return x_BTD + _drop(self.hidden(x_BTD) @ self.leaves["down"], key)


def _twin_forward(leaves: list[jax.Array], key: jax.Array, tokens_BT: jax.Array) -> jax.Array:
    *layers, embed = leaves

    @jax.checkpoint
    def apply(key: jax.Array, layer: tuple[jax.Array, ...], x_BTD: jax.Array) -> jax.Array:
        return _TwinLayer(layer)(x_BTD, key)

    def body(carry: tuple[Any, ...], layer: tuple[jax.Array, ...]) -> tuple[Any, None]:
        step, key, x_BTD = carry
        key, drop_key = jax.random.split(key)
        return (step + 1, key, apply(drop_key, layer, x_BTD)), None

    x_BTD = _constrain(embed[tokens_BT], "data", None, None)
    start = (jnp.zeros((), jnp.int32), key, x_BTD)
    (_, _, x_BTD), _ = jax.lax.scan(body, start, tuple(layers))
    return x_BTD @ embed.T


def _twin_loss(leaves: list[jax.Array], key: jax.Array, tokens_BT: jax.Array) -> jax.Array:
    logits_BTV = jax.jit(_twin_forward)(leaves, key, tokens_BT)[:, :-1]
    return optax.softmax_cross_entropy_with_integer_labels(logits_BTV, tokens_BT[:, 1:]).mean()


def _twin_train_step(key: jax.Array, leaves: list, state: Any, tokens_BT: jax.Array) -> tuple[Any, ...]:
    loss, grads = jax.value_and_grad(_twin_loss)(leaves, key, tokens_BT)
    updates, state = _update(grads, state, leaves)
    return loss, state, optax.apply_updates(leaves, updates)


# --- programs that use operations which the transformer lacks ---


def _ring(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A ring of matrix products under shard_map: collectives inside a loop inside manual computation."""

    def local(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[Any, None]:
            w, total = carry
            total = total + jnp.tanh(x @ w)
            return (jax.lax.ppermute(w, "data", [(k, (k + 1) % 4) for k in range(4)]), total), None

        total = jnp.zeros((x.shape[0], w.shape[1]), x.dtype)
        (_, total), _ = jax.lax.scan(step, (w, total), None, length=4)
        gathered = jax.lax.all_gather(total, "model", axis=1, tiled=True)
        return jax.lax.psum(total, "model"), gathered

    specs = (PartitionSpec("data", "model"), PartitionSpec("model", None))
    out = PartitionSpec("data", None)
    manual = jax.shard_map(local, mesh=_mesh(), in_specs=specs, out_specs=(out, out), check_vma=False)
    return manual(x, w)


def _ring_gradient(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.grad(lambda x, w: sum(jnp.sum(jnp.sin(part)) for part in _ring(x, w)), argnums=(0, 1))(x, w)


def _mixed(x: jax.Array, limit: jax.Array) -> tuple[Any, ...]:
    """Branches, a data-dependent loop, sorting, windows, scatter, a library call, a barrier."""
    ranked = jnp.sort(x, axis=1)
    low, order = jax.lax.sort((x[0], jnp.arange(x.shape[1])), num_keys=1)
    chosen = jax.lax.cond(x[0, 0] > limit, lambda x: jnp.sin(x) - 2.0 * x, lambda x: jnp.cos(x) / 3.0, x)
    total, count = jax.lax.while_loop(
        lambda carry: carry[0] < limit,
        lambda carry: (carry[0] * 1.5 + jnp.abs(x[1, 0]), carry[1] + 1),
        (jnp.abs(x[0, 1]), 0),
    )
    pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 2), "SAME")
    placed = jnp.zeros((9, x.shape[1]), x.dtype).at[order[: x.shape[0]]].add(x, mode="drop")
    factor = jnp.linalg.eigh(x @ x.T + 9.0 * jnp.eye(x.shape[0]))[0]
    first, second = jax.lax.optimization_barrier((jnp.exp(x), jnp.log1p(jnp.abs(x))))
    third, fourth = jax.lax.optimization_barrier((first - second, second))
    table = jnp.asarray([0.5, -1.25, 3.0, 7.5], x.dtype)[order[:4] % 4]
    best = jnp.argmax(x, axis=1)
    shapes = jax.nn.silu(x) - jax.nn.sigmoid(x) / jax.nn.relu(x)
    return ranked, low, chosen, total, count, pooled, placed, factor, third / fourth, table, best, shapes


def _key() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2,), jnp.uint32)


def _tokens() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((B, T), jnp.int32)


@functools.cache
def samples() -> tuple[Sample, ...]:
    """Returns the programs: a tiny transformer's, a ring, a mixture, one full of indices, modules as text."""
    params = _params(jnp.float32)
    state = jax.eval_shape(_OPTIMIZER.init, params)
    x = jax.ShapeDtypeStruct((8, 6), jnp.float32)
    table: tuple[tuple[str, Callable, tuple], ...] = (
        ("forward", _forward, (params, _tokens(), _key())),
        ("grad", jax.grad(_loss), (params, _tokens(), _key())),
        ("train_step", _train_step, (params, state, _tokens(), _key())),
        ("ring", _ring, (x, jax.ShapeDtypeStruct((6, 10), jnp.float32))),
        ("ring_gradient", _ring_gradient, (x, jax.ShapeDtypeStruct((6, 10), jnp.float32))),
        ("mixed", _mixed, (jax.ShapeDtypeStruct((5, 7), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))),
        (
            "indexed",
            indexed,
            (
                jax.ShapeDtypeStruct((5, 7), jnp.float32),
                jax.ShapeDtypeStruct((3,), jnp.int32),
                jax.ShapeDtypeStruct((2, 3, 1, 2), jnp.float32),
            ),
        ),
    )
    donated = {"train_step": (0, 1)}
    traced = tuple(
        Sample(name=name, lowered=jax.jit(run, donate_argnums=donated.get(name, ())).lower(*inputs))
        for name, run, inputs in table
    )
    like = stablehlo_module(traced[0].lowered)
    texts = [Sample(name=name, lowered=parse_module(text, like), runs=False) for name, text in TEXTS.items()]
    return (*traced, *texts)


@functools.cache
def twin_samples() -> tuple[Twins, ...]:
    """Returns the transformer's programs with their twins."""
    params = _params(jnp.float32)
    leaves = [params[name] for name in _ORDER]
    state, twin_state = jax.eval_shape(_OPTIMIZER.init, params), jax.eval_shape(_OPTIMIZER.init, leaves)
    key, tokens = _key(), _tokens()
    one = {"params": params, "state": state, "tokens": tokens, "key": key}
    other = {"params": leaves, "state": twin_state, "tokens": tokens, "key": key}
    trees = (one, other)
    plain, twin_plain = ("params", "tokens", "key"), ("params", "key", "tokens")
    stepped, twin_stepped = ("params", "state", "tokens", "key"), ("key", "params", "state", "tokens")
    table = (
        ("forward", (_forward, plain, ("logits",)), (_twin_forward, twin_plain, ("logits",))),
        ("grad", (jax.grad(_loss), plain, ("params",)), (jax.grad(_twin_loss), twin_plain, ("params",))),
        (
            "train_step",
            (_train_step, stepped, ("params", "state", "loss")),
            (_twin_train_step, twin_stepped, ("loss", "state", "params")),
        ),
    )
    return tuple(_twins(name, (left, right), trees) for name, left, right in table)


def _twins(name: str, sides: tuple, trees: tuple[dict, dict]) -> Twins:
    lowered = [
        jax.jit(run).lower(*[tree[each] for each in inputs])
        for (run, inputs, _), tree in zip(sides, trees, strict=True)
    ]
    # Results of one leaf each need no labels below the leaf.
    wider = [{**tree, "logits": _key(), "loss": _key()} for tree in trees]
    labels = [
        [[label for each in names for label in _labels(each, tree[each])] for names in side[1:]]
        for side, tree in zip(sides, wider, strict=True)
    ]
    kept = [
        [label for k, label in enumerate(labels[k][0]) if k in main_position(each)]
        for k, each in enumerate(lowered)
    ]
    return Twins(
        name=name,
        reference=lowered[0],
        candidate=lowered[1],
        arguments=_pairs(kept[0], kept[1]),
        results=_pairs(labels[0][1], labels[1][1]),
    )


def _labels(prefix: str, tree: Any) -> list[str]:
    """Labels leaves by path; the list of a twin is read as the dictionary of the reference."""
    labels = []
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        words = [prefix]
        for place, entry in enumerate(path):
            if isinstance(entry, jax.tree_util.GetAttrKey):
                words.append(entry.name)
            elif isinstance(entry, jax.tree_util.DictKey):
                words.append(str(entry.key))
            elif place == len(path) - 1:
                words.append(_ORDER[entry.idx])
        labels.append(".".join(words))
    return labels


def _pairs(left: list[str], right: list[str]) -> tuple[tuple[int, int], ...]:
    return tuple((position, right.index(label)) for position, label in enumerate(left))
