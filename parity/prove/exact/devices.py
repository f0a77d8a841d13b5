"""Devices under ``shard_map``: every value is one tensor per device; arrays are split and joined at the edges."""

import functools
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.ir.mlir import integers
from parity.prove.exact.contents import Step
from parity.prove.exact.contractions import reducer
from parity.prove.exact.operations import cut, join
from parity.prove.exact.tensors import Tensor
from parity.prove.exact.terms import REAL, RefusalError

Mesh = tuple[tuple[str, int], ...]
"""Names and sizes of the axes, the slowest first; devices are numbered in this order."""


def device_count(mesh: Mesh) -> int:
    """Returns the number of devices."""
    return math.prod(size for _, size in mesh)


@functools.cache
def _place(mesh: Mesh, device: int, names: tuple[str, ...]) -> tuple[int, int]:
    """Returns the shard that a device has of a dimension over mesh axes, and the number of shards."""
    sizes = dict(mesh)
    where = dict(zip(sizes, np.unravel_index(device, list(sizes.values())), strict=True))
    index = 0
    for name in names:
        index = index * sizes[name] + int(where[name])
    return index, math.prod(sizes[name] for name in names)


Sharding = tuple[tuple[str, ...], ...]


def _shardings(text: str) -> list[tuple[str, Sharding]]:
    """Returns the mesh and the axes of each dimension, from the text of ``sharding_per_value``."""
    found = []
    for mesh, dims in re.findall(r"<@([\w.]+), \[((?:\{[^}]*\}(?:p\d+)?(?:, )?)*)\]", text):
        each = re.findall(r"\{([^}]*)\}", dims)
        if any(":" in dim for dim in each):
            raise RefusalError(f"manual_computation: got a part of a mesh axis in {text}")
        found.append((mesh, tuple(tuple(re.findall(r'"([^"]+)"', dim)) for dim in each)))
    return found


def manual(interpreter: Any, step: Step, operands: list[Any]) -> list[Tensor | None]:
    """Runs a manual region on all devices."""
    ins, outs = (_shardings(step.text(name)) for name in ("in_shardings", "out_shardings"))
    if interpreter.devices is not None:
        raise RefusalError("manual_computation: got one inside another")
    named = {mesh for mesh, _ in (*ins, *outs)}
    if len(named) != 1 or len(ins) != len(operands) or len(outs) != len(step.results):
        raise RefusalError("manual_computation: got shardings on several meshes, or inlined ones")
    axes = interpreter.meshes[named.pop()]
    held = set(re.findall(r'"([^"]+)"', step.text("manual_axes")))
    if not {name for name, size in axes if size > 1} <= held:
        raise RefusalError(f"manual_computation: got the axes {sorted(held)} of {dict(axes)}, expected all")
    interpreter.terms.origin = interpreter.origin(step)
    given = [_shards(interpreter, axes, x, sharding) for x, (_, sharding) in zip(operands, ins, strict=True)]
    interpreter.devices = axes
    results = interpreter.run(step.op.regions[0], given)
    interpreter.devices = None
    return [_joined(interpreter, axes, x, sharding) for x, (_, sharding) in zip(results, outs, strict=True)]


def _shards(
    interpreter: Any, devices: Mesh, x: Tensor | None, sharding: Sharding
) -> tuple[Tensor, ...] | None:
    if x is None:
        return None
    found: list[Tensor] = []
    for device in range(device_count(devices)):
        part = x
        for dim, names in enumerate(sharding):
            index, count = _place(devices, device, names)
            size = x.shape[dim] // count
            part = cut(interpreter.tensors, part, dim, (index * size, (index + 1) * size, 1))
        found.append(interpreter.tensors.one(part))
    return tuple(found)


def _joined(interpreter: Any, devices: Mesh, parts: Any, sharding: Sharding) -> Tensor | None:
    """Returns the whole array from its shards."""
    if parts is None:
        return None
    parts = (parts,) * device_count(devices) if isinstance(parts, Tensor) else parts
    found: dict[tuple[int, ...], Tensor] = {}
    for device, part in enumerate(parts):
        place = tuple(_place(devices, device, names)[0] for names in sharding)
        other = found.setdefault(place, part)
        if other is not part and not np.array_equal(*interpreter.tensors.grids([other, part])):
            raise RefusalError("manual_computation: devices that should hold the same value hold others")
    counts = [_place(devices, 0, names)[1] for names in sharding]
    for dim in reversed(range(len(counts))):
        shorter = itertools.product(*(range(count) for count in counts[:dim]))
        found = {
            place: join(interpreter.tensors, [found[(*place, index)] for index in range(counts[dim])], dim)
            for place in shorter
        }
    return interpreter.tensors.one(found[()])


