"""What README.md, docs/ and the others say that can be looked up: links, files, names, commands, options, fields of
JSON, lists that stand in two places."""

import functools
import importlib
import json
import re
import subprocess
import types

import pytest
from conftest import ROOT
from pages import MACHINE, check_fields, code_of, fields, row_of_cli, section, text_of

COMMANDS = ["generate", "score", "tokenize", "inspect", "pack", "verify", "bench", "memory", "lab"]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "bench/**/*.md", "models/**/*.md")
    for path in ROOT.glob(pattern)
)
FOLDERS = ("src", "cli", "tests", "include", "docs", "bench", "scripts", "cmake", "models", "examples")
SOURCES = ("src", "cli", "tests", "include", "scripts", "cmake", "examples", "bench/peers")
# Options that no command of kvad has: of nanoGPT's sample.py, of kvad itself, of scripts and of a test program.
OTHER_OPTIONS = {"--device", "--dtype", "--compile", "--start", "--man", "--version", "--completion"}
OTHER_OPTIONS |= {"--list", "--write", "--table"}


def anchors(page):
    """Anchors of headings, as GitHub makes them."""
    heads = re.findall(r"^#+ +(.+)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@functools.cache
def words_of_sources():
    """Every word of the repository's own sources."""
    words = set()
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".c", ".h", ".inc", ".def", ".py", ".txt", ".cmake", ""):
                words.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
                words.add(path.stem)
    words.update(re.findall(r"\w+", text_of("CMakeLists.txt")))
    return words


@pytest.fixture(scope="module")
def options(kvad):
    """Of each command, from its help: names and letters."""
    found = {}
    for command in COMMANDS:
        pairs = re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)", kvad.text(command, "--help"), re.M)
        found[command] = {name for pair in pairs for name in pair if name}
    return found


# ---------------------------------------------------------------- what every page may hold


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(str(path.resolve().relative_to(ROOT))), target


@pytest.mark.parametrize("page", PAGES)
def test_files_of_the_repository_that_are_named_exist(page):
    for code in code_of(page):
        for name in re.findall(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w", code):
            is_place_holder = re.search(r"\b[A-Z]{4,}\b", name)
            assert is_place_holder or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES)
def test_tests_functions_and_constants_that_are_named_exist(page):
    """A ctest is named after its folder and its file; a variable after its option."""
    pattern = r"\b(?:test_[a-z]\w*[a-z0-9]|[a-z]\w*_test|fuzz_\w+[a-z]|kvad_\w+[a-z]|KVAD_\w+[A-Z0-9])\b"
    for code in code_of(page):
        for name in re.findall(pattern, code):
            known = {name, name.removeprefix("KVAD_").lower(), name.partition("_")[2]} & words_of_sources()
            assert known or name == "test_release_of_shared_block_keeps_it", name


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_shown_with_options_that_they_have(page, options):
    for code in code_of(page):
        for command, rest in re.findall(r"\bkvad (\w+)\b([^|>]*)", code):
            if command in options:
                rest = re.split(r"  +|#", rest.strip())[0]
                rest = re.sub(r"'[^']*'|\"[^\"]*\"", "", rest)
                for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest):
                    assert option in options[command], code


@pytest.mark.parametrize("page", PAGES)
def test_options_that_are_named_exist(page, options):
    known = set().union(*options.values(), options_of_peers(), OTHER_OPTIONS)
    for code in code_of(page):
        for option in re.findall(r"^--[a-z][\w-]*", code):
            assert option in known or "_" in option, option


def options_of_peers():
    return set(re.findall(r'add_argument\("(--[a-z-]+)"', text_of("bench/peers/run.py")))


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_that_are_named_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    for code in code_of(page):
        for target in re.findall(r"(?:^|sudo |&& )make ([a-z-]+)", code.strip()):
            assert target in targets, code


# ---------------------------------------------------------------- what the program says of itself


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_examples_of_the_help_use_options_that_exist(kvad, options, command):
    text = kvad.text(*([command] if command else []), "--help")
    examples = re.findall(r"^  (?:.*\| )?kvad (\w+) (.*)$", text[text.index("Examples:") :], re.M)
    assert examples
    for name, rest in examples:
        if name in options:
            for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.sub(r"'[^']*'", "", rest)):
                assert option in options[name], rest


def test_exit_codes_are_those_of_the_help(kvad):
    told = dict(re.findall(r"^ +(\d+)  (.*)$", kvad.text("--help"), re.M))
    shown = dict(re.findall(r"^\| (\d+) \| (.*) \|$", text_of("docs/cli.md"), re.M))
    assert list(told) == list(shown)
    for code in ("0", "2", "3", "4", "6"):
        assert shown[code].startswith(told[code].split(",")[0])


def test_order_of_sampling_is_that_of_the_help(kvad):
    table = re.findall(r"^\| `([A-Z_]+)` \|", text_of("docs/sampling.md"), re.M)
    text = " ".join(kvad.text("generate", "--help").split())
    told = re.search(r"in the order of the default: ([a-z, -]+?) (?:Text|Batch):", text).group(1)
    assert [stage.lower().replace("_", "-") for stage in table] == told.split(", ")


