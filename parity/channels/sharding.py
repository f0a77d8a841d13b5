"""The channel ``sharding``: logical axes, specs, constraints and compiled shardings of both sides."""

import collections
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from parity.builds.build import Group
from parity.builds.meshes import Mode
from parity.builds.tree import Role
from parity.builds.weights.map import Entry
from parity.builds.weights.transforms import Identity
from parity.cases.shared import linen_spec
from parity.channels.axes import compare_axes
from parity.channels.channel import Aspect, channel
from parity.channels.report_rows import spec_table
from parity.channels.results import compared, with_makers
from parity.compare.evidence import Evidence
from parity.compare.layout import bytes_by_role, entries, placed, whole_share
from parity.compare.side import Side
from parity.ir.jaxprs import equations
from parity.ir.location import equation_source
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict, expected_got, listed

CONSTRAINTS = ("sharding_constraint", "reshard")
UNCHANGED = "logical axes changed by running the program"
NO_OP = "a program traced outside its mesh or rules, so that constraints are no-ops"
Constraints = Mapping[tuple[str, str], Sequence[Any]]
"""The equations of constraints by (array type, spec)."""
REPEATED = "a constraint left out, or an activation rematerialised or unrolled, on one side only"
LACKING = "a constraint left out, or code traced outside its mesh or rules, on one side only"
ELSEWHERE = "an activation put elsewhere, or not put back"
OUTSIDE = "trace under jax.set_mesh, with the rules, and constrain on both sides"


@channel(column="spec", aspect=Aspect.STATE)
def sharding(evidence: Evidence) -> ChannelResult:
    """Compares logical axes, resolved specs, constraints and compiled shardings of all state leaves.

    Reads the logical axes before and after the program, and the specs that Flax Linen's resolver makes of the rules.
    Constraints are those of the traced programs. Compiled shardings are left out if the programs are proved the same.
    """
    reference, candidate = evidence.sides
    findings: list[Finding] = []
    try:
        for finding in _findings(evidence):
            findings.append(finding)
    except Exception as error:
        if not findings:
            raise
        first = (str(error).strip().splitlines() or [""])[0]
        return compared(f"all that was found before {type(error).__name__}: {first}", findings)
    if not reference.mesh.axes:
        named = sum(leaf.logical_axes is not None for leaf in reference.build.leaves.values())
        return compared(f"{named} leaves with logical axes, one device", findings)
    if reference.mesh.size == 1:
        return compared(f"mesh {reference.mesh}: one device, nothing to split", findings)
    sharded = sum(any(placed(reference, path).axes) for path in reference.specs)
    split = sum(any(spec) for spec in reference.input_specs.values())
    if not sharded and not split:
        return ChannelResult(
            verdict=Verdict.VACUOUS,
            detail=f"nothing is sharded on {reference.mesh}; give the leaves logical axes and rules",
        )
    held = bytes_by_role(reference)
    words = ", ".join(f"{role} {size:,}" for role, size in held.items())
    detail = (
        f"{sharded} of {len(reference.specs)} leaves and {split} inputs sharded, "
        f"{sum(map(len, reference.read(constraints).values()))} constraints; bytes per device: {words}; "
        f"{whole_share(reference):.1%} of the parameters' are whole on every device"
    )
    measures = {f"{role} bytes per device": size for role, size in held.items()}
    rows = spec_table(reference, candidate, evidence.weights) if candidate.mesh.axes else []
    return compared(detail, findings, measures=measures, tables={"specs": rows} if rows else {})


def _findings(evidence: Evidence) -> Iterator[Finding]:
    """Yields findings, those of the earliest phases first: if a side crashes later, the earlier findings are kept."""
    sides, pairs = evidence.sides, evidence.weights.entries
    on_mesh = bool(sides[0].mesh.axes)
    yield from compare_axes(evidence)
    if on_mesh:
        found = [finding for entry in pairs for finding in _spec_findings(entry, *sides)]
        yield from [*(_with_resolvers(one, sides) for one in found[:1]), *found[1:]]
        for side in sides:
            yield from _oracle_findings(side)
    for side in sides:
        yield from _after_findings(side)
        yield from _returned_findings(side)
    if on_mesh and sides[0].mesh == sides[1].mesh:
        differing = _constraint_findings(*(side.read(constraints) for side in sides))
        yield from () if not differing or evidence.same_program else differing
    if on_mesh and not evidence.proof_covers_compiled:
        for side in evidence.compiling():
            yield from _compiled_findings(side)


def _spec_findings(entry: Entry, reference: Side, candidate: Side) -> Iterator[Finding]:
    if not isinstance(entry.transform, Identity):
        return
    left, right = placed(reference, entry.reference[0]), placed(candidate, entry.candidate[0])
    if left.axes != right.axes:
        rules = f"rules: reference {left.why}; candidate {right.why}"
        yield Finding(
            where=right.leaf.path,
            reference=f"{left.spec} from axes {left.leaf.logical_axes}",
            candidate=f"{right.spec} from axes {right.leaf.logical_axes}",
            distance=f"{left.bytes_per_device:,} and {right.bytes_per_device:,} bytes per device",
            cause=rules if left.why else "axes or rules that differ",
            next_step="`parity inspect CASE` shows all leaves",
        )


def _with_resolvers(finding: Finding, sides: tuple[Side, Side]) -> Finding:
    runs = [functools.partial(side.build.specs, side.device_mesh) for side in sides]
    return with_makers(finding, "placed", runs, lambda value: isinstance(value, jax.sharding.PartitionSpec))


