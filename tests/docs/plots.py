"""The plots of docs/measurements.md: measures, writes the records beside them, and draws: `make plots`.

`--draw` draws what was measured before.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parent))
import pages

PICTURES = pages.ROOT / "docs" / "pictures"
COST, BENCH = PICTURES / "cost.json", PICTURES / "bench.json"
PHASES = {
    "build": "#66ccee", "trace": "#4477aa", "lower": "#ccbb44", "map": "#228833", "prove": "#aa3377", "run": "#222222",
}  # fmt: skip


def measured(*command: str, path: Path) -> None:
    """Runs a command and writes its record."""
    subprocess.run([sys.executable, *command, "--json", str(path)], check=True)


def draw_cost() -> None:
    """A panel for each axis, a line for each phase with its exponent."""
    found = json.loads(COST.read_text())["scaling"]
    figure, panels = plt.subplots(1, len(found), figsize=(3.4 * len(found), 3.4), layout="constrained")
    for axes, one in zip(np.atleast_1d(panels), found, strict=True):
        for phase, row in one["phases"].items():
            exponent = "" if row["exponent"] is None else f", {row['exponent']:.2f}"
            axes.loglog(
                one["sizes"], row["seconds"], "o-", markersize=3, color=PHASES[phase], label=f"{phase}{exponent}"
            )  # fmt: skip
        axes.set(xlabel=one["axis"], ylabel="s of processor time")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "cost.svg")


def draw_bench() -> None:
    """The ratios of every comparison, median and quartiles, and the bounds of NNX over Linen."""
    found = json.loads(BENCH.read_text())["comparisons"]
    names = [name for name in found[0]["quantities"] if not name.startswith("dispatch")][::-1]
    figure, panels = plt.subplots(
        1, len(found), figsize=(2.4 * len(found), 4.2), sharey=True, layout="constrained"
    )
    for axes, one in zip(np.atleast_1d(panels), found, strict=True):
        rows = [(at, one["quantities"][name]) for at, name in enumerate(names) if name in one["quantities"]]
        for at, row in rows:
            axes.plot([row["low"], row["high"]], [at, at], color="#4477aa", linewidth=3, alpha=0.5)
            axes.plot(row["ratio"], at, "o", color="#4477aa", markersize=4)
            if row["bound"]:
                axes.plot(row["bound"], at, "|", color="#aa3377", markersize=10)
        axes.axvline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.set_title(f"{one['name']}\n{one['id'].replace('@', chr(10))}", fontsize=6.5)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "bench.svg")


def save(figure, name: str) -> None:
    """Writes a picture whose bytes depend only on its content."""
    figure.savefig(PICTURES / name, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measures, unless ``--draw`` is set, and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw what was measured before")
    parser.add_argument("--only", choices=("bench", "cost"), help="measure only this")
    asked = parser.parse_args()
    if not asked.draw and asked.only != "bench":
        measured("-m", "parity", "bench", "--scaling", "--sizes", "full", path=COST)
    if not asked.draw and asked.only != "cost":
        measured("-m", "parity", "bench", path=BENCH)
    mpl.rcParams.update({"svg.hashsalt": "parity", "svg.fonttype": "path", "font.size": 8})
    draw_cost()
    draw_bench()


if __name__ == "__main__":
    from parity.compare.backends.environment import prepare

    prepare()
    main()
