"""The disk cache: its hits, its required misses, and its behaviour on a broken file or a full folder."""

import concurrent.futures
import dataclasses
import gzip
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from parity.compare.backends import compiler as compiling
from parity.compare.backends.cache import DiskCache, default_folder, digest
from parity.compare.backends.compiler import Compilation, Compiler, Request, Resources
from parity.ir.jax_internals import compile_request

VALUE = {"text": "HloModule m", "memory": {"temp": 3}, "cost": [1.5], "none": None}


@pytest.fixture
def cache(tmp_path):
    return DiskCache(folder=tmp_path / "deep" / "cache")


def test_stored_entries_are_found_and_no_others(cache):
    assert cache.load("a") is None
    cache.store("a", VALUE)
    assert cache.load("a") == VALUE and cache.load("b") is None
    assert [path.name for path in cache.folder.iterdir()] == ["a.json.gz"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no gzip at all"),
        lambda path: path.write_bytes(path.read_bytes()[:-12]),
        lambda path: path.write_bytes(bytes([*path.read_bytes()[:30], 7, 7, 7, *path.read_bytes()[33:]])),
        lambda path: path.write_bytes(gzip.compress(b"[]")),
        lambda path: path.write_bytes(gzip.compress(json.dumps({"key": "other", "value": 1}).encode())),
        lambda path: path.write_bytes(gzip.compress(b"{\xff")),
    ],
    ids=["empty", "no gzip", "cut short", "bits flipped", "no entry", "another key", "no text"],
)
def test_an_unreadable_file_is_no_entry_and_is_written_again(cache, spoil):
    cache.store("a", VALUE)
    spoil(cache.folder / "a.json.gz")
    assert cache.load("a") is None
    cache.store("a", VALUE)
    assert cache.load("a") == VALUE


def test_when_it_is_full_the_longest_unused_go(cache):
    small = dataclasses.replace(cache, most=3_000)
    for place, key in enumerate("abcd"):
        small.store(key, os.urandom(400).hex())
        os.utime(small.folder / f"{key}.json.gz", (place + 1, place + 1))
    assert small.load("a") is not None  # now the youngest
    for key in "efg":
        small.store(key, os.urandom(400).hex())
    held = {path.name[0] for _, _, path in small.entries()}
    assert "a" in held and not held & {"b", "c"} and "g" in held
    assert sum(size for _, size, _ in small.entries()) <= 3_000


def test_processes_and_threads_may_write_one_key_at_once(cache):
    value = {"text": "x" * 100_000}
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: cache.store("a", value), range(32)))
        assert set(map(str, threads.map(lambda _: cache.load("a"), range(32)))) == {str(value)}
    assert [path.name for path in cache.folder.iterdir()] == ["a.json.gz"]


def test_a_folder_that_cannot_be_written_is_as_good_as_none(tmp_path):
    (tmp_path / "file").write_text("")
    blocked = DiskCache(folder=tmp_path / "file" / "cache")
    blocked.store("a", VALUE)
    assert blocked.load("a") is None and blocked.entries() == []


def test_it_is_in_the_cache_folder_of_the_user(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert default_folder() == Path("/elsewhere/parity")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == Path("/home/me/.cache/parity")


def test_a_digest_knows_where_its_parts_end():
    assert digest(["ab", "c"]) != digest(["a", "bc"]) and digest(["a", b"b"]) == digest([b"a", "b"])


# --- changes that require another compilation ---

REQUEST = Request(backend="aot:v5p:2x2x1", module=b"module", options=b"options", devices=(0, 1))


@pytest.mark.parametrize(
    "change",
    [{"backend": "aot:v5e:2x2"}, {"module": b"modulf"}, {"options": b"option"}, {"devices": (1, 0)}],
    ids=["topology", "program", "options", "devices"],
)
def test_another_request_has_another_key(change):
    assert dataclasses.replace(REQUEST, **change).key != REQUEST.key
    assert dataclasses.replace(REQUEST).key == REQUEST.key


@pytest.mark.parametrize("flag", ["XLA_FLAGS", "LIBTPU_INIT_ARGS"])
def test_another_flag_has_another_key(flag, monkeypatch):
    before = REQUEST.key
    monkeypatch.setenv(flag, os.environ.get(flag, "") + " --xla_tpu_planted=true")
    assert REQUEST.key != before


@pytest.mark.parametrize("package", ["jax", "jaxlib", "libtpu"])
def test_another_version_has_another_key(package, monkeypatch):
    before, known = REQUEST.key, compiling.version
    monkeypatch.setattr(compiling, "version", lambda name: "9.9" if name == package else known(name))
    assert REQUEST.key != before


def request_of(function, spec=None):
    mesh = jax.make_mesh((4,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    where = jax.NamedSharding(mesh, jax.P(spec)) if spec else None
    lowered = jax.jit(function).lower(jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=where))
    module, options, devices = compile_request(lowered)
    return dataclasses.replace(REQUEST, module=module, options=options, devices=devices)


def test_the_same_program_has_the_same_key_and_a_sharding_or_a_constant_another():
    def twice(x):
        return x * 2.0

    def thrice(x):
        return x * 3.0

    key = request_of(twice).key
    assert request_of(twice).key == key
    assert len({key, request_of(thrice).key, request_of(twice, "fsdp").key}) == 3


def test_a_compile_option_has_another_key():
    lowered = jax.jit(jnp.sin).lower(jnp.ones(3))
    plain = compile_request(lowered)[1]
    options = jax.jit(jnp.sin, compiler_options={"xla_embed_ir_in_executable": True})
    assert compile_request(options.lower(jnp.ones(3)))[1] != plain == compile_request(lowered)[1]


# --- a compiler with a cache ---

MADE = Compilation(
    text="HloModule m",
    memory={"temp": 3},
    cost={"flops": 2.0},
    inputs=(b"\x00\xff",),
    outputs=(),
    seconds=1.0,
    anonymous="5ab1e",
)


PRETEND = """
import os
from parity.compare.backends.compiler import Compilation

def pretend(request, notify):
    with open(os.environ["PARITY_TEST_LOG"], "a") as log:
        log.write(request.backend + "\\n")
    return Compilation(text="HloModule m", memory={"temp": 3}, cost={"flops": 2.0}, inputs=(b"\\x00\\xff",), outputs=(),
                       seconds=1.0, anonymous="5ab1e")
"""


@pytest.fixture
def compiles(tmp_path, monkeypatch):
    """``compiles(request, cache)`` returns a new compiler's result, and the number of requests to workers so far."""
    (tmp_path / "pretending.py").write_text(PRETEND)
    monkeypatch.syspath_prepend(str(tmp_path))
    log = tmp_path / "log"
    monkeypatch.setenv("PARITY_TEST_LOG", str(log))

    def run(request, cache):
        compiler = Compiler(Resources(workers=1, cache=cache and cache.folder))
        made = compiler.start("pretending:pretend", request)()
        compiler.close()
        return made, len(log.read_text().splitlines())

    return run


def test_a_second_run_compiles_nothing_and_gets_the_same(compiles, cache):
    first, second = compiles(REQUEST, cache), compiles(REQUEST, cache)
    assert first == second == (MADE, 1)
    assert compiles(dataclasses.replace(REQUEST, devices=(1, 0)), cache)[1] == 2
    assert compiles(REQUEST, None)[1] == 3


def test_an_entry_of_another_format_is_compiled_again(compiles, cache):
    cache.store(REQUEST.key, {"text": "HloModule m"})
    assert compiles(REQUEST, cache) == compiles(REQUEST, cache) == (MADE, 1)
