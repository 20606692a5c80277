"""The page of kvad lab, made from a stored report: valid, closed in itself, readable on a phone and at a desk, in
light and dark, with the report's own figures. The browser shows it as a reader would see it."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess

import pytest

import browser
from conftest import ROOT

REPORT = ROOT / "tests/data/lab/report.json"
VOID = set("area base br col embed hr img input link meta source track wbr".split())
HOSTILE = "<script>alert(1)</script>\"'><img src=http://x.invalid/ onerror=alert(1)>\u202egnp.txt &amp; =1+1"


class Checker(html.parser.HTMLParser):
    """Every element is closed in its order; ids are unique; nothing runs and nothing is fetched."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.problems, self.text = [], set(), [], []

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        attributes = dict(attributes)
        if len(names) != len(set(names)):
            self.problems.append(f"<{tag}> has an attribute twice")
        if attributes.get("id") in self.ids:
            self.problems.append(f"id {attributes['id']} is there twice")
        self.ids.add(attributes.get("id", object()))
        if tag in ("script", "iframe", "object", "embed", "form", "img", "base"):
            self.problems.append(f"<{tag}> is there")
        for name, value in attributes.items():
            if name.startswith("on") or (name in ("href", "src") and re.match(r"\s*(\w+:)?//|javascript:", value)):
                self.problems.append(f"{name}={value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text.append(data)


def check(page):
    checker = Checker()
    checker.feed(page.read_text(encoding="utf-8"))
    checker.close()
    assert not checker.problems and not checker.open
    return "".join(checker.text)


def tidy(page):
    program = shutil.which("tidy")
    assert program, "tidy is not installed; `scripts/setup check` installs what the tests need"
    done = subprocess.run([program, "-q", "-e", str(page)], capture_output=True, check=False)
    assert done.stderr.decode() == ""


@pytest.fixture(scope="module")
def rendered(kvad, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    kvad.text("lab", "--from", REPORT, "-o", folder)
    return folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    assert browser.find(), "no chromium is installed; `scripts/setup check` installs what the tests need"
    with browser.Browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def hostile(value):
    """The same document with every text replaced that is not what the report's structure hangs on."""
    kept = {"kind", "verdict", "policy", "kv", "unit", "version"}
    if isinstance(value, dict):
        return {k: v if k in kept else hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def test_page_is_valid_and_closed_in_itself(rendered):
    tidy(rendered / "report.html")
    text = check(rendered / "report.html")
    assert "Is it correct?" in text and "not measured" not in text


def test_page_of_a_comparison_is_valid(kvad, rendered, tmp_path):
    kvad.text("lab", "--compare", rendered, REPORT, "-o", tmp_path)
    tidy(tmp_path / "compare.html")
    assert "Two runs beside each other" in check(tmp_path / "compare.html")


def test_markup_in_names_stays_text(kvad, tmp_path, chromium):
    document = hostile(json.loads(REPORT.read_text()))
    (tmp_path / "in.json").write_text(json.dumps(document))
    kvad.text("lab", "--from", tmp_path / "in.json", "-o", tmp_path / "out")
    page = tmp_path / "out/report.html"
    assert "<script>alert(1)</script>" in check(page)
    assert "\u202e" not in page.read_text()
    chromium.load(page.as_uri(), 360, 780, phone=True)
    assert chromium.requests() == [page.as_uri()] and not chromium.complaints()
    assert chromium.ask("document.documentElement.scrollWidth") <= 360
    assert chromium.ask("document.scripts.length") == 0


SIZES = [(360, 780, True), (390, 844, True), (1280, 900, False)]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width, height, phone", SIZES, ids=["360", "390", "1280"])
def test_page_fits_its_window_and_asks_for_nothing(rendered, chromium, width, height, phone, dark):
    url = (rendered / "report.html").as_uri()
    chromium.load(url, width, height, dark=dark, phone=phone)
    assert chromium.requests() == [url]
    assert not chromium.complaints()
    chromium.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert chromium.ask("document.documentElement.scrollWidth") <= width
    assert chromium.ask("document.querySelectorAll('.scroll').length") > 5
    # No letter outside the window, but in what scrolls by itself.
    outside = """[...document.querySelectorAll('svg text, p, h1, h2, h3, li, summary')].filter(e => {
        const r = e.getBoundingClientRect();
        return r.width && (r.left < -0.5 || r.right > innerWidth + 0.5);
    }).map(e => e.textContent)"""
    assert chromium.ask(outside) == []
    # One drawing of each chart, none cut off at its own edges.
    assert chromium.ask(
        "[...document.querySelectorAll('figure')].every(f => [...f.querySelectorAll('svg:not(.key)')]"
        ".filter(s => s.getBoundingClientRect().width).length === 1)"
    )
    assert chromium.ask("document.querySelectorAll('figure').length") >= 5


CONTRAST = """(() => {
    const rgb = c => c.match(/[\\d.]+/g).map(Number);
    const light = c => { const [r, g, b] = c.slice(0, 3).map(v => v / 255)
        .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b; };
    const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
        if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
    const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
        return (x + .05) / (y + .05); };
    const found = {};
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        if (!own || !e.getBoundingClientRect().width) continue;
        const s = getComputedStyle(e), inSvg = e.namespaceURI.endsWith('svg');
        let back = ground(e);
        if (e.classList.contains('inside')) {
            const part = [...e.classList].find(c => /^i\\d$/.test(c)).slice(1);
            const rect = [...document.querySelectorAll('rect.c' + part)][0];
            back = rgb(getComputedStyle(rect).fill);
        }
        const r = ratio(rgb(inSvg ? s.fill : s.color), back);
        if (r < 4.5) found[e.tagName + '.' + (e.className.baseVal ?? e.className)] = r.toFixed(2);
    }
    return found;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_letters_stand_out_from_their_ground(rendered, chromium, dark):
    """WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    chromium.load((rendered / "report.html").as_uri(), 1280, 900, dark=dark)
    chromium.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert chromium.ask(CONTRAST) == {}


def at(document, path):
    for name in path.split("."):
        document = document[int(name) if isinstance(document, list) else name]
    return document


def test_figures_on_the_page_are_those_of_the_report(rendered, chromium):
    report = json.loads((rendered / "report.json").read_text())
    chromium.load((rendered / "report.html").as_uri(), 390, 844, phone=True)
    shown = chromium.ask(
        "[...document.querySelectorAll('[data-figure]')].map(e => [e.dataset.figure, e.dataset.value, e.textContent])"
    )
    paths = {path for path, _, _ in shown}
    assert {
        "summary.correct.passed", "summary.correct.max_error", "summary.latency.times_faster",
        "summary.latency.flop_ratio", "summary.memory.cache_bytes", "summary.memory.token_bytes",
    } <= paths  # fmt: skip
    for path, value, text in shown:
        assert float(value) == at(report, path), path
        number = float(re.match(r"-?[\d.,]+(e-\d+)?", text).group(0).replace(",", ""))
        units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "µs": 1e-3, "s": 1e3, "ns": 1e-6}
        scale = units.get(text.split("\xa0")[-1], 1)
        assert number * scale == pytest.approx(float(value), rel=0.06 if "e-" in text else 0.006), (path, text)


def test_every_figure_that_a_sentence_names_is_in_the_report(rendered):
    report = json.loads((rendered / "report.json").read_text())
    page = (rendered / "report.html").read_text()
    named = re.findall(r'data-figure="([^"]*)" data-value="([^"]*)"', page)
    assert len(named) > 15
    for path, value in named:
        assert float(value) == at(report, path), path
    assert "{" not in page.split("</style>")[1]


def test_the_three_answers_come_first(rendered, chromium):
    def tops():
        return chromium.ask("[...document.querySelectorAll('.answer')].map(e => e.getBoundingClientRect().top)")

    url = (rendered / "report.html").as_uri()
    chromium.load(url, 1280, 900)
    assert len(tops()) == 3 and max(tops()) < 300
    bottoms = "[...document.querySelectorAll('.answer')].map(e => e.getBoundingClientRect().bottom)"
    assert max(chromium.ask(bottoms)) < 900
    chromium.load(url, 390, 844, phone=True)
    assert sorted(tops()) == tops() and tops()[1] < 600 and tops()[2] < 900


def test_page_prints_without_its_colours_of_the_screen(rendered, chromium):
    chromium.load((rendered / "report.html").as_uri(), 700, 900, dark=True)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert chromium.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
        assert chromium.ask("document.documentElement.scrollWidth") <= 700
        assert chromium.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    finally:
        chromium.call("Emulation.setEmulatedMedia", media="")
