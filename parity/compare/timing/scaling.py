"""Cost of a comparison against layers, leaves and devices: processor time by phase, and the fitted exponents."""

import gc
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from parity.cases.case import Case
from parity.cases.twins import twins
from parity.compare.backends.registry import find
from parity.compare.evidence import Evidence
from parity.compare.placement import place
from parity.compare.session import Session

SHORT: Mapping[str, tuple[int, ...]] = {
    "layers": (10, 30, 100),
    "leaves": (100, 300, 1_000),
    "devices": (1, 8, 64, 512),
}
FULL: Mapping[str, tuple[int, ...]] = {
    "layers": (10, 30, 100, 300, 1_000),
    "leaves": (100, 300, 1_000, 3_000, 10_000),
    "devices": (1, 4, 16, 64, 256, 512),
}
HIGHEST: Mapping[str, float] = {"layers": 1.3, "leaves": 1.3, "devices": 0.3}
"""Exponents above which growth is too fast: the mesh is abstract, so devices should cost nothing."""
WIDTH, ROWS = 4, 512
SLICE = "lower:v5p:8x8x8"
"""The backend of meshes: programs are lowered for a part of this slice."""
ROUNDS = 2

Whole = Callable[[Case, Session], object]

LEAST = 1e-3
"""Seconds below which a time is overhead of the clock and takes no part in a fit."""


def _inputs(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype("float32")}


def _case(name: str, reference: type, candidate: type, mesh: str = "single") -> Case:
    pair = twins(
        name,
        linen=reference,
        nnx=candidate,
        inputs=_inputs,
        loss=lambda outputs, batch: (outputs**2).mean(),
        programs=("grad",),
        meshes=(mesh,),
    )
    return pair.cases({})[0]


def layers_pair(count: int, mesh: str = "single") -> Case:
    """Returns the gradient of a stack of dense layers."""

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            for _ in range(count):
                x = linen.tanh(linen.Dense(WIDTH)(x))
            return x

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(count)])

        def __call__(self, x):
            for layer in self.layers:
                x = nnx.tanh(layer(x))
            return x

    return _case("layers", Linen, Nnx, mesh)


def leaves_pair(count: int) -> Case:
    """Returns the gradient of one module with many parameters and few operations."""

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            scales = [self.param(f"scale_{at}", linen.initializers.normal(), (WIDTH,)) for at in range(count)]
            return x * jnp.concatenate(scales).reshape(count, WIDTH).sum(0, keepdims=True)

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            make = nnx.initializers.normal()
            self.scales = nnx.List([nnx.Param(make(rngs.params(), (WIDTH,))) for _ in range(count)])

        def __call__(self, x):
            scales = [scale[...] for scale in self.scales]
            return x * jnp.concatenate(scales).reshape(count, WIDTH).sum(0, keepdims=True)

    return _case("leaves", Linen, Nnx)


AXES: Mapping[str, tuple[Callable[[int], Case], str]] = {
    "layers": (layers_pair, "cpu"),
    "leaves": (leaves_pair, "cpu"),
    "devices": (lambda count: layers_pair(10, f"data{count}-auto"), SLICE),
}
"""For each axis: the case of a size, and its backend."""


def fit(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """Returns the exponent of a power law through the points, by least squares of logarithms; None for one point."""
    kept = [(size, value) for size, value in zip(sizes, values, strict=True) if value >= LEAST]
    if len(kept) < 2:
        return None
    across, up = np.log(np.array(kept)).T
    return float(np.polyfit(across, up, 1)[0])


def measure_scaling(
    axis: str, sizes: Sequence[int], whole: Whole, notify: Callable[[str], None] = lambda words: None
) -> dict[str, Any]:
    """Measures all sizes in rounds, so that background load does not affect a single one.

    Returns plain data: each phase with its seconds, the minimum of the rounds for each size, and the exponent, which is
    None if fewer than two times are long enough; and the phases whose exponent is too high.

    Args:
        axis: a key of `AXES`.
        whole: compares a case in a new session; left out on a backend that runs nothing.
        notify: called with each size.
    """
    sizes = tuple(sorted(set(sizes)))
    _seconds(axis, sizes[0], whole)  # imports and caches
    found: dict[str, list[list[float]]] = {}
    for number in range(ROUNDS):
        for at, size in enumerate(sizes):
            notify(f"{axis}: {size:,} ({number + 1} of {ROUNDS})")
            for phase, seconds in _seconds(axis, size, whole).items():
                found.setdefault(phase, [[] for _ in sizes])[at].append(seconds)
    best = {name: [*map(min, rows)] for name, rows in found.items()}
    phases = {name: {"seconds": seconds, "exponent": fit(sizes, seconds)} for name, seconds in best.items()}
    high = HIGHEST[axis]
    too_fast = [name for name, row in phases.items() if (row["exponent"] or 0.0) > high]
    return {"axis": axis, "sizes": list(sizes), "phases": phases, "highest": high, "too_fast": too_fast}


def parse_sizes(asked: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
    """Returns the sizes of each axis: those named, else a minute's worth; ``full`` for the full ranges.

    Raises:
        ValueError: the text is not ``full`` or ``AXIS=SIZE,...``.
    """
    if not asked or tuple(asked) == ("full",):
        return FULL if asked else SHORT
    found: dict[str, tuple[int, ...]] = {}
    for text in asked:
        axis, _, numbers = text.partition("=")
        sizes = numbers.split(",")
        if axis not in AXES or not all(re.fullmatch("[1-9][0-9]*", size) for size in sizes):
            raise ValueError(f"--sizes {text}: expected full, or {', '.join(AXES)}, such as layers=10,100")
        found[axis] = tuple(map(int, sizes))
    return found


def phases(axis: str, size: int, whole: Whole) -> dict[str, Callable[[], object]]:
    """Returns the phases of a case as functions, to be called in order; the map may read the traces."""
    make, name = AXES[axis]
    backend = find(name)
    case, fresh = place([make(size), make(size)], backend)
    work: list[Evidence] = []
    steps: dict[str, Callable[[], object]] = {
        "build": lambda: work.append(Evidence.of(case, Session(backend=backend))),
        "trace": lambda: [side.traced for side in work[0].sides],
        "lower": lambda: [side.lowered for side in work[0].sides],
        "map": lambda: work[0].weights,
        "prove": lambda: work[0].proof,
    }
    return steps | ({"run": lambda: whole(fresh, Session(backend=backend))} if backend.executes else {})


def _seconds(axis: str, size: int, whole: Whole) -> dict[str, float]:
    """Returns the processor seconds of each phase."""
    found = {}
    for phase, step in phases(axis, size, whole).items():
        gc.collect()
        start = time.process_time()
        step()
        found[phase] = time.process_time() - start
    return found
