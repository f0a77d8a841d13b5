"""Meshes by name, ``fsdp4.tensor2-auto``, and TPU topologies: lowering for hundreds of chips needs no TPU."""

import dataclasses
import difflib
import enum
import itertools
import math
import re
from collections.abc import Collection

import jax
import numpy as np

NEAR = 0.75
"""Least similarity of a misspelt name by ``difflib``: that of ``fspd`` and ``fsdp``."""


class FixedAxesError(ValueError):
    """A mesh cannot shrink, because the fixed axes alone need too many devices."""


class TooFewDevicesError(ValueError):
    """A mesh needs more devices than are available."""


class Mode(enum.StrEnum):
    """Mode of a mesh: the compiler (auto) or the types (explicit) decide shardings."""

    AUTO = "auto"
    EXPLICIT = "explicit"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """A mesh without devices.

    Args:
        axes: ``(name, size)`` in order; empty means one device and no mesh.
        mode: type of every axis.
    """

    axes: tuple[tuple[str, int], ...] = ()
    mode: Mode = Mode.AUTO

    @classmethod
    def parse(cls, text: str) -> "MeshSpec":
        """Reads ``single``, ``data8`` or ``fsdp4.tensor2``, optionally followed by ``-auto`` or ``-explicit``.

        Raises:
            ValueError: the text is not a mesh.
        """
        names, dash, mode = text.partition("-")
        if dash and mode not in list(Mode):
            raise ValueError(f"mesh {text!r}: got mode {mode!r}, expected one of {', '.join(Mode)}")
        if names == "single":
            if mode == Mode.EXPLICIT:
                raise ValueError(
                    f"mesh {text!r}: got mode {mode!r} for a single device; write single, or name axes"
                )
            return cls()
        parts = [re.fullmatch(r"([a-z_]*[a-z_])([1-9][0-9]*)", part) for part in names.split(".")]
        axes = tuple((part[1], int(part[2])) for part in parts if part)
        if len(axes) < len(parts) or len(dict(axes)) < len(axes):
            raise ValueError(f"mesh {text!r}: expected distinct axes with sizes, such as fsdp4.tensor2-auto")
        return cls(axes=axes, mode=Mode(mode or Mode.AUTO))

    def __str__(self) -> str:
        if not self.axes:
            return "single"
        return ".".join(f"{name}{size}" for name, size in self.axes) + f"-{self.mode}"

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(size for _, size in self.axes)

    def on(self, devices: list) -> jax.sharding.Mesh:
        """Returns the mesh over the first of ``devices``.

        Raises:
            TooFewDevicesError: the mesh needs more than that.
        """
        if self.size > len(devices):
            raise TooFewDevicesError(
                f"mesh {self}: needs {self.size} devices, found {len(devices)} ({devices[0].platform}); "
                "choose a smaller mesh, or raise --xla_force_host_platform_device_count in XLA_FLAGS"
            )
        grid = np.array(devices[: self.size]).reshape([size for _, size in self.axes])
        return jax.sharding.Mesh(grid, self._names, axis_types=self._types)

    def check(self, devices: int, topology: str) -> None:
        """Raises a `ValueError` if the mesh needs more devices than a slice has."""
        if self.size > devices:
            raise ValueError(
                f"mesh {self}: needs {self.size} devices, {topology} has {devices}; choose a larger topology"
            )

    def check_axes(self, named: Collection[str]) -> None:
        """Checks that no axis name is misspelt, because nothing would be sharded over such an axis.

        Args:
            named: the mesh axes that rules, or the leaves themselves, name.
        """
        absent = set(named) - set(self._names)
        for axis in set(self._names) - set(named):
            words = [name for name in absent if abs(len(name) - len(axis)) <= 1]
            if near := difflib.get_close_matches(axis, words, n=1, cutoff=NEAR):
                raise ValueError(
                    f"mesh {self}: got axis {axis}, which no rule or leaf names; did you mean {near[0]}?"
                )

    def fitted(self, devices: int, held: Collection[str] = ()) -> "MeshSpec":
        """Returns this mesh on at most ``devices``.

        The new size of each axis divides the old one, so that array dimensions stay divisible. Among the meshes
        that fit, the one with the most axes above one is taken; of these the one with the most devices, then
        the smallest largest axis, then the smallest first axis.

        Args:
            held: axes that keep their size.

        Raises:
            FixedAxesError: the held axes alone need more devices.
        """
        if self.size <= devices:
            return self
        kept = {name: size for name, size in self.axes if name in held}
        if math.prod(kept.values()) > devices:
            words = ".".join(f"{name}{size}" for name, size in kept.items())
            raise FixedAxesError(
                f"mesh {self}: {words} needs {math.prod(kept.values())} devices, found {devices}"
            )
        divisors = [
            [size] if name in kept else [n for n in range(1, size + 1) if size % n == 0]
            for name, size in self.axes
        ]
        small = (sizes for sizes in itertools.product(*divisors) if math.prod(sizes) <= devices)
        sizes = min(small, key=lambda sizes: (sizes.count(1), -math.prod(sizes), max(sizes), sizes))
        names = [name for name, _ in self.axes]
        return dataclasses.replace(self, axes=tuple(zip(names, sizes, strict=True)))

    def essential(self, spec: jax.sharding.PartitionSpec) -> jax.sharding.PartitionSpec:
        """Returns a spec without the axes of size one; it splits arrays in the same way.

        On an explicit mesh such axes are part of an array's type, so they stay.
        """
        single = {name for name, size in self.axes if size == 1}
        parts = [part if isinstance(part, tuple) else (part,) for part in spec]
        if self.mode is Mode.EXPLICIT or single.isdisjoint(axis for part in parts for axis in part):
            return spec
        kept = [tuple(axis for axis in part if axis not in single) for part in parts]
        return jax.sharding.PartitionSpec(
            *(part if len(part) > 1 else part[0] if part else None for part in kept)
        )

    def abstract(self) -> jax.sharding.AbstractMesh:
        """Returns the mesh without devices, for tracing and lowering."""
        sizes = tuple(size for _, size in self.axes)
        return jax.sharding.AbstractMesh(sizes, self._names, axis_types=self._types)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def _types(self) -> tuple[jax.sharding.AxisType, ...]:
        types = {Mode.AUTO: jax.sharding.AxisType.Auto, Mode.EXPLICIT: jax.sharding.AxisType.Explicit}
        return (types[self.mode],) * len(self.axes)


