"""The loss of each step, as a picture."""

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path

__all__ = ["check_picture", "draw"]

LINES = ("-", "--", ":")


def check_picture(path: Path) -> None:
    """Checks that a picture can be drawn, before there is anything to draw.

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
        curves: drawn one over the other, so that equal ones show as one.
        title: above them.
        path: where to write.
    """
    from matplotlib.figure import Figure  # takes a second; only who draws waits for it

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for line, (name, losses) in zip(LINES, curves.items(), strict=False):
        axes.plot(list(losses), list(losses.values()), line, label=name)
        for step in (step for step, loss in losses.items() if not math.isfinite(loss)):
            axes.axvline(step, color="tab:red", linewidth=0.8)
    axes.set(title=title, xlabel="step", ylabel="loss")
    axes.legend()
    figure.savefig(path, dpi=120)
