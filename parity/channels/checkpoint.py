"""The channel ``checkpoint``: either flavour loads saved state bit for bit."""

import re
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from parity.builds.build import SEED, Group, Saving
from parity.builds.tree import Role, as_data, to_host
from parity.channels.channel import Aspect, channel
from parity.channels.results import compared, with_makers
from parity.compare.evidence import Evidence
from parity.compare.side import Side
from parity.values.ladder import unlike_leaves
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict

Flat = Mapping[str, np.ndarray]


def _not_asked(evidence: Evidence) -> str:
    if not all(build.saving for build in evidence.builds):
        return "the builds offer no save and load"
    if not evidence.reference.backend.executes:
        return f"{evidence.reference.backend.name} runs nothing; run the case on cpu as well"
    if not evidence.reference.returned.get(Group.STATE):
        return f"{evidence.case.program} returns no state to save"
    return "checkpoints are written by one process" if jax.process_count() > 1 else ""


@channel(column="state", aspect=Aspect.CALLS, applies=_not_asked)
def checkpoint(evidence: Evidence) -> ChannelResult:
    """Compares saved state: own round trip, the other side's file, resume, parameters alone."""
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = [_Kept(evidence, index, Path(folder)) for index in (0, 1)]
        for one, other in (kept, kept[::-1]):
            findings += (
                one.reads(one) + one.resumes() + other.reads(one) + one.serves(one) + other.serves(one)
            )
        findings[:1] = [_with_code(one, kept) for one in findings[:1]]
    how = (
        "saved and loaded by both sides"
        if evidence.proof_covers_values
        else f"saved after {kept[0].steps} steps, loaded and resumed by both sides"
    )
    return compared(f"{len(kept[0].state)} leaves {how}", findings, Verdict.BITWISE)


class _Kept:
    """One side's checkpoint after some steps."""

    def __init__(self, evidence: Evidence, index: int, folder: Path):
        self.evidence, self.index, self.name = evidence, index, SIDES[index]
        self.side: Side = evidence.sides[index]
        self.steps = self.side.program.steps
        saving = self.side.build.saving
        assert saving is not None
        self.saving: Saving = saving
        self.state = (
            self._numbers() if evidence.proof_covers_values else self.after(self._before, SEED, self.steps)
        )
        self.folder, self.exported = folder / f"{self.name}-state", folder / f"{self.name}-export"
        self._write(self.folder, self.exported)

    @property
    def _before(self) -> Flat:
        return self.evidence.candidate_state if self.index else self.evidence.state

    def _numbers(self) -> Flat:
        """Returns random state, equal on both sides and different in each leaf, without compiling a step."""
        leaves = self.evidence.builds[0].abstract
        state = {path: _drawn(path, as_data(leaf)) for path, leaf in sorted(leaves.items())}
        return state if self.index == 0 else self.evidence.as_candidate(state)

    def after(self, state: Flat, seed: int, steps: int) -> Flat:
        """Returns the state after some steps."""
        found = self.side.run(state, seed, steps=steps)[Group.STATE]
        last = f"step{steps}/" if steps > 1 else ""
        return {path.removeprefix(last): leaf for path, leaf in found.items() if path.startswith(last)}

    def _write(self, folder: Path, exported: Path) -> None:
        """Saves the state, and the parameters alone if they can be exported."""
        placed = self.side.placed(self.state)
        self.saving.save(placed, folder)
        if self.saving.export:
            self.saving.export(placed, exported)

    def load(self, folder: Path) -> Flat:
        """Returns the checkpoint as this side loads it, placed as its programs expect."""
        return to_host(self.saving.load(folder, self.side.arguments[0]))

    def again(self) -> None:
        """Saves and loads the state, and the exported parameters if it has them."""
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder) / "state", Path(folder) / "export"
            self._write(*paths)
            self.load(paths[0])
            if self.saving.load_export:
                self.saving.load_export(paths[1])

    def resumes(self) -> list[Finding]:
        """Compares a run resumed from the checkpoint with an uninterrupted one.

        Skipped if a proof has settled a step's results: the loaded state is compared bit for bit anyway.
        """
        if self.evidence.proof_covers_values:
            return []
        whole = self.after(self._before, SEED, 2 * self.steps)
        resumed = self.after(self.load(self.folder), SEED + self.steps, self.steps)
        where = f"{self.name} resumed after {self.steps} of {2 * self.steps} steps"
        return _differing(whole, resumed, where, "state that is not in the checkpoint")

    def reads(self, other: "_Kept") -> list[Finding]:
        """Compares a side's checkpoint, as this side loads it, with the saved state under this side's paths."""
        where, cause = f"checkpoint of the {other.name}", "a leaf that is saved or loaded as something else"
        if other is not self:
            where, cause = f"{where}, loaded by the {self.name}", "a name that the two sides read differently"
        return _differing(self._mapped(other), self.load(other.folder), where, cause)

    def serves(self, other: "_Kept") -> list[Finding]:
        """Compares the exported parameters of either side, and the other leaves of the export, with the saved state."""
        if not (self.saving.load_export and other.saving.export):
            return []
        leaves, found = self.side.build.leaves, to_host(self.saving.load_export(other.exported))
        trained = {
            path: leaf
            for path, leaf in self._mapped(other).items()
            if leaves[path].role is Role.PARAMS or path in found
        }
        where = f"parameters of the {other.name}, loaded by the {self.name}"
        return _differing(trained, found, where, "a leaf of the export that is not the trained one")

    def _mapped(self, other: "_Kept") -> Flat:
        if other.index == self.index:
            return self.state
        weights = self.evidence.weights
        return weights.to_candidate(other.state) if self.index else weights.to_reference(other.state)


def _with_code(finding: Finding, kept: Sequence[_Kept]) -> Finding:
    """Returns a finding on a leaf with the user's functions that name the leaves of a checkpoint, or else save it."""
    name = re.compile(rf"\b{re.escape(finding.where.rpartition('/')[2])}\b")
    runs = [one.again for one in kept]
    return with_makers(
        finding, "saved and loaded", runs, lambda made: isinstance(made, str) and bool(name.search(made))
    )


def _drawn(path: str, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    """Returns random numbers in the shape of a leaf, seeded by its path; integers are small, as counters are."""
    draw = np.random.default_rng(zlib.crc32(path.encode()))
    if leaf.dtype == np.bool_:
        return draw.random(leaf.shape) < 0.5
    if np.issubdtype(leaf.dtype, np.integer):
        return draw.integers(1, 100, leaf.shape).astype(leaf.dtype)
    return draw.standard_normal(leaf.shape).astype(leaf.dtype)


def _differing(expected: Flat, found: Flat, where: str, cause: str) -> list[Finding]:
    return [
        Finding(
            where=f"{where}: {off.path}",
            reference=off.reference,
            candidate=off.candidate,
            distance=off.note or f"{off.relative:.2g} apart",
            cause=cause,
            next_step="save and load every leaf, whatever its type",
        )
        for off in unlike_leaves(expected, found, "there")
    ]
