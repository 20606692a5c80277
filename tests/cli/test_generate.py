"""kvad generate: what it writes, and that neither cache, threads nor kernels change it."""

import json
import re

import pytest
from conftest import read_safetensors

POLICIES = ["none", "grow", "static", "paged"]
GREEDY = ["--temperature", "0"]


def csv(ids):
    return ",".join(map(str, ids))


# ---------------------------------------------------------------- the shape of the answer


def test_text_is_prompt_and_continuation(kvad, shakespeare):
    line = [shakespeare, "-p", "ROMEO:", "-n", "20"]
    text = kvad.json("generate", *line)["text"]
    assert len(text) == 20
    assert kvad.text("generate", *line) == "ROMEO:" + text and kvad.text("generate", *line, "--no-echo") == text


def test_json_has_the_promised_names(kvad, shakespeare):
    answer = kvad.json("generate", shakespeare, "-p", "To be", "-n", 4)
    assert answer["schema"] == 1 and answer["finish_reason"] == "length"
    assert len(answer["prompt_ids"]) == 5 and len(answer["ids"]) == len(answer["logprobs"]) == 4
    assert all(p < 0 for p in answer["logprobs"])
    assert answer["cache"]["policy"] == "paged" and answer["cache"]["bytes"] == 16 * answer["cache"]["bytes_per_token"]
    assert {"load_ms", "prefill_ms", "decode_ms", "decode_ms_per_token"} <= set(answer["timings"])
    assert set(answer) >= {"prompt_ids", "ids", "text", "timings", "cache", "engine", "seed"}


def test_quiet_is_silent_and_verbose_tells_times(kvad, shakespeare):
    line = ["generate", shakespeare, "-p", "To be", "-n", 4]
    assert not kvad(*line, "-q", "-v").stderr and not kvad(*line).stderr
    said = kvad(*line, "-v").stderr
    assert b"tokens/s" in said and b"; decode 3 tokens" in said
    assert b"decode" not in kvad("generate", shakespeare, "-p", "To be", "-n", 1, "-v").stderr


def test_verbose_tells_threads_kernels_and_pages(kvad, shakespeare):
    said = kvad("generate", shakespeare, "-p", "To be", "-n", 1, "-v", "--threads", 1, "--cpu", "portable").stderr
    assert b"engine: 1 threads, portable kernels" in said
    pages = rb"weights: 10\.9 MiB; \d+\.\d MiB of the process in huge pages \(the system's setting: \w+\)"
    assert re.search(pages, said)


def test_output_goes_to_a_file(kvad, shakespeare, tmp_path):
    line = ["generate", shakespeare, "-p", "To be", "-n", 9]
    assert kvad.text(*line, "-o", tmp_path / "out") == ""
    assert (tmp_path / "out").read_text() == kvad.text(*line)
    assert kvad(*line, "-o", tmp_path / "none" / "out").returncode == 1


# ---------------------------------------------------------------- prompts


def test_prompt_comes_from_text_file_pipe_or_ids(kvad, nano, tmp_path):
    """nano has 'é': two bytes, one id."""
    (tmp_path / "prompt").write_text("CAFé\n")
    ids = kvad.json("tokenize", nano, "CAFé\n")["ids"]
    assert len(ids) == 5
    ways = [
        kvad.json("generate", nano, "-n", 8, "-p", "CAFé\n"),
        kvad.json("generate", nano, "-n", 8, "-f", tmp_path / "prompt"),
        kvad.json("generate", nano, "-n", 8, "-f", "-", stdin="CAFé\n".encode()),
        kvad.json("generate", nano, "-n", 8, stdin="CAFé\n".encode()),
        kvad.json("generate", nano, "-n", 8, "--ids", csv(ids)),
    ]
    assert all(way["prompt_ids"] == ids and way["ids"] == ways[0]["ids"] for way in ways)
    assert kvad.text("generate", nano, "-n", 0, "--ids", csv(ids)) == "CAFé\n"


