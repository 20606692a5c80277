"""kvad lab: what it leaves in its folder, going on after a stop, and comparing. Nothing here looks at the value of a
time."""

import csv
import json
import re
import shutil
import signal
import time

import pytest

from conftest import ROOT

STORED = ROOT / "tests/data/lab/report.json"
PARTS = ["verify", "latency", "memory"]


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def read(folder):
    return json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def run(kvad, shakespeare, tmp_path_factory):
    """(folder, what was printed, seconds) of a quick run on the trained model."""
    folder = tmp_path_factory.mktemp("lab") / "deep" / "report"
    start = time.monotonic()
    printed = kvad.text("lab", shakespeare, "-o", folder, "--quick")
    return folder, printed, time.monotonic() - start


def test_a_run_leaves_page_json_tables_and_parts(run):
    folder, printed, _ = run
    left = files(folder)
    assert {"report.html", "report.json", "csv/checks.csv", "csv/checkpoints.csv", "csv/curve.csv"} <= left
    assert {f"{part}.part.json" for part in PARTS} <= left
    assert not [name for name in left if name.endswith(".tmp")]
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines] == ["correct", "faster", "memory", "report"]
    assert lines[0].startswith("correct  yes: ") and "report.html" in lines[3]


def test_the_report_says_what_was_measured_and_on_what(run):
    report = read(run[0])
    assert report["kind"] == "kvad lab report" and report["schema"] == 1
    assert report["machine"]["cores"] >= 1 and report["engine"]["threads"] >= 1
    assert report["model"]["n_ctx"] == 1024 and len(report["model"]["fingerprint"]) == 16
    assert report["options"]["quick"] is True and report["options"]["seed"] == 1
    assert list(report["parts"]) == PARTS
    summary = report["summary"]
    assert summary["correct"]["verdict"] == "pass" and summary["correct"]["failed"] == 0
    assert summary["correct"]["passed"] == sum(c["verdict"] == "pass" for c in report["parts"]["verify"]["checks"])
    assert summary["memory"]["token_bytes"] == 9216 and summary["memory"]["cache_bytes"] == 9216 * 1024
    assert summary["memory"]["n_exact"] == summary["memory"]["n_checkpoints"] == 64
    assert summary["latency"]["times_faster"] == pytest.approx(
        summary["latency"]["naive_ms"] / summary["latency"]["cached_ms"]
    )
    assert summary["latency"]["flop_ratio"] > summary["latency"]["byte_ratio"] > 1


def test_a_quick_run_takes_seconds(run):
    """30 s on a machine of its own; others may work beside the tests."""
    assert run[2] < 100


def at(row, path):
    for name in path.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def test_tables_hold_the_numbers_of_the_report(run):
    folder = run[0]
    parts = read(folder)["parts"]
    for name, rows in (
        ("checks", parts["verify"]["checks"]),
        ("checkpoints", parts["memory"]["measured"]["checkpoints"]),
        ("curve", parts["latency"]["points"]),
    ):
        with open(folder / f"csv/{name}.csv", newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        assert len(table) == len(rows)
        for line, row in zip(table, rows):
            for key, cell in line.items():
                value = at(row, key)
                assert cell == ("" if value is None else value) if isinstance(value, str) else (
                    cell == "" if value is None else float(cell) == value
                ), (name, key)  # fmt: skip


def test_a_second_run_takes_up_what_is_finished(kvad, shakespeare, run):
    folder = run[0]
    before = read(folder)
    result = kvad("lab", shakespeare, "-o", folder, "--quick")
    assert result.returncode == 0
    said = result.stderr.decode()
    assert [line.split()[1] for line in said.splitlines()] == [f"{part}:" for part in PARTS]
    assert "--fresh" in said
    assert read(folder)["parts"] == before["parts"]


def test_json_prints_the_report(kvad, shakespeare, run):
    printed = kvad.json("lab", shakespeare, "-o", run[0], "--quick")
    assert printed == read(run[0])


def test_quiet_says_nothing(kvad, shakespeare, run):
    result = kvad("lab", shakespeare, "-o", run[0], "--quick", "-q")
    assert result.returncode == 0 and not result.stdout and not result.stderr


# ---- stopping and going on, on a model of which every part takes moments


def test_ctrl_c_keeps_what_is_finished_and_leaves_whole_files(kvad, nano, tmp_path):
    folder = tmp_path / "out"
    running = kvad.start("lab", nano, "-o", folder, "--quick")
    deadline = time.monotonic() + 60
    while not (folder / "verify.part.json").exists() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=60)[1].decode()
    assert running.returncode in (130, 0)  # 0: it was through before the signal came
    for name in files(folder):
        assert not name.endswith(".tmp")
        if name.endswith(".json"):
            json.loads((folder / name).read_text())
    if running.returncode == 130:
        assert "taken up by the next run" in said and not (folder / "report.json").exists()
    again = kvad("lab", nano, "-o", folder, "--quick")
    assert again.returncode == 0 and "verify: finished by an earlier run" in again.stderr.decode()


