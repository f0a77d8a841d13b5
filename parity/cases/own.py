"""Pairs of custom programs: plain functions of a state and a batch."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Unpack

import jax
import numpy as np
from flax import nnx

from parity.builds.build import Build, Flavour, Group, Outputs, Program, linen_build, nnx_build
from parity.builds.constants import traceable
from parity.builds.tree import Role, flatten
from parity.builds.weights.map import strip_container
from parity.cases.case import Pair
from parity.cases.recipe import Inputs, as_jax_holds, holds_64_bits, with_rules
from parity.cases.shared import CaseOptions, build_options, registered

STEPS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomSide:
    """One side of a pair of custom programs.

    Args:
        create: key -> state: an NNX module, an ``nnx.State``, a ``TrainState``, variables, any tree of arrays.
        programs: by name, ``(state, batch) -> outputs``. Outputs are a tree of values; or ``(state, values)``,
            if the program trains, where ``state`` has paths of the state only; or ``{"values": ...,
            "gradients": ..., "state": ...}``. Gradients have the paths of the parameters, or of the part of the state
            that holds them.
        flavour: ``linen`` or ``nnx``.
    """

    create: Callable[[jax.Array], Any]
    programs: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]
    flavour: Flavour

    def build(self, name: str, inputs: Inputs, axis_rules: Sequence[tuple[str, Any]]) -> Build:
        """Returns the build of this side."""
        create = traceable(self.create)
        programs = {
            program: (_grouped(with_rules(function, axis_rules)), {})
            for program, function in self.programs.items()
        }
        is_module = isinstance(nnx.eval_shape(lambda: create(jax.random.key(0))), nnx.Module)
        make = nnx_build if is_module else linen_build
        made = make(f"{self.flavour} {name}", create, programs, **build_options(axis_rules, inputs))
        params = {path for path, leaf in made.leaves.items() if leaf.role is Role.PARAMS}
        programs = {
            program: dataclasses.replace(
                each, function=_by_leaf(each.function, params), **_options(each, made)
            )
            for program, each in made.programs.items()
        }
        return dataclasses.replace(made, flavour=self.flavour, programs=programs)


def _options(program: Program, build: Build) -> dict[str, Any]:
    """Returns the options of a program; one that returns the whole state runs several steps and donates it."""
    try:
        after = jax.eval_shape(program.function, build.abstract, build.abstract_inputs).get(Group.STATE, {})
    except Exception:  # user code: reported with its side and phase when the case traces it
        return {}
    return {"steps": STEPS, "donate": True} if set(after) == set(build.abstract) else {}


def _grouped(function: Callable[[Any, Mapping[str, Any]], Any]) -> Callable[[Any, Any], dict[str, Any]]:
    """Returns a program whose outputs are grouped by `Group`."""

    def run(state: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        outputs = function(state, batch)
        if isinstance(outputs, Mapping) and outputs and set(outputs) <= set(map(str, Group)):
            return dict(outputs)
        if isinstance(outputs, tuple) and len(outputs) == 2 and _is_state(outputs[0], state):
            return {"state": outputs[0], "values": {"outputs": outputs[1]}}
        return {"values": {"outputs": outputs}}

    return run


def _is_state(tree: Any, state: Any) -> bool:
    """True if a tree is a program's state or a part of it, not a value such as a loss.

    Raises:
        ValueError: it has leaves of the state and others.
    """
    if isinstance(state, nnx.Module):
        return isinstance(tree, (nnx.Module, nnx.State))
    paths, known = set(flatten(tree)), set(flatten(state))
    if more := paths - known if paths & known else set():
        raise ValueError(
            f"the returned state has leaves that the state lacks: {', '.join(sorted(more))}; return them as values"
        )
    return paths <= known


def _by_leaf(function: Callable[..., Outputs], params: Set[str]) -> Callable[..., Outputs]:
    """Returns a function that names gradients by their parameters, also if their tree lacks the names above them."""
    known = {strip_container(path): path for path in params}

    def run(state: dict[str, Any], inputs: dict[str, Any]) -> Outputs:
        outputs = function(state, inputs)
        given = outputs.get(Group.GRADIENTS, {})
        gradients = {strip_container(name): array for name, array in given.items()}
        parents = {
            path.removesuffix(name) for name in gradients for path in known if path.endswith(f"/{name}")
        }
        fitting = [above for above in ("", *parents) if {above + name for name in gradients} <= known.keys()]
        single = len(fitting) == 1 or fitting[:1] == [""]  # others: such as an average of the parameters
        if single and len(gradients) == len(given) > 0:
            outputs[Group.GRADIENTS] = {known[fitting[0] + name]: array for name, array in gradients.items()}
        return outputs

    return run


def twin_programs(
    name: str,
    *,
    linen: CustomSide,
    nnx: CustomSide,
    inputs: Inputs | Mapping[str, Any],
    axis_rules: Sequence[tuple[str, Any]] = (),
    **options: Unpack[CaseOptions],
) -> Pair:
    """Registers custom programs; compares those of the same name on both sides.

    Args:
        name: first word of the case ids.
        linen, nnx: the two sides; of one flavour to compare the code before and after a refactoring.
        inputs: seed -> batch of host arrays, or one batch.
        axis_rules: see `twins`.
        **options: see `twins`; ``state`` is of the reference, all leaves or some.

    Raises:
        TypeError: an unknown option.
        ValueError: the sides do not name the same programs.
    """
    if set(linen.programs) != set(nnx.programs):
        raise ValueError(
            f"pair {name}: got programs {sorted(linen.programs)} and {sorted(nnx.programs)}, expected the same names"
        )

    wide = holds_64_bits()

    @functools.cache
    def batch(seed: int) -> dict[str, np.ndarray]:
        return as_jax_holds(inputs(seed) if callable(inputs) else inputs, wide)

    made = {
        place: functools.cache(functools.partial(side.build, name, batch, axis_rules))
        for place, side in (("reference", linen), ("candidate", nnx))
    }
    return registered(name, "parity.twin_programs", tuple(linen.programs), made, options, axis_rules)
