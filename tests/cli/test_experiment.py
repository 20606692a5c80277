"""kvad bench --experiment: the names that scripts rely on, figures that follow from one another, refusals. Nothing here
looks at the value of a time, only at what must hold on any machine, however busy."""

import signal
import time

import pytest
from pages import MACHINE, MODEL, check_fields, section

POLICIES = ["none", "grow", "static", "paged"]
FAST = ["--experiment", "--quick", "--repeat", "1"]
CLAIMS = ["flops", "total", "flat", "overhead", "attention", "cubic", "hundred"]
CONTROLS = "half_layers half_step bus_decode bus_prefill empty_step one_decode one_prefill one_wait".split()
SHARES = ["weights", "cache", "arithmetic", "sampling", "synchronisation", "other"]
WORK = """flops attention_flops bytes kv_bytes flop_per_byte gflop_per_s gb_per_s percent_of_ceiling bound parts
    parts_wall_ms named_percent counters""".split()


@pytest.fixture(scope="module")
def run(kvad):
    return kvad.json("bench", "--synthetic", "tiny", *FAST, "--threads", 2)


def test_json_has_the_promised_names(run):
    assert list(run) == """schema version kind void machine model engine protocol ceilings balance_flop_per_byte points
        prefill text gap controls claims no_counters""".split()
    assert run["schema"] == 1 and run["kind"] == "experiment" and run["void"] is None
    assert run["protocol"]["rounds"] == 1 and run["protocol"]["contexts_left_out"] == 0
    assert run["engine"]["threads"] == 2 and run["ceilings"]["read_gb_s"] > 0
    for point in run["points"]:
        assert list(point["ms"]) == list(point["spread_percent"]) == POLICIES
        assert all(ms > 0 for ms in point["ms"].values())
        assert list(point["naive"]) == list(point["cached"]) == WORK
    assert [total["policy"] for total in run["text"]["totals"]] == POLICIES
    assert list(run["gap"]["shares_ms"]) == SHARES
    assert [control["id"] for control in run["controls"]] == CONTROLS
    assert [claim["id"] for claim in run["claims"]] == CLAIMS


def test_every_field_is_told(run):
    parts = set(run["points"][0]["naive"]["parts"])
    check_fields(section("docs/latency.md", "## JSON"), run, MACHINE | MODEL | parts | set(CONTROLS))


def test_counters_are_there_or_their_absence_is_explained(kvad, run):
    works = [point[which] for point in run["points"] for which in ("naive", "cached")] + run["prefill"]
    text = kvad.text("bench", "--synthetic", "tiny", *FAST)
    if run["no_counters"] is None:
        assert all("cycles" in work["counters"] for work in works)
        assert "Events of none at 63:" in text and "Events of cached at 63:" in text
    else:
        assert all(work["counters"] is None for work in works)
        assert "no hardware counters (" in text and "cache misses of these steps: NOT AVAILABLE" in text


def test_read_ceilings_of_the_controls_go_over_what_a_step_reads(run):
    assert run["protocol"]["control_read_bytes"] == pytest.approx(run["points"][-1]["cached"]["bytes"], rel=1e-4)


def test_ratios_are_those_of_the_numbers_beside_them(run):
    for point in run["points"]:
        naive, cached, ms = point["naive"], point["cached"], point["ms"]
        assert point["time_ratio"] == pytest.approx(ms["none"] / ms["paged"], rel=1e-4)
        assert point["flop_ratio"] == pytest.approx(naive["flops"] / cached["flops"], rel=1e-4)
        assert point["byte_ratio"] == pytest.approx(naive["bytes"] / cached["bytes"], rel=1e-4)
        assert point["thrown_away_percent"] == pytest.approx(100 * (1 - cached["flops"] / naive["flops"]), abs=1e-3)
        for work in (naive, cached):
            assert work["flop_per_byte"] == pytest.approx(work["flops"] / work["bytes"], rel=1e-4)


