"""The only file that touches private JAX, jaxlib or Flax names; each has a version note."""

import contextlib
import functools
import io
import types
import weakref
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# jaxlib 0.10 to 0.12: the MLIR bindings are shipped but not documented as public API.
import jaxlib.mlir.ir as ir  # pyright: ignore[reportMissingImports]
from jax.core import Tracer
from jaxlib.mlir.passmanager import PassManager  # pyright: ignore[reportMissingImports]

from parity.ir.mlir import attribute_items, dictionary_items

# --- lowered programs (used by parity.prove) ---


def stablehlo_module(program: Any) -> ir.Module:
    """Returns the StableHLO module of a lowered program, or the module itself if given one.

    Raises:
        ValueError: if it is neither.
    """
    if isinstance(program, ir.Module):
        return program
    compiler_ir = getattr(program, "compiler_ir", None)
    if compiler_ir is None:
        raise ValueError(
            f"program: got {type(program).__name__}, expected jax.stages.Lowered or an MLIR module"
        )
    return compiler_ir("stablehlo")


def kept_arguments(lowered: Any) -> tuple[int, ...]:
    """Returns the flat jit argument indices that are arguments of ``@main``, in the order of ``@main``.

    ``jit`` drops arguments that the program never uses. The list lives in
    ``Lowered._lowering.compile_args["kept_var_idx"]`` (JAX 0.10 to 0.12); it is not public. Without it (another
    lowering path) no argument was dropped, which is checked against ``@main``. The constants that JAX puts in front of
    the arguments have no index here.

    Raises:
        ValueError: if ``@main`` has arguments other than flat arguments and, before them, hoisted constants.
    """
    hoisted, count = len(hoisted_constants(lowered)), len(_main(lowered).regions[0].blocks[0].arguments)
    kept = getattr(getattr(lowered, "_lowering", None), "compile_args", {}).get("kept_var_idx")
    # With hoisted constants, kept_var_idx counts them first.
    indices = tuple(range(count)) if kept is None else tuple(sorted(kept))
    if len(indices) != count or indices[:hoisted] != tuple(range(hoisted)):
        raise ValueError(
            f"@main: got {count} arguments, {hoisted} of them hoisted constants, expected {len(indices)} "
            "(kept_var_idx of the lowering)"
        )
    return tuple(index - hoisted for index in indices[hoisted:])


def content(lowered: Any) -> bytes | None:
    """Returns a lowered program as bytes; None if the program does not determine the whole computation.

    Places in the source and names of results do not count. Constants do, except those that JAX passes as further
    arguments of ``@main`` (``_lowering.const_args``, JAX 0.10 to 0.12).
    """
    hoisted = getattr(getattr(lowered, "_lowering", None), "const_args", None)
    if hoisted is None or len(hoisted):
        return None
    module, file = stablehlo_module(lowered), io.BytesIO()
    with module.context:
        bare = module.operation.clone()
        PassManager.parse("builtin.module(strip-debuginfo)").run(bare)
        main = next(filter(is_main, bare.regions[0].blocks[0].operations))
        if "res_attrs" in main.attributes:
            results = [dict(dictionary_items(each)) for each in main.attributes["res_attrs"]]
            named = [{name: each[name] for name in each if name != "jax.result_info"} for each in results]
            main.attributes["res_attrs"] = ir.ArrayAttr.get([*map(ir.DictAttr.get, named)])
        bare.write_bytecode(file)
    data = file.getvalue()  # a program has only the numbers of the Python functions that it calls
    calls = any(name in data for name in (b"callback", b"send", b"recv"))
    return None if calls else data


def main_position(lowered: Any) -> dict[int, int]:
    """Returns ``{flat jit argument index: position in @main}``; dropped arguments are absent."""
    hoisted = len(hoisted_constants(lowered))
    return {flat: hoisted + position for position, flat in enumerate(kept_arguments(lowered))}


