"""The channel ``tree``: paths, shapes, dtypes, roles and logical axes of all state leaves."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from parity.builds.convert.exported import PROOF, Certified
from parity.builds.tree import Leaf, Role, is_counter
from parity.builds.weights.map import ConflictError, MapError, normalise
from parity.builds.weights.transforms import Identity
from parity.channels.axes import axis_names, compare_axes
from parity.channels.channel import Aspect, channel
from parity.channels.consequences import causes_first
from parity.channels.report_rows import map_table
from parity.channels.results import with_sources
from parity.compare.certificate import certify, differ_before, unlike
from parity.compare.evidence import Evidence
from parity.ir.functions import shared_at
from parity.verdicts import SIDES, ChannelResult, Doubt, Finding, Verdict, one_sided

MOST_UNLIKE = 0.5
"""Largest relative difference of responses that contradicts no guess if the outputs differ before."""
MOST_OF = 0.75
"""Part of a module's parameters without a partner from which on the module has none."""
COUNTER: Mapping[str, Any] = {"cause": "a counter, compared as a number"}
CREATED: Mapping[str, Any] = {
    "cause": "one side creates the leaf in another dtype",
    "next_step": "pass the parameter dtype where the leaf is created",
}
UNNAMED = "unnamed"
"""Measure: the number of entries of the weight map that no rule and no name decides."""


@channel(column="tree", aspect=Aspect.STATE)
def tree(evidence: Evidence) -> ChannelResult:
    """Compares paths, shapes, dtypes, roles and logical axes of all state leaves."""
    leaves = tuple(build.leaves for build in evidence.builds)
    try:
        entries = evidence.weights.entries
    except ConflictError as error:
        return _conflict(error)
    except MapError as error:
        found = [Finding(where=hint, reference="", candidate="") for hint in error.hints]
        for at, one in enumerate(_leftovers(error)):
            paths, module = _paths(one, error), list[str]()
            if at == 0:  # the others follow from the same cause
                one, module = _with_shared(evidence, one, paths), _lone_module(leaves, error, paths)
            found.append(with_sources(evidence, one, paths, module))
        detail = "leaves without a partner"
        return ChannelResult(verdict=Verdict.FAILED, detail=detail, findings=tuple(found))
    findings: list[Finding] = []
    notes: list[Finding] = []
    for entry in entries:
        held = [
            [side[path] for path in paths]
            for side, paths in zip(leaves, (entry.reference, entry.candidate), strict=True)
        ]
        dtypes = [{leaf.dtype for leaf in side} for side in held]
        if dtypes[0] != dtypes[1]:
            counter = all(is_counter(leaf) for side in held for leaf in side)
            texts = [", ".join(sorted(side)) for side in dtypes]
            words = COUNTER if counter else CREATED
            found = Finding(where=entry.candidate[0], reference=texts[0], candidate=texts[1], **words)
            (notes if counter else findings).append(found)
    partners = {entry.candidate[0]: entry.reference[0] for entry in entries}
    findings = [with_sources(evidence, one, (partners[one.where], one.where)) for one in findings]
    findings += compare_axes(evidence)
    findings = causes_first(findings, [finding.where for finding in findings], leaves[1])
    findings += _contradicted(evidence)
    moved = sum(not isinstance(entry.transform, Identity) for entry in entries)
    detail = f"{len(leaves[0])} leaves" + (f", {moved} of {len(entries)} transformed" if moved else "")
    if guessed := evidence.weights.guessed:
        first = " with ".join(map(" + ".join, (guessed[0].reference, guessed[0].candidate)))
        detail = f"{len(guessed)} guessed, such as {first}, {_confirmed(evidence)}; {detail}"
    for words in (_alone(evidence), axis_names(evidence).words()):
        detail += f", {words}" if words else ""
    verdict = Verdict.FAILED if findings else Verdict.OPEN if _is_open(evidence) else Verdict.EQUAL
    return ChannelResult(
        verdict=verdict,
        detail=detail,
        findings=tuple(findings),
        notes=tuple(notes),
        measures={UNNAMED: count} if (count := sum(entry.is_unnamed for entry in entries)) else {},
        tables={"map": map_table(evidence.weights)},
    )


def _alone(evidence: Evidence) -> str:
    """Returns the number of leaves without a partner, such as ``2 RNG leaves on one side``.

    Names the first of those that the pair's method does not use.
    """
    keys, words = 0, []
    for build, paths in zip(evidence.builds, evidence.weights.alone, strict=True):
        unused = [path for path in paths if build.leaves[path].role is not Role.RNG]
        keys += len(paths) - len(unused)
        if unused:
            first = min(unused, key=lambda path: (build.leaves[path].role is not Role.PARAMS, path))
            words.append(
                f"not compared: {len(unused)} leaves that only {build.name} has and `{build.method}` does not use, "
                f"such as {first}"
            )
    counted = [f"{keys} RNG lea{'ves' if keys > 1 else 'f'} on one side"] if keys else []
    return ", ".join([*counted, *words])


def _is_open(evidence: Evidence) -> bool:
    """Returns True if the verdict would depend on a guess that this run can neither confirm nor contradict."""
    if not evidence.weights.guessed or evidence.rung is Verdict.PROVED:
        return False
    if not evidence.reference.backend.executes:
        return True
    unsure, wrong = evidence.read(_contradicted_guesses)
    return bool(unsure) and not wrong


def _confirmed(evidence: Evidence) -> str:
    if evidence.rung is Verdict.PROVED:
        left = [one for one in certify(evidence, evidence.weights.guessed) if one.confirmed_by != PROOF]
        return f"{len(left)} {left[0].confirmed_by}" if left else "confirmed by the proof"
    if not _is_open(evidence):
        return "probed"
    why = "here" if not evidence.reference.backend.executes else "while outputs differ"
    return f"confirmed by nothing {why}: a weight rule would tell"