def collective(interpreter: Any, step: Step, operands: list[Any]) -> list[Any]:
    """Runs a collective of the devices."""
    devices: Mesh = interpreter.devices
    interpreter.terms.origin = interpreter.origin(step)
    if step.name == "stablehlo.partition_id":
        sort, tensors = step.sorts[0], interpreter.tensors
        made = [tensors.algebra.constant(device, sort) for device in range(device_count(devices))]
        return [tuple([tensors.one(tensors.uniform(cell, (), sort)) for cell in made])]
    if step.name not in COLLECTIVES:
        raise RefusalError(f"{step.name}: not known")
    # Only a positive device channel numbers the devices by partition, not by replica.
    if not re.search(r"handle = [1-9]\d*, type = 1>", step.text("channel_handle")):
        raise RefusalError(f"{step.name}: got no channel, expected one across partitions")
    spread = [x if isinstance(x, tuple) else (x,) * device_count(devices) for x in operands]
    return [COLLECTIVES[step.name](interpreter, step, x) for x in spread]


def _permute(interpreter: Any, step: Step, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    pairs = integers(step.attributes["source_target_pairs"])
    sources = dict(zip(pairs[1::2], pairs[::2], strict=True))
    zero = interpreter.algebra.zero if x[0].sort == REAL else interpreter.algebra.constant(0, x[0].sort)
    empty = interpreter.tensors.uniform(zero, x[0].shape, x[0].sort)
    return tuple(x[sources[device]] if device in sources else empty for device in range(len(x)))


def _groups(interpreter: Any, step: Step) -> list[list[int]]:
    """Returns the groups of devices that communicate; each device is in one group."""
    devices: Mesh = interpreter.devices
    if "use_global_device_ids" not in step.attributes:
        raise RefusalError(f"{step.name}: got groups of replicas, expected groups of all devices")
    attribute, text = step.attributes["replica_groups"], step.text("replica_groups")
    if "replica_group_mesh_axes" in text:
        return _groups_over_axes(interpreter, text)
    groups = np.array(integers(attribute)).reshape(attribute.type.shape).tolist()
    if sorted(itertools.chain.from_iterable(groups)) != list(range(device_count(devices))):
        raise RefusalError(
            f"{step.name}: got the groups {groups}, expected each of {device_count(devices)} devices once"
        )
    return groups


def _groups_over_axes(interpreter: Any, text: str) -> list[list[int]]:
    """Returns the groups from named mesh axes, as newer versions of JAX write them."""
    devices: Mesh = interpreter.devices
    mesh = re.search(r"mesh = @([\w.]+)", text)
    names = re.findall(r'#stablehlo\.axis_ref<name = "([^"]+)">', text)
    if mesh is None or interpreter.meshes.get(mesh[1]) != devices or text.count("axis_ref") != len(names):
        raise RefusalError(f"got groups over {text}, expected whole axes of the mesh {dict(devices)}")
    sizes = dict(devices)
    others = [name for name in sizes if name not in names]
    order = [list(sizes).index(name) for name in (*others, *names)]
    grid = np.arange(device_count(devices)).reshape(*sizes.values()).transpose(order)
    return grid.reshape(-1, math.prod(sizes[name] for name in names)).tolist()


def _all_reduce(interpreter: Any, step: Step, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    name, algebra, sort = reducer(step), interpreter.algebra, x[0].sort
    if sort != REAL or name not in ("add", "maximum", "minimum"):
        raise RefusalError(f"all_reduce: got {name} of {sort}, expected a sum or an extreme of reals")

    def combine(*cells: int) -> int:
        return algebra.total((1, cell) for cell in cells) if name == "add" else algebra.extreme(name, cells)

    return _by_group(interpreter, step, x, lambda own: interpreter.tensors.zip_cells(combine, own, sort))


def _all_gather(interpreter: Any, step: Step, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (dim,) = step.dims("all_gather_dim")
    return _by_group(interpreter, step, x, lambda own: join(interpreter.tensors, own, dim))


def _by_group(
    interpreter: Any, step: Step, x: tuple[Tensor, ...], make: Callable[[list[Tensor]], Tensor]
) -> tuple[Tensor, ...]:
    """Returns for each device what its group makes of its tensors."""
    found = list(x)
    for group in _groups(interpreter, step):
        whole = make([x[device] for device in group])
        for device in group:
            found[device] = whole
    return tuple(found)


COLLECTIVES = {
    "stablehlo.collective_permute": _permute,
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_gather": _all_gather,
}
