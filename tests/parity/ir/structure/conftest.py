"""Programs whose structure is counted by hand, on the CPU and on the ahead-of-time TPU compiler."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "true")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# L layers, B batch, D embed, F hidden, T inner repeats
L, B, D, F, T = 5, 8, 16, 48, 3
REPLICATED = P()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Target of compilation: a mesh of 8 simulated CPU devices or of a TPU topology."""

    name: str
    mesh: Mesh

    def spec(
        self, shape: tuple[int, ...], spec: P = REPLICATED, dtype: Any = jnp.float32
    ) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, spec))

    def weights(self, *, shard: bool = True) -> dict[str, jax.ShapeDtypeStruct]:
        return {
            "wi": self.spec((L, D, F), P(None, "fsdp", "tensor") if shard else P()),
            "wo": self.spec((L, F, D), P(None, "tensor", "fsdp") if shard else P()),
        }

    def inputs(self, *, shard: bool = True) -> jax.ShapeDtypeStruct:
        return self.spec((B, D), P("fsdp") if shard else P())

    def key(self) -> jax.ShapeDtypeStruct:
        return self.spec((2,), P(), jnp.uint32)


def layer(x_BD: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
    return x_BD + jnp.tanh(x_BD @ weights["wi"]) @ weights["wo"]


def rolled(weights: Any, x_BD: jax.Array, body: Callable[..., Any] = layer, unroll: int = 1) -> jax.Array:
    return jax.lax.scan(lambda x, w: (body(x, w), None), x_BD, weights, unroll=unroll)[0]


def loss(weights: Any, x_BD: jax.Array, model: Callable[..., jax.Array] = rolled) -> jax.Array:
    return jnp.mean(model(weights, x_BD) ** 2)


def train_step(weights: Any, x_BD: jax.Array, model: Callable[..., jax.Array] = rolled) -> Any:
    value, grads = jax.value_and_grad(functools.partial(loss, model=model))(weights, x_BD)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), value


remat_inside = functools.partial(rolled, body=jax.checkpoint(layer))
remat_outside = jax.checkpoint(rolled)


@functools.cache
def aot(name: str) -> Target:
    topology = topologies.get_topology_desc(platform="tpu", topology_name=name)
    count = len(topology.devices)
    return Target(name=name, mesh=topologies.make_mesh(topology, (count // 2, 2), ("fsdp", "tensor")))


class Programs:
    """The models above, for tests to combine."""

    L, B, D, F, T = L, B, D, F, T
    aot = staticmethod(aot)
    layer = staticmethod(layer)
    rolled = staticmethod(rolled)
    loss = staticmethod(loss)
    train_step = staticmethod(train_step)
    remat_inside = staticmethod(remat_inside)
    remat_outside = staticmethod(remat_outside)


@pytest.fixture(scope="session")
def programs() -> type[Programs]:
    return Programs


@pytest.fixture(scope="session")
def cpu() -> Target:
    devices = np.array(jax.devices("cpu")[:8]).reshape(4, 2)
    return Target(name="cpu", mesh=Mesh(devices, ("fsdp", "tensor")))
