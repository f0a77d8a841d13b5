"""The pair `covering`: no option is left out, and nothing possible is marked as impossible."""

import dataclasses
import enum
import functools
import random
import typing

import pytest
from campaigns.matrix.coverage import SPACES, WRITTEN, Coverage, cover, coverage
from campaigns.matrix.covering import record
from campaigns.matrix.rows import read_rows, recipe

from models_nnx.shared import config as configs
from parity.compare.session import Session
from parity.matrix.cases import twins
from parity.matrix.covering import PAIR, PATH
from parity.run.run import run_case
from parity.verdicts import Verdict

SPACE = {space.name: space for space in SPACES}
CONFIGS = [
    kind
    for kind in vars(configs).values()
    if dataclasses.is_dataclass(kind) and kind.__name__.endswith(("Config", "Scaling"))
]

A_SIZE = "a size: a twin that ignored it would not fit its own state"
NO_FACTOR = {
    **dict.fromkeys(
        (
            "ModelConfig.vocab",
            "ModelConfig.embed",
            "AttentionConfig.heads",
            "MlpConfig.hidden",
            "MoeConfig.experts",
            "MoeConfig.hidden",
            "LatentConfig.query_rank",
            "LatentConfig.key_value_rank",
            "LatentConfig.rotary_dim",
            "LatentConfig.value_dim",
        ),
        A_SIZE,
    ),
    "ModelConfig.mlp": "its own fields are varied",
    "MoeConfig.top_k": "the pair `flags` varies it; a number that many shapes depend on",
    "PipelineConfig.stages": "the pair `pipeline` has 2, 3 and 4; here a mesh has two",
    **dict.fromkeys(
        (f"YarnScaling.{name}" for name in ("factor", "original_length", "beta_fast", "beta_slow")),
        "a number in the table of wavelengths, which shared code makes and an oracle checks",
    ),
    "LinearScaling.factor": "a number in the table of wavelengths, which shared code makes and an oracle checks",
    "DilocoConfig.replicas": "a size; the pair `diloco` has 2 and 4",
    "DecodeConfig.length": "follows from the prompt and the steps",
    "DecodeConfig.temperature": "the program `sample` has one, the program `generate` has none",
}
"""Fields that are no factor, with reasons."""


@functools.cache
def covered() -> dict[str, Coverage]:
    return {one.space.name: one for one in coverage()}


def made_of(space):
    rows = [
        *read_rows()[space.name].values(),
        *({name: value} for name, f in space.by_name.items() for value in f.values),
    ]
    for row in rows:
        whole = space.complete(row)
        if whole is not None and not space.refusal(whole):
            made, *_ = space.make(whole)
            yield made.config
            yield made.train
            if made.diloco:
                yield made.diloco


def values_of(part, found):
    """Collects ``{Class.field: values}`` of a config and its parts."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        found.setdefault(f"{type(part).__name__}.{field.name}", set()).add(value)
        if dataclasses.is_dataclass(value):
            values_of(value, found)


def all_values():
    found: dict[str, set] = {}
    for space in SPACES:
        for part in made_of(space):
            values_of(part, found)
    return found


@functools.cache
def varied_fields():
    return {name: values for name, values in all_values().items() if len(values) > 1}


@pytest.mark.slow
def test_every_pair_of_values_and_every_triple_of_the_recipe_is_in_a_case():
    assert set(covered()) == {"training", "decoding"}
    for found in covered().values():
        assert not found.missing, "run python tests/campaigns matrix.covering"
        assert found.covered == found.allowed > 3_000
    assert len(covered()["training"].space.thorough) > 15


def test_no_option_is_left_out():
    fields = {f"{kind.__name__}.{field.name}" for kind in CONFIGS for field in dataclasses.fields(kind)}
    assert len(CONFIGS) >= 12
    unvaried = fields - set(varied_fields()) - set(NO_FACTOR)
    assert not unvaried, "add a factor to tests/campaigns/matrix/factors.py, or a reason here"
    assert not set(NO_FACTOR) - fields, "no such fields"


def test_every_member_of_every_choice_is_a_value():
    for kind in CONFIGS:
        for name, hint in typing.get_type_hints(kind).items():
            if isinstance(hint, type) and issubclass(hint, enum.Enum):
                if f"{kind.__name__}.{name}" in NO_FACTOR:
                    continue
                values = varied_fields()[f"{kind.__name__}.{name}"]
                assert values == set(hint), (kind, name, set(hint) - values)


@pytest.mark.slow
def test_an_option_that_no_case_varies_is_noticed():
    space = SPACE["training"]
    rows = {id: {**row, "sinks": "no_sinks"} for id, row in read_rows()["training"].items()}
    found = cover(space, rows)
    assert any(("sinks", "sinks") in combination for combination in found.missing)
    assert not found.cases_with("sinks", "sinks")


def test_a_refusal_is_independent_of_the_rest():
    rng = random.Random(3)
    for found in covered().values():
        space = found.space
        pairs = [combination for combination in found.refused if len(combination) == 2]
        assert pairs
        for combination in pairs:
            for _ in range(40):
                rest = {name: rng.choice(list(factor.values)) for name, factor in space.by_name.items()}
                row = _with_a_say(space, {**rest, **dict(combination)})
                if dict(combination).items() <= row.items():
                    assert space.refusal(row), (combination, row)


def _with_a_say(space, values):
    row = {}
    for factor in space.factors:
        if space.has_say(factor, row):
            row[factor.name] = values[factor.name]
    return row


@pytest.mark.parametrize("combination", WRITTEN, ids=lambda combination: "-".join(v for _, v in combination))
def test_an_impossible_annotation_is_refused_when_traced(combination):
    chosen = dict(combination)
    space = SPACE["training" if {"pipeline", "replicas"} & set(chosen) else "decoding"]
    row = space.complete(chosen)
    assert row is not None and WRITTEN[combination] in space.refusal(row)
    variant, program, mesh = recipe(space.factors, row)
    case = twins(dataclasses.replace(variant, name="impossible"), program, mesh)
    result = run_case(case, Session(), ("program",))
    assert "ShardingError" in result.sentence()


def test_the_cases_are_those_of_the_rows():
    """The engine reads configs; only the generator knows factors."""
    written = PATH.read_text(encoding="utf-8")
    assert written == record(read_rows()), "run python tests/campaigns matrix.covering"


def test_every_case_requires_one_program_and_a_spread_is_run():
    cases = PAIR.cases({})
    assert len(cases) == sum(len(found.rows) for found in covered().values())
    assert {case.accept.require for case in cases} == {Verdict.REORDERED}
    ran = [case for case in cases if case.accept.paranoid]
    assert 6 <= len(ran) <= len(cases) / 8
    assert not any(case.accept.not_applicable for case in ran)
    assert {case.program for case in ran} >= {"train_step", "grad"}
