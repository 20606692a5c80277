"""kvad bench: the names that scripts rely on, the same tokens everywhere, refusals. Nothing here looks at the
value of a time, only at what must hold on any machine, however busy."""

import json
import re
import signal
import time

import pytest
from pages import check_fields, section

QUICK = ["--quick", "--repeat", "2"]
PARTS = """reserve embed norm quantise qkv store_kv attention out up activation down head sampling wait other""".split()


@pytest.fixture(scope="module")
def tiny_run(kvad):
    return kvad.json("bench", "--synthetic", "tiny", *QUICK)


def check_case(case):
    assert case["policy"] in ("none", "grow", "static", "paged")
    assert len(case["samples_ms"]) == 2 and case["samples_ms"] == sorted(case["samples_ms"])
    assert case["bound"] in ("read", "compute") and case["steps_per_sample"] >= 1
    assert case["percent_of_ceiling"] == max(case["percent_of_read"], case["percent_of_compute"])
    assert case["bytes"] > case["kv_bytes"] > 0 and case["flops"] > 0 and case["tokens_per_s"] > 0
    assert case["ceilings"]["read_gb_s"] > 0 and case["ceilings"]["fma_gflop_s"] > 0
    assert list(case["parts"]) == PARTS and 0 < case["named_percent"] <= 100
    total = sum(case["parts"].values())
    assert 0 < total and case["parts_wall_ms"] > 0


def test_json_has_the_promised_names(tiny_run):
    assert tiny_run["schema"] == 1 and tiny_run["void"] is None
    assert tiny_run["ceilings"]["read_gb_s"] > 0 and tiny_run["ceilings"]["fma_gflop_s"] > 0
    assert tiny_run["model"]["name"] == "tiny" and tiny_run["engine"]["threads"] >= 1
    assert tiny_run["machine"]["cores"] >= 1 and tiny_run["machine"]["memory_bytes"] > 0
    assert [model["weights"] for model in tiny_run["models"]] == ["f32"]
    for case in tiny_run["decode"]:
        check_case(case)
        assert {"policy", "weights", "kv", "context", "ms_per_token", "percent_of_ceiling"} <= set(case)
    for case in tiny_run["prefill"]:
        check_case(case)
        assert {"tokens", "tokens_per_s", "percent_of_peak", "first_token_ms"} <= set(case)
    for case in tiny_run["batch"]:
        check_case(case)
        assert {"sequences", "tokens_per_s", "ms_per_step"} <= set(case)
    assert list(tiny_run["parts"]) == PARTS
    assert tiny_run["parts_of"]["policy"] == "paged" and tiny_run["parts_of"]["context"] == 63


def test_every_field_is_told(tiny_run):
    told = section("docs/benchmarks.md", "## JSON") + " ".join(PARTS)
    counters = set(tiny_run["decode"][0]["counters"] or {})
    check_fields(told, tiny_run, counters)


def test_every_policy_context_length_and_batch_is_there(tiny_run):
    """The model has room for 64 tokens: the usual context 128 becomes 63."""
    decode = [(case["context"], case["policy"]) for case in tiny_run["decode"]]
    assert decode == [(c, p) for c in (16, 63) for p in ("none", "grow", "static", "paged")]
    assert [case["tokens"] for case in tiny_run["prefill"]] == [16, 64]
    assert [case["sequences"] for case in tiny_run["batch"]] == [1, 4]


def test_tokens_are_the_same_on_every_policy_and_in_a_batch(tiny_run):
    for context in (16, 63):
        assert len({case["token"] for case in tiny_run["decode"] if case["context"] == context}) == 1
    alone = next(case["token"] for case in tiny_run["decode"] if case["context"] == 16)
    assert {case["token"] for case in tiny_run["batch"]} == {alone}


def test_tokens_do_not_depend_on_threads_levels_or_blocks(kvad, tiny_run):
    def tokens(run):
        return [case["token"] for kind in ("decode", "prefill", "batch") for case in run[kind]]

    for options in (["--threads", 3], ["--cpu", "baseline"], ["--block", 64], ["--repeat", 1]):
        assert tokens(kvad.json("bench", "--synthetic", "tiny", "--quick", *options)) == tokens(tiny_run)


