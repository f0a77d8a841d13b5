"""The channel ``program``: the proof that both are the same program, and which framework made each side.

*Attestation* reads the modules and files on the call stacks of a program's trace.
"""

import collections
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence

from flax import linen, nnx

from parity.builds.build import Build, Flavour
from parity.cases.recipe import CallSpec
from parity.channels.channel import BY_RULES, Aspect, channel
from parity.channels.results import vacuous
from parity.compare.evidence import Evidence
from parity.compare.one_program import compile_to_one
from parity.compare.side import Side
from parity.ir.epsilons import changed_epsilons
from parity.ir.jax_internals import traceback_codes
from parity.ir.location import call_stacks
from parity.ir.settings import changed_setting
from parity.prove.grade import SETTING
from parity.values.vacuity import vacuous_finding
from parity.verdicts import SIDES, ChannelResult, Doubt, Finding, Verdict, expected_got

NO_RUN_SETTLES = "no run settles that; make both sides equal, prove it in exact arithmetic, or waive it"


@channel(column="prog", aspect=Aspect.PROGRAM)
def program(evidence: Evidence) -> ChannelResult:
    """Attests which framework made each side; returns the proof, or the first operation that differs."""
    if not any(any(side.traced.out_info.values()) for side in evidence.sides):
        advice = "return what the program computes, by group"
        wanted, got = "values, gradients or state", "both sides return no array"
        nothing = vacuous_finding(evidence.case.program, got, wanted, advice)
        return vacuous([nothing], "nothing to compare")
    attested, findings = _attested(evidence)
    if findings:
        return ChannelResult(verdict=Verdict.FAILED, detail=attested, findings=findings)
    if evidence.proof is None:
        return _without_proof(evidence, attested)
    verdict, found, missed = evidence.proof.rung, evidence.proof.findings(), ""
    if evidence.required.of_programs and not evidence.required.met_by(verdict):
        verdict, missed = Verdict.FAILED, f"; {verdict} where {evidence.required} is required"
        found = found or evidence.differences  # the unrolled proof has no places
    elif verdict is Verdict.UNPROVED:
        verdict, found = _graded(evidence, found)
    measures = {"operations": sum(evidence.proof.operations), "seconds": evidence.proof.seconds}
    tables = {}
    if rules := evidence.proof.rules:
        measures[BY_RULES] = len(rules)
        tables = {"rules": [{"rule": name, "times": times} for name, times in rules.items()]}
    return ChannelResult(
        verdict=verdict,
        detail=f"{attested}; {evidence.proof.outcome()}{missed}{_strongest(evidence)}",
        findings=found,
        measures=measures,
        tables=tables,
    )


def _graded(evidence: Evidence, found: tuple[Finding, ...]) -> tuple[Verdict, tuple[Finding, ...]]:
    """Returns the verdict on programs that differ: failed if neither numbers nor another proof can settle it."""
    assert evidence.proof is not None
    if failed := _unsettled(evidence, evidence.proof.reasons() or _changed_epsilons(evidence)):
        return Verdict.FAILED, failed
    setting = changed_setting(*(side.traced.jaxpr for side in evidence.sides))
    if setting is None:
        return Verdict.UNPROVED, _resting(found)
    left, right = (f"{place.own_place}{place.maker}" for place in (setting.reference, setting.candidate))
    unreached = Finding(where=setting.where, reference=left, candidate=right, cause=SETTING)
    found = found if any(one.cause == SETTING for one in found) else (unreached, *found)
    first = next(one for one in found if one.cause == SETTING)
    failed = _unsettled(evidence, {first: "another constant"} if setting.alone else {})
    others = tuple(one for one in found if one is not first or not failed)
    return Verdict.FAILED if failed else Verdict.UNPROVED, (*failed, *_resting(others))


def _unsettled(evidence: Evidence, reasons: Mapping[Finding, str]) -> tuple[Finding, ...]:
    """Returns the findings with their reasons; empty if an exact proof or one compiled program overrides them."""
    exact = reasons and evidence.case.accept.prove_exact and evidence.exact_proof.proved
    if not reasons or exact or _compiles_to_one(evidence):
        return ()
    return tuple(
        dataclasses.replace(finding, next_step=f"{reason}: {NO_RUN_SETTLES}")
        for finding, reason in reasons.items()
    )


def _changed_epsilons(evidence: Evidence) -> dict[Finding, str]:
    """Returns the small constants that differ, which the proof does not reach behind another difference."""
    texts = changed_epsilons(*(side.traced.jaxpr for side in evidence.sides))
    if not texts:
        return {}
    return {Finding(where="small constants", **dict(zip(SIDES, texts, strict=True))): "another constant"}


def _strongest(evidence: Evidence) -> str:
    """Returns the strongest claim for all inputs where the strict proof fails, as words.

    If the backend runs programs, the channels of numbers name a proof in exact arithmetic.
    """
    if evidence.proof is None or evidence.proof.proved or "program" in evidence.case.accept.not_applicable:
        return ""
    if evidence.reference.backend.executes:
        backend = evidence.reference.backend.name
        one = _compiles_to_one(evidence)
        return (
            f"; but both compile to one program on {backend}: equal bits there for all inputs" if one else ""
        )
    return f"; but {evidence.exact_claim}" if evidence.exact_claim else ""


def _compiles_to_one(evidence: Evidence) -> bool:
    return evidence.reference.backend.executes and evidence.read(compile_to_one)


def _resting(found: tuple[Finding, ...], *more: Doubt) -> tuple[Finding, ...]:
    """Returns first differences that are not graded."""
    rests = "not settled for all inputs: the numbers decide"
    return tuple(
        dataclasses.replace(one, doubts=(*one.doubts, Doubt.NUMBERS, *more), next_step=rests) for one in found
    )


