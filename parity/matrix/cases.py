"""Cases of the decoders: twins, and one flavour against itself with another layout, placement or program."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from models_nnx.shared.config import ConfigError, LayerLayout, ModelConfig, RematConfig, RematPolicy, override
from models_nnx.shared.presets import preset
from parity.builds.build import Build, Flavour
from parity.builds.meshes import MeshSpec
from parity.cases.case import Accept, Case, Explore, Flag, Placement
from parity.matrix.decoders import Variant, unavailable
from parity.matrix.programs import DECODING, PROGRAMS
from parity.verdicts import Verdict

SMOKE = frozenset(
    (
        *(f"llama2-scan/{program}@fsdp4.tensor2-auto" for program in (*PROGRAMS, *DECODING)),
        *(
            f"{family}-scan/grad@fsdp4.tensor2-auto"
            for family in ("deepseek3", "gemma2", "gemma3", "gpt-oss", "mixtral", "mtp", "qwen3")
        ),
        "batch-split-scan/grad@data4.expert2-auto",
        "diloco-plain-scan/diloco_step@replica2.fsdp2.tensor2-explicit",
        "moe-deepseek-dropping-scan/train_step@data2.expert4-auto",
        "pipeline-prefetch/train_step@stage2.fsdp2.tensor2-explicit",
        "sharded-scan/train_step@fsdp2.fsdp_transpose2.tensor2.data1-explicit",
    )
)

EXACT_OR_RUN = (Verdict.EXACT, Verdict.ARBITRATED)
"""Requires an exact proof; if it is inconclusive, the numbers decide."""
ONE_STRUCTURE = Accept(require=Verdict.REORDERED)
"""Requires the proof, or reordered operations with equal bits: both flavours of a variant have the same structure."""


def _without(accept: Accept, **reasons: str) -> Accept:
    return dataclasses.replace(accept, not_applicable={**accept.not_applicable, **reasons})


OTHER_CODE = _without(
    Accept(),
    collectives="another mesh, layout or program moves other bytes",
    loops="another mesh, layout or program compiles to other loops",
    memory="another mesh, layout or program needs other memory",
)
"""For sides that compile to different code by intent: the channels that do not apply, with the reason."""
OTHER_PLACES = _without(OTHER_CODE, sharding="arrays are placed or stacked differently by intent")
OTHER_PROGRAM = _without(OTHER_PLACES, program="these are other programs by intent")
OTHER_DOTS = _without(OTHER_PROGRAM, dots="another program has other dots")

PLAINEST: tuple[Mapping[str, str], ...] = (
    {"remat.policy": "none", "remat.names": ""},
    {"layout": "unrolled"},
    {"dropout": "0.0"},
    {"train.accumulation": "1"},
    {"train.vocab_tiles": "1"},
    {"train.moments": "like_parameters"},
    {"compute_dtype": "float32"},
    {"param_dtype": "float32"},
    {"head": "untied"},
    {"scan_axis": "1"},
    {"attention.kernel": "plain"},
    {"moe.dispatch": "dropless"},
    {"moe.load_balance": "0.0"},
    {"mtp": "none"},
    {"layer_schedule": "plain"},
    {"layers": "1"},
)
"""Settings that switch something off; likely causes of a structural difference come first."""

SIZES = (
    "layers",
    "embed",
    "vocab",
    "attention.heads",
    "attention.kv_heads",
    "attention.head_dim",
    "mlp.hidden",
)


def _sizes(config: ModelConfig) -> dict[str, int]:
    found: dict[str, Any] = {
        name: functools.reduce(lambda part, field: getattr(part, field, None), name.split("."), config)
        for name in SIZES
    }
    return {name: size for name, size in found.items() if isinstance(size, int)}


CORE = Path(__file__).with_name("core.json")
"""Ids of a small subset with every combination of options that occurs in the hand-written cases.

