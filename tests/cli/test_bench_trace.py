"""kvad bench --trace: the names that scripts rely on, and what must hold on any machine, however busy."""

import json

import pytest

QUICK = ["--synthetic", "tiny", "--trace", "--quick", "--repeat", "1"]
PLACES = ["live", "later", "never", "remainder", "copies", "free"]


@pytest.fixture(scope="module")
def tiny(kvad):
    return kvad.json("bench", *QUICK, "--kv-memory", "128K")


def test_json_has_the_promised_names(tiny):
    assert tiny["schema"] == 1 and tiny["void"] is None and tiny["model"] == "tiny"
    assert tiny["budget_bytes"] == 128 << 10 and tiny["token_bytes"] == 1024 and tiny["block_tokens"] == 16
    assert tiny["trace"]["requests"] == 12 and tiny["trace"]["longest"] <= 64
    assert [p["policy"] for p in tiny["policies"]] == ["grow", "static", "paged"]
    for p in tiny["policies"]:
        assert list(p["percent_of_budget"]) == PLACES
        assert abs(sum(p["percent_of_budget"].values()) - 100) < 0.01
        assert p["output_tokens"] == tiny["trace"]["output_tokens"] and p["refused"] == 0
        assert 0 < p["mean_in_flight"] <= p["max_in_flight"] and p["tokens_per_s"] > 0
    padded = tiny["padded"]
    assert padded["padded_rows"] > padded["ragged_rows"] and padded["padded_flops"] > padded["ragged_flops"]
    assert padded["measured_batches"] == 1 and padded["padded_seconds"] > 0 and padded["ragged_seconds"] > 0
    prefix = tiny["prefix"]
    assert (prefix["tokens_off"], prefix["tokens_on"]) == (16 * 48, 32 + 16 * 16)
    assert [o["sequences"] for o in tiny["overheads"]] == [1, 4, 16]
    assert all(o["step_us"] > o["forward_us"] > 0 for o in tiny["overheads"])


def test_static_holds_two_contexts_and_paging_more_requests(tiny):
    grow, static, paged = tiny["policies"]
    assert static["max_in_flight"] == 2 < paged["max_in_flight"]
    assert paged["steps"] < static["steps"] and paged["waste_percent"] < static["waste_percent"]
    assert grow["copied_bytes"] > 0 == paged["copied_bytes"] == static["copied_bytes"]
    assert paged["percent_of_budget"]["never"] == 0 < static["percent_of_budget"]["never"]


def test_what_is_counted_does_not_depend_on_the_machine(kvad, tiny):
    """Threads and levels change times alone; a seed changes the trace."""
    def counts(run):
        names = ("steps", "max_in_flight", "percent_of_budget", "preemptions", "copied_bytes")
        return [[p[n] for n in names] for p in run["policies"]]

    same = kvad.json("bench", *QUICK, "--kv-memory", "128K", "--threads", 3, "--cpu", "portable")
    assert counts(same) == counts(tiny)
    assert counts(kvad.json("bench", *QUICK, "--kv-memory", "128K", "--seed", 2)) != counts(tiny)


def test_a_trace_comes_from_a_file(kvad, tmp_path):
    lines = [{"prompt_tokens": 3, "output_tokens": 5}, {"prompt_tokens": 7, "output_tokens": 2, "arrival": 100}]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = kvad.json("bench", *QUICK, "--trace-file", path)
    assert run["trace"] == {"requests": 2, "prompt_tokens": 10, "output_tokens": 7, "longest": 9}
    assert [p["max_in_flight"] for p in run["policies"]] == [1, 1, 1]
    assert [p["steps"] for p in run["policies"]] == [7, 7, 7]
    assert run["padded"]["padded_rows"] == 22 and run["padded"]["ragged_rows"] == 15
    path.write_text('{"prompt_tokens": 3, "output_tokens": 500}\n')
    result = kvad("bench", *QUICK, "--trace-file", path)
    assert result.returncode == 6 and b"trace.jsonl, line 1" in result.stderr


def test_tables_are_for_people(kvad):
    text = kvad.text("bench", *QUICK)
    for part in ("in flight", "remainder", "padded", "in common", "beside its forward pass", "vLLM"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 90


@pytest.mark.parametrize(
    "option",
    ["--contexts=5", "--prefill=5", "--batch=2", "--cache=none", "--weights=f32,q8", "--kv=f32,q8", "--experiment"],
)
def test_what_a_trace_would_ignore_is_refused(kvad, option):
    result = kvad("bench", *QUICK, option)
    assert result.returncode == 2 and result.stdout == b""
    said = result.stderr.decode()
    assert "exclude each other" in said and option.split("=")[0] in said


def test_what_cannot_be_run_is_refused_in_one_line(kvad, nano):
    for arguments, code, part in (
        (["--synthetic", "tiny", "--trace-file", "x"], 2, "needs --trace"),
        ([*QUICK, "--experiment"], 2, "exclude each other"),
        ([*QUICK, "--trace-file", "/nowhere"], 1, "/nowhere"),
        ([*QUICK, "--kv-memory", "1K"], 5, "static"),
        ([nano, "--trace", "--quick"], 2, "64"),
    ):
        result = kvad("bench", *arguments)
        assert result.returncode == code and result.stdout == b"", result.stderr
        assert part in result.stderr.decode() and result.stderr.count(b"\n") <= 2
