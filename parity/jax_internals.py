"""The only file that touches private JAX, jaxlib or Flax names; each has a version note."""

from typing import Any

# jaxlib 0.10 to 0.12: the MLIR bindings are shipped but not documented as public API.
import jaxlib.mlir.ir as ir  # pyright: ignore[reportMissingImports]

__all__ = [
    "attribute_items",
    "ir",
    "is_main",
    "kept_arguments",
    "main_position",
    "parse_module",
    "run_module",
    "stablehlo_module",
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


def attribute_items(operation: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an operation by name (jaxlib 0.10 to 0.12 iterate over the names)."""
    attributes: Any = operation.attributes
    names = [entry if isinstance(entry, str) else entry.name for entry in attributes]
    return [(name, attributes[name]) for name in names]


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
