"""The HTML page as a file: structure, labels, contrast, and pictures; `browser.py` opens it."""

import colorsys
import html.parser
import itertools
import json
import re
from pathlib import Path

import pytest

from parity.report.formats import FORMS
from parity.report.formats.html import FOLDER, MOST_SHARDS, cut_up, grids
from parity.report.reading import merge, parse_report

VOID = frozenset({"meta", "link", "br", "input", "img", "hr"})


class Page(html.parser.HTMLParser):
    """Elements in order as ``(tag, attributes, tags around it)``, and the texts of scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.around, self.scripts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.around)))
        if tag not in VOID:
            self.around.append(tag)

    def handle_endtag(self, tag):
        assert self.around.pop() == tag

    def handle_data(self, data):
        if self.around and self.around[-1] == "script":
            self.scripts.append(data)

    def of(self, *tags):
        return [(tag, attributes, around) for tag, attributes, around in self.elements if tag in tags]


@pytest.fixture
def page(rich):
    report = parse_report(rich, "rich")
    return Page(FORMS["html"](report, [report]))


def test_the_page_can_be_read_aloud(page):
    assert not page.around
    assert page.of("html")[0][1]["lang"] and len(page.of("main")) == len(page.of("h1")) == 1
    levels = [int(tag[1]) for tag, _, _ in page.of("h1", "h2", "h3", "h4")]
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert all("label" in around for _, _, around in page.of("input", "select")) and page.of("select")
    assert all(attributes.get("type") == "button" for _, attributes, _ in page.of("button"))
    assert all("scope" in attributes for _, attributes, _ in page.of("th"))
    for _, attributes, _ in page.of("div"):
        if "scroll" in attributes.get("class", ""):
            assert attributes["tabindex"] == "0" and attributes["aria-label"]
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    named = {
        attributes["aria-labelledby"] for _, attributes, _ in page.elements if "aria-labelledby" in attributes
    }
    assert named and named <= set(ids)


def test_no_name_becomes_markup_or_code(page, rich):
    assert len(page.of("script")) == len(rich["cases"]) + 2
    assert [json.loads(script) for script in page.scripts[: len(rich["cases"])]] == rich["cases"]
    assert not page.of("b") and all(attributes["class"].startswith("v ") for _, attributes, _ in page.of("i"))
    assert not [name for _, attributes, _ in page.elements for name in attributes if name.startswith("on")]


def test_the_script_makes_no_markup_of_texts_and_loads_nothing():
    for name in ("page.js", "pictures.js"):
        text = (FOLDER / name).read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|fetch\(|XMLHttp|import\(", text
        )
    assert "url(" not in (FOLDER / "page.css").read_text()


# --- contrast ---


def themes():
    """Returns ``{theme: {variable: colour}}`` of the style sheet; the dark theme inherits from the light one."""
    light, dark = re.findall(r":root \{([^}]*)\}", (FOLDER / "page.css").read_text())
    first, second = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text)) for text in (light, dark))
    return {"light": first, "dark": {**first, **second}}


def hexadecimal(fill):
    """Returns a colour such as ``hsl(200 55% 82%)`` as ``#c9dce8``."""
    hue, saturation, lightness = map(int, re.findall(r"\d+", fill))
    parts = colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    return "#" + "".join(f"{int(part * 255):02x}" for part in parts)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_by_4_5_and_pictures_by_3(theme):
    colours = themes()[theme]
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    texts = [(ink, back) for ink in ("ink", "soft", "link", "good", "warn", "bad") for back in ("page",)]
    texts += [("ink", "field"), ("soft", "field")]
    texts += [(name, f"{name}-back") for name in ("good", "warn", "bad")]
    pictures = [
        (name, back) for name in ("bar", "bar-2", "bad", "good", "warn") for back in ("page", "field")
    ]
    low = [pair for pair in texts if contrast(*(colours[name] for name in pair)) < 4.5]
    low += [pair for pair in pictures if contrast(*(colours[name] for name in pair)) < 3]
    assert low == []