@pytest.fixture(scope="module")
def packed(kvad, nano, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "m.kvad"
    kvad.text("pack", nano, "--weights", "f32", "-o", path)
    return path


@pytest.fixture(scope="module")
def small(kvad, packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    kvad.text("lab", packed, "-o", folder, "--quick")
    return folder


def reused(result):
    """Parts of which standard error says that they were taken up."""
    assert result.returncode == 0
    return [line.split()[1].rstrip(":") for line in result.stderr.decode().splitlines()]


@pytest.mark.parametrize("damage", ["{", '{"key": 1, "result": {}}', "[]", "", '{"key": {}, "result": {}}'])
def test_damaged_parts_are_measured_again(kvad, packed, small, damage):
    for part in ("verify", "memory"):
        (small / f"{part}.part.json").write_text(damage)
    assert reused(kvad("lab", packed, "-o", small, "--quick")) == ["latency"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("result", [{}, {"checks": 5}, {"failed": 0, "passed": 18}, None])
def test_a_part_that_is_not_as_it_was_kept_is_measured_again(kvad, packed, small, part, result):
    """The key alone says nothing about the numbers under it: without them the report would be empty and a success."""
    path = small / f"{part}.part.json"
    kept = json.loads(path.read_text())
    if result is None:  # one digit
        text = json.dumps(kept["result"])
        at = max(i for i, letter in enumerate(text) if letter in "12345678")
        result = json.loads(text[:at] + "9" + text[at + 1 :])
    assert result != kept["result"]
    kept["result"] = result
    path.write_text(json.dumps(kept))
    assert reused(kvad("lab", packed, "-o", small, "--quick")) == [name for name in PARTS if name != part]


def test_options_make_those_parts_again_that_they_are_about(kvad, packed, small, tmp_path):
    copy = shutil.copytree(small, tmp_path / "copy")
    assert reused(kvad("lab", packed, "-o", copy, "--quick", "--seed", 2)) == ["latency", "memory"]
    assert reused(kvad("lab", packed, "-o", copy, "--quick", "--seed", 2, "--threads", 1)) == []


def test_fresh_takes_up_nothing(kvad, packed, small, tmp_path):
    copy = shutil.copytree(small, tmp_path / "copy")
    assert reused(kvad("lab", packed, "-o", copy, "--quick", "--fresh")) == []


def test_another_model_of_the_same_name_is_not_taken_for_this_one(kvad, nano, packed, small, tmp_path):
    """The key has the weights' hash: the same path with other bytes is another model."""
    copy = shutil.copytree(small, tmp_path / "copy")
    before = packed.read_bytes()
    try:
        kvad.text("pack", nano, "--weights", "q8", "-o", packed)
        assert reused(kvad("lab", packed, "-o", copy, "--quick")) == []
    finally:
        packed.write_bytes(before)
    assert read(copy)["model"]["fingerprint"] != read(small)["model"]["fingerprint"]


# ---- made again, compared


def test_the_page_is_made_from_the_report_alone(kvad, small, tmp_path):
    kvad.text("lab", "--from", small / "report.json", "-o", tmp_path)
    assert (tmp_path / "report.html").read_bytes() == (small / "report.html").read_bytes()
    assert read(tmp_path) == read(small)


def test_a_report_compared_with_itself_differs_nowhere(kvad, small):
    comparison = kvad.json("lab", "--compare", small, small / "report.json")
    assert comparison["kind"] == "kvad lab comparison" and comparison["changes"] == comparison["checks"] == []
    assert comparison["figures"] and all(row["ratio"] in (1, None) for row in comparison["figures"])
    assert comparison["curve"] and all(row["ratio"] == 1 for row in comparison["curve"])


def test_a_comparison_names_what_changed(kvad, small, tmp_path):
    report = read(small)
    report["version"] = "9.9.9"
    report["machine"]["cpu"] = "another <CPU>"
    report["parts"]["memory"]["measured"]["bytes_per_token"] *= 2
    report["parts"]["verify"]["checks"][0]["verdict"] = "fail"
    (tmp_path / "b.json").write_text(json.dumps(report))
    comparison = kvad.json("lab", "--compare", small, tmp_path / "b.json", "-o", tmp_path / "out")
    changes = {row["what"]: row["b"] for row in comparison["changes"]}
    assert changes == {"version": "9.9.9", "machine cpu": "another <CPU>"}
    ratios = {row["path"]: row["ratio"] for row in comparison["figures"]}
    assert ratios["summary.memory.token_bytes"] == 2
    assert [row["b"] for row in comparison["checks"]] == ["fail"]
    assert json.loads((tmp_path / "out/compare.json").read_text()) == comparison
    assert {"compare.html", "csv/compare-figures.csv", "csv/compare-changes.csv"} <= files(tmp_path / "out")
    text = kvad.text("lab", "--compare", small, tmp_path / "b.json")
    assert "machine cpu" in text and "another <CPU>" in text and "2×" in text


def test_a_failing_check_is_the_exit_code_and_stands_first(kvad, small, tmp_path):
    report = read(small)
    check = report["parts"]["verify"]["checks"][3]
    check.update(verdict="fail", case="chunks of 7", text="position 17: 0.25 instead of 0.75")
    report["parts"]["verify"].update(failed=1, passed=report["parts"]["verify"]["passed"] - 1)
    (tmp_path / "in.json").write_text(json.dumps(report))
    result = kvad("lab", "--from", tmp_path / "in.json", "-o", tmp_path)
    assert result.returncode == 1
    assert result.stdout.decode().startswith("correct  no: ")
    page = (tmp_path / "report.html").read_text()
    assert f"{check['name']}, chunks of 7: position 17" in page and 'class="answer fail"' in page
    assert 'data-figure="summary.correct.failed" data-value="1">1<' in page and "{" not in page.split("</style>")[1]


@pytest.mark.parametrize("n_failed", (0, 2))
def test_failed_controls_are_told_with_the_figure_that_they_doubt(kvad, tmp_path, n_failed):
    report = json.loads(STORED.read_text())
    controls = report["parts"]["latency"]["controls"]
    for i, control in enumerate(controls):
        control["verdict"] = "fails" if i < n_failed else "not shown" if i == n_failed else "holds"
    (tmp_path / "in.json").write_text(json.dumps(report))
    kvad.text("lab", "--from", tmp_path / "in.json", "-o", tmp_path)
    latency = json.loads((tmp_path / "report.json").read_text())["summary"]["latency"]
    assert (latency["n_controls"], latency["controls_failed"]) == (len(controls), n_failed)
    answers = re.sub("<[^>]*>", "", (tmp_path / "report.html").read_text().split("<nav")[0])
    assert (f"{n_failed} of {len(controls)} controls fail" in answers) == (n_failed > 0)


def test_a_full_disk_is_a_failure_that_keeps_the_old_report(kvad, small, tmp_path):
    """No room for another byte in any file."""
    kvad.text("lab", "--from", small / "report.json", "-o", tmp_path / "out")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")}
    import resource

    def no_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    result = kvad("lab", "--from", STORED, "-o", tmp_path / "out", preexec_fn=no_room)
    assert result.returncode == 1 and b"cannot write" in result.stderr
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")} == before