Written by ``python tests/campaigns matrix.core``.
"""


CORE_IDS = frozenset(json.loads(CORE.read_text(encoding="utf-8")))


@dataclasses.dataclass(frozen=True)
class _Ablations:
    """The settings of `PLAINEST` that are valid for a variant and change it; few runs iterate over them."""

    variant: Variant

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        for settings in PLAINEST:
            with contextlib.suppress(ConfigError):
                if self.variant.override(settings) != self.variant:
                    yield settings


def _case(
    id: str,
    program: str,
    reference: tuple[Flavour, Variant, str],
    candidate: tuple[Flavour, Variant, str],
    **more: Any,
) -> Case:
    """Returns the case of two sides, each a flavour, a variant and a mesh."""
    (one, left, home), (other, right, mesh) = reference, candidate
    return Case(
        id=id,
        smoke=id in SMOKE,
        core=id in CORE_IDS,
        reference=functools.partial(left.build, one),
        candidate=functools.partial(right.build, other),
        program=program,
        mesh=MeshSpec.parse(home),
        candidate_mesh=None if home == mesh else MeshSpec.parse(mesh),
        fixed_axes=left.fixed_axes or right.fixed_axes,
        float64_reference=functools.partial(left.exact, one),
        placement=Placement(skip_reason=unavailable(one) or unavailable(other)),
        **more,
    )


def twins(
    variant: Variant,
    program: str,
    mesh: str,
    accept: Accept = ONE_STRUCTURE,
    flags: Sequence[Flag] = (),
    **more: Any,
) -> Case:
    """Returns the case of a variant in Linen against the same variant in NNX."""

    def with_settings(settings: Mapping[str, str]) -> Case:
        return twins(variant.varied(settings), program, mesh, accept, flags, **more)

    explore = Explore(
        flags=flags,
        with_settings=with_settings,
        ablations=_Ablations(variant),
        sizes=_sizes(variant.config),
    )
    sides = (Flavour.LINEN, variant, mesh), (Flavour.NNX, variant, mesh)
    return _case(f"{variant.name}/{program}@{mesh}", program, *sides, accept=accept, explore=explore, **more)


def same_flavour(
    flavour: Flavour,
    name: str,
    program: str,
    reference: tuple[Variant, str],
    candidate: tuple[Variant, str],
    **more: Any,
) -> Case:
    """Returns the case of two variants, or of one variant on two meshes, in one flavour.

    Args:
        name: first words of the id.
        reference, candidate: a variant and its mesh; the candidate's mesh is in the id.
    """
    id = more.pop("id", f"{name}-{flavour}/{program}@{candidate[1]}")
    return _case(id, program, (flavour, *reference), (flavour, *candidate), **more)


def with_batches(case: Case, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Case:
    """Returns a case whose two builds have changed batches; ``change`` gets the seed and the batch."""

    def changed(make: Callable[[], Build]) -> Callable[[], Build]:
        def build() -> Build:
            made = make()
            return dataclasses.replace(made, inputs=lambda seed: change(seed, made.inputs(seed)))

        return functools.cache(build)

    return dataclasses.replace(case, reference=changed(case.reference), candidate=changed(case.candidate))


def layouts(flavour: Flavour, family: str, program: str, config: ModelConfig, **more: Any) -> Case:
    """Returns the case of the variant ``scan`` of a family against its variant ``unroll``, on one device.

    A stack sums in another order than its layers one after the other, so a norm of all gradients and a mean over the
    layers with experts make these other programs. No exact proof handles the choice of experts.
    """
    unrolled = dataclasses.replace(config, layout=LayerLayout.UNROLLED)
    sides = (Variant(f"{family}-scan", config), "single"), (Variant(f"{family}-unroll", unrolled), "single")
    name = f"{family}-scan-against-unroll"
    other = config.moe is not None or program not in ("forward", "grad")
    accept = dataclasses.replace(OTHER_PROGRAM, prove_exact=config.moe is None) if other else OTHER_PLACES
    return same_flavour(flavour, name, program, *sides, accept=accept, **more)


TRAINING = {"compute_dtype": "bfloat16", "remat": RematConfig(policy=RematPolicy.FULL)}


def full_size(names: Sequence[str], settings: Mapping[str, str], devices: int) -> list[Case]:
    """Returns cases of scanned presets at published size on ``fsdp x tensor``: bfloat16 compute, full remat."""
    tensor = 8 if devices >= 64 else min(2, devices)
    mesh, shape = f"fsdp{devices // tensor}.tensor{tensor}-auto", (devices // tensor, 4_096)
    configs = {name: override(dataclasses.replace(preset(name), **TRAINING), settings) for name in names}
    return [
        twins(Variant(name, config, shape=shape), program, mesh)
        for name, config in configs.items()
        for program in PROGRAMS
    ]
