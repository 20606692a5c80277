"""kvad score --against: what a type costs, compared row by row with the same model in another type."""

import pytest

MODEL = "models/shakespeare-char"
TEXT = "First Citizen: Before we proceed any further, hear me speak."


@pytest.mark.parametrize("weights", ["f32", "bf16", "f16", "q8", "q4"])
def test_a_type_against_itself_costs_nothing(kvad, weights):
    got = kvad.json("score", MODEL, "-p", TEXT, "--weights", weights, "--against", weights)["against"]
    assert got["top1_agreement"] == 1 and got["logit_max_error"] == 0 and got["kl_max"] == 0
    assert got["rows"] == len(TEXT) and got["weights"] == weights


@pytest.mark.parametrize("weights, most", [("bf16", 0.2), ("f16", 0.03), ("q8", 1), ("q4", 10)])
def test_smaller_types_cost_more(kvad, weights, most):
    """The bounds are about three times what was measured on the shipped model."""
    got = kvad.json("score", MODEL, "-p", TEXT, "--weights", weights, "--against", "f32")
    against = got["against"]
    assert against["weights"] == "f32"
    assert 0 < against["logit_rms_error"] <= against["logit_max_error"] < most
    assert 0 < against["kl_mean"] <= against["kl_max"]
    plain = kvad.json("score", MODEL, "-p", TEXT)
    assert against["perplexity"] == plain["perplexity"]


def test_the_cache_type_is_part_of_the_cost(kvad):
    got = kvad.json("score", MODEL, "-p", TEXT, "--kv", "q8", "--against", "f32")["against"]
    assert got["logit_max_error"] > 0


def test_every_path_compares_the_same(kvad):
    ask = ["score", MODEL, "-p", TEXT, "--weights", "q4", "--against", "f32"]
    whole = kvad.json(*ask)["against"]
    assert kvad.json(*ask, "--chunk", 7)["against"] == whole
    assert kvad.json(*ask, "--cache", "none")["against"] == whole


def test_the_table_says_it_in_one_line(kvad):
    last = kvad.text("score", MODEL, "-p", TEXT, "--weights", "q8", "--against", "f32").splitlines()[-1]
    assert last.startswith("against f32:") and "KL" in last


def test_one_token_has_no_perplexity_on_either_side(kvad):
    ask = ["score", MODEL, "-p", "R", "--weights", "q8", "--against", "f32"]
    last = kvad.text(*ask).splitlines()[-1]
    assert last.startswith("against f32: same likeliest token in ") and "nan" not in last
    assert kvad.json(*ask)["against"]["perplexity"] is None


def test_a_packed_file_has_one_type_to_compare(kvad, tmp_path):
    """The reason names the option and the way out, before anything is computed."""
    packed = tmp_path / "packed.kvad"
    kvad.text("pack", MODEL, "--weights", "q8", "-o", packed)
    assert kvad.json("score", packed, "-p", TEXT, "--against", "q8")["against"]["kl_max"] == 0
    refused = kvad("score", packed, "-p", TEXT, "--against", "f32")
    assert refused.returncode == 4 and not refused.stdout and len(refused.stderr.splitlines()) == 1
    assert b"--against f32" in refused.stderr and b"--weights q8" in refused.stderr
