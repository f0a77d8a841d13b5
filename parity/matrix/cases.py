"""Cases of the decoders: twins, and one flavour against itself in another layout, place or program."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from models_nnx.shared.config import AttentionKernel, LayerLayout, ModelConfig, TrainConfig
from parity.builds.build import Build, Flavour
from parity.builds.meshes import MeshSpec
from parity.cases.case import Case
from parity.matrix.core import core_ids
from parity.matrix.decoders import SMALL, decoder_build
from parity.matrix.vary import ablations, sizes, varied
from parity.verdicts import Verdict

__all__ = [
    "EXACT_OR_RUN",
    "OTHER_CODE",
    "OTHER_DOTS",
    "OTHER_PLACES",
    "OTHER_PROGRAM",
    "PLAIN",
    "PROGRAMS",
    "Variant",
    "layouts",
    "same_flavour",
    "twins",
]

PROGRAMS = ("forward", "grad", "train_step")
PLAIN = TrainConfig()
EXACT_OR_RUN = (Verdict.EXACT, Verdict.ARBITRATED)
"""Rests on exact arithmetic; its numbers decide if that shows nothing."""

OTHER_CODE = {
    "collectives": "another mesh, layout or program moves other bytes",
    "loops": "another mesh, layout or program compiles to other loops",
    "memory": "another mesh, layout or program needs other memory",
}
"""What sides that compile to other code by intent cannot be compared on, and why."""
OTHER_PLACES = {**OTHER_CODE, "sharding": "arrays lie elsewhere, or are stacked otherwise, by intent"}
OTHER_PROGRAM = {**OTHER_PLACES, "program": "these are other programs by intent"}
OTHER_DOTS = {**OTHER_PROGRAM, "dots": "another program has other dots"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A decoder under a name, to be built in either flavour.

    Args:
        name: unique to the rest.
        config, train: what to build.
        shape: rows and length of a batch.
    """

    name: str
    config: ModelConfig
    train: TrainConfig = PLAIN
    shape: tuple[int, int] = SMALL

    def build(self, flavour: Flavour) -> Build:
        """Returns the build, the same one for equal variants."""
        return decoder_build(flavour, self.name, self.config, self.train, self.shape)

    def exact(self, flavour: Flavour) -> Build:
        """Returns the build that computes in float64, the truth that arbitration asks.

        The plain kernel is the exact one.
        """
        attention = dataclasses.replace(self.config.attention, kernel=AttentionKernel.PLAIN)
        config = dataclasses.replace(
            self.config, attention=attention, param_dtype="float64", compute_dtype="float64"
        )
        return dataclasses.replace(self, name=f"{self.name} float64", config=config).build(flavour)

    def varied(self, settings: Mapping[str, str]) -> "Variant":
        """Returns the variant with other settings, and a name that says so.

        Raises:
            ConfigError: a setting breaks a rule.
        """
        words = ",".join(f"{name}={text}" for name, text in settings.items())
        config, train = varied(self.config, self.train, settings)
        return Variant(f"{self.name} {words}", config, train, self.shape)

    @property
    def fixed_axes(self) -> tuple[str, ...]:
        """The mesh axes that its config fixes."""
        return ("stage",) if self.config.pipeline else ()


def twins(variant: Variant, program: str, mesh: str, **more: Any) -> Case:
    """Returns the case of a variant in Linen against the same in NNX.

    It requires the proof, or the same operations in another order with equal bits: `Verdict.REORDERED`.

    Both flavours of a variant have one structure. What cannot be proved says so, with ``require`` and a reason.

    Args:
        variant: what both are.
        program: which program of theirs.
        mesh: where both run.
        **more: other fields of `Case`.
    """
    fields = {"require": Verdict.REORDERED, **more}
    id = f"{variant.name}/{program}@{mesh}"
    return Case(
        id=id,
        core=id in core_ids(),
        reference=functools.partial(variant.build, Flavour.LINEN),
        candidate=functools.partial(variant.build, Flavour.NNX),
        program=program,
        mesh=MeshSpec.parse(mesh),
        exact=functools.partial(variant.exact, Flavour.LINEN),
        fixed_axes=variant.fixed_axes,
        vary=lambda settings: twins(variant.varied(settings), program, mesh, **more),
        ablations=ablations(variant.config, variant.train),
        sizes=sizes(variant.config),
        **fields,
    )


def same_flavour(
    flavour: Flavour,
    name: str,
    program: str,
    reference: tuple[Variant, str],
    candidate: tuple[Variant, str],
    **more: Any,
) -> Case:
    """Returns the case of one variant against another, or against itself elsewhere, both in one flavour.

    Args:
        flavour: of both sides.
        name: first words of the id.
        program: which program of theirs.
        reference, candidate: a variant and the mesh where it runs; the candidate's is in the id.
        **more: other fields of `Case`.
    """
    (ours, home), (theirs, mesh) = reference, candidate
    fields = {"id": f"{name}-{flavour}/{program}@{mesh}", **more}
    return Case(
        core=fields["id"] in core_ids(),
        reference=functools.partial(ours.build, flavour),
        candidate=functools.partial(theirs.build, flavour),
        program=program,
        mesh=MeshSpec.parse(home),
        candidate_mesh=None if home == mesh else MeshSpec.parse(mesh),
        fixed_axes=ours.fixed_axes or theirs.fixed_axes,
        exact=functools.partial(ours.exact, flavour),
        **fields,
    )


def layouts(flavour: Flavour, family: str, program: str, config: ModelConfig, **more: Any) -> Case:
    """Returns the case of the variant ``scan`` of a family against its variant ``unroll``, on one device.

    Args:
        flavour: of both sides.
        family: first word of the id.
        program: which program of theirs.
        config: the scanned decoder.
        **more: other fields of `Case`.
    """
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    sides = (Variant(f"{family}-scan", config), "single"), (Variant(f"{family}-unroll", unrolled), "single")
    name = f"{family}-scan-against-unroll"
    return same_flavour(flavour, name, program, *sides, not_applicable=OTHER_PLACES, **more)
