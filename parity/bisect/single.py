"""Cases on one device: what values are does not depend on where they lie."""

import dataclasses

from parity.builds.meshes import MeshSpec
from parity.cases.case import Case

__all__ = ["on_one_device"]


def on_one_device(case: Case) -> Case:
    """Returns a case on one device of the CPU, but for axes that belong to the model.

    Args:
        case: any.
    """
    if case.fixed_axes:
        return dataclasses.replace(case, backend="cpu")
    return dataclasses.replace(case, mesh=MeshSpec(), candidate_mesh=None, backend="cpu")
