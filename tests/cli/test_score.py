"""kvad score: the numbers of the references, the same bits on every path, files that NumPy reads."""

import json
import math

import pytest
from conftest import read_npy, read_safetensors

POLICIES = ["none", "grow", "static", "paged"]


def csv(ids):
    return ",".join(map(str, ids))


def rms(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


def log_softmax(row, index):
    most = max(row)
    return row[index] - most - math.log(sum(math.exp(x - most) for x in row))


@pytest.fixture(scope="module", params=["nano", "padded", "bare", "shakespeare"])
def reference(request):
    """(model, tokens, shape and logits in float64, facts)"""
    model = request.getfixturevalue(request.param)
    golden = read_safetensors(model / "golden.safetensors")
    return model, golden["tokens"][1], golden["logits_f64"], json.loads((model / "golden.json").read_text()), golden


def test_logits_and_log_probabilities_are_the_references(kvad, reference, tmp_path):
    model, tokens, (shape, logits), facts, _ = reference
    answer = kvad.json("score", model, "--ids", csv(tokens), "--logits", tmp_path / "logits.npy")
    got_shape, got = read_npy(tmp_path / "logits.npy")
    assert got_shape == shape and rms(got, logits) <= 1.5 * facts["torch_f32_rms_error"]
    assert answer["schema"] == 1 and answer["ids"] == list(tokens) and answer["logprobs"][0] is None
    n = shape[1]
    expected = [log_softmax(logits[(t - 1) * n : t * n], tokens[t]) for t in range(1, len(tokens))]
    assert max(abs(a - b) for a, b in zip(answer["logprobs"][1:], expected)) < 2e-4
    assert answer["perplexity"] == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-5)
    if "perplexity_of_tokens" in facts:
        assert answer["perplexity"] == pytest.approx(facts["perplexity_of_tokens"], rel=1e-5)


def test_hidden_states_are_the_references(kvad, bare, tmp_path):
    golden = read_safetensors(bare / "golden.safetensors")
    shape, hidden = golden["hidden_f64"]
    kvad.text("score", bare, "--ids", csv(golden["tokens"][1]), "--hidden", tmp_path / "hidden.npy")
    got_shape, got = read_npy(tmp_path / "hidden.npy")
    assert got_shape == shape and rms(got, hidden) < 1e-6


# bugs.md SAMP-16, SAMP-17, MASK-2, MASK-3, MASK-6
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 16, 17, 37, 10**6])
def test_every_path_gives_the_same_bits(kvad, nano, policy, chunk, tmp_path):
    tokens = read_safetensors(nano / "golden.safetensors")["tokens"][1]

    def run(name, *options):
        files = [tmp_path / f"{name}-logits", tmp_path / f"{name}-hidden"]
        answer = kvad.json("score", nano, "--ids", csv(tokens), "--logits", files[0], "--hidden", files[1], *options)
        return [answer["logprobs"], *(file.read_bytes() for file in files)]

    threads = 1 + chunk % 3
    assert run("a", "--cache", policy, "--chunk", chunk, "--threads", threads) == run("b")


def test_kernel_levels_give_the_same_bits(kvad, nano, tmp_path):
    tokens = csv(read_safetensors(nano / "golden.safetensors")["tokens"][1])
    levels = kvad.text("--version").splitlines()[1].split(":")[1].split()
    for level in levels:
        kvad.text("score", nano, "--ids", tokens, "--cpu", level, "--logits", tmp_path / level)
    assert len({(tmp_path / level).read_bytes() for level in levels}) == 1


def test_table_shows_every_token(kvad, nano):
    lines = kvad.text("score", nano, "-p", "A\né").splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["0", "33"], ["1", "63"], ["2", "64"]]
    assert lines[1].endswith("-  A") and lines[2].endswith("  \\n") and lines[3].endswith("  é")
    assert lines[-1].startswith("perplexity ")


def test_one_token_has_no_perplexity(kvad, nano):
    answer = kvad.json("score", nano, "-p", "A")
    assert answer["logprobs"] == [None] and answer["perplexity"] is None
    assert "perplexity" not in kvad.text("score", nano, "-p", "A")


@pytest.mark.parametrize("arguments", [["-p", ""], ["--ids", ""], ["-f", "/dev/null"], []])
def test_nothing_to_score_is_a_usage_error(kvad, nano, arguments):
    result = kvad("score", nano, *arguments)
    assert result.returncode == 2 and b"empty" in result.stderr


def test_text_may_be_as_long_as_the_context(kvad, nano):
    assert len(kvad.json("score", nano, "-p", "A" * 37)["logprobs"]) == 37
    for result in (kvad("score", nano, "-p", "A" * 38), kvad("score", nano, "-p", "A" * 38, "--cache", "none")):
        assert result.returncode == 6 and b"38" in result.stderr and b"37" in result.stderr and not result.stdout
    assert kvad("score", nano, "-p", "A" * 11, "--ctx", 10).returncode == 6


def test_id_outside_the_vocabulary_is_refused(kvad, nano):
    result = kvad("score", nano, "--ids", "1,65")
    assert result.returncode == 2 and b"65" in result.stderr


def test_score_and_generate_give_the_same_bits_of_a_log_probability(kvad, shakespeare):
    answer = kvad.json("generate", shakespeare, "-p", "ROMEO:", "-n", 200)
    prompt = answer["prompt_ids"]
    scored = kvad.json("score", shakespeare, "--ids", csv(prompt + answer["ids"]))
    assert scored["logprobs"][len(prompt) :] == answer["logprobs"]