def test_parts_are_within_the_step(run):
    gap = run["gap"]
    assert sum(gap["shares_ms"].values()) <= gap["wall_ms"] * 1.0001
    named = sum(gap["shares_ms"][name] for name in SHARES[:4])
    assert gap["named_percent"] == pytest.approx(100 * named / gap["wall_ms"], rel=1e-3)
    for point in run["points"]:
        for work in (point["naive"], point["cached"]):
            assert sum(work["parts"].values()) <= work["parts_wall_ms"] * 1.0001


def test_the_text_fills_the_context(run):
    """64 positions; the longest context is 63, so that the last token is drawn from all of them."""
    assert [point["context"] for point in run["points"]] == [1, 16, 63]
    text = run["text"]
    assert text["prompt_tokens"] + text["tokens"] == 64
    for total in text["totals"]:
        assert 0 < total["measured_tokens"] <= text["tokens"]
        assert total["measured"] == (total["measured_tokens"] == text["tokens"])
        if total["measured"]:
            assert total["seconds"] == total["measured_tokens_seconds"]
    times = {total["policy"]: total["seconds"] for total in text["totals"]}
    assert text["time_ratio"] == pytest.approx(times["none"] / times["paged"], rel=1e-4)


def test_verdicts_are_words(run):
    for control in run["controls"]:
        assert control["verdict"] in ("holds", "fails", "not shown") and control["why"]
        assert (control["measured"] is None) == (control["verdict"] == "not shown")
    for claim in run["claims"]:
        assert claim["verdict"] in ("confirmed", "true only when", "refuted")
        assert claim["ours"] and bool(claim["when"]) == (claim["verdict"] == "true only when")


def test_one_thread_cannot_show_what_one_thread_does(kvad, run):
    alone = kvad.json("bench", "--synthetic", "tiny", *FAST, "--threads", 1)
    verdicts = {control["id"]: control["verdict"] for control in alone["controls"]}
    assert {verdicts[name] for name in ("one_decode", "one_prefill", "one_wait")} == {"not shown"}
    assert [point["token"] for point in alone["points"]] == [point["token"] for point in run["points"]]


def test_contexts_can_be_chosen(kvad):
    run = kvad.json("bench", "--synthetic", "tiny", *FAST, "--contexts", "30,5")
    assert [point["context"] for point in run["points"]] == [5, 30]
    assert run["text"]["prompt_tokens"] + run["text"]["tokens"] == 31


def test_the_budget_is_the_users(kvad):
    run = kvad.json("bench", "--synthetic", "tiny", *FAST, "--budget", 1, "--contexts", "1,63")
    assert run["protocol"]["budget_seconds"] == 1


def test_models_of_files_are_measured(kvad, nano):
    run = kvad.json("bench", nano, *FAST)
    assert run["model"]["n_ctx"] == 37 and run["points"][-1]["context"] == 36


def test_tables_name_every_policy_control_and_claim(kvad):
    text = kvad.text("bench", "--synthetic", "tiny", *FAST, "--threads", 2)
    assert text.isascii()
    for line in ("none", "grow", "static", "paged", "Controls", "half the layers: the step", "in named parts"):
        assert line in text
    assert text.count("\n   here: ") == len(CLAIMS)
    assert [line[0] for line in text.splitlines() if line[1:3] == '. '] == list("1234567")


@pytest.mark.parametrize("option", ["--prefill=5", "--batch=2", "--cache=none", "--weights=q8", "--kv=q8"])
def test_lists_that_the_experiment_decides_are_refused(kvad, option):
    refuse(kvad, 2, f"{option.split('=')[0]} exclude", option)


def refuse(kvad, code, words, *options):
    result = kvad("bench", "--synthetic", "tiny", *FAST, *options)
    assert result.returncode == code and not result.stdout
    assert words in result.stderr.decode()


def test_contexts_beyond_the_model_are_refused(kvad):
    refuse(kvad, 6, "context 64", "--contexts", "3,64")
    refuse(kvad, 2, "at least two contexts", "--contexts", "3")


def test_an_interrupt_ends_an_experiment(kvad, shakespeare):
    process = kvad.start("bench", shakespeare, "--experiment")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b""