def test_counters_are_there_or_their_absence_is_explained(tiny_run):
    cases = tiny_run["decode"] + tiny_run["prefill"] + tiny_run["batch"]
    if tiny_run["no_counters"] is None:
        assert all("cycles" in case["counters"] for case in cases)
    else:
        assert tiny_run["no_counters"] and all(case["counters"] is None for case in cases)


def test_lists_choose_what_is_measured(kvad):
    run = kvad.json(
        "bench", "--synthetic", "tiny", *QUICK, "--contexts", "9,3", "--prefill", "5", "--batch", "2",
        "--cache", "static,none", "--weights", "q8,f32", "--kv", "q8"
    )  # fmt: skip
    cases = [(c["weights"], c["kv"], c["context"], c["policy"]) for c in run["decode"]]
    policies = ("static", "none")
    assert cases == [(w, "q8", c, p) for w in ("q8", "f32") for c in (3, 9) for p in policies]
    assert [(c["weights"], c["tokens"], c["policy"]) for c in run["prefill"]] == [("q8", 5, "none"), ("f32", 5, "none")]
    assert [c["sequences"] for c in run["batch"]] == [2, 2]
    assert [m["weights"] for m in run["models"]] == ["q8", "f32"]
    assert run["models"][0]["weight_bytes"] < run["models"][1]["weight_bytes"]
    assert run["decode"][0]["ceilings"]["int8_gop_s"] and run["decode"][-1]["ceilings"]["int8_gop_s"] is None


def test_empty_lists_measure_nothing_of_that_kind(kvad):
    run = kvad.json("bench", "--synthetic", "tiny", *QUICK, "--prefill", "", "--batch", "", "--cache", "paged")
    assert run["prefill"] == [] and run["batch"] == [] and len(run["decode"]) == 2


def test_models_of_files_are_measured(kvad, nano):
    """The tokenizer is not needed, and a context of 37 is enough."""
    run = kvad.json("bench", nano, *QUICK)
    assert run["model"]["n_ctx"] == 37 and {case["context"] for case in run["decode"]} == {16, 36}


def test_a_packed_model_is_measured_as_it_is(kvad, nano, tmp_path):
    kvad.text("pack", nano, "--weights", "q8", "-o", tmp_path / "packed")
    run = kvad.json("bench", tmp_path / "packed", *QUICK, "--cache", "paged")
    assert {case["weights"] for case in run["decode"]} == {"q8"}
    assert kvad("bench", tmp_path / "packed", *QUICK, "--weights", "f32").returncode != 0


def test_bytes_and_operations_are_the_formulas(kvad):
    """tiny: 2 layers of 64, 4 heads, 301 ids (19 panels of 16), a feed-forward part of 256."""
    run = kvad.json("bench", "--synthetic", "tiny", *QUICK, "--contexts", "10", "--cache", "paged", "--prefill", "")
    case = run["decode"][0]
    layer = 64 * 192 + 192 + 64 * 64 + 64 + 64 * 256 + 256 + 256 * 64 + 64 + 4 * 64
    weights = 4 * (2 * layer + 2 * 64 + 19 * 16 * 64 + 2 * 64)
    assert case["kv_bytes"] == 11 * 2 * 2 * 64 * 4
    assert case["bytes"] == weights + case["kv_bytes"]
    assert case["flops"] == 2 * (2 * 12 * 64 * 64 + 301 * 64) + 4 * 2 * 64 * 11


def test_tables_for_people(kvad):
    lines = kvad.text("bench", "--synthetic", "tiny", *QUICK, env={"LANG": "C", "LC_ALL": ""}).splitlines()
    text = "\n".join(lines)
    for head in ("Ceilings", "Decode, one token", "Prefill", "Batches", "Where the time of a step goes", "named parts"):
        assert head in text
    assert text.isascii() and "n none, g grow, s static, p paged" in text
    assert max(map(len, lines[3:])) <= 100
    assert sum(line.startswith("f32  f32  paged") for line in lines) == 2 + 2 + 2


