"""One case claimed equal in exact real arithmetic: names, leaves and rows of its two sides for `parity.prove.exact`."""

import fnmatch

from parity.builds.build import Group
from parity.compare.comparison import Comparison
from parity.compare.side import Side
from parity.ir.jax_internals import main_position
from parity.prove.exact import Equality, Link, Named, ProofCache, Relation, equal
from parity.verdicts import Finding

__all__ = ["difference", "named", "prove_exactly", "relation"]


def prove_exactly(comparison: Comparison, desk: ProofCache | None = None) -> Equality:
    """Returns whether both sides of a case are equal in exact real arithmetic.

    Args:
        comparison: the case; both sides are lowered, neither is compiled.
        desk: shared with other cases.
    """
    sides = named(comparison.reference), named(comparison.candidate)
    return equal(*sides, relation(comparison), desk)


def difference(found: Equality) -> Finding:
    """Returns where two sides that are not proved equal part, as a finding."""
    if found.refusal:
        return Finding(
            where="exact arithmetic",
            reference="expected operations that proofs in exact arithmetic know",
            candidate=found.refusal,
            labels=("", ""),
            next_step="docs/exact.md says where such proofs end; let the case not ask for one",
        )
    where, _, rest = found.difference.partition("\n  reference: ")
    ours, _, theirs = rest.partition("\n  candidate: ")
    return Finding(where=where, reference=_line(ours), candidate=_line(theirs), cause="another function")


def _line(text: str) -> str:
    return ", ".join(part.strip() for part in text.splitlines())


def named(side: Side) -> Named:
    """Returns the lowered program of a side with the names of its arguments and results."""
    flat = [f"state {path}" for path in side.state_paths]
    flat += [f"input {path}" for path in sorted(side.build.abstract_inputs)]
    positions = main_position(side.lowered)
    info = side.traced.out_info
    return Named(
        program=side.lowered,
        arguments=[flat[index] for index in sorted(positions, key=positions.__getitem__)],
        results=[f"{group} {path}" for group in sorted(info) for path in info[group]],
    )


def relation(comparison: Comparison) -> Relation:
    """Returns which arguments and results of a case are the same: its weight map, its batch, its values.

    The rows of the batch are taken apart, they are the same rows on both sides; so is what the case says.
    """
    inputs = comparison.reference.build.abstract_inputs
    info = comparison.reference.traced.out_info
    arguments = [link for link, _ in _leaves(comparison, "state")]
    arguments += [_same("input", path) for path in sorted(inputs)]
    results = []
    for group in sorted(info):
        if Group(group).by_leaf:
            results += [link for link, path in _leaves(comparison, group) if path in info[group]]
        else:
            results += [_same(group, path) for path in info[group]]
    apart = {f"input {path}": (0,) for path, x in inputs.items() if len(x.shape) > 1}
    for path in comparison.reference.state_paths:
        dims = [dims for glob, dims in comparison.case.apart.items() if fnmatch.fnmatch(path, glob)]
        apart |= {f"state {path}": each for each in dims}
    ranges = {f"input {path}": within for path, within in comparison.case.ranges.items()}
    return Relation(arguments=arguments, results=results, apart=apart, ranges=ranges)


def _same(group: str, path: str) -> Link:
    return Link(reference=(f"{group} {path}",), candidate=(f"{group} {path}",))


def _leaves(comparison: Comparison, group: str) -> list[tuple[Link, str]]:
    """Returns a link for each entry of the weight map, and the path of its first leaf."""
    return [
        (
            Link(
                reference=tuple(f"{group} {path}" for path in entry.reference),
                candidate=tuple(f"{group} {path}" for path in entry.candidate),
                transform=entry.transform,
            ),
            entry.reference[0],
        )
        for entry in comparison.weights.entries
    ]
