"""GRU and LSTM cells: another set of parameters, and another distribution of the initial recurrent kernels."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

FEATURES = 64
x = jnp.ones((1, FEATURES))


def linen_parameters(cell):
    carry = cell.initialize_carry(jax.random.key(0), x.shape)
    return cell.init(jax.random.key(0), carry, x)["params"]


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


gru = nnx.GRUCell(FEATURES, FEATURES, rngs=nnx.Rngs(0))
print("GRU, parameters of Linen:", count(linen_parameters(linen.GRUCell(FEATURES))))
print("GRU, parameters of NNX:  ", count(nnx.state(gru, nnx.Param)))

gate = linen_parameters(linen.OptimizedLSTMCell(FEATURES))["hi"]["kernel"]
lstm = nnx.OptimizedLSTMCell(FEATURES, FEATURES, rngs=nnx.Rngs(0))
first = lstm.dense_h.kernel[...][:, :FEATURES]
print("LSTM, norm of a row of one initial gate of Linen:", float(jnp.linalg.norm(gate, axis=1).mean()))
print("LSTM, norm of a row of one initial gate of NNX:  ", float(jnp.linalg.norm(first, axis=1).mean()))