def test_table_tells_bytes_in_huge_pages(kvad):
    """Of the process: read bandwidth depends on them."""
    text = kvad.text("bench", "--synthetic", "tiny", *QUICK, "--cache", "paged", "--prefill", "", "--batch", "")
    head, row = re.search(r"^(wts +bytes .*)\n(f32 .*)$", text, re.M).groups()
    assert head.split()[:4] == ["wts", "bytes", "huge", "pages"]
    assert re.match(r"f32 +[\d.]+ KiB +[\d.]+ (?:[KMG]iB|bytes) +\d+ ", row), row


def test_chart_shows_every_policy_at_every_context(kvad):
    text = kvad.text("bench", "--synthetic", "tiny", *QUICK, env={"LC_ALL": "C.UTF-8"})
    chart = text[text.index("ms per token over context") : text.index("n none, g grow")]
    rows = [line.split("│")[1] for line in chart.splitlines() if "│" in line]
    assert len(rows) == 10
    for letter in "ngsp":
        assert "".join(rows).count(letter) == 2


def test_nothing_but_the_result_is_written_to_pipes(kvad):
    result = kvad("bench", "--synthetic", "tiny", *QUICK, "--cache", "paged", "--json")
    assert result.returncode == 0 and not result.stderr
    assert len(result.stdout.splitlines()) == 1 and json.loads(result.stdout)


def test_result_can_go_to_a_file(kvad, tmp_path):
    path = tmp_path / "bench.json"
    assert not kvad.text("bench", "--synthetic", "tiny", *QUICK, "--cache", "paged", "--json", "-o", path)
    assert json.loads(path.read_text())["schema"] == 1


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], "MODEL is missing"),
        (["model", "--synthetic", "tiny"], "exclude each other"),
        (["--synthetic", "gpt5"], "gpt2-xl"),
        (["--synthetic", "tiny", "--contexts", "1,,2"], "list of numbers"),
        (["--synthetic", "tiny", "--contexts", "1,"], "list of numbers"),
        (["--synthetic", "tiny", "--contexts", "-1"], "list of numbers"),
        (["--synthetic", "tiny", "--prefill", "0"], "outside"),
        (["--synthetic", "tiny", "--batch", "4097"], "outside"),
        (["--synthetic", "tiny", "--cache", "ring"], "is not one of paged, static, grow, none"),
        (["--synthetic", "tiny", "--cache", "paged,paged"], "twice"),
        (["--synthetic", "tiny", "--cache", ""], "is not one of"),
        (["--synthetic", "tiny", "--weights", "f64"], "is not one of f32"),
        (["--synthetic", "tiny", "--repeat", "0"], "outside"),
        (["--synthetic", "tiny", "--repetitions", "3"], "did you mean '--repeat'"),
    ],
)
def test_bad_lines_are_refused(kvad, arguments, words):
    result = kvad("bench", *arguments)
    assert result.returncode == 2 and words in result.stderr.decode() and not result.stdout


def test_context_that_was_asked_for_and_does_not_fit_is_refused(kvad):
    result = kvad("bench", "--synthetic", "tiny", "--contexts", "16,64")
    assert result.returncode == 6 and b"64" in result.stderr and b"63" in result.stderr and not result.stdout
    assert kvad("bench", "--synthetic", "tiny", "--prefill", "65").returncode == 6


def test_missing_model_is_exit_code_3(kvad):
    assert kvad("bench", "no-such-model").returncode == 3


def test_empty_context_list_is_refused(kvad):
    result = kvad("bench", "--synthetic", "tiny", "--contexts", "")
    assert result.returncode == 2 and b"contexts" in result.stderr


def test_interrupt_ends_the_run(kvad, shakespeare):
    process = kvad.start("bench", shakespeare, "--repeat", 1000, "--contexts", "1000", "--cache", "none")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and not out
