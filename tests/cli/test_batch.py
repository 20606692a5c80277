"""kvad generate --batch: many prompts at once give what each gives alone."""

import json

import conftest
import pytest

MODEL = conftest.ROOT / "models/shakespeare-char"
START = "ROMEO: But soft, what light through yonder window breaks? It is the east,"


def run(kvad, tmp_path, requests, *arguments):
    path = tmp_path / "batch.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in requests))
    result = kvad("generate", MODEL, "--batch", path, *arguments)
    return result, [json.loads(line) for line in result.stdout.decode().splitlines()]


def alone(kvad, prompt, n, seed=1337):
    answer = kvad.json("generate", MODEL, "-p", prompt, "-n", n, "--seed", seed)
    return answer["ids"], answer["text"], answer["finish_reason"]


def test_a_batch_gives_what_each_prompt_gives_alone_in_the_order_of_the_file(kvad, tmp_path):
    requests = [
        {"prompt": START, "max_tokens": 12},
        {"prompt": START, "max_tokens": 15, "seed": 7},
        "JULIET:",
        {"prompt": START + " and", "max_tokens": 9, "priority": 1},
        {"prompt": START, "max_tokens": 5, "salt": "x"},
    ]
    for memory in ("1M", "16M"):  # with preemptions and without
        result, answers = run(kvad, tmp_path, requests, "-n", 20, "--kv-memory", memory)
        assert result.returncode == 0, result.stderr.decode()
        assert [a["index"] for a in answers] == list(range(len(requests)))
        for request, answer in zip(requests, answers):
            r = request if isinstance(request, dict) else {"prompt": request}
            wanted = alone(kvad, r["prompt"], r.get("max_tokens", 20), r.get("seed", 1337))
            assert (answer["ids"], answer["text"], answer["finish_reason"]) == wanted
    assert answers[1]["cached_tokens"] > 0
    assert answers[4]["cached_tokens"] == 0  # another salt


def test_ids_are_prompts_too_and_sharing_can_be_switched_off(kvad, tmp_path):
    requests = [{"ids": [1] * 40, "max_tokens": 2}] * 3
    _, shared = run(kvad, tmp_path, requests)
    _, apart = run(kvad, tmp_path, requests, "--no-prefix-cache")
    assert [a["ids"] for a in shared] == [a["ids"] for a in apart]
    assert [a["cached_tokens"] for a in apart] == [0, 0, 0]
    assert sum(a["cached_tokens"] for a in shared) > 0
    assert [a["miss"]["reason"] for a in apart] == ["off"] * 3


def test_an_answer_says_why_its_prompt_was_not_found(kvad, tmp_path):
    requests = [
        {"ids": [1] * 40, "max_tokens": 2},
        {"ids": [1] * 36 + [2] * 4, "max_tokens": 2},
        {"ids": [1] * 40, "max_tokens": 2, "salt": "x"},
    ]
    _, answers = run(kvad, tmp_path, requests, "--parallel", 1)
    assert answers[0]["miss"] == {"reason": "cold", "position": 0, "token": 1}
    assert answers[1]["miss"] == {"reason": "differs", "position": 32, "token": 1}
    assert answers[2]["miss"] == {"reason": "salt", "position": 0, "token": 1}
    # Four blocks: each text of four drives the one before out, and is named.
    requests = [{"ids": [i + 1] * 50, "max_tokens": 10} for i in (0, 1, 0)]
    block = 4 * 16 * kvad.json("inspect", MODEL)["kv_bytes_per_token"]
    _, answers = run(kvad, tmp_path, requests, "--parallel", 1, "--kv-memory", block)
    miss = answers[2]["miss"]
    assert (miss["reason"], miss["evicted_for"], miss["position"]) == ("evicted", 1, 0)
    assert miss["evicted_steps"] > 0 and miss["cached_token"] == 2


def test_an_empty_prompt_is_the_default_one_as_without_a_batch(kvad, tmp_path):
    wanted = alone(kvad, "", 5)
    for request in ("", {"prompt": ""}, {"ids": []}):
        result, (answer,) = run(kvad, tmp_path, [request], "-n", 5)
        assert (answer["ids"], answer["text"], answer["finish_reason"]) == wanted
    assert wanted == alone(kvad, "\n", 5)[:1] + wanted[1:]  # as sample.py starts


