"""The only file that touches private JAX, jaxlib or Flax names; each has a version note."""

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

# jaxlib 0.10 to 0.12: the MLIR bindings are shipped but not documented as public API.
import jaxlib.mlir.ir as ir  # pyright: ignore[reportMissingImports]

__all__ = [
    "attribute_items",
    "compile_module",
    "compile_request",
    "compiled_shardings",
    "ir",
    "is_main",
    "kept_arguments",
    "main_position",
    "parse_module",
    "run_module",
    "stablehlo_module",
    "with_module",
]

# --- lowered programs (used by parity.prove) ---


def stablehlo_module(program: Any) -> ir.Module:
    """Returns the StableHLO module of a lowered program, or the module itself if given one.

    Args:
        program: a ``jax.stages.Lowered`` or an MLIR module.

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
    ``Lowered._lowering.compile_args["kept_var_idx"]`` (JAX 0.10 to 0.12); it is not public. Without it
    (another lowering path) no argument was dropped, which is checked against ``@main``.

    Args:
        lowered: a ``jax.stages.Lowered``.

    Raises:
        ValueError: if the number of kept arguments is not the number of arguments of ``@main``.
    """
    # jaxlib 0.10 to 0.12: ``main`` is the public entry function of the module.
    main = next(op for op in stablehlo_module(lowered).body.operations if is_main(op))
    count = len(main.regions[0].blocks[0].arguments)
    lowering = getattr(lowered, "_lowering", None)
    kept = getattr(lowering, "compile_args", {}).get("kept_var_idx")
    indices = tuple(range(count)) if kept is None else tuple(sorted(kept))
    if len(indices) != count:
        raise ValueError(
            f"@main: got {count} arguments, expected {len(indices)} (kept_var_idx of the lowering)"
        )
    return indices


def main_position(lowered: Any) -> dict[int, int]:
    """Returns ``{flat jit argument index: position in @main}``; dropped arguments are absent."""
    return {flat: position for position, flat in enumerate(kept_arguments(lowered))}


def is_main(operation: Any) -> bool:
    """Says whether a top-level operation of a module is its entry function."""
    return operation.operation.name == "func.func" and operation.attributes["sym_name"].value == "main"


def parse_module(text: str, like: ir.Module) -> ir.Module:
    """Parses and verifies StableHLO text in the context of another module, which has the dialects loaded."""
    return ir.Module.parse(text, context=like.context)


def with_module(lowered: Any, module: ir.Module) -> Any:
    """Returns a lowered program that compiles another module, with the same arguments and results.

    ``Lowered._lowering``, ``MeshComputation._hlo`` and ``_executable`` are private (JAX 0.10 to 0.12).
    """
    import copy

    other = copy.copy(lowered)
    object.__setattr__(other, "_lowering", copy.copy(lowered._lowering))
    other._lowering._hlo, other._lowering._executable = module, None
    return other