def test_steps_of_make_check_are_those_of_the_page():
    listed = subprocess.run([ROOT / "scripts/check", "--list"], capture_output=True, text=True, check=True).stdout
    table = text_of("docs/testing.md").split("## The steps")[1].split("##")[0]
    rows = [re.findall(r"`([a-z0-9-]+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert [name for row in rows for name in row] == [line.split()[0] for line in listed.splitlines()]


def test_numbers_of_faults_and_of_what_the_classic_test_sees_are_the_same_everywhere():
    matrix = text_of("docs/faults.md")
    n_faults, n_caught, n_passed = re.search(
        r"It catches (\d+) of the (\d+) faults. It comes to the place of (\d+)", matrix
    ).group(2, 1, 3)
    assert f"{n_faults} faults, " in matrix and f"{n_faults} cache mistakes" in text_of("CHANGELOG.md")
    verify = " ".join(text_of("docs/verify.md").split())
    assert f"which checks catch {n_faults} mistakes" in verify
    assert f"`classic` catches {n_caught}, and passes with {n_passed} whose" in verify


RECORDED = sorted((ROOT / "bench/results").glob("*-threads*.json"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_tables_of_recorded_comparisons_are_those_of_their_numbers(recorded, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench/peers")
    report = importlib.import_module("report")
    assert report.markdown(json.loads(recorded.read_text())) == recorded.with_suffix(".md").read_text()


def test_results_of_errors_alone_have_no_empty_tables(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench/peers")
    report = importlib.import_module("report")
    about = {"machine": {"cpu": "a CPU"}, "versions": {"kvad": "1"}, "level": "avx2"}
    asked = types.SimpleNamespace(size="tiny", threads=2, isa="native")
    keys = ("rms", "max", "arithmetic_rms", "arithmetic_max", "kl", "top1_percent", "logits_rms")
    row = {"engine": "kvad", "weights": "f32", "cache": "f32", "way": "any way", "errors": dict.fromkeys(keys, 1)}
    text = report.markdown({**report.summary([row], asked, {}, about), "date": "today"})
    assert "# tiny on a CPU, 2 threads" in text and "kernels avx2" in text and "Speed beside error" in text
    assert "Ceilings" not in text and "times faster" not in text and "greedy tokens in f32" not in text


# ---------------------------------------------------------------- fields of JSON


@pytest.mark.parametrize(
    "command,lines",
    [
        ("generate", [["-p", "A", "-n", 2], ["-p", "A", "-n", 2, "--samples", 2]]),
        ("score", [["-p", "AB", "--weights", "q8", "--against", "f32"]]),
        ("tokenize", [["AB"]]),
        ("inspect", [[]]),
    ],
)
def test_fields_of_small_answers_are_told(kvad, nano, command, lines):
    answers = [kvad.json(command, nano, *line) for line in lines]
    details = fields(answers) - set().union(*answers) if command == "generate" else set()  # of timings, cache, engine
    check_fields(row_of_cli(command), answers, details)


def test_fields_of_pack_are_told(kvad, nano, tmp_path):
    check_fields(row_of_cli("pack"), kvad.json("pack", nano, "-o", tmp_path / "m.kvad"))


def test_fields_of_a_batch_are_told(kvad, nano, tmp_path):
    """A miss has other fields for each reason; all of them are told."""
    batch = tmp_path / "batch.jsonl"
    batch.write_text("".join(f'"A{chr(66 + i % 20) * 20}"\n' for i in range(40)) + '{"prompt": "AC", "salt": "x"}\n')
    line = ["generate", nano, "--batch", batch, "-n", 2, "--kv-memory", "64K"]
    answers = [json.loads(answer) for answer in kvad.text(*line).splitlines()]
    check_fields(row_of_cli("generate --batch"), answers, {"error", "evicted_steps", "evicted_for", "cached_token"})


def test_fields_of_a_trace_are_told(kvad):
    run = kvad.json("bench", "--synthetic", "tiny", "--quick", "--trace", "--requests", 4)
    told = section("docs/benchmarks.md", "## Why paging: `--trace`").split("`--json` prints one object")[1]
    check_fields(told, run, MACHINE)


def test_fields_of_verify_are_told(kvad, nano):
    run = kvad.json("verify", nano, "--checks", "reference,rollback")
    difference = {"position", "place", "element", "got", "wanted"}
    check_fields(section("docs/verify.md", "## JSON"), run, difference)


def test_fields_of_memory_are_told(kvad, nano):
    page = text_of("docs/memory.md")
    owners = set(re.findall(r"`([a-z_]+)`", page.split("| owner | what |")[1].split("\n\n")[0]))
    told = section("docs/memory.md", "## JSON")
    measured = kvad.json("memory", nano, "--cache", "paged")
    computed = kvad.json("memory", "--config", "llama-7b", "--kv", "f16")
    check_fields(told, [measured, computed], owners)


def test_fields_of_the_report_are_told(kvad, tmp_path):
    """Made again of the one that tests keep; its parts are those of other pages."""
    recorded = ROOT / "tests/data/lab/report.json"
    report = kvad.json("lab", "--from", recorded, "-o", tmp_path)
    compared = kvad.json("lab", "--compare", recorded, recorded)
    del report["parts"]
    check_fields(section("docs/lab.md", "## JSON"), [report, compared], MACHINE | {"first_failure"})