@pytest.mark.parametrize(
    "line, part, code",
    [
        ("{", "string or '}' expected", 2),
        ('{"prompt": 3}', "wanted a string", 2),
        ('{"prompt": "a", "ids": [1]}', "wanted a string", 2),
        ('{"prompts": "a"}', '"prompts" is unknown: the fields are', 2),
        ('{"prompt": "a", "max_tokens": -1}', "whole numbers", 2),
        ('{"ids": [1, -2]}', "no list", 2),
        ('{"ids": {}}', "no list", 2),
        ('{"ids": null}', "no list", 2),
        ('{"prompt": "a", "salt": 1}', "salt", 2),
        ('{"prompt": "a", "salt": "x\\u0000y"}', "salt", 2),
        ("[]", "wanted a string", 2),
        ("7", "wanted a string", 2),
        # What only the tokenizer or the engine can know is refused by its line too.
        ('"\u2603"', "U+2603", 2),
        ('"a\\u0000"', "U+0000", 2),
        ('{"ids": [1, 65]}', "outside the vocabulary of 65", 2),
        ('{"ids": [' + "1," * 1025 + "1]}", "the context 1024", 6),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(kvad, tmp_path, line, part, code):
    path = tmp_path / "bad.jsonl"
    path.write_text('"ROMEO:"\n\n' + line + "\n")
    result = kvad("generate", MODEL, "--batch", path)
    said = result.stderr.decode()
    assert said.startswith(f"kvad: {path}, line 3: ") and said.count("\n") == 1, said
    assert part in said and result.returncode == code, (result.returncode, said)
    assert result.stdout == b""


def test_a_prompt_without_a_tokenizer_is_refused_by_its_line(kvad, bare, tmp_path):
    path = tmp_path / "batch.jsonl"
    path.write_text('{"ids": [1]}\n"a"\n')
    result = kvad("generate", bare, "--batch", path)
    assert result.returncode == 2
    assert f"{path}, line 2: the model has no tokenizer" in result.stderr.decode()


def test_an_empty_batch_and_mixed_prompts_are_usage_errors(kvad, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n\n")
    result = kvad("generate", MODEL, "--batch", path)
    assert result.returncode == 2 and f"{path}: holds no prompt" in result.stderr.decode()
    path.write_text('"a"\n')
    assert kvad("generate", MODEL, "--batch", path, "-p", "x").returncode == 2
    assert kvad("generate", MODEL, "-p", "x", "--show-cache").returncode == 2


def test_a_request_that_can_never_fit_is_refused_before_anything_is_written(kvad, tmp_path):
    requests = ["a", {"prompt": START, "max_tokens": 180}]
    result, answers = run(kvad, tmp_path, requests, "-n", 4, "--kv-memory", "400K")
    assert result.returncode != 0
    assert answers == []
    assert b"line 2: " in result.stderr and b"KV blocks" in result.stderr


def test_show_cache_draws_every_block_and_ends_with_an_idle_cache(kvad, tmp_path):
    result, answers = run(kvad, tmp_path, [START] * 4, "-n", 8, "--show-cache", "--kv-memory", "2M")
    assert len(answers) == 4
    lines = [line for line in result.stderr.decode().splitlines() if line.startswith("[")]
    pictures = [line[1 : line.index("]")] for line in lines]
    assert len({len(p) for p in pictures}) == 1
    assert any("4" in p for p in pictures)  # four samples hold one block
    assert set(pictures[-1]) <= set(".o") and "o" in pictures[-1]
    assert "0 running 0 waiting" in lines[-1]
    said = result.stderr.decode()
    for sign in (". free", "o idle", "1 to 9 held by", "live:", "shared:", "found:", "evicted", "copied", "preempted:"):
        assert said.index(sign) < said.index("["), sign  # before the first picture, once
    assert said.count("a sign is a block") == 1
