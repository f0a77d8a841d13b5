"""Cases on a backend: meshes that fit it, and why a case cannot run there."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from parity.builds.meshes import FixedAxesError, TooFewDevicesError
from parity.cases.case import Case
from parity.compare.backends.registry import find

__all__ = ["place", "refuse_unless_some_fit"]


def place(cases: Iterable[Case], backend: str) -> list[Case]:
    """Returns the cases on a backend, with meshes that fit it; ids stay as they are.

    A case whose mesh, or whose held axes alone, need more devices stays, with the reason why it cannot run there.

    Args:
        cases: as the pairs give them.
        backend: its name.

    Raises:
        ValueError: there is no such backend, or a mesh does not fit it.
    """
    target = find(backend)
    fitted = functools.cache(target.fit)

    def on_backend(case: Case) -> Case:
        try:
            mesh, candidate_mesh = (fitted(spec, case.fixed_axes) for spec in case.meshes)
        except FixedAxesError as error:
            return dataclasses.replace(case, backend=backend, skip_reason=str(error))
        except TooFewDevicesError as error:
            return dataclasses.replace(case, backend=backend, too_few_devices=str(error))
        if (mesh, candidate_mesh, backend) == (*case.meshes, case.backend):
            return case
        return dataclasses.replace(
            case,
            backend=backend,
            asked="" if candidate_mesh == case.meshes[1] else str(case.meshes[1]),
            mesh=mesh,
            candidate_mesh=case.candidate_mesh and candidate_mesh,
        )

    return [on_backend(case) for case in cases]


def refuse_unless_some_fit(cases: Sequence[Case]) -> None:
    """Checks that of several cases not all need more devices than there are.

    Args:
        cases: from `place`.

    Raises:
        ValueError: all do.
    """
    if cases and all(case.too_few_devices for case in cases):
        raise ValueError(cases[0].too_few_devices)
