"""Chooses the core: ``python tests/campaigns matrix.core [parity.json]`` rewrites `core.json`.

A case of twins is worth its options and the pairs of them. A case of one flavour against itself is worth the
differences between its sides. A train step has the options of its gradients, gradients those of the forward pass.
The core covers the worth of the cases written by hand, all but a small `REST` of the pairs, which the parts of the
matrix bring. Among cases with equal worth, the cheapest is chosen, by the seconds of a report or else by its program.
"""

import dataclasses
import functools
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from parity.cases.case import Case
from parity.cases.settings import collect
from parity.matrix.cases import CORE
from parity.matrix.decoders import Variant

__all__ = ["choose", "main", "worths"]

SIZES = frozenset(
    {
        *("vocab", "embed", "layers", "norm_epsilon"),
        *(
            f"attention.{name}"
            for name in ("heads", "kv_heads", "head_dim", "rope_theta", "local_rope_theta")
        ),
        *(f"attention.{name}" for name in ("query_scalar", "rope_scaling.factor")),
        *(f"attention.rope_scaling.{name}" for name in ("angle_factor", "score_factor")),
        *(f"moe.{name}" for name in ("experts", "hidden", "top_k", "shared_hidden", "groups", "top_groups")),
        *(f"moe.{name}" for name in ("load_balance", "bias_rate", "capacity_factor")),
        "pipeline.microbatches",
        *(f"train.optimizer.{name}" for name in ("final_learning_rate", "warmup_steps", "total_steps")),
        *(f"train.optimizer.{name}" for name in ("b1", "b2", "epsilon", "weight_decay", "clip_norm")),
        *(f"train.optimizer.{name}" for name in ("max_bad_steps", "spike_window", "spike_factor")),
    }
)
"""Numeric fields whose value selects no code path, and fields that follow another field."""
SECONDS = 60.0
"""Time to choose in; the best cover found until then is taken."""
DEFAULT = 5.0
"""Default cost in seconds of a case that resembles none in the report."""
RUN = 8.0
"""Cost factor of a case that runs although it is proved."""
REST = 0.03
"""Share of the pairs that the core may leave to the other cases: the last ones cost as much as all before."""
WITHIN = {"train_step": ("grad", "forward"), "grad": ("forward",)}
"""Programs that a program contains: pairs of options in a step also occur in its gradients."""
COVERING, FLIPPING = "covering-", "flags-"
ROTATED = (
    *("pipeline-sequential-", "batch-split-plain-against-split-", "moe-dropless-"),
    *("moe-dropping-single-against-mesh-", "sharded-single-against-mesh-nnx/train_step@data4.expert2."),
)
"""Sides of one flavour that no proof of their bits decides: they cost most, and the parts of the matrix have them."""

Worth = frozenset[Any]


def choose(cases: Sequence[Case], seconds: Mapping[str, float]) -> list[str]:
    """Returns the ids of the core, in the order of the matrix.

    The cheapest cases that cover what is required: a set cover, solved as an integer program.

    Args:
        cases: the matrix.
        seconds: cost of each case, by id.
    """
    brought, cost = worths(cases), _costs(cases, seconds)
    wanted = required(brought)
    free = {case.id for case in cases if case.smoke}
    wanted -= {one for id in free for one in brought[id]}
    holders = {one: tuple(n for n, case in enumerate(cases) if one in brought[case.id]) for one in wanted}
    taken = free | {cases[number].id for number in _cheapest(holders, [cost[case.id] for case in cases])}
    return [case.id for case in cases if case.id in taken]


def required(brought: Mapping[str, Worth]) -> set[Any]:
    """Returns what the handwritten cases are worth together, given the worth of each case."""
    return {one for id, worth in brought.items() if not id.startswith((COVERING, *ROTATED)) for one in worth}


def is_pair(one: Any) -> bool:
    """True if a part of a case's worth is a pair of options."""
    return isinstance(one, tuple) and isinstance(one[0], tuple)