def test_device_numbers_can_be_read_on_every_shard():
    (ink,) = re.findall(r"text\.on \{ fill: (#\w{6})", (FOLDER / "page.css").read_text())
    shards = cut_up("fsdp64-auto", "fsdp", "embed")
    assert shards is not None
    fills = [fill for row in shards["cells"] for _, fill in row]
    assert len(fills) == 64 and min(contrast(ink, hexadecimal(fill)) for fill in fills) > 4.5


# --- pictures ---


def test_each_sharding_is_drawn_once_and_unreadable_ones_are_not(rich):
    found = grids(parse_report(rich, "rich").cases)
    assert set(found) == {
        "fsdp4.tensor2-auto|fsdp,tensor|embed,mlp",
        "fsdp4.tensor2-auto|fsdp+tensor,|embed,<i>",
        "fsdp4.tensor2-auto|tensor,fsdp|embed,<i>",
        "fsdp4.tensor2-auto||",
        "fsdp4.tensor2-auto|fsdp|embed",
    }
    plain = found["fsdp4.tensor2-auto|fsdp,tensor|embed,mlp"]
    assert [[devices for devices, _ in row] for row in plain["cells"]] == [
        ["0", "1"],
        ["2", "3"],
        ["4", "5"],
        ["6", "7"],
    ]
    assert (
        plain["across"] == "dimension 1 (mlp) over tensor"
        and plain["down"] == "dimension 0 (embed) over fsdp"
    )
    assert found["fsdp4.tensor2-auto||"]["across"] == "whole on every device"


def test_a_picture_of_too_many_shards_is_words(make):
    row = {"reference": "fsdp", "reference_axes": "embed", "candidate": "", "candidate_axes": ""}
    case = make.case(
        "t/f@fsdp512-auto", channels={"sharding": make.channel(tables={"specs": [row]})}, mesh="fsdp512-auto"
    )
    found = grids(parse_report(make.report(case), "report").cases)["fsdp512-auto|fsdp|embed"]
    assert not found["cells"] and found["across"] == "512 shards, too many to draw" and MOST_SHARDS < 512


def test_the_sentence_of_a_bisect_is_above_the_findings(rich):
    text = FORMS["html"](parse_report(rich, "rich"), ())
    card = text[text.index('<p class="cause">') :]
    assert "values failed at loss: a &lt;b&gt;" in card[:400]


def test_parts_of_a_run_merge_with_their_tables_and_bisects(rich):
    places = (range(0, len(rich["cases"]), 2), range(1, len(rich["cases"]), 2))
    parts = {}
    for number, taken in enumerate(places, 1):
        cases = [rich["cases"][place] for place in taken]
        shard = {"number": number, "of": 2, "places": list(taken), "total": len(rich["cases"])}
        parts[f"{number}.json"] = parse_report({**rich, "cases": cases, "shard": shard}, "part")
    assert merge(dict(reversed(parts.items()))).cases == parse_report(rich, "rich").cases


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda case: case.update(bisect=[]), "cases, number 1.bisect: got [], expected a table"),
        (
            lambda case: case.update(bisect={"case": "x", "sentence": "x", "axes": [{"axis": "op"}]}),
            "cases, number 1.bisect.axes, number 1: got no sentence",
        ),
        (
            lambda case: case["channels"]["values"].update(tables={"layers": [3]}),
            "channels.values.tables.layers, number 1: got 3, expected a table",
        ),
    ],
)
def test_a_report_whose_pictures_cannot_be_drawn_is_refused(rich, broken, words):
    broken(rich["cases"][0])
    with pytest.raises(ValueError) as error:
        parse_report(rich, "report r.json")
    assert words in str(error.value)


def test_the_files_of_the_page_are_packaged():
    settings = (Path(__file__).parents[3] / "setup.py").read_text()
    assert '"parity.report.formats": ["page/*"]' in settings
    assert {"page.html", "page.css", "page.js", "pictures.js"} <= {path.name for path in FOLDER.iterdir()}
