"""The pictures of the pages: `make pictures`, with Chromium or Chrome on the path.

`--loops` draws only the loop table of docs/inspect.md, which needs no browser.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parent))
import pages

PICTURES = pages.ROOT / "docs" / "pictures"


def terminal(printed: str, title: str, file: Path, width: int = 80) -> None:
    """Draws the lines that remain on a terminal, with their colours and without progress bars."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    stays = (line for line in printed.splitlines() if "\N{BOX DRAWINGS HEAVY HORIZONTAL}" not in line)
    console.print(Text.from_ansi("\n".join(stays).strip()))
    # Fonts of the viewer's system: a picture loads nothing from the network.
    file.write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL))


def page(html: Path, file: Path) -> None:
    """Takes a picture of a page's top."""
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))))
    command = (browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,900")
    subprocess.run([*command, f"--screenshot={file}", html.as_uri()], check=True, capture_output=True)


def loops(environment: dict[str, str]) -> None:
    """Draws the loops and collectives of a pipeline in both flavours."""
    command = "parity inspect pipeline-storage/forward@stage2.fsdp2.tensor2-auto"
    printed = pages.run(f"COLUMNS=100 {command}", pages.ROOT, environment)
    shown = re.search(r"\S*loops, before optimisation.*?(?=\S*memory per device)", printed, re.DOTALL)
    terminal(shown[0] if shown else printed, command, PICTURES / "loops.svg", 100)


def main() -> None:
    """Writes the first page's files before its fix, runs them, and draws terminal, report and loops."""
    environment = {
        **os.environ,
        "FORCE_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    loops(environment)
    if "--loops" in sys.argv:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for fence in pages.fences(pages.ROOT / "docs" / "index.md"):
            if ": replace" not in fence.info:
                pages.write(fence, folder)
        command = "parity run 'scorer/[fg]*'"
        terminal(pages.run(command, folder, environment), command, PICTURES / "run.svg")
        pages.run("parity run --bisect --html report.html", folder, environment)
        page(folder / "report.html", PICTURES / "report.png")


if __name__ == "__main__":
    main()