def hoisted_constants(lowered: Any) -> tuple[Any, ...]:
    """Returns the constants that JAX passes as the first arguments of ``@main``, in their order.

    With ``jax_use_simplified_jaxpr_constants`` an array that a function closes over becomes an argument marked
    ``jax.const``, not a constant of the module; its value is in ``Lowered._lowering.const_args`` (JAX 0.10 to 0.12).
    Ordered effects add tokens (``jax.token``), symbolic shapes add their sizes (``jax.global_constant``).

    Raises:
        ValueError: an argument is marked in another way, or the marks do not match the values.
    """
    main = _main(lowered)
    sides = dict(attribute_items(main)).get("arg_attrs")
    names = [{name for name, _ in dictionary_items(each)} for each in sides] if sides is not None else []
    for position, each in enumerate(names):
        if other := each & {"jax.token", "jax.global_constant"}:
            raise ValueError(
                f"@main: got argument {position} marked {other.pop()}, expected arguments of the function and "
                "constants only; programs with ordered effects or symbolic sizes cannot be compared"
            )
    marked = [position for position, each in enumerate(names) if "jax.const" in each]
    values = tuple(getattr(getattr(lowered, "_lowering", None), "const_args", ()))
    if marked != list(range(len(values))):
        raise ValueError(
            f"@main: got arguments {marked} marked jax.const, expected the first {len(values)} "
            "(const_args of the lowering)"
        )
    return values


def _main(lowered: Any) -> Any:
    # jaxlib 0.10 to 0.12: ``main`` is the public entry function of the module.
    return next(op for op in stablehlo_module(lowered).body.operations if is_main(op))


def is_main(operation: Any) -> bool:
    """True if a top-level operation of a module is its entry function."""
    return operation.operation.name == "func.func" and operation.attributes["sym_name"].value == "main"


# --- compiling elsewhere (used by parity.compare.backends.aot) ---


class _AskedError(Exception):
    """Carries the arguments of JAX's call to the compiler."""


def compile_request(lowered: Any) -> tuple[bytes, bytes, tuple[int, ...]]:
    """Returns JAX's arguments to the compiler: module bytecode, serialised options, ids of the devices.

    JAX compiles through ``jax._src.compiler.backend_compile_and_load`` (JAX 0.10 to 0.12), which is replaced during the
    call.

    Raises:
        ValueError: the program calls back into Python, which no other process can do.
    """
    from jax._src import compiler

    def raise_request(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Any
    ) -> Any:
        raise _AskedError(module, executable_devices, options, host_callbacks)

    original, compiler.backend_compile_and_load = compiler.backend_compile_and_load, raise_request
    try:
        lowered.compile()
    except _AskedError as asked:
        module, devices, options, callbacks = asked.args
    else:
        raise AssertionError("JAX compiled without its backend_compile_and_load")
    finally:
        compiler.backend_compile_and_load = original
    if callbacks:
        raise ValueError("program: got host callbacks, expected none; they cannot be compiled ahead of time")
    code = io.BytesIO()
    module.operation.write_bytecode(code)
    return code.getvalue(), options.SerializeAsString(), tuple(device.id for device in devices)


def compile_module(module: bytes, options: bytes, devices: Any) -> dict[str, Any]:
    """Compiles the result of `compile_request` for devices that need not exist.

    ``CompileOnlyPyClient.compile`` and ``Executable`` are private (JAX 0.10 to 0.12), as is the MLIR context.

    Args:
        module, options, devices: from `compile_request`, with devices instead of their ids.

    Returns:
        ``text``, ``program`` (`compiled_program`), ``memory``, ``cost``; serialised shardings: ``inputs``, ``outputs``.
    """
    from jax._src.interpreters import mlir
    from jaxlib import xla_client

    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
    made = devices[0].client.compile(
        parsed,
        executable_devices=xla_client.DeviceList(tuple(devices)),
        compile_options=xla_client.CompileOptions.ParseFromString(options),
    )
    stats = made.get_compiled_memory_stats()
    sides = {"inputs": made.get_parameter_shardings(), "outputs": made.get_output_shardings()}
    return {
        "text": "\n\n".join(each.to_string() for each in made.hlo_modules()),
        "program": compiled_program(made),
        "memory": {name: getattr(stats, name) for name in dir(stats) if name.endswith("_in_bytes")},
        "cost": {name: value for name, value in made.cost_analysis().items() if "{" not in name},
        **{name: tuple(one.SerializeToString() for one in each or ()) for name, each in sides.items()},
    }


