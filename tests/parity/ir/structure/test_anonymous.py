"""Digests of compiled programs: they ignore names and order, and depend on everything else."""

import random
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from parity.ir.hlo.anonymous import anonymous_digest
from parity.ir.hlo.hlo_parse import parse_hlo
from parity.ir.jax_internals import compiled_program

# B rows, D features
B, D = 8, 16
NAME = re.compile(r"%[\w.\-]+")
TABLE = np.linspace(-1.0, 2.0, D, dtype=np.float32) ** 3


def text_of(function, *given, **options):
    compiled = jax.jit(function, **options).lower(*given).compile()
    return compiled_program(compiled.runtime_executable())


def layers(x_BD, w_DD, key):
    def layer(h_BD, _):
        return jnp.tanh(h_BD @ w_DD) * TABLE[None] + 1, jnp.sum(h_BD)

    h_BD, sums = jax.lax.scan(layer, x_BD, None, length=3)
    kept = jax.lax.cond(sums[0] > 0, jnp.sin, jnp.cos, h_BD)
    return kept, sums, jnp.sort(jax.random.normal(key, (D,)))


@pytest.fixture(scope="module")
def text():
    """A program with loops, branches, fusions, collectives, donation, a table, settings of the backend."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    given = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
        for shape, spec in (((B, D), ("data",)), ((D, D), ()))
    ]
    return text_of(layers, *given, jax.random.key(0), donate_argnums=0)


def test_it_has_all_that_the_test_is_about(text):
    for word in (
        "while(",
        "conditional(",
        "fusion(",
        "all-reduce(",
        "input_output_alias",
        "backend_config",
        "sort(",
    ):
        assert word in text
    assert "{...}" not in text and "metadata" not in text and parse_hlo(text)


def test_names_do_not_count(text):
    names = dict.fromkeys(NAME.findall(text))
    others = {name: f"%n{number}-x" for number, name in enumerate(reversed(names))}
    renamed = NAME.sub(lambda match: others[match.group()], text).replace(
        "HloModule jit_layers", "HloModule m"
    )
    assert renamed != text
    assert anonymous_digest(renamed) == anonymous_digest(text) is not None


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_listing_does_not_count(text, seed):
    rng, blocks = random.Random(seed), text.strip().split("\n\n")
    shuffled = "\n\n".join([blocks[0], *(_shuffled(block, rng) for block in blocks[1:])])
    assert shuffled != text
    assert anonymous_digest(shuffled) == anonymous_digest(text)


def _shuffled(block, rng):
    """Returns a computation with its instructions in a different order, each after its operands."""
    head, *lines, end = block.strip("\n").splitlines()
    waiting, done, found = list(lines), set(), []
    own = {NAME.search(line).group() for line in lines}
    while waiting:
        ready = [line for line in waiting if not (set(NAME.findall(line)[1:]) & own) - done]
        line = rng.choice(ready)
        waiting.remove(line)
        found.append(line)
        done.add(NAME.search(line).group())
    return "\n".join([head, *found, end, ""])


@pytest.mark.long
def test_every_other_word_counts(text):
    """Each number, word and list bracket is changed once; signatures and comments contain no further information."""
    whole, seen = anonymous_digest(text), 0
    for start, line in _lines(text):
        for match in re.finditer(r"%[\w.\-]+|/\*index=\d+\*/|ROOT|\w+", line):
            word = match.group()
            if word.startswith(("%", "/*")) or (line.startswith("HloModule") and match.start() < 20):
                continue
            other = str(int(word) + 1) if word.isdecimal() else f"{word}x"
            at = start + match.start()
            changed = text[:at] + ("" if word == "ROOT" else other) + text[at + len(word) :]
            seen += 1
            assert anonymous_digest(changed) != whole, (line, word)
    assert seen > 500


def _lines(text):
    start = 0
    for line in text.splitlines(keepends=True):
        if not line.rstrip().endswith("{"):
            yield start, line
        start += len(line)


@pytest.mark.long
def test_exchanged_operands_count(text):
    whole, seen = anonymous_digest(text), 0
    for match in re.finditer(r"\((%[\w.\-]+), (%[\w.\-]+)\)", text):
        if match.group(1) != match.group(2):
            changed = f"({match.group(2)}, {match.group(1)})".join(
                [text[: match.start()], text[match.end() :]]
            )
            seen += 1
            assert anonymous_digest(changed) != whole, match.group()
    assert seen > 10


def test_a_value_used_twice_is_not_two_values():
    """A value computed twice has different neighbours in a fusion, so bits may differ."""
    once = """HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %a = f32[2]{0} multiply(%x, %x)
  ROOT %r = f32[2]{0} add(%a, %a)
}
"""
    twice = once.replace("  ROOT", "  %b = f32[2]{0} multiply(%x, %x)\n  ROOT").replace(
        "add(%a, %a)", "add(%a, %b)"
    )
    assert anonymous_digest(once) != anonymous_digest(twice) is not None


def test_control_dependencies_count():
    lines = """HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %a = f32[2]{0} negate(%x)
  %b = f32[2]{0} sine(%x)AFTER
  ROOT %r = f32[2]{0} add(%a, %b)
}
"""
    free, after = (lines.replace("AFTER", each) for each in ("", ", control-predecessors={%a}"))
    assert None is not anonymous_digest(free) != anonymous_digest(after) is not None


def called_back(x):
    return jax.pure_callback(lambda y: np.asarray(y), jax.ShapeDtypeStruct((D,), jnp.float32), x)


def test_files_from_elsewhere_are_not_named(text):
    assert anonymous_digest(text_of(called_back, jnp.ones(D))) is None
    line = next(line for _, line in _lines(text) if "parameter(0)" in line)
    for other in (
        "  %odd = f32[] rng(%param), distribution=rng_uniform\n",
        "  %odd = u64[] rng-get-and-update-state(), delta=1\n",
        "  %odd = f32[<=4]{0} parameter(9)\n",
        "  %odd = f32[20]{0} constant({...})\n",
        "  %odd = f32[] constant(1), other={%main}\n",
    ):
        assert anonymous_digest(text.replace(line, line + other, 1)) is None, other
    assert anonymous_digest("HloModule cut off") is None


NEAR = {
    "float32": (np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1))),
    "denormal": (np.float32(1e-45), np.float32(3e-45)),
    "sign of zero": (np.float32(0), np.float32(-0.0)),
    "sign of NaN": (np.float32(np.nan), np.float32(-np.nan)),
    "payload of NaN": tuple(
        np.array(bits, np.uint32).view(np.float32)[()] for bits in (0x7FC00000, 0x7FC00001)
    ),
    "bfloat16": tuple(np.array(one, jnp.bfloat16)[()] for one in (1, 1.0078125)),
    "float16": (np.float16(0.1), np.nextafter(np.float16(0.1), np.float16(1))),
    "float8": tuple(np.array(one, jnp.float8_e4m3fn)[()] for one in (1, 1.125)),
    "int32": (np.int32(2**31 - 1), np.int32(2**31 - 2)),
    "complex64": (
        np.complex64(1 + 0.1j),
        np.complex64(complex(1, np.nextafter(np.float32(0.1), np.float32(1)))),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("size", [1, 40], ids=["scalar", "table"])
def test_constants_count_to_the_last_bit(name, size):
    def with_one(number):
        table = np.full(size, NEAR[name][0])
        table[-1] = number
        return text_of(
            lambda x: jnp.where(x, jnp.asarray(table), jnp.zeros_like(table)), np.zeros(size, bool)
        )

    one, other = (anonymous_digest(with_one(number)) for number in NEAR[name])
    assert None is not one != other is not None
    assert one == anonymous_digest(with_one(NEAR[name][0]))
