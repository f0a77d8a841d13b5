"""Opens the page in headless Chromium: python tests/parity/report/browser.py [--shots DIR] [REPORT.json].

Needs `pip install 'linen-nnx-parity[browser]'` and a Chromium or Chrome. Exits 1 where something is wrong: what the
console says, a request, text cut off sideways, a serious finding of axe, keys that do nothing, pictures that are not
there. Without a report it opens one with every picture, hostile names and 2,000 cases, and prints how long that takes.
"""

import argparse
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from parity.report.formats import FORMS
from parity.report.reading import parse_report, read_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SERIOUS = ("serious", "critical")
WIDTHS, THEMES, MANY = (1280, 400), ("light", "dark"), 2_000
SAMPLE = runpy.run_path(str(Path(__file__).with_name("conftest.py")))


def sample(count):
    return parse_report(SAMPLE["rich_report"](count), "sample")


class Checks:
    """Problems found, each reported once."""

    def __init__(self):
        self.problems = []

    def that(self, holds, words):
        if not holds and words not in self.problems:
            self.problems.append(words)
            print(f"wrong: {words}")


def opened(browser, file, checks, width=1280, theme="light"):
    """Returns a page whose console and requests are checked."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    page.on("console", lambda said: checks.that(False, f"console: {said.text}"))
    page.on("pageerror", lambda error: checks.that(False, f"script: {error}"))
    page.on(
        "request", lambda asked: checks.that(asked.url.startswith(("file:", "data:")), f"request {asked.url}")
    )
    page.goto(file.as_uri())
    return page


def accessible(page, checks, where):
    for found in Axe().run(page).response["violations"]:
        targets = [node["target"] for node in found["nodes"]][:3]
        checks.that(
            found["impact"] not in SERIOUS, f"{where}: axe {found['impact']}: {found['help']}: {targets}"
        )


def cut_off(page, checks, where):
    wide, space = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    checks.that(wide <= space, f"{where}: {wide} pixels wide, expected {space}")


def look(browser, file, checks, shots):
    """Checks each width and theme, on the page and on the first case that fails, or else the first of all."""
    for width in WIDTHS:
        for theme in THEMES:
            where = f"{width} {theme}"
            page = opened(browser, file, checks, width, theme)
            cut_off(page, checks, where)
            accessible(page, checks, where)
            if shots:
                page.screenshot(path=shots / f"page-{width}-{theme}.png", full_page=True)
            page.locator("#cases tbody tr button").nth(1).click()
            page.evaluate(
                "document.querySelectorAll('#one-body > details').forEach((one) => { one.open = true; })"
            )
            wide, space = page.evaluate(
                "(one => [one.scrollWidth, one.clientWidth])(document.getElementById('one'))"
            )
            checks.that(wide <= space, f"{where}: case {wide} pixels wide, expected {space}")
            accessible(page, checks, f"{where}, a case")
            if shots:
                page.screenshot(path=shots / f"case-{width}-{theme}.png")
            page.close()


def keys(browser, file, checks):
    """Checks the filter, a case and the way back, without a mouse."""
    page = opened(browser, file, checks)
    page.keyboard.press("Tab")
    checks.that(
        page.evaluate("document.activeElement.className") == "skip", "the first key leads to the matrix"
    )
    page.locator("#by-id").focus()
    page.keyboard.type("-b/FORWARD")
    said = page.locator("#shown").text_content()
    checks.that(said.startswith(f"{MANY // 2} of {MANY + 5} cases"), f"filter by text: {said}")
    page.keyboard.press("Tab")
    page.keyboard.type("failed")
    said = page.locator("#shown").text_content()
    checks.that(said.startswith("0 of"), f"filter by verdict: {said}")
    page.locator("#by-id").fill("")
    said = page.locator("#shown").text_content()
    checks.that(said.startswith("2 of"), f"filter by verdict alone: {said}")
    page.locator("#cases tbody tr:not([hidden]) button").nth(1).focus()
    page.keyboard.press("Enter")
    checks.that(page.locator("#one").is_visible(), "Enter opens a case")
    checks.that(page.evaluate("document.activeElement.id") == "one-head", "a case that opens has the focus")
    page.keyboard.press("Escape")
    back = page.evaluate("document.activeElement.closest('tr') !== null")
    checks.that(
        not page.locator("#one").is_visible() and back, "Escape closes a case and goes back to its line"
    )
    page.close()


def drawn(browser, file, checks):
    """Checks every picture of the sample, and the absence of pictures without data."""
    page = opened(browser, file, checks)
    checks.that(page.evaluate("window.pwned") is None, "a name became code")
    for place in range(5):
        page.locator("#cases tbody tr button").nth(place).click()
        page.keyboard.press("Escape")
    card = page.locator("details.case").nth(1)
    marks = card.locator(".chart .mark").count()
    checks.that(marks == 5, f"modules: got {marks} marks, expected 5 of 6: the first has no cotangent")
    page.locator("#cases tbody tr button").nth(1).click()
    case = page.locator("#one-body")
    layers = case.get_by_role("img", name="params, by number of layers")
    checks.that(layers.count() >= 1, "no picture of the layers")
    shapes = [layers.first.locator(f".mark{kind}").count() for kind in ("", ".hollow", ".far")]
    checks.that(shapes == [5, 1, 3], f"layers: got {shapes} marks, hollow and far, expected [5, 1, 3]")
    shards = case.locator(".cut").evaluate_all("all => all.map((one) => one.querySelectorAll('rect').length)")
    checks.that(shards == [8, 16, 1, 4], f"shards: got {shards}, expected [8, 16, 1, 4]")
    unknown = case.locator(".track.none").count()
    checks.that(unknown == 1, f"bars: got {unknown} unknown ones, expected 1 that is drawn as unknown")
    differing = case.locator(".sides li.apart").count()
    checks.that(differing == 2, f"loops: got {differing} that differ, expected 2")
    checks.that(case.locator("b, i, script").count() == 0, "a text of the record became markup")
    page.close()


def main():
    """Opens the page in every way and reports problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("report", nargs="?", type=Path, help="a record, instead of the sample")
    parser.add_argument("--shots", type=Path, help="folder for pictures of the page")
    asked = parser.parse_args()
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        sys.exit(f"browser.py: got none of {', '.join(NAMES)} on the path, expected one")
    if asked.shots:
        asked.shots.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    report = read_report(asked.report) if asked.report else sample(MANY)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "report.html")
        file.write_text(FORMS["html"](report, [report]), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        opened(browser, file, checks).close()  # the first page of a browser waits for the browser
        page = opened(browser, file, checks)
        timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
        print(
            f"{len(report.cases)} cases, {file.stat().st_size:,} bytes: open in {page.evaluate(timing):.0f} ms"
        )
        page.close()
        few = Path(folder, "few.html")
        small = report if asked.report else sample(20)  # axe is slow on thousands of lines
        few.write_text(FORMS["html"](small, [small]), encoding="utf-8")
        look(browser, few, checks, asked.shots)
        if not asked.report:
            keys(browser, file, checks)
            drawn(browser, file, checks)
        browser.close()
    print("nothing is wrong" if not checks.problems else f"{len(checks.problems)} things are wrong")
    sys.exit(bool(checks.problems))


if __name__ == "__main__":
    main()