def attribute_items(operation: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an operation by name (jaxlib 0.10 to 0.12 iterate over the names)."""
    attributes: Any = operation.attributes
    names = [entry if isinstance(entry, str) else entry.name for entry in attributes]
    return [(name, attributes[name]) for name in names]


# --- compiling elsewhere (used by parity.aot) ---


class _AskedError(Exception):
    """Carries what JAX was about to give to the compiler."""


def compile_request(lowered: Any) -> tuple[bytes, bytes, tuple[int, ...]]:
    """Returns what JAX would give to the compiler: module bytecode, serialised options, ids of the devices.

    ``jax._src.compiler.backend_compile_and_load`` (JAX 0.10 to 0.12) is where JAX hands over; it is replaced
    for the time of the call.

    Args:
        lowered: a ``jax.stages.Lowered``.

    Raises:
        ValueError: the program calls back into Python, which no other process can do.
    """
    import io

    from jax._src import compiler

    def ask(backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Any) -> Any:
        raise _AskedError(module, executable_devices, options, host_callbacks)

    original, compiler.backend_compile_and_load = compiler.backend_compile_and_load, ask
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
    """Compiles what `compile_request` returned, for devices that need not exist.

    ``CompileOnlyPyClient.compile`` and ``Executable`` are private (JAX 0.10 to 0.12), as is the MLIR context.

    Args:
        module, options: as `compile_request` returned them.
        devices: in the order of the program.

    Returns:
        ``text``, ``memory``, ``cost``, ``inputs`` and ``outputs`` (serialised shardings) of the executable.
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
    stats, cost = made.get_compiled_memory_stats(), made.cost_analysis()
    names = [name for name in dir(stats) if name.endswith("_in_bytes")]
    sides = {"inputs": made.get_parameter_shardings(), "outputs": made.get_output_shardings()}
    return {
        "text": "\n\n".join(each.to_string() for each in made.hlo_modules()),
        "memory": {name: getattr(stats, name) for name in names},
        "cost": {name: value for name, value in cost.items() if "{" not in name},
        **{name: tuple(one.SerializeToString() for one in each or ()) for name, each in sides.items()},
    }


def compiled_shardings(
    serialised: tuple[bytes, ...], leaves: list[Any], devices: Any
) -> list[jax.sharding.Sharding | None]:
    """Returns where the compiler lets arrays lie, as JAX reads it; None where it does not say.

    ``GSPMDSharding`` and ``logical_sharding`` are in ``jax._src.sharding_impls`` (JAX 0.10 to 0.12).

    Args:
        serialised: from `compile_module`; one for all where they are alike, none for a single device.
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


# --- typed keys (used by parity.side) ---


def key_implementation(dtype: Any) -> str:
    """Returns the name of the generator behind a key dtype; ``jax.random.key_impl`` wants an array.

    JAX 0.10 to 0.12 keep it in ``dtype._impl.name``.
    """
    return dtype._impl.name


def run_module(module: ir.Module, inputs: list[Any]) -> list[Any]:
    """Compiles a single-device StableHLO module for the first CPU device and runs it.

    ``Client.compile_and_load`` and ``LoadedExecutable.execute_sharded`` are private (JAX 0.10 to 0.12).

    Args:
        module: a module whose ``@main`` takes ``inputs``.
        inputs: NumPy arrays.

    Returns:
        The results as NumPy arrays.
    """
    import jax
    import numpy as np
    from jaxlib import xla_client

    device = jax.devices("cpu")[0]
    text = module.operation.get_asm(enable_debug_info=False)
    devices = xla_client.DeviceList((device,))
    executable = device.client.compile_and_load(text, devices, xla_client.CompileOptions())
    results = executable.execute_sharded([jax.device_put(each, device) for each in inputs])
    return [np.asarray(each[0]) for each in results.disassemble_into_single_device_arrays()]


# --- traced programs (used by parity.structure.traced) ---


def scan_split(equation: Any) -> tuple[int, int]:
    """Returns how many constants and carries a scan equation has; what follows is scanned.

    JAX 0.10 has ``num_consts`` and ``num_carry``, JAX 0.12 a tuple of three trees, ``ft_in``.
    """
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carries, _ = params["ft_in"].unpack()
    return len(constants), len(carries)


def equation_place(equation: Any) -> str:
    """Returns ``file:line (function)`` of the user's code behind an equation.

    JAX 0.10 to 0.12 keep it in ``jax._src.source_info_util``.
    """
    from jax._src import source_info_util

    return source_info_util.summarize(equation.source_info)


def equation_frames(equation: Any) -> list[tuple[str, int, str]]:
    """Returns ``(file, line, function)`` of each frame of user code behind an equation, innermost first.

    JAX 0.10 to 0.12 keep them in ``jax._src.source_info_util``.
    """
    from jax._src import source_info_util

    frames = source_info_util.user_frames(equation.source_info.traceback)
    return [(frame.file_name, frame.start_line, frame.function_name) for frame in frames]


def equation_scope(equation: Any) -> str:
    """Returns the name stack of an equation, such as ``jvp(Model)/decoder`` (JAX 0.10 to 0.12)."""
    return str(equation.source_info.name_stack)


# --- the tracing cache (used by parity.retrace) ---


@contextlib.contextmanager
def traced_again() -> Iterator[dict[str, str]]:
    """Collects the functions that are traced in a block though they have been traced before, and why.

    Functions that were never seen do not count, however often the block traces them then: a step makes closures
    of its own, such as scan bodies, whenever it is traced. ``jax.explain_cache_misses`` is public; that it logs
    ``for NAME defined at PLACE``, with what differs below, is not (JAX 0.10 to 0.12).
    """
    import jax

    found: dict[str, str] = {}
    handler = _Misses(found)
    logger = logging.getLogger("jax")
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        with jax.explain_cache_misses(True):
            yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


class _Misses(logging.Handler):
    def __init__(self, found: dict[str, str]):
        super().__init__(logging.WARNING)
        self._found = found
        self._new: set[tuple[str, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._new |= set(re.findall(r"never seen function:\s+(\S+) id=\d+ defined at (\S+)", text))
        lines = [line.strip() for line in text.splitlines()]
        named = re.match(r"for (\S+) defined at (\S+)", lines[1]) if len(lines) > 1 else None
        if named and named.groups() not in self._new:
            why = "; ".join(line for line in lines[2:] if not line.startswith("all previously seen"))
            self._found[f"{named[1]} ({named[2]})"] = why or "another key of the tracing cache"