def compiled_program(executable: Any) -> str:
    """Returns optimised HLO with all constants, no locations (``_hlo.HloPrintOptions``, jaxlib 0.10 to 0.12)."""
    from jaxlib import _hlo  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

    options = _hlo.HloPrintOptions()
    options.print_large_constants, options.print_metadata = True, False
    return "\n\n".join(each.to_string(options) for each in executable.hlo_modules())


def compiled_shardings(
    serialised: tuple[bytes, ...], leaves: list[Any], devices: Any
) -> list[jax.sharding.Sharding | None]:
    """Returns the sharding that the compiler chose for each array, as JAX reads it; None if it gives none.

    ``GSPMDSharding`` and ``logical_sharding`` are in ``jax._src.sharding_impls`` (JAX 0.10 to 0.12).

    Args:
        serialised: from `compile_module`; one for all if they are equal, none for a single device.
        leaves: their shapes and dtypes.
        devices: in the order of the program.
    """
    from jax._src import sharding_impls
    from jaxlib import xla_client

    if len(serialised) == 1:
        serialised *= len(leaves)
    if len(serialised) != len(leaves):
        return [None] * len(leaves)
    found: list[Any] = []
    for data, leaf in zip(serialised, leaves, strict=True):
        proto = xla_client.OpSharding()
        proto.ParseFromString(data)
        placed = sharding_impls.GSPMDSharding(xla_client.DeviceList(tuple(devices)), proto)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            placed = sharding_impls.logical_sharding(leaf.shape, leaf.dtype, placed)
        found.append(placed)
    return found


# --- typed keys (used by parity.compare.side) ---


def key_implementation(dtype: Any) -> str:
    """Returns the name of the generator of a key dtype; ``jax.random.key_impl`` requires an array.

    JAX 0.10 to 0.12 keep it in ``dtype._impl.name``.
    """
    return dtype._impl.name


# --- traced programs (used by parity.channels.loops) ---


def scan_split(equation: Any) -> tuple[int, int]:
    """Returns the numbers of constants and carries of a scan equation; the remaining operands are scanned.

    JAX 0.10 has ``num_consts`` and ``num_carry``, JAX 0.12 a tuple of three trees, ``ft_in``.
    """
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carries, _ = params["ft_in"].unpack()
    return len(constants), len(carries)


def traceback_frames(traceback: Any) -> list[tuple[str, int, str, int]]:
    """Returns file, line, function and column of each user frame of a traceback, innermost first (JAX 0.10 to 0.12)."""
    from jax._src import source_info_util

    frames = source_info_util.user_frames(traceback)
    return [(each.file_name, each.start_line, each.function_name, each.start_column) for each in frames]


def equation_scope(equation: Any) -> str:
    """Returns the name stack of an equation, such as ``jvp(Model)/decoder`` (JAX 0.10 to 0.12)."""
    return str(equation.source_info.name_stack)


def is_transposed(equation: Any) -> bool:
    """True if an equation belongs to a backward pass by its own name stack; its caller may belong to one, too."""
    return "transpose(" in equation_scope(equation)


def live(jaxpr: Any, wanted: Sequence[bool] = ()) -> Any:
    """Returns a jaxpr that computes only the wanted results, or all (``partial_eval.dce_jaxpr``, JAX 0.10 to 0.12)."""
    from jax._src.interpreters import partial_eval

    return partial_eval.dce_jaxpr(jaxpr, list(wanted) or [True] * len(jaxpr.outvars), instantiate=True)[0]