# bugs.md SERV-13
@pytest.mark.parametrize("arguments", [[], ["-p", ""], ["--ids", ""], ["-f", "/dev/null"]])
def test_empty_prompt_starts_from_a_newline_or_the_end_of_text(kvad, nano, bare, arguments):
    answer = kvad.json("generate", nano, "-n", 3, *arguments)
    assert answer["prompt_ids"] == kvad.json("tokenize", nano, "\n")["ids"] and len(answer["ids"]) == 3
    assert kvad.json("generate", bare, "-n", 3, *arguments)["prompt_ids"] == [0]


# bugs.md SERV-9
@pytest.mark.parametrize("ids", ["65", "70", "2147483647", "1,2,66"])
def test_ids_outside_the_vocabulary_are_refused(kvad, nano, ids):
    for arguments in (["--ids", ids], ["--ids", ids, "-vv"], ["--ids", ids, "--json"]):
        result = kvad("generate", nano, *arguments)
        assert result.returncode == 2 and not result.stdout
        assert ids.split(",")[-1].encode() in result.stderr and b"65" in result.stderr


def test_character_outside_the_vocabulary_is_named(kvad, nano):
    result = kvad("generate", nano, "-p", "AB€")
    assert result.returncode == 2 and "€".encode() in result.stderr and b"2" in result.stderr


def test_model_without_a_tokenizer_writes_ids(kvad, bare):
    answer = kvad.json("generate", bare, "--ids", "5,6", "-n", 4, "--ignore-eos")
    assert answer["text"] == ""
    text = kvad.text("generate", bare, "--ids", "5,6", "-n", 4, "--no-echo", "--ignore-eos")
    assert text == " ".join(map(str, answer["ids"])) + "\n"
    refused = kvad("generate", bare, "-p", "text")
    assert refused.returncode == 3 and b"--tokenizer" in refused.stderr and b"--ids" in refused.stderr


