"""Plots the loss of each step."""

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path

__all__ = ["check_picture", "draw"]

LINES = ("-", "--", ":")


def check_picture(path: Path) -> None:
    """Checks, before any work, that a plot can be written.

    Raises:
        ValueError: matplotlib is not installed, or the file cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            f"--plot {path}: needs matplotlib, which is not installed; pip install 'linen-nnx-parity[reports]'"
        )
    if path.suffix != ".png":
        raise ValueError(f"--plot {path}: expected a name that ends in .png")
    if not path.parent.is_dir():
        raise ValueError(f"--plot {path}: expected a file in a folder that exists; make {path.parent} first")


def draw(curves: Mapping[str, Mapping[int, float]], title: str, path: Path) -> None:
    """Writes a PNG with the curves ``{name: {step: loss}}``; steps whose loss is not finite are marked.

    Args:
        curves: drawn in one plot, so that equal ones coincide.
        title: title of the plot.
        path: the file.
    """
    from matplotlib.figure import Figure  # the import takes a second

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for line, (name, losses) in zip(LINES, curves.items(), strict=False):
        axes.plot(list(losses), list(losses.values()), line, label=name)
        for step in (step for step, loss in losses.items() if not math.isfinite(loss)):
            axes.axvline(step, color="tab:red", linewidth=0.8)
    axes.set(title=title, xlabel="step", ylabel="loss")
    axes.legend()
    figure.savefig(path, dpi=120)