def _cheapest(holders: Mapping[Any, Sequence[int]], cost: Sequence[float]) -> list[int]:
    """Returns the numbers of the cases that cost least and bring everything except a share of the pairs.

    Args:
        holders: the numbers of the cases that bring a thing, by the thing.
        cost: seconds by number of the case.
    """
    pairs, needed = Counter[tuple[int, ...]](), set[tuple[int, ...]]()
    for one, numbers in holders.items():
        if is_pair(one):
            pairs[numbers] += 1
        else:
            needed.add(numbers)
    rows = [*needed, *pairs]
    if not rows:
        return []
    count, most = len(cost), REST * pairs.total()
    entries = [(row, number, 1.0) for row, numbers in enumerate(rows) for number in numbers]
    entries += [(row, count + row - len(needed), 1.0) for row in range(len(needed), len(rows))]
    entries += [(len(rows), count + row, float(many)) for row, many in enumerate(pairs.values())]
    at, of, values = zip(*entries, strict=True)
    hits = csr_matrix((values, (at, of)), shape=(len(rows) + 1, count + len(pairs)))
    lower, upper = [*[1.0] * len(rows), 0.0], [*[np.inf] * len(rows), most]
    found = milp(
        [*cost, *[0.0] * len(pairs)],
        constraints=LinearConstraint(hits, lower, upper),
        integrality=1,
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.005, "time_limit": SECONDS},
    )
    return [number for number, part in enumerate(found.x[:count]) if part > 0.5]


def _costs(cases: Sequence[Case], seconds: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds of each case: as reported, or twice the third quartile of similarly named cases.

    The core prefers cases whose cost is guessed too low, so the guess is rather too high.
    """
    known: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        for kind in _kinds(case) if case.id in seconds else ():
            known.setdefault(kind, []).append(seconds[case.id])
    costs = {}
    for case in cases:
        like = next((known[kind] for kind in _kinds(case) if kind in known), [DEFAULT])
        guess = 2 * sorted(like)[3 * len(like) // 4] * (RUN if case.accept.paranoid else 1.0)
        costs[case.id] = seconds.get(case.id) or guess
    return costs


def _kinds(case: Case) -> tuple[tuple[str, str], ...]:
    word = case.id.split("-")[0]
    return (word, case.program), (word, ""), ("", case.program)


def worths(cases: Sequence[Case]) -> dict[str, Worth]:
    """Returns the worth of each case: its options and pairs of them, or the differences between its sides.

    Args:
        cases: the matrix; fields that are equal in all of them are not options.
    """
    rows = {case.id: (dict(_options(case, 0)), dict(_options(case, 1))) for case in cases}
    values: dict[str, set[str]] = {}
    for row in itertools.chain(*rows.values()):
        for name, value in row.items():
            values.setdefault(name, set()).add(value)
    constant = {name for name, found in values.items() if len(found) == 1}
    return {id: _worth(id, left, right, constant) for id, (left, right) in rows.items()}


def _worth(id: str, left: Mapping[str, str], right: Mapping[str, str], constant: set[str]) -> Worth:
    named = [(name, value) for name, value in sorted(left.items()) if name not in constant]
    if not left or id.startswith(FLIPPING):
        return frozenset({id.split("/")[0] if not left else FLIPPING})
    if left == right:
        programs = (left["program"], *WITHIN.get(left["program"], ()))
        rows = [[(name, one if name == "program" else value) for name, value in named] for one in programs]
        return frozenset(one for row in rows for one in (*row, *itertools.combinations(row, 2)))
    differ = [name for name in sorted({*left, *right}) if left.get(name) != right.get(name)]
    return frozenset((name, left.get(name), right.get(name)) for name in differ)


def _options(case: Case, side: int) -> Iterator[tuple[str, str]]:
    """Yields the options of a side by name; none if it is no variant of a decoder, or is altered."""
    make = (case.reference, case.candidate)[side]
    variant = getattr(getattr(make, "func", None), "__self__", None)
    if not (isinstance(make, functools.partial) and isinstance(variant, Variant)):
        return
    mesh = case.meshes[side]
    yield "program", case.program
    for name, size in mesh.axes:
        if size > 1:
            yield f"axis {name}", "there"
    yield "mode", str(mesh.mode)
    yield "saved", str(variant.saved)
    parts: dict[str, Any] = {"": variant.config, "train": variant.train}
    parts |= {"diloco": variant.diloco}
    for name, part in parts.items():
        yield from _fields(part, f"{name}." if name else "")


def _fields(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        name, inner = f"{prefix}{field.name}", getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield name, "there"
            yield from _fields(inner, f"{name}.")
        elif name not in SIZES:
            yield name, repr(inner)


def main() -> None:
    """Writes the core, and prints the number of its cases by kind."""
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")) if sys.argv[1:] else {"cases": []}
    seconds = {case["id"]: sum(case["seconds"].values()) for case in report["cases"] if case["seconds"]}
    cases = collect((), {})[1]
    ids = choose(cases, seconds)
    CORE.write_text(json.dumps(ids, indent=1) + "\n", encoding="utf-8")
    words = Counter(id.split("-")[0].split("/")[0] for id in ids)
    print(f"{len(ids)} of {len(cases)} cases: " + ", ".join(f"{word} {words[word]}" for word in words))


if __name__ == "__main__":
    main()
