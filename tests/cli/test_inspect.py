"""kvad inspect and the exit codes of models that cannot be used."""

import json
import pathlib
import resource
import shutil

import pytest


def test_file_tells_its_shape_and_cost(kvad, shakespeare):
    answer = kvad.json("inspect", shakespeare)
    expected = {"schema": 1, "family": "nanogpt", "n_layers": 6, "n_heads": 6, "head_dim": 32, "d_model": 192}
    expected.update({"n_vocab": 65, "n_tokens": 65, "n_ctx": 1024, "head_tied": True, "has_bias": False, "eos": -1})
    assert {key: answer[key] for key in expected} == expected
    assert answer["n_parameters"] == 2865792
    assert answer["kv_bytes_per_token"] == 2 * 4 * 6 * 192
    assert answer["kv_bytes_context"] == 1024 * answer["kv_bytes_per_token"]


def test_table_says_the_same_for_people(kvad, shakespeare):
    text = kvad.text("inspect", shakespeare)
    for part in ("nanogpt", "2865792", "1024 tokens", "9.00 KiB (9216 bytes) in f32", "9.00 MiB", "tied"):
        assert part in text


def test_weights_of_another_type_cost_less(kvad, shakespeare):
    sizes = {w: kvad.json("inspect", shakespeare, "--weights", w) for w in ("f32", "bf16", "f16", "q8", "q4")}
    assert all(answer["weights"] == w for w, answer in sizes.items())
    n = [sizes[w]["weight_bytes"] for w in ("f32", "f16", "q8", "q4")]
    assert n == sorted(n, reverse=True) and len(set(n)) == 4 and sizes["bf16"]["weight_bytes"] == n[1]


def test_folder_and_file_are_the_same_model(kvad, nano):
    assert kvad.json("inspect", nano) == kvad.json("inspect", nano / "ckpt.pt")


def test_vocabulary_and_tokenizer_may_differ(kvad, padded):
    answer = kvad.json("inspect", padded)
    assert answer["n_vocab"] == 128 and answer["n_tokens"] in (65, 128)


def test_activation_can_be_overridden(kvad, nano):
    assert kvad.json("inspect", nano)["activation"] == "gelu-erf"
    assert kvad.json("inspect", nano, "--activation", "gelu-tanh")["activation"] == "gelu-tanh"
    erf = kvad.json("score", nano, "-p", "ABC")["logprobs"]
    assert kvad.json("score", nano, "-p", "ABC", "--activation", "gelu-tanh")["logprobs"] != erf


def test_heads_are_asked_for_where_the_file_does_not_say(kvad, headless):
    for command in ("inspect", "generate"):
        result = kvad(command, headless, *(["--ids", "1"] if command == "generate" else []))
        assert result.returncode in (2, 4) and b"--n-head" in result.stderr
    n_embd = None
    for n in (1, 2, 3, 4, 5, 6):
        result = kvad("inspect", headless, "--n-head", n, "--json")
        if result.returncode == 0:
            answer = json.loads(result.stdout)
            assert answer["n_heads"] == n and answer["d_model"] == n * answer["head_dim"]
            n_embd = answer["d_model"]
    assert n_embd
    refused = kvad("inspect", headless, "--n-head", 4095)
    assert refused.returncode in (2, 3) and b"4095" in refused.stderr


def test_loading_is_told_when_asked(kvad, nano):
    assert kvad("generate", nano, "-p", "A", "-n", 1).stderr == b""
    assert kvad("generate", nano, "-p", "A", "-n", 1, "-v").stderr


# ---------------------------------------------------------------- exit codes


def test_absent_model_is_code_3(kvad):
    for command in ("generate", "score", "tokenize", "inspect"):
        result = kvad(command, "no-such-model", *([] if command == "inspect" else ["-p", "A"]))
        assert result.returncode == 3 and b"no-such-model" in result.stderr and not result.stdout


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04", b"\x80\x02.", b"{}", b"\0" * 4096])
@pytest.mark.parametrize("name", ["ckpt.pt", "model.safetensors", "pytorch_model.bin", "model"])
def test_broken_model_is_code_3_or_4_and_named(kvad, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for command in (["inspect"], ["generate", "-p", "A"], ["tokenize", "-p", "A"]):
        result = kvad(command[0], tmp_path / name, *command[1:])
        assert result.returncode in (3, 4) and name.encode() in result.stderr and not result.stdout
        assert result.stderr.count(b"\n") == 1


def test_truncated_model_is_code_3(kvad, nano, tmp_path):
    data = (nano / "ckpt.pt").read_bytes()
    for size in (1, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "ckpt.pt").write_bytes(data[:size])
        assert kvad("inspect", tmp_path / "ckpt.pt").returncode == 3


def test_model_of_another_kind_is_code_4(kvad, bare, tmp_path):
    shutil.copytree(bare, tmp_path / "model")
    config = json.loads((bare / "config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    result = kvad("inspect", tmp_path / "model")
    assert result.returncode == 4 and b"llama" in result.stderr


# bugs.md GROW-7
def test_cache_memory_below_the_text_is_code_5(kvad, nano):
    block = 16 * kvad.json("inspect", nano)["kv_bytes_per_token"]
    result = kvad("generate", nano, "-p", "A" * 20, "-n", 10, "--kv-memory", block)
    assert result.returncode == 5 and not result.stdout and result.stderr
    assert kvad("generate", nano, "-p", "A", "--kv-memory", block - 1).returncode == 5


def test_short_memory_is_code_5(kvad, shakespeare):
    if b"__asan_init" in pathlib.Path(kvad.path).read_bytes():
        pytest.skip("a sanitizer needs the address space for itself")
    line = ["generate", shakespeare, "-p", "A", "-n", 2, "--samples", 8, "--cache", "static", "--threads", 1]
    limit = 90 << 20
    result = kvad(*line, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert result.returncode == 5 and b"out of memory" in result.stderr


def test_a_missing_tokenizer_is_said_once_and_only_where_it_matters(kvad, bare):
    for line, n, code in (
        (["generate", bare, "-p", "x"], 1, 3),
        (["score", bare, "-p", "x"], 1, 3),
        (["tokenize", bare, "x"], 1, 3),
        (["generate", bare, "-n", 2], 1, 0),
        (["generate", bare, "-n", 2, "-q"], 0, 0),
        (["score", bare, "--ids", "1,2"], 0, 0),
        (["inspect", bare], 0, 0),
    ):
        result = kvad(*line)
        said = result.stderr.decode().splitlines()
        assert (len(said), result.returncode) == (n, code), (line, said)
        assert n == 0 or "no tokenizer was found" in said[0] and "--tokenizer" in said[0]
    assert "none: token ids only" in kvad.text("inspect", bare)
    assert kvad.json("inspect", bare)["has_tokenizer"] is False


def test_a_packed_file_may_be_read_instead_of_mapped(kvad, shakespeare, tmp_path):
    packed = tmp_path / "m.kvad"
    kvad.text("pack", shakespeare, "-o", packed, "-q")
    wanted = kvad.text("generate", packed, "-p", "A", "-n", 9)
    assert kvad.text("generate", packed, "-p", "A", "-n", 9, "--no-map") == wanted
    assert "tokenizer       found" in kvad.text("inspect", packed)
