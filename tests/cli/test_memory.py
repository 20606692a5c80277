"""kvad memory: measured runs are their formulas, computed ones the published numbers, hostile files are refused."""

import json
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

POLICIES = ["none", "grow", "static", "paged"]


def blocks(tokens, block=16):
    return -(-tokens // block) * block


@pytest.fixture(scope="module")
def measured(kvad, shakespeare):
    return kvad.json("memory", shakespeare, "--ctx", 200, "--kv", "f32,q8")


def test_every_checkpoint_is_its_formula(measured):
    assert measured["schema"] == 1 and measured["exact"] is True and "shakespeare" in measured["model"]
    points = measured["checkpoints"]
    assert len(points) == 16 * 4 * 2
    for p in points:
        rows = {"f32": 6 * 6 * 2 * 32 * 4, "q8": 6 * 6 * 2 * (32 + 4)}[p["kv"]]
        context = blocks(200) * rows
        text = blocks(p["tokens"]) * rows
        assert p["bytes_per_token"] == rows
        assert p["rows"] == p["tokens"] * rows and p["rows"] + p["remainder"] == text
        assert p["formula"] == (context if p["policy"] == "static" else text)
        assert p["requested"] == p["formula"] and p["residual"] == 0
        assert p["reserved"] == p["reserved_formula"] == (text if p["policy"] == "grow" else context)
        assert p["reserved_residual"] == 0 and p["process"]["unowned"] == 0
    for policy in POLICIES:
        tokens = [p["tokens"] for p in points if p["policy"] == policy and p["kv"] == "f32"]
        assert tokens == [200 * (i + 1) // 16 for i in range(16)]


def test_growing_holds_old_and_new_area_at_once(measured):
    for p in measured["checkpoints"]:
        if p["policy"] == "grow":
            one = p["rows"] // p["tokens"]
            assert p["peak"] == one * (blocks(p["tokens"]) + blocks(p["tokens"] - 1))
        else:
            assert p["peak"] == p["reserved"]


def test_owners_add_up(measured):
    for p in measured["checkpoints"]:
        process = p["process"]
        owners = process["owners"].values()
        assert sum(o["requested"] for o in owners) == process["requested"]
        if measured["resident_not_run"] is None:
            assert sum(o["resident"] for o in owners) + process["unexplained"] == process["resident"]
            assert process["explained_percent"] >= 99
    assert measured["resident_not_run"] or measured["explained_percent"] >= 99


def test_naive_offset_is_itemised(measured):
    assert len(measured["naive"]) == 16 * 4 * 2
    for p in measured["naive"]:
        parts = p["offset_by_owner"]
        assert p["offset"] == p["requested"] - p["formula"] == sum(o["requested"] for o in parts.values())
        assert p["offset"] > 0 and parts["step_buffers"]["requested"] > 0 and parts["sampler"]["requested"] > 0
        if measured["resident_not_run"] is None:
            assert p["resident_offset"] == sum(o["resident"] for o in parts.values())


def test_tables_fit_and_say_the_verdict(kvad, shakespeare):
    text = kvad.text("memory", shakespeare, "--ctx", 64)
    assert "requested - formula = 0 at 64 of 64 checkpoints" in text
    assert max(map(len, text.splitlines())) <= 100 and text.isascii()
    for head in ("The naive way", "What the offset at 64 tokens is made of", "Where the process's memory is"):
        assert head in text
    assert sum(line.split(",")[0] in POLICIES and "warmed up" in line for line in text.splitlines()) == 4


def test_packed_weights_are_in_their_file(kvad, nano, tmp_path):
    packed = tmp_path / "model.kvad"
    kvad.text("pack", nano, "-o", packed)
    run = kvad.json("memory", packed, "--cache", "paged")
    owners = run["checkpoints"][-1]["process"]["owners"]
    assert owners["weights"]["requested"] == 0 and owners["weights_file"]["allocated"] == packed.stat().st_size
    assert run["exact"]


@pytest.mark.parametrize(
    "name,kv,per_token",
    [
        ("gpt2", "f32", 72 << 10),
        ("gpt2-xl", "f32", 48 * 25 * 2 * 64 * 4),
        ("llama-7b", "f16", 512 << 10),
        ("llama-2-70b", "f16", 320 << 10),
        ("mistral-7b", "f16", 128 << 10),
        ("deepseek-v2", "bf16", 60 * 576 * 2),
    ],
)
def test_known_models(kvad, name, kv, per_token):
    answer = kvad.json("memory", "--config", name, "--kv", kv)
    assert answer["bytes_per_token"] == per_token
    own = [road for road in answer["roads"] if road["is_own"]]
    assert all(road["bytes"] == answer["bytes"] for road in own) and len(own) >= 2
    names = " ".join(road["name"] for road in answer["roads"])
    for road in ("MHA", "GQA", "MQA", "MLA", "f16", "q8", "q4", "window", "reserved", "paged"):
        assert road in names


def test_table_for_people(kvad):
    text = kvad.text("memory", "--config", "llama-7b", "--kv", "f16", "--batch", 8)
    assert "512.0 KiB (524288 bytes)" in text and "8 texts of 2048 tokens: 8.00 GiB" in text
    assert "L*K*2*d*e" in text and "32*32*2*128*2" in text
    assert max(map(len, text.splitlines())) <= 100


def test_names_are_listed(kvad):
    assert {"gpt2", "llama-7b", "deepseek-v2"} <= set(kvad.text("memory", "--config", "?").split())


def write(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


BASE = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "max_position_embeddings": 100}


def test_a_folder_or_a_file_with_a_config(kvad, bare, nano, tmp_path):
    path = write(tmp_path, {**BASE, "num_key_value_heads": 2})
    for where in (path, tmp_path):
        answer = kvad.json("memory", "--config", where)
        assert answer["bytes_per_token"] == 2 * 2 * 2 * 16 * 4 and answer["ctx"] == 100
    # A checkpoint without a config.json says it itself.
    for model in (bare, nano):
        answer = kvad.json("memory", "--config", model)
        assert answer["bytes_per_token"] == kvad.json("inspect", model)["kv_bytes_per_token"]


@pytest.mark.parametrize(
    "content,words",
    [
        ("", "line 1"),
        ("{", "line 1"),
        ("[1]", "must be an object"),
        ({}, "num_hidden_layers"),
        ({**BASE, "num_hidden_layers": 0}, "num_hidden_layers"),
        ({**BASE, "num_hidden_layers": 2**63 - 1}, "num_hidden_layers"),
        ({**BASE, "num_hidden_layers": -1}, "num_hidden_layers"),
        ({**BASE, "num_attention_heads": 5}, "64 cannot be cut into 5 heads"),
        ({**BASE, "num_key_value_heads": 3}, "do not divide"),
        ({**BASE, "head_dim": 1e300}, "whole number"),
        ({**BASE, "hidden_size": "64"}, "whole number"),
        ({**BASE, "n_layer": 3}, "n_layer is 3"),
        ({**BASE, "layer_types": ["mamba", "mamba"]}, "mamba"),
        ({**BASE, "kv_lora_rank": 512}, "qk_nope_head_dim"),
        ("[" * 100000, "line 1"),
        ('{"a":1,"a":2}', "duplicate"),
    ],
)
def test_hostile_configs_are_refused_in_one_line(kvad, tmp_path, content, words):
    result = kvad("memory", "--config", write(tmp_path, content))
    assert result.returncode in (3, 4) and not result.stdout
    message = result.stderr.decode()
    assert message.count("\n") == 1 and words in message and "config.json" in message


def test_products_beyond_64_bits_are_refused(kvad, tmp_path):
    path = write(
        tmp_path,
        {"num_hidden_layers": 65536, "num_attention_heads": 65536, "head_dim": 1 << 20, "n_ctx": 1 << 30},
    )
    result = kvad("memory", "--config", path)
    assert result.returncode == 2 and b"64 bits" in result.stderr and result.stderr.count(b"\n") == 1


def test_a_config_without_a_context_needs_one(kvad, tmp_path):
    path = write(tmp_path, {k: v for k, v in BASE.items() if k != "max_position_embeddings"})
    assert b"--ctx" in kvad("memory", "--config", path).stderr
    assert kvad.json("memory", "--config", path, "--ctx", 10)["bytes"] == 10 * 2 * 4 * 2 * 16 * 4


ANYTHING = st.one_of(
    st.integers(-2, 300), st.integers(0, 2**70), st.floats(), st.text(max_size=3), st.none(), st.booleans()
)
KEYS = [*BASE, "num_key_value_heads", "head_dim", "sliding_window", "kv_lora_rank", "qk_nope_head_dim"]
KEYS += ["qk_rope_head_dim", "v_head_dim", "layer_types"]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING))
def test_any_config_gives_an_answer_or_one_line(kvad, tmp_path_factory, values):
    path = write(tmp_path_factory.mktemp("any"), json.dumps({**BASE, **values}).replace("Infinity", "1e400"))
    result = kvad("memory", "--config", path, "--json")
    if result.returncode == 0:
        answer = json.loads(result.stdout)
        assert answer["bytes"] > 0 and all(road["bytes"] > 0 for road in answer["roads"])
    else:
        assert result.returncode in (2, 3, 4) and result.stderr.count(b"\n") == 1 and not result.stdout


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], "MODEL is missing"),
        (["model", "--config", "gpt2"], "give one"),
        (["--config", "gpt2", "--kv", "f16,q8"], "one type"),
        (["--config", "gpt2", "--kv", "f8"], "is not one of f32"),
        (["--config", "gpt2", "--cache", "paged"], "--cache"),
        (["--config", "gpt2", "--ctx", "0"], "outside"),
        (["--config", "gpt2", "--batch", "0"], "outside"),
        (["model", "--kv", "q4"], "--config"),
        (["model", "--batch", "2"], "--batch"),
        (["model", "--block", "17"], "is not one of"),
    ],
)
def test_bad_lines_are_refused(kvad, arguments, words):
    result = kvad("memory", *arguments)
    assert result.returncode == 2 and words in result.stderr.decode() and not result.stdout


def test_what_is_not_there_is_refused(kvad, shakespeare):
    assert kvad("memory", "no-such-model").returncode == 3
    result = kvad("memory", "--config", "no-such-model")
    assert result.returncode == 3 and b"no-such-model" in result.stderr
    assert kvad("memory", shakespeare, "--ctx", 5000).returncode == 6


def test_interrupt_ends_the_run(kvad, shakespeare):
    process = kvad.start("memory", shakespeare, "--kv", "f32,f16,bf16,q8")
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and not out
