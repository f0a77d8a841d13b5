"""Placement of cases on a backend: meshes that fit it, and reasons why a case cannot run there."""

import dataclasses
import functools
from collections.abc import Iterable

from parity.builds.meshes import FixedAxesError, TooFewDevicesError
from parity.cases.case import Case
from parity.compare.backends.backend import Backend


def place(cases: Iterable[Case], backend: Backend) -> list[Case]:
    """Returns the cases on a backend, with meshes that fit it; ids stay unchanged.

    A case whose mesh, or whose fixed axes, need more devices is kept, with the reason why it cannot run there.

    Raises:
        ValueError: a mesh does not fit the backend.
    """
    fitted = functools.cache(backend.fit)

    def on_backend(case: Case) -> Case:
        try:
            mesh, candidate_mesh = (fitted(spec, case.fixed_axes) for spec in case.meshes)
        except FixedAxesError as error:
            return case.with_placement(backend=backend.name, skip_reason=str(error))
        except TooFewDevicesError as error:
            return case.with_placement(backend=backend.name, too_few_devices=str(error))
        if (mesh, candidate_mesh, backend.name) == (*case.meshes, case.placement.backend):
            return case
        return dataclasses.replace(
            case.with_placement(
                backend=backend.name,
                requested_mesh="" if candidate_mesh == case.meshes[1] else str(case.meshes[1]),
            ),
            mesh=mesh,
            candidate_mesh=case.candidate_mesh and candidate_mesh,
        )

    return [on_backend(case) for case in cases]