def _after_findings(side: Side) -> Iterator[Finding]:
    """Yields leaves whose logical axes differ after the program has run."""
    observed = side.effects.leaves
    next_step = "look where the model takes axis names off and puts them on again, such as around a scan"
    for path, leaf in side.build.leaves.items():
        if observed and (path not in observed or observed[path].logical_axes != leaf.logical_axes):
            after = f"logical axes {observed[path].logical_axes} after" if path in observed else "gone after"
            before = f"logical axes {leaf.logical_axes} before"
            yield Finding(
                where=f"{side.build.name} {path}",
                reference=before,
                candidate=after,
                cause=UNCHANGED,
                next_step=next_step,
                labels=("it has", "and"),
            )


def _oracle_findings(side: Side) -> Iterator[Finding]:
    """Yields parameters that Flax Linen's resolver, an oracle, would place differently under the same rules."""
    sizes = dict(side.mesh.axes)
    for path, leaf in side.build.leaves.items() if side.build.rules else ():
        if leaf.role is not Role.PARAMS or leaf.logical_axes is None:
            continue
        mine = placed(side, path)
        if not mine.why:  # placed by that resolver, not by one of the build's own
            continue
        spec = entries(linen_spec(leaf.logical_axes, side.build.rules, sizes), len(leaf.shape))
        wanted = tuple(tuple(axis for axis in part if sizes[axis] > 1) for part in spec)
        if wanted != mine.axes:
            yield expected_got(
                f"{side.build.name} {path}",
                f"{jax.sharding.PartitionSpec(*wanted)} by Flax Linen's resolver",
                f"{mine.spec} from axes {leaf.logical_axes}",
                cause=f"a resolver that loses rules or binds an axis twice ({mine.why})",
                next_step="walk the rules in order and track which mesh axes are used",
            )


def constraints(side: Side) -> Constraints:
    """Returns the constraints and reshards of the traced program, on arrays with axes, by array type and spec."""
    found = collections.defaultdict(list)
    for equation in equations(side.traced.jaxpr):
        if equation.primitive.name in CONSTRAINTS and equation.outvars[0].aval.shape:
            target = equation.params.get("sharding", equation.params.get("dst_sharding"))
            aval = equation.outvars[0].aval
            spec = getattr(target, "spec", None)
            where = target if spec is None else side.mesh.essential(spec)
            found[f"{aval.dtype}{list(aval.shape)}", str(where)].append(equation)
    return found


def _constraint_findings(left: Constraints, right: Constraints) -> list[Finding]:
    if bool(left) != bool(right):
        totals = [f"{sum(map(len, side.values()))} sharding constraints" for side in (left, right)]
        return [_unlike("traced program", totals, NO_OP, [OUTSIDE, *_more(left, right)])]
    findings = []
    for array in sorted({array for array, _ in [*left, *right]}):
        wanted, got = (
            {spec: lines for (name, spec), lines in side.items() if name == array} for side in (left, right)
        )
        texts = [
            ", ".join(f"{spec} {len(lines)} times" for spec, lines in sorted(specs.items())) or "none"
            for specs in (wanted, got)
        ]
        if texts[0] == texts[1]:
            continue
        cause = REPEATED if wanted.keys() == got.keys() else ELSEWHERE if wanted and got else LACKING
        steps = ["compare the constrain calls on both sides", *_more(wanted, got)]
        findings.append(_unlike(f"constraints on {array}", texts, cause, steps))
    return sorted(findings, key=lambda finding: finding.cause == REPEATED)


def _unlike(where: str, texts: Sequence[str], cause: str, steps: Sequence[str]) -> Finding:
    reference, candidate = texts
    return Finding(
        where=where, reference=reference, candidate=candidate, cause=cause, next_step="; ".join(steps)
    )


def _more(left: Mapping[Any, Sequence[Any]], right: Mapping[Any, Sequence[Any]]) -> list[str]:
    """Returns the lines of the constraints that one side has more often, as text."""
    found = []
    for side, mine, others in zip(SIDES, (left, right), (right, left), strict=True):
        more = [one for key, each in mine.items() if len(each) > len(others.get(key, ())) for one in each]
        lines = dict.fromkeys(equation_source(equation).against(None) for equation in more)
        found += [f"the {side} constrains at {listed(list(lines), 2)}"] if lines else []
    return found


def _returned_findings(side: Side) -> Iterator[Finding]:
    """Yields state that a program on an explicit mesh returns with a sharding other than its argument's."""
    if not side.mesh.axes or side.mesh.mode is not Mode.EXPLICIT:
        return
    mesh = side.device_mesh
    for path, leaf in side.returned.get(Group.STATE, {}).items():
        rank, spec, got = len(leaf.shape), side.specs.get(path), leaf.sharding
        if spec is not None and got is not None and entries(got.spec, rank) != entries(spec, rank):
            yield expected_got(
                f"{side.build.name} {path}",
                f"{spec} where the step takes it",
                f"{got.spec} where it returns it, on {dict(mesh.shape)}",
                cause="state that is moved for the update and not put back",
                next_step="constrain it to its own axes before returning it",
            )


def _compiled_findings(side: Side) -> Iterator[Finding]:
    """Yields state that the compiled program takes or returns with a sharding other than its spec."""
    mesh = side.device_mesh
    taken = side.compiled.input_shardings[0][0]
    returned = side.compiled.output_shardings.get(Group.STATE, {})
    cause = "a step whose state does not come back where it was, so each step moves it"
    for path, spec in side.specs.items():
        wanted = jax.sharding.NamedSharding(mesh, spec)
        rank = len(side.build.abstract[path].shape)
        for verb, shardings in (("takes", taken), ("returns", returned)):
            got = shardings.get(path)
            if got is not None and not got.is_equivalent_to(wanted, rank):
                placement = f"the compiled program {verb} it as {getattr(got, 'spec', got)}"
                where = f"{side.build.name} {path}"
                yield expected_got(where, f"{spec} by the rules", placement, cause=cause)
