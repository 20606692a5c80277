"""kvad verify: a right program passes every check, the names that scripts rely on, refusals."""

import signal
import time

import pytest

CHECKS = """reference order classic cached chunks policies blocks batch threads levels rollback poison fork mixture
prefix preemption traffic greedy""".split()


@pytest.fixture(scope="module")
def nano_run(kvad, nano):
    return kvad.json("verify", nano)


def test_json_has_the_promised_names(nano_run, nano):
    assert nano_run["schema"] == 1 and nano_run["level"] == "quick" and nano_run["seed"] == 1
    assert nano_run["machine"]["cores"] >= 1 and nano_run["engine"]["threads"] >= 1
    assert nano_run["model"]["name"] == str(nano) and nano_run["model"]["weights"] == "f32"
    assert nano_run["kv"] == "f32" and nano_run["tokens"] == 37 and nano_run["seconds"] > 0
    for check in nano_run["checks"]:
        assert {"name", "compares", "verdict", "compared", "seconds", "case", "text", "difference"} <= set(check)
        # The context of 37 tokens has no room for the traffic of three blocks.
        assert check["verdict"] == ("skip" if check["name"] == "traffic" else "pass")
        assert (check["compared"] > 0) == (check["verdict"] == "pass") and check["difference"] is None
    assert nano_run["failed"] == 0 and nano_run["skipped"] == 1
    assert nano_run["passed"] == len(nano_run["checks"]) - 1
    assert CHECKS == [check["name"] for check in nano_run["checks"]]


def test_errors_by_layer_lie_within_the_bound(nano_run):
    reference = nano_run["reference"]
    assert len(reference["layers"]) == nano_run["model"]["n_layers"] + 1
    for error in [*reference["layers"], reference["logits"]]:
        assert 0 < error["rms"] <= reference["bound"]["rms"]
        assert error["rms"] <= error["max"] <= reference["bound"]["max"]


def test_the_shipped_model_passes(kvad, shakespeare):
    text = kvad.text("verify", shakespeare, "--checks", "reference,cached,chunks,batch,rollback,prefix")
    assert "6 passed, 0 failed, 0 not applicable" in text and "layer 6, final norm" in text
    for name in ("reference", "cached", "chunks", "batch", "rollback", "prefix"):
        assert f"\n{name:11} pass " in text


@pytest.mark.parametrize("types", [["--weights", "q8"], ["--weights", "q4", "--kv", "q8"], ["--kv", "f16"]])
def test_other_types_pass(kvad, nano, types):
    run = kvad.json("verify", nano, "--checks", "reference,order,policies,fork,poison", *types)
    assert run["passed"] == 5
    assert run["reference"]["logits"]["rms"] > 1e-6  # they do round


def test_only_the_listed_checks_run_in_the_order_of_the_report(kvad, nano):
    run = kvad.json("verify", nano, "--checks", "fork,chunks")
    assert [check["name"] for check in run["checks"]] == ["chunks", "fork"] and run["reference"] is None


def test_every_check_can_be_chosen_by_its_name(kvad, nano, nano_run):
    for name in (check["name"] for check in nano_run["checks"]):
        run = kvad.json("verify", nano, "--checks", name)
        assert [check["name"] for check in run["checks"]] == [name]


def test_the_seed_changes_the_texts_and_nothing_else(kvad, nano, nano_run):
    runs = [kvad.json("verify", nano, "--seed", seed, "--checks", "reference") for seed in (1, 2)]
    assert runs[0]["reference"] == nano_run["reference"] != runs[1]["reference"]
    assert runs[1]["passed"] == 1


def test_threads_and_level_are_those_asked_for(kvad, nano):
    run = kvad.json("verify", nano, "--threads", 3, "--cpu", "portable", "--checks", "cached")
    assert run["engine"] == {"cpu": "portable", "threads": 3} and run["passed"] == 1


def test_full_compares_more(kvad, nano, nano_run):
    full = kvad.json("verify", nano, "--full", "--checks", "cached")
    quick = next(check for check in nano_run["checks"] if check["name"] == "cached")
    assert full["level"] == "full" and full["checks"][0]["compared"] > quick["compared"]


def test_a_context_without_room_is_not_a_failure(kvad):
    from conftest import tiny

    run = kvad.json("verify", tiny("hf-gpt2/one-token-context"))
    assert run["failed"] == 0 and run["skipped"] == 3
    for check in run["checks"]:
        assert check["verdict"] == "pass" or "context" in check["text"]


def test_refusals(kvad, nano, tmp_path):
    for arguments, code, words in [
        (["verify"], 2, "MODEL"),
        (["verify", nano, "--quick", "--full"], 2, "exclude"),
        (["verify", nano, "--checks", "forks"], 2, "forks"),
        (["verify", tmp_path], 3, "no weights"),
    ]:
        result = kvad(*arguments)
        assert result.returncode == code and words in result.stderr.decode() and not result.stdout


def test_nothing_but_the_result_is_written(kvad, nano):
    result = kvad("verify", nano, "--checks", "chunks", "--json", "-q")
    assert result.returncode == 0 and not result.stderr and result.stdout.count(b"\n") == 1


def test_an_interrupt_ends_it(kvad, shakespeare):
    process = kvad.start("verify", shakespeare, "--full")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and not out