FAMILIES = {"v4": (3, 2), "v5e": (2, 1), "v5p": (3, 1), "v6e": (2, 1), "tpu7x": (3, 2)}
"""TPU generations: dimensions of the torus, and JAX devices per chip."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice such as ``v5p:2x2x1``.

    Args:
        family: a key of `FAMILIES`.
        shape: chips along each dimension.
    """

    family: str
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Topology":
        """Reads ``FAMILY:AxB`` or ``FAMILY:AxBxC``.

        Raises:
            ValueError: unknown family, or a number of dimensions that the family does not have.
        """
        family, _, grid = text.partition(":")
        if family not in FAMILIES:
            raise ValueError(f"topology {text!r}: expected one of {', '.join(FAMILIES)}, such as v5p:2x2x1")
        sizes = grid.split("x")
        dimensions, _ = FAMILIES[family]
        if len(sizes) != dimensions or not all(re.fullmatch(r"[1-9][0-9]*", size) for size in sizes):
            example = "x".join(["2"] * (dimensions - 1) + ["1"])
            raise ValueError(f"topology {text!r}: expected {dimensions} sizes, such as {family}:{example}")
        return cls(family, tuple(int(size) for size in sizes))

    @property
    def devices(self) -> int:
        """Number of JAX devices."""
        return math.prod(self.shape) * FAMILIES[self.family][1]

    def __str__(self) -> str:
        return f"{self.family}:{'x'.join(map(str, self.shape))}"