def test_space_at_the_end_is_warned_of_on_bpe_models_alone(kvad, bytes_model, nano, tmp_path):
    model, tokenizer = bytes_model
    line = ["-n", 1, "-p", "AB "]
    assert b"ends with a space" not in kvad("generate", nano, *line).stderr
    assert b"ends with a space" not in kvad("generate", model, "--tokenizer", tokenizer, *line).stderr
    vocabulary = json.loads((tokenizer / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps({**vocabulary, "Ġt": 256}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ t\n")
    assert b"ends with a space" in kvad("generate", model, "--tokenizer", tmp_path, *line).stderr
    assert not kvad("generate", model, "--tokenizer", tmp_path, *line, "-q").stderr


# ---------------------------------------------------------------- the same text on every path


# bugs.md POS-5
@pytest.mark.parametrize("policy", POLICIES)
def test_cache_policy_changes_nothing(kvad, shakespeare, policy):
    line = ["generate", shakespeare, "-p", "KING", "-n", 60, "--samples", 3]
    expected, answer = kvad.json(*line), kvad.json(*line, "--cache", policy)
    assert answer["samples"] == expected["samples"] and answer["cache"]["policy"] == policy


# bugs.md DET-5
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(kvad, shakespeare, threads):
    line = ["generate", shakespeare, "-p", "KING", "-n", 60]
    answer = kvad.json(*line, "--threads", threads)
    assert answer["engine"]["threads"] == threads
    assert (answer["ids"], answer["logprobs"]) == tuple(kvad.json(*line)[key] for key in ("ids", "logprobs"))


def test_kernel_levels_change_nothing(kvad, shakespeare):
    levels = kvad.text("--version").splitlines()[1].split(":")[1].split()
    line = ["generate", shakespeare, "-p", "KING", "-n", 30]
    answers = [kvad.json(*line, "--cpu", level) for level in levels]
    assert [a["engine"]["cpu"] for a in answers] == levels
    assert all(a["ids"] == answers[0]["ids"] and a["logprobs"] == answers[0]["logprobs"] for a in answers)


def test_kernel_level_of_another_machine_is_refused(kvad, nano):
    levels = kvad.text("--version")
    absent = next(level for level in ("neon", "avx2") if level not in levels)
    result = kvad("generate", nano, "-p", "A", "--cpu", absent)
    assert result.returncode in (2, 4) and absent.encode() in result.stderr


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
def test_block_size_changes_nothing(kvad, shakespeare, block):
    line = ["generate", shakespeare, "-p", "KING", "-n", 40]
    answer = kvad.json(*line, "--block", block)
    assert answer["ids"] == kvad.json(*line)["ids"] and answer["cache"]["block_tokens"] == block


def test_greedy_tokens_are_the_references(kvad, shakespeare):
    golden = read_safetensors(shakespeare / "golden.safetensors")
    for name, count in (("greedy", 200), ("greedy1016", 1016)):
        prompt, expected = golden[f"{name}_prompt"][1], golden[name][1]
        answer = kvad.json("generate", shakespeare, "--ids", csv(prompt), "-n", count, *GREEDY)
        assert tuple(answer["ids"]) == expected and answer["finish_reason"] == "length"


def test_sliding_window_gives_the_references(kvad, nano):
    golden = read_safetensors(nano / "golden.safetensors")
    prompt, expected = golden["greedy_prompt"][1], golden["greedy"][1]
    line = ["generate", nano, "--ids", csv(prompt), "-n", len(expected), "--on-overflow", "recompute", *GREEDY]
    for policy in POLICIES:
        assert tuple(kvad.json(*line, "--cache", policy)["ids"]) == expected


# bugs.md SAMP-9
@pytest.mark.parametrize("temperature", ["0", "-0.0", "1e-45", "1e-9"])
def test_no_temperature_is_greedy(kvad, nano, temperature):
    line = ["generate", nano, "-p", "AB", "-n", 20]
    greedy = kvad.json(*line, "--top-k", 1, "--top-k-rule", "rank")["ids"]
    assert kvad.json(*line, "--temperature", temperature)["ids"] == greedy


# ---------------------------------------------------------------- lengths and limits


# bugs.md SERV-20, SERV-27
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_number_of_tokens_is_exact(kvad, nano, n):
    answer = kvad.json("generate", nano, "-p", "AB", "-n", n)
    assert len(answer["ids"]) == n and answer["finish_reason"] == "length"


# bugs.md GROW-2, GROW-3, GROW-8, GROW-14
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n_prompt", [35, 36, 37])
def test_generation_ends_at_the_context(kvad, nano, n_prompt, policy):
    answer = kvad.json("generate", nano, "-p", "A" * n_prompt, "-n", 2**31 - 1, "--cache", policy)
    assert len(answer["ids"]) == 37 - n_prompt and answer["finish_reason"] == "length"


@pytest.mark.parametrize("n_prompt", [38, 370])
def test_prompt_longer_than_the_context_is_an_error_with_both_numbers(kvad, nano, n_prompt):
    result = kvad("generate", nano, "-p", "A" * n_prompt)
    assert result.returncode == 6 and not result.stdout
    assert str(n_prompt).encode() in result.stderr and b"37" in result.stderr


def test_own_context_limit_counts(kvad, nano):
    assert len(kvad.json("generate", nano, "-p", "A" * 9, "--ctx", 10)["ids"]) == 1
    assert kvad("generate", nano, "-p", "A" * 11, "--ctx", 10).returncode == 6
    refused = kvad("generate", nano, "-p", "A", "--ctx", 38)
    assert refused.returncode == 2 and b"38" in refused.stderr and b"37" in refused.stderr


def test_recompute_says_what_it_drops_and_sees_the_last_tokens(kvad, nano):
    long, last = "AB" * 30, ("AB" * 30)[-37:]
    line = ["generate", nano, "-n", 5, "--on-overflow", "recompute", "--json"]
    result = kvad(*line, "-p", long)
    assert result.returncode == 0 and b"60 tokens" in result.stderr and b"last 37" in result.stderr
    assert json.loads(result.stdout)["ids"] == json.loads(kvad(*line, "-p", last).stdout)["ids"]


def test_overflow_can_be_an_error_that_keeps_the_text(kvad, nano):
    line = ["generate", nano, "-p", "A" * 35, "-n", 9, "--on-overflow", "error"]
    text, answer = kvad(*line), kvad(*line, "--json")
    assert text.returncode == answer.returncode == 6 and b"37" in text.stderr
    parsed = json.loads(answer.stdout)
    assert parsed["finish_reason"] == "error" and len(parsed["ids"]) == 2 and "37" in parsed["error"]
    assert text.stdout.decode() == "A" * 35 + parsed["text"]


def test_small_cache_memory_runs_samples_one_after_another(kvad, nano):
    line = ["generate", nano, "-p", "AB", "-n", 10, "--samples", 5]
    per_token = kvad.json("inspect", nano)["kv_bytes_per_token"]
    small = kvad.json(*line, "--kv-memory", 16 * per_token)
    assert small["samples"] == kvad.json(*line)["samples"] and small["cache"]["bytes"] == 16 * per_token


# ---------------------------------------------------------------- sampling


# bugs.md DET-2
def test_seed_makes_the_text(kvad, shakespeare):
    def text(seed):
        return kvad.json("generate", shakespeare, "-p", "A", "-n", 40, "--seed", seed)["text"]

    assert text(1) == text(1) and len({text(seed) for seed in range(4)}) == 4
    assert text(1337) == kvad.json("generate", shakespeare, "-p", "A", "-n", 40)["text"]


# bugs.md SAMP-15
def test_samples_differ_and_each_can_be_made_again(kvad, shakespeare):
    line = ["generate", shakespeare, "-p", "A", "-n", 30]
    samples = kvad.json(*line, "--samples", 11)["samples"]
    assert len({s["text"] for s in samples}) == 11 and [s["index"] for s in samples] == list(range(11))
    assert [s["text"] for s in kvad.json(*line, "--samples", 4)["samples"]] == [s["text"] for s in samples[:4]]
    for index in (0, 1, 9):
        assert kvad.json(*line, "--sample-index", index)["text"] == samples[index]["text"]


def test_samples_are_separated_as_sample_py_does(kvad, shakespeare):
    line = ["generate", shakespeare, "-p", "A", "-n", 30, "--samples", 3]
    expected = "".join("A" + s["text"] + "\n---------------\n" for s in kvad.json(*line)["samples"])
    assert kvad.text(*line) == expected


def test_default_order_of_the_sampler_is_the_one_of_the_help(kvad, shakespeare):
    """With filters so narrow that any two of them, exchanged, give another text; temperature changes no ranking."""
    line = ["generate", shakespeare, "-p", "A", "-n", 200, "--temperature", 1.5, "--top-k", 12, "--typical", 0.6]
    line += ["--top-p", 0.7, "--min-p", 0.2, "--repetition-penalty", 1.2]
    told = re.search(r"in the order of the default: ([a-z, -]+?)(?:\s\s|\.|$)", help_of_order(kvad)).group(1)
    stages = told.replace(" ", "").split(",")
    ids = kvad.json(*line)["ids"]
    assert len(stages) == 8 and kvad.json(*line, "--order", ",".join(stages))["ids"] == ids
    for first in range(stages.index("top-k"), len(stages) - 1):
        other = [*stages[:first], stages[first + 1], stages[first], *stages[first + 2 :]]
        assert kvad.json(*line, "--order", ",".join(other))["ids"] != ids, other


def help_of_order(kvad):
    text = kvad.text("generate", "--help")
    return " ".join(text[text.index("--order") : text.index("Text:")].split())


def test_bias_excludes_and_forces(kvad, nano):
    a, b = kvad.json("tokenize", nano, "AB")["ids"]
    line = ["generate", nano, "-p", "AB", "-n", 12]
    assert set(kvad.json(*line, "--logit-bias", f"{a}=1000")["ids"]) == {a}
    barred = kvad.json(*line, "--logit-bias", f"{a}=-inf", "--logit-bias", f"{b}=1000")
    assert set(barred["ids"]) == {b}
    assert kvad("generate", nano, "-p", "AB", "--logit-bias", f"{a}=1,{a}=2").returncode == 2


@pytest.mark.parametrize("bias", ["65=1", "2147483647=1", "65=-inf"])
def test_bias_outside_the_vocabulary_is_refused(kvad, nano, bias):
    result = kvad("generate", nano, "-p", "AB", "--logit-bias", bias)
    assert result.returncode == 2 and not result.stdout and bias.split("=", maxsplit=1)[0].encode() in result.stderr


def test_no_ngram_comes_twice(kvad, nano):
    ids = kvad.json("generate", nano, "-p", "AB", "-n", 30, "--no-repeat-ngram", 2, *GREEDY)
    ids = ids["prompt_ids"] + ids["ids"]
    pairs = list(zip(ids, ids[1:]))
    assert len(pairs) == len(set(pairs))


def test_ids_without_a_piece_are_never_sampled(kvad, padded):
    answer = kvad.json("generate", padded, "-p", "A", "-n", 29, "--temperature", 1000, "--top-k", 0)
    assert len(answer["ids"]) == 29 and max(answer["ids"]) < 65


# ---------------------------------------------------------------- ends


# bugs.md STOP-4, STOP-5
def test_stop_text_ends_before_itself(kvad, shakespeare):
    line = ["generate", shakespeare, "-p", "ROMEO:", "-n", 200]
    free = kvad.json(*line)["text"]
    stop = free[50:57]
    assert stop not in free[:50]
    answer = kvad.json(*line, "--stop", "no such text", "--stop", stop)
    assert answer["text"] == free[: free.index(stop)] and answer["finish_reason"] == "stop"
    assert kvad.text(*line, "--stop", stop, "--no-echo") == answer["text"]
    assert kvad.text(*line, "--no-echo", env={"KVAD_STOP": stop}) == answer["text"]


def test_stop_id_ends_and_is_not_part_of_the_text(kvad, shakespeare):
    line = ["generate", shakespeare, "-p", "ROMEO:", "-n", 60]
    free = kvad.json(*line)
    end = free["ids"][20]
    answer = kvad.json(*line, "--stop-id", end)
    assert answer["ids"] == free["ids"][: free["ids"].index(end)] and answer["finish_reason"] == "stop"
    assert kvad("generate", shakespeare, "-p", "a", "--stop-id", 65).returncode == 2


# bugs.md BATCH-9
def test_end_of_text_ends_unless_ignored(kvad, bare):
    line = ["generate", bare, "--ids", "5,6", "-n", 10, "--logit-bias", "0=1000"]
    for policy in POLICIES:
        ended = kvad.json(*line, "--cache", policy)
        assert ended["ids"] == [] and ended["finish_reason"] == "stop"
        ignored = kvad.json(*line, "--cache", policy, "--ignore-eos")
        assert ignored["ids"] == [0] * 10 and ignored["finish_reason"] == "length"


# bugs.md SAMP-18
@pytest.mark.parametrize("least", [0, 1, 5, 6])
def test_no_end_comes_before_the_least_number_of_tokens(kvad, bare, least):
    line = ["generate", bare, "--ids", "5", "-n", 5, "--min-tokens", least, "--logit-bias", "0=1000", "--samples", 2]
    for sample in kvad.json(*line)["samples"]:
        assert len(sample["ids"]) == min(least, 5) and 0 not in sample["ids"]


# ---------------------------------------------------------------- bytes


# bugs.md SERV-10, STOP-3
@pytest.mark.parametrize("seed", range(6))
def test_json_is_valid_whatever_bytes_the_model_emits(kvad, bytes_model, seed):
    model, tokenizer = bytes_model
    line = ["generate", model, "--tokenizer", tokenizer, "-p", "x", "-n", 300, "--temperature", 50, "--top-k", 0]
    result = kvad(*line, "--seed", seed, "--json")
    assert result.returncode == 0
    answer = json.loads(result.stdout.decode("utf-8", "strict"))
    assert answer["text"] == bytes(answer["ids"]).decode("utf-8", "replace") and "\ufffd" in answer["text"]


# bugs.md STOP-1
def test_split_character_is_written_whole(kvad, bytes_model):
    """Bytes F0 9F 98 80 in four tokens, forced one after the other by what may not repeat."""
    model, tokenizer = bytes_model
    emoji = "😀".encode()
    bias = ",".join(f"{b}={9000 - 100 * i}" for i, b in enumerate(emoji))
    line = ["generate", model, "--tokenizer", tokenizer, "-p", "x", "-n", 4, "--logit-bias", bias]
    line += ["--presence-penalty", 1000, "--frequency-penalty", 1000]
    answer = kvad.json(*line, *GREEDY)
    assert bytes(answer["ids"]) == emoji and answer["text"] == "😀"
    assert kvad.text(*line, *GREEDY) == "x😀"