def _contradicted(evidence: Evidence) -> list[Finding]:
    """Finds guessed pairings that a probe contradicts: equal changes on both sides change the outputs differently."""
    if not evidence.weights.guessed or evidence.rung is Verdict.PROVED or _is_open(evidence):
        return []
    _, wrong = evidence.read(_contradicted_guesses)
    if not wrong:
        return []
    found = [
        Finding(
            where=" + ".join(one.candidate),
            reference=" + ".join(one.reference),
            candidate=f"paired by {one.matched_by}",
            distance=f"confirmed by {one.confirmed_by}",
            cause="a program that uses the leaf in another way, or a wrong guess of the weight map",
            next_step="give the pair a weight rule for it; `parity map` shows all entries",
            doubts=(Doubt.GUESS,),
            leaf=" + ".join(one.reference),
        )
        for one in wrong
    ]
    return [dataclasses.replace(found[0], follows=tuple(found[1:]))]


def _contradicted_guesses(evidence: Evidence) -> tuple[list[Certified], list[Certified]]:
    """Returns the guessed entries that the probe contradicts.

    Of the first ones, the responses may differ because the outputs differ before; the second ones are wrong.
    """
    guessed, unsure, wrong = evidence.weights.guessed, [], []
    for entry, one in zip(guessed, certify(evidence, guessed), strict=True):
        if one.contradicted:
            is_unsure = unlike(evidence, entry) <= MOST_UNLIKE and differ_before(evidence)
            (unsure if is_unsure else wrong).append(one)
    return unsure, wrong


def _conflict(error: ConflictError) -> ChannelResult:
    finding = Finding(
        where=error.path,
        reference="one leaf",
        candidate=" and ".join(dict.fromkeys(error.partners.values())),
        distance=", ".join(f"{program} uses it as {leaf}" for program, leaf in error.partners.items()),
        cause="two programs that demand different maps, so that no checkpoint serves both",
        next_step="look at which parameter each program of the candidate reads",
    )
    return ChannelResult(verdict=Verdict.FAILED, detail="no one map for all programs", findings=(finding,))


def _paths(finding: Finding, error: MapError) -> list[str]:
    name, sides = normalise(finding.where), (error.reference, error.candidate)
    return [next((leaf.path for leaf in side if normalise(leaf.path) == name), "") for side in sides]


def _lone_module(leaves: Sequence[Mapping[str, Leaf]], error: MapError, paths: Sequence[str]) -> list[str]:
    """Returns the parameters without a partner in the largest module around a leaf of which most have none."""
    for held, missing, path in zip(leaves, (error.reference, error.candidate), paths, strict=True):
        lone = {leaf.path for leaf in missing if leaf.role is Role.PARAMS}
        for module in reversed(PurePath(path).parents) if path in lone and "" in paths else ():
            inside = [
                name for name in held if name.startswith(f"{module}/") and held[name].role is Role.PARAMS
            ]
            if len(found := [name for name in inside if name in lone]) > MOST_OF * len(inside):
                return found
    return []


def _leftovers(error: MapError) -> tuple[Finding, ...]:
    """Returns a finding for each leaf without a partner; leaves of one name on both sides share one."""
    sides = (error.reference, error.candidate)
    named = [{normalise(leaf.path): leaf for leaf in leaves} for leaves in sides]
    rows = [(_unlike(leaf, named[1][name]), leaf) for name, leaf in named[0].items() if name in named[1]]
    for side, mine, others in zip(SIDES, named, named[::-1], strict=True):
        rows += [(_one_sided(side, leaf), leaf) for name, leaf in mine.items() if name not in others]
    findings, leaves = [finding for finding, _ in rows], {finding.where: leaf for finding, leaf in rows}
    return tuple(causes_first(findings, list(leaves), leaves))


def _with_shared(evidence: Evidence, finding: Finding, paths: Sequence[str]) -> Finding:
    """Returns a finding on a parameter that one side lacks, with the one that it holds under several names instead."""
    side = list(paths).index("") if "" in paths else 0
    build, leaf = evidence.builds[side], evidence.builds[1 - side].leaves.get(paths[1 - side])
    if leaf is None or leaf.role is not Role.PARAMS or paths[side]:
        return finding
    for names in build.shared():
        if any(name in build.leaves and build.leaves[name].shape == leaf.shape for name in names):
            line = shared_at(names, evidence.session.start(build).files)
            words = f"no such leaf, but {' and '.join(names)} are one{f', shared at {line}' if line else ''}"
            return dataclasses.replace(finding, **{SIDES[side]: words})
    return finding


def _one_sided(side: str, leaf: Leaf) -> Finding:
    article = "an" if leaf.role is Role.OPTIMIZER else "a"
    return Finding(
        where=leaf.path,
        **one_sided(side, f"{leaf.dtype}{list(leaf.shape)}", "no such leaf"),
        cause=f"{article} {leaf.role} leaf that only the {side} has",
        next_step="add it to the other side, or give the pair a weight rule",
    )


def _unlike(one: Leaf, other: Leaf) -> Finding:
    """Returns a finding for a leaf that has the same name on both sides but another shape or role."""
    what = "shape" if one.shape != other.shape else "role"
    step = "give both the same, or give the pair a weight rule with a transform"
    words = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in (one, other)]
    if one.role is not other.role:
        words = [f"{word}, role {leaf.role}" for word, leaf in zip(words, (one, other), strict=True)]
        step = "hold parameters as `params` and the optimizer's state as `opt_state`: roles are known by these names"
    return Finding(
        where=other.path,
        reference=words[0],
        candidate=words[1],
        cause=f"one name with another {what} on each side",
        next_step=step,
    )
