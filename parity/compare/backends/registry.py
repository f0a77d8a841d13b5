"""The backends, by name."""

import difflib

from parity.builds.meshes import FAMILIES, Topology
from parity.compare.backends.backend import UNOPTIMISED, Backend
from parity.compare.backends.compiler import Compiler
from parity.compare.backends.devices import Devices, Lowering

BACKENDS: dict[str, Backend] = {
    "cpu": Devices(name="cpu", options=tuple(UNOPTIMISED.items())),
    "tpu": Devices(
        name="tpu",
        tiled=True,
        remedy='run on a TPU machine with pip install "jax[tpu]"; aot:v5p:2x2x1 compiles without one',
    ),
    "gpu": Devices(
        name="gpu",
        remedy='run on a machine with a GPU, with pip install "jax[cuda12]"',
    ),
}


def known_backends() -> list[str]:
    """Returns the names of the backends for users, including those with a topology."""
    return [*BACKENDS, f"aot:TOPOLOGY ({', '.join(FAMILIES)})"]


def find(name: str, compiler: Compiler | None = None) -> Backend:
    """Returns the backend called ``name``.

    Args:
        compiler: for backends that compile in other processes; by default they share one.

    Raises:
        ValueError: no backend has that name.
    """
    family, _, rest = name.partition(":")
    if family == "lower":
        return Lowering(topology=Topology.parse(rest))
    if family == "aot":
        from parity.compare.backends.aot import AheadOfTime  # other runs start faster without it

        return AheadOfTime(topology=Topology.parse(rest), compiler=compiler)
    if name not in BACKENDS:
        near = difflib.get_close_matches(family, [*BACKENDS, "aot"], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join([*BACKENDS, "aot:TOPOLOGY"])
        raise ValueError(f"backend {name!r}: expected one of {known}, such as aot:v5p:2x2x1{hint}")
    return BACKENDS[name]