def _without_proof(evidence: Evidence, attested: str) -> ChannelResult:
    """Returns the result if operations do not correspond, because layouts or meshes differ."""
    if evidence.unrolled_proof is None:
        return ChannelResult(
            verdict=Verdict.SKIPPED, detail=f"{attested}; programs not compared: layouts or meshes differ"
        )
    if failed := _unsettled(evidence, _changed_epsilons(evidence)):
        return ChannelResult(verdict=Verdict.FAILED, detail=attested, findings=failed)
    return ChannelResult(
        verdict=Verdict.UNPROVED,
        detail=f"{attested}; not proved: layouts differ, and unrolled programs do, too{_strongest(evidence)}",
        # A place on one path to a result need not be the first.
        findings=_resting(evidence.unrolled_proof.findings(), Doubt.PLACE),
    )


def _attested(evidence: Evidence) -> tuple[str, tuple[Finding, ...]]:
    sides = evidence.sides
    found = [origins(side) for side in sides]
    flavours = " and ".join(side.build.flavour for side in sides)
    if evidence.case.accept.bridged:
        return f"claims {flavours}, bridged: {evidence.case.accept.bridged}", ()
    findings = tuple(
        finding
        for side, other, made in zip(sides, sides[::-1], found, strict=True)
        for finding in attest(
            side.build, made, () if side.build.flavour is other.build.flavour else other.build.sources
        )
    )
    if findings:
        return f"claimed {flavours}", findings
    shown = all(
        side.build.sources or made.modules.get(side.build.flavour)
        for side, made in zip(sides, found, strict=True)
    )
    if shown:
        return f"attested {flavours}", ()
    reason = "no module of theirs in the trace and no source files of their own"
    return f"claims {flavours}, not attested: {reason}", ()


OTHER = {Flavour.LINEN: Flavour.NNX, Flavour.NNX: Flavour.LINEN}
BRIDGE = "flax/nnx/bridge/"
(HARNESS,) = (one for one in Side.function.function.__code__.co_consts if inspect.iscode(one))
"""The end of the program's part of a call stack: frames further out belong to the harness and its caller."""
SHARED = CallSpec.scaled.__code__
"""The call of the loss that a pair gives to both sides: frames further in belong to neither."""
ITSELF = (
    "a build that runs the other twin, so the check compares a twin with itself; "
    "or code that both use, such as a loss, in a file of one flavour"
)


@dataclasses.dataclass(frozen=True)
class Origins:
    """Counts of the modules and files that the operations of a trace come from.

    Args:
        modules: number of operations from the modules of each framework. The innermost module on the call stack counts,
            so a Linen module inside ``ToNNX`` is Linen. Operations outside any module, such as a loss, do not count.
        files: number of operations with each file on their call stacks.
    """

    modules: Mapping[Flavour, int]
    files: Mapping[str, int]


def origins(side: Side) -> Origins:
    """Returns the modules and files that a side's operations come from.

    ``jit`` keeps traces with the call stacks of the first caller: a call counts as one operation of its caller.
    """
    methods = _methods(len(list(_classes(linen.Module))), len(list(_classes(nnx.Module))))
    modules: collections.Counter[Flavour] = collections.Counter()
    files: collections.Counter[str] = collections.Counter()
    for stack, count in collections.Counter(call_stacks(side.traced.jaxpr.jaxpr)).items():
        own = list(itertools.chain.from_iterable(map(traceback_codes, stack)))
        own = own[: own.index(HARNESS)] if HARNESS in own else own
        own = own[own.index(SHARED) :] if SHARED in own else own
        for file in {code.co_filename for code in own}:
            files[file] += count
        names = ((code.co_filename, code.co_qualname) for code in own)
        owner = next((methods[name] for name in names if name in methods), None)
        if owner:
            modules[owner] += count
    return Origins(modules, files)


def attest(build: Build, found: Origins, foreign: Sequence[str]) -> list[Finding]:
    """Finds evidence that a program was not made by the flavour its build claims.

    Args:
        foreign: path fragments that only the other flavour's model code has.
    """

    def count(fragments: Sequence[str]) -> int:
        return sum(number for file, number in found.files.items() if any(part in file for part in fragments))

    other = OTHER[build.flavour]
    checks = (
        (
            found.modules.get(other) and not found.modules.get(build.flavour),
            f"{build.flavour} modules",
            f"all {found.modules.get(other)} operations of modules are of {other} modules",
        ),
        (
            build.sources and not count(build.sources),
            "operations of its own model code",
            f"no operation from {', '.join(build.sources)}",
        ),
        (
            count(foreign),
            "none from the other twin",
            f"{count(foreign)} operations from {', '.join(foreign)}",
        ),
    )
    where, advice = (
        f"flavour of {build.name}",
        "look at what the pair's build function constructs; a bridge that is meant is declared in `bridged`",
    )
    return [
        expected_got(where, f"of {build.flavour}: {expected}", got, cause=ITSELF, next_step=advice)
        for is_wrong, expected, got in checks
        if is_wrong
    ]


def _classes(root: type) -> Iterator[type]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


@functools.lru_cache(maxsize=1)
def _methods(linen_classes: int, nnx_classes: int) -> dict[tuple[str, str], Flavour]:
    """Returns the flavour of each method, by file and name. Recomputed if the number of classes has grown."""
    found: dict[tuple[str, str], Flavour] = {}
    for flavour, root in ((Flavour.LINEN, linen.Module), (Flavour.NNX, nnx.Module)):
        for cls in _classes(root):
            for method in vars(cls).values():
                code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
                if code is not None and BRIDGE not in code.co_filename:
                    found[code.co_filename, code.co_qualname] = flavour
    return found
