"""Builders of the models by flavour: `parity.matrix.linen` and `parity.matrix.nnx`, imported on first use."""

import functools
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import jax

from parity.builds.build import Build, Flavour
from parity.builds.saving import Saving

if TYPE_CHECKING:
    from parity.matrix.decoders import Variant

__all__ = ["Builder", "Loop", "UnavailableError", "builder", "unavailable"]


class UnavailableError(ValueError):
    """The models of a flavour are not installed."""


class Loop(NamedTuple):
    """Training as functions of a tree of arrays.

    Args:
        create: key -> state.
        step: (state, batch) -> state and metrics.
        example: abstract state, with its boxes or in its Variables.
        checkpoint: the flavour's module of that name.
    """

    create: Callable[[jax.Array], Any]
    step: Callable[[Any, Any], tuple[Any, Mapping[str, jax.Array]]]
    example: Any
    checkpoint: ModuleType


class Builder(Protocol):
    """Interface of the modules `linen` and `nnx`."""

    @staticmethod
    def make_build(name: str, create: Any, programs: Any, *, specs: Any, **rest: Any) -> Build:
        """Returns a build; see `parity.builds.build`."""
        ...

    @staticmethod
    def creates(variant: "Variant") -> Callable[[jax.Array], Any]:
        """Returns a function: key -> fresh state."""
        ...

    @staticmethod
    def specs(variant: "Variant") -> Callable[[Any, Any], Any]:
        """Returns a function: abstract state and mesh -> tree of specs."""
        ...

    @staticmethod
    def programs(variant: "Variant") -> dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]]:
        """Returns the programs by name."""
        ...

    @staticmethod
    def saving(variant: "Variant", spoil: Mapping[str, Callable[[Path, Path], str]]) -> Saving:
        """Returns the functions that save and load the state."""
        ...

    @staticmethod
    def loop(variant: "Variant", key: jax.Array) -> Loop:
        """Returns training as functions of a tree of arrays."""
        ...


@functools.cache
def builder(flavour: Flavour) -> Builder:
    """Returns the module that builds the models of a flavour.

    Args:
        flavour: flavour of the models.

    Raises:
        UnavailableError: its models are not installed.
    """
    package = f"models_{flavour}"
    try:
        return cast(Builder, importlib.import_module(f"parity.matrix.{flavour}"))
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UnavailableError(
            f"there is no package {package}: install it to run the {flavour} models"
        ) from error


@functools.cache
def unavailable(flavour: Flavour) -> str:
    """Returns why the models of a flavour cannot be built; empty if they can.

    Args:
        flavour: flavour of the models.
    """
    try:
        builder(flavour)
    except UnavailableError as error:
        return str(error)
    return ""