def equation_traceback(equation: Any) -> Hashable:
    """Returns the traceback of an equation, or None; those of one place are equal (JAX 0.10 to 0.12)."""
    return equation.source_info.traceback


def traceback_codes(traceback: Any) -> list[types.CodeType]:
    """Returns the code of each Python frame of an equation's traceback, innermost first (JAX 0.10 to 0.12)."""
    return traceback.raw_frames()[0] if traceback else []


class TracingKey(NamedTuple):
    """Key of a traced function in JAX's tracing cache. JAX does not trace again if ``parts`` are equal."""

    file: str
    parts: Any

    @property
    def name(self) -> str:
        """The function and its place, as text."""
        debug = self.parts[1][1]
        return f"{debug.func_name} ({debug.func_filename}:{debug.func_lineno})"

    @property
    def static(self) -> bool:
        """True if it has static arguments: ``FlatTree.statics`` (JAX 0.10), later ``Static(...)``."""
        arguments = self.parts[1][0]
        statics = getattr(arguments, "statics", None)
        return "Static(" in repr(arguments) if statics is None else any(jax.tree.leaves(statics))


def tracing_keys() -> dict[Any, list[TracingKey]]:
    """Returns the keys in the tracing cache of each live user function that JAX has traced.

    ``trace_to_jaxpr`` is private (JAX 0.10 to 0.12).
    """
    from jax._src import source_info_util
    from jax._src.interpreters import partial_eval

    functions: dict[Any, list[TracingKey]] = {}
    known: dict[Any, list[TracingKey] | None] = {}  # few functions have most of the keys
    for key in partial_eval.trace_to_jaxpr.cache_keys():
        if key[0] not in known:
            function, place = key[0](), key[2][1].func_filename
            users = function is not None and (place is None or source_info_util.is_user_filename(place))
            known[key[0]] = functions.setdefault(function, []) if users else None
        if (keys := known[key[0]]) is not None:
            keys.append(TracingKey(key[2][1].func_filename or "", key[1:]))
    return functions


def traced_closures() -> frozenset[weakref.ref[Any]]:
    """Returns references to the functions defined inside functions that JAX has traced (`tracing_keys`)."""
    from jax._src.interpreters.partial_eval import trace_to_jaxpr

    known = trace_to_jaxpr.cache_info()
    return _closures(trace_to_jaxpr, known.misses, known.currsize)


@functools.lru_cache(maxsize=1)
def _closures(cache: Any, *_: int) -> frozenset[weakref.ref[Any]]:
    traced = {key[0] for key in cache.cache_keys()}
    return frozenset(one for one in traced if "<locals>" in getattr(one(), "__qualname__", ""))


def key_difference(key: TracingKey, known: list[TracingKey]) -> str:
    """Returns the difference of a key from the nearest known one (``diff_tracing_cache_keys``, JAX 0.10 to 0.12)."""
    from jax._src.interpreters.partial_eval import diff_tracing_cache_keys

    left, *olds = [(each.parts[0], each.parts[1], ()) for each in (key, *known)]
    *_, why = min(diff_tracing_cache_keys(left, old) for old in olds)
    return "; ".join(line.strip() for line in why.splitlines()) or "another key of the tracing cache"


@contextlib.contextmanager
def short_sharding_errors() -> Iterator[None]:
    """Shortens the error of a tracer without ``sharding`` in this block, as JAX 0.12 does.

    `nnx.Variable.set_value` reads ``getattr(value, "sharding", None)``. JAX 0.10 then formats the whole trace for a
    message that is dropped, so that each draw of a key costs time proportional to the trace.
    ``jax.core.Tracer.sharding`` is a property in JAX 0.10 to 0.12.
    """

    def sharding(tracer: Any) -> Any:
        raise AttributeError(f"a tracer has no 'sharding' ({jax.typeof(tracer)}); use jax.typeof(x)")

    tracer: Any = Tracer
    kept = tracer.sharding
    tracer.sharding = property(sharding)
    try:
        yield
    finally:
        tracer.sharding = kept
