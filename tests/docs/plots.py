"""The plots of docs/benchmark.md: measures what they show, writes it beside them, and draws: `make plots`.

`--draw` draws what was measured before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parent))
import pages

PICTURES = pages.ROOT / "docs" / "pictures"
COST, BENCH = PICTURES / "cost.json", PICTURES / "bench.json"
ROUNDS = 2
STAGES = ("trace", "lower", "prove")
COLOURS = {"trace": "#4477aa", "lower": "#ccbb44", "prove": "#aa3377", "wall": "#222222", "own": "#aa3377"}

LAYERS = (2, 8, 32)
LAYOUTS = ("scan", "unroll")
SLICES = {4: "2x2x1", 64: "4x4x4", 512: "8x8x8", 8_192: "16x16x32"}
MODELS = ("llama2-7b", "llama2-70b", "gemma2-9b", "gemma3-12b", "qwen3-8b", "mixtral-8x7b", "deepseek3-671b")
CASES = (1, 4, 12)
SELECTED = "llama2-*@fsdp4.tensor2-auto"

Row = Mapping[str, float]


def parity(*words: str) -> dict:
    """Runs a command in a separate process and returns its report, with the seconds of the process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "parity", *words, "--json", str(path)], check=True, capture_output=True
        )
        return {**json.loads(path.read_text()), "process": time.perf_counter() - start}


def proof(*words: str) -> Row:
    """Proves one case and returns the seconds of each stage."""
    (case,) = parity("prove", *words)["cases"]
    return {stage: case["seconds"][stage] for stage in STAGES}


def of_layers(layout: str, layers: int) -> Row:
    return proof(f"llama2-{layout}/train_step@fsdp4.tensor2-auto", "--set", f"layers={layers}")


def of_devices(devices: int) -> Row:
    return proof("llama2-7b/train_step", "--full-size", "--topology", f"v5p:{SLICES[devices]}")


def of_model(name: str) -> Row:
    return proof(f"{name}/train_step", "--full-size", "--topology", "v5p:8x8x8")


def of_cases(ids: Sequence[str]) -> Row:
    report = parity("run", *ids, "--paranoid", "--workers", "1")
    from parity.compare.timing.overhead import own_share

    return {"wall": report["seconds"], "own": own_share(report) * report["seconds"]}


def parameters(name: str) -> int:
    """Returns the number of parameters of a published model."""
    from parity.builds.tree import Role
    from parity.cases.case import select
    from parity.cases.settings import collect

    (case,) = select(collect(devices=512)[1], [f"{name}/forward"])
    return sum(leaf.size for leaf in case.reference().leaves.values() if leaf.role is Role.PARAMS)


def case_ids() -> list[str]:
    from parity.cases.case import select
    from parity.cases.settings import collect

    return [case.id for case in select(collect()[1], [SELECTED])]


def measure_cost() -> None:
    """Measures all points in rounds, so that background load does not affect a single point."""
    ids = case_ids()
    points: dict[tuple[str, float], Callable[[], Row]] = {}
    for layout in LAYOUTS:
        points |= {(f"layers, {layout}", n): lambda n=n, layout=layout: of_layers(layout, n) for n in LAYERS}
    points |= {("devices", n): lambda n=n: of_devices(n) for n in SLICES}
    points |= {("parameters", parameters(name)): lambda name=name: of_model(name) for name in MODELS}
    points |= {("cases", n): lambda n=n: of_cases(ids[:n]) for n in CASES}
    found: dict[tuple[str, float], list[Row]] = {}
    for number in range(ROUNDS):
        for (kind, size), once in points.items():
            print(f"round {number + 1} of {ROUNDS}: {kind} {size:,}", flush=True)
            found.setdefault((kind, size), []).append(once())
        rows = [{"kind": kind, "size": size, "rounds": rounds} for (kind, size), rounds in found.items()]
        COST.write_text(json.dumps({"schema": 1, "points": rows}, indent=1) + "\n")


def lines(axes, points: Iterable[Mapping], names: Sequence[str], style: str = "-", label: str = "{}") -> None:
    """Draws a line for each quantity: the minimum of the rounds, as other jobs only add, and bars up to the maximum."""
    points = sorted(points, key=lambda point: point["size"])
    sizes = [point["size"] for point in points]
    for name in names:
        values = np.array([[row[name] for row in point["rounds"]] for point in points])
        least = values.min(axis=1)
        bars = np.stack([np.zeros_like(least), values.max(axis=1) - least])
        axes.errorbar(
            sizes, least, bars, fmt=f"o{style}", markersize=3, capsize=2, color=COLOURS[name],
            label=label.format(name),
        )  # fmt: skip


def draw_cost() -> None:
    """Four panels: layers, devices, parameters, cases."""
    points = json.loads(COST.read_text())["points"]
    of = lambda kind: [point for point in points if point["kind"] == kind]  # noqa: E731
    figure, ((layers, devices), (weights, cases)) = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    lines(layers, of("layers, unroll"), STAGES, "-", "{}, unrolled")
    lines(layers, of("layers, scan"), STAGES, "--", "{}, scanned")
    lines(devices, of("devices"), STAGES)
    lines(weights, of("parameters"), STAGES, "")
    lines(cases, of("cases"), ("wall", "own"))
    for axes, head in (
        (layers, "layers (tiny Llama 2, train step, proved)"),
        (devices, "devices (Llama 2 7B, train step, proved, abstract)"),
        (weights, "parameters (published models, train step, proved)"),
        (cases, "cases (compiled and run, one worker)"),
    ):
        axes.set(xlabel=head, ylabel="s")
        axes.set_xscale("log", base=10 if axes is weights else 2)
        if axes is devices:
            axes.set_ylim(0, None)
        else:
            axes.set_yscale("log")
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (layers, devices, cases):
        axes.xaxis.set_major_formatter("{x:,.0f}")
    save(figure, "cost.svg")


def draw_bench() -> None:
    """The ratios of every comparison, median and quartiles, and the bounds of NNX over Linen."""
    found = json.loads(BENCH.read_text())["comparisons"]
    names = [name for name in found[0]["quantities"] if not name.startswith("dispatch, ")][::-1]
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
        measure_cost()
    if not asked.draw and asked.only != "cost":
        subprocess.run([sys.executable, "-m", "parity", "bench", "--json", str(BENCH)], check=True)
    mpl.rcParams.update({"svg.hashsalt": "parity", "svg.fonttype": "path", "font.size": 8})
    draw_cost()
    draw_bench()


if __name__ == "__main__":
    from parity.compare.backends.environment import prepare

    prepare()
    main()
