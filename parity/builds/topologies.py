"""TPU topologies by name; no TPU is needed to lower programs for hundreds of chips."""

import dataclasses
import difflib
import math
import re

__all__ = ["FAMILIES", "Topology"]


@dataclasses.dataclass(frozen=True)
class Family:
    """A TPU generation: dimensions of its torus, and JAX devices per chip."""

    dimensions: int
    devices_per_chip: int


FAMILIES = {
    "v4": Family(3, 2),
    "v5e": Family(2, 1),
    "v5p": Family(3, 1),
    "v6e": Family(2, 1),
    "tpu7x": Family(3, 2),
}


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
            near = difflib.get_close_matches(family, FAMILIES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"topology {text!r}: expected one of {', '.join(FAMILIES)}, such as v5p:2x2x1{hint}"
            )
        sizes = grid.split("x")
        dimensions = FAMILIES[family].dimensions
        if len(sizes) != dimensions or not all(re.fullmatch(r"[1-9][0-9]*", size) for size in sizes):
            example = "x".join(["2"] * (dimensions - 1) + ["1"])
            raise ValueError(f"topology {text!r}: expected {dimensions} sizes, such as {family}:{example}")
        return cls(family, tuple(int(size) for size in sizes))

    @property
    def devices(self) -> int:
        """Number of JAX devices."""
        return math.prod(self.shape) * FAMILIES[self.family].devices_per_chip

    def __str__(self) -> str:
        return f"{self.family}:{'x'.join(map(str, self.shape))}"
