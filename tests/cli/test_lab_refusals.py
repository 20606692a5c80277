"""kvad lab: documents, folders, models and arguments that are refused, and reports with anything in them."""

import json
import time

import pytest

from conftest import ROOT

STORED = ROOT / "tests/data/lab/report.json"


def refused(result, part, code=1):
    said = result.stderr.decode()
    assert result.returncode == code, said
    assert part in said and said.count("\n") == (2 if code == 2 else 1) and not result.stdout


BAD = {
    "not JSON": (b"<html>", "in.json: line 1"),
    "cut off": (STORED.read_bytes()[:1000] if STORED.exists() else b"{", "in.json: line "),
    "an array": (b"[1]", "must be an object"),
    "deep": (b'{"a":' * 100000, "in.json: line"),
    "twice": (b'{"kind":"kvad lab report","kind":"x"}', "in.json: line"),
    "another kind": (b'{"kind":"kvad bench"}', "not a report of kvad lab"),
    "kind of another type": (b'{"kind":["kvad lab report"]}', "not a report of kvad lab"),
    "no schema": (b'{"kind":"kvad lab report"}', '"schema" must be a whole number'),
    "later schema": (b'{"kind":"kvad lab report","schema":2}', "schema 2, this version of kvad reads 1"),
    "huge schema": (b'{"kind":"kvad lab report","schema":1e300}', '"schema" must be a whole number'),
    "no model": (b'{"kind":"kvad lab report","schema":1}', '"model" must be an object'),
    "parts of another type": (
        b'{"kind":"kvad lab report","schema":1,"model":{},"machine":{},"options":{},"parts":[]}',
        '"parts" must be an object',
    ),
    "a part of another type": (
        b'{"kind":"kvad lab report","schema":1,"model":{},"machine":{},"options":{},"parts":{"verify":"x"}}',
        '"parts.verify" must be an object',
    ),
    "invalid UTF-8": (b'{"kind":"\xff"}', "in.json: line 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_documents_that_are_no_report_are_refused_in_one_line(kvad, tmp_path, name):
    content, why = BAD[name]
    (tmp_path / "in.json").write_bytes(content)
    refused(kvad("lab", "--from", tmp_path / "in.json", "-o", tmp_path / "out"), why)
    refused(kvad("lab", "--compare", STORED, tmp_path / "in.json"), why)
    assert not (tmp_path / "out").exists()


def mutations(value):
    """The same document with each member in turn replaced by things of other types."""
    for wrong in (None, "x", -1, 1e308, [], {}, [[[]]], {"a": {"b": []}}, True):
        yield wrong
    if isinstance(value, dict):
        for key in value:
            for other in mutations(value[key]):
                yield {**value, key: other}
    elif isinstance(value, list) and value:
        for other in mutations(value[0]):
            yield [other, *value[1:2]]


def test_members_of_any_type_deeper_down_neither_crash_nor_break_the_page(kvad, tmp_path):
    report = json.loads(STORED.read_text())
    for part, document in (
        ("verify", report["parts"]["verify"]),
        ("latency", report["parts"]["latency"]),
        ("memory", {"measured": report["parts"]["memory"]["measured"]}),
    ):
        for number, changed in enumerate(mutations(document)):
            if not isinstance(changed, dict) or number % 29:
                continue
            (tmp_path / "in.json").write_text(json.dumps({**report, "parts": {part: changed}}))
            result = kvad("lab", "--from", tmp_path / "in.json", "-o", tmp_path / "out", "-q")
            assert result.returncode in (0, 1) and not result.stderr, (part, number)
            page = (tmp_path / "out/report.html").read_text()
            assert page.endswith("</html>\n") and "nan" not in page.split("</style>")[1].lower().split()


def test_of_very_many_members_the_summary_keeps_the_largest(kvad, tmp_path):
    """With all of them in order the time would grow as the square of their number."""
    report = json.loads(STORED.read_text())
    many = {str(i): {"requested": i, "resident": i} for i in range(20000)}
    report["parts"]["latency"]["gap"]["shares_ms"] = {str(i): i for i in range(20000)}
    for point in report["parts"]["memory"]["measured"]["checkpoints"]:
        if point["policy"] == "paged":
            point["process"]["owners"] = many
            many = {}
    (tmp_path / "many.json").write_text(json.dumps(report))
    kvad.text("lab", "--from", tmp_path / "many.json", "-o", tmp_path / "out")
    shares = json.loads((tmp_path / "out/report.json").read_text())["summary"]["latency"]["shares"]
    assert [share["ms"] for share in shares] == [19999 - i for i in range(64)]


def test_missing_files_are_named(kvad, tmp_path):
    refused(kvad("lab", "--from", tmp_path / "none.json", "-o", tmp_path / "out"), "none.json")
    refused(kvad("lab", "--compare", tmp_path, tmp_path), "report.json")


def test_a_folder_that_cannot_be_is_refused_before_anything_runs(kvad, shakespeare, tmp_path):
    (tmp_path / "file").write_text("precious")
    for folder, why in (
        (tmp_path / "file", "a file of this name is in the way"),
        (tmp_path / "file/deeper", "file"),
        ("/proc/kvad/report", "/proc/kvad"),
        ("x" * 5000, "too long"),
    ):
        start = time.monotonic()
        refused(kvad("lab", shakespeare, "-o", folder), why)
        assert time.monotonic() - start < 20
    refused(kvad("lab", shakespeare, "-o", ""), "empty")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_model_that_is_none_has_its_own_exit_code(kvad, tmp_path):
    result = kvad("lab", tmp_path / "none", "-o", tmp_path / "out")
    assert result.returncode == 3 and "none" in result.stderr.decode()


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["m"], "-o DIR is missing"),
        (["-o", "d"], "MODEL is missing"),
        (["m", "n", "-o", "d"], "MODEL"),
        (["--compare", "a"], "--compare takes two reports"),
        (["--compare", "a", "b", "--from", "c"], "exclude each other"),
        (["m", "--from", "c", "-o", "d"], "--from takes the place of MODEL"),
        (["m", "-o", "d", "--quick", "--full"], "exclude each other"),
    ],
)
def test_usage_errors(kvad, arguments, why):
    refused(kvad("lab", *arguments), why, 2)
