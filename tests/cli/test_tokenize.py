"""kvad tokenize: ids of the references, both ways, whatever the bytes."""

import json

import pytest
from conftest import FIXTURES, ROOT, find
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def bpe():
    return find(ROOT / "tests/data/small-bpe", FIXTURES / "small-bpe")


@pytest.fixture(scope="module")
def vectors(bpe):
    return [json.loads(line) for line in (bpe / "vectors.jsonl").read_text().splitlines()]


def test_ids_are_the_references(kvad, bpe, vectors):
    for vector in vectors[:25]:
        answer = kvad.json("tokenize", bpe / "tokenizer-pairs.json", "--special", stdin=vector["text"].encode())
        assert answer["ids"] == vector["ids"]


def test_text_comes_as_argument_option_file_or_pipe(kvad, bpe, tmp_path):
    text = "To be, or\nnot"
    (tmp_path / "text").write_text(text)
    expected = kvad.json("tokenize", bpe, text)
    assert expected["schema"] == 1 and "".join(expected["pieces"]) == text
    for line in (["-p", text], ["-f", tmp_path / "text"]):
        assert kvad.json("tokenize", bpe, *line) == expected
    for line in (["-"], ["-f", "-"], []):
        assert kvad.json("tokenize", bpe, *line, stdin=text.encode()) == expected
    assert kvad.text("tokenize", "--", bpe, "-x") == kvad.text("tokenize", bpe, "-p", "-x")
    assert kvad("tokenize", bpe, "a", "-p", "b").returncode == 2
    assert kvad("tokenize", bpe, "a", "b").returncode == 2


def test_table_has_a_line_for_each_token(kvad, bpe):
    answer = kvad.json("tokenize", bpe, "a\\b\tc\n")
    lines = kvad.text("tokenize", bpe, "a\\b\tc\n").splitlines()
    assert [int(line.split("\t")[0]) for line in lines] == answer["ids"]
    assert "".join(line.split("\t")[1] for line in lines) == "a\\\\b\\tc\\n"


def test_terminal_controls_are_escaped(kvad, bpe):
    table = kvad("tokenize", bpe, stdin=b"\x1b[2J\xc2\x9b\x07").stdout
    assert b"\x1b" not in table and b"\x07" not in table and b"\xc2\x9b" not in table


def test_what_turns_a_line_around_is_escaped_on_the_terminal_and_in_errors(kvad, bpe, tmp_path):
    turns = "\u202e\u2066\u200f\u2028"
    table = kvad("tokenize", bpe, stdin=turns.encode()).stdout.decode()
    said = kvad("tokenize", tmp_path / f"a{turns}b").stderr.decode()
    for mark in turns:
        assert mark not in table and mark not in said
    assert "a????????????b" in said


@QUICK
@given(data=st.binary(max_size=60))
def test_decode_gives_every_byte_back(kvad, bpe, data):
    ids = kvad.json("tokenize", bpe, stdin=data)
    assert ids["text"] == data.decode("utf-8", "replace")
    decoded = kvad("tokenize", bpe, "--decode", stdin=" ".join(map(str, ids["ids"])).encode())
    assert decoded.returncode == 0 and decoded.stdout == data


@QUICK
@given(text=st.text(st.characters(blacklist_categories=["Cs"]), max_size=30))
def test_json_holds_any_text(kvad, bpe, text):
    assert kvad.json("tokenize", bpe, stdin=text.encode())["text"] == text


def test_special_text_is_plain_unless_asked(kvad, bpe):
    tokenizer = bpe / "tokenizer-pairs.json"
    text = "<|endoftext|>"
    plain = kvad.json("tokenize", tokenizer, text)
    special = kvad.json("tokenize", tokenizer, text, "--special")
    assert len(plain["ids"]) > 1 and len(special["ids"]) == 1
    assert kvad.json("tokenize", tokenizer, text, env={"KVAD_SPECIAL": "1"}) == special


def test_model_brings_its_tokenizer(kvad, nano):
    expected = kvad.json("tokenize", nano, "ABé")
    assert expected["ids"] == [33, 34, 64] and expected["pieces"] == ["A", "B", "é"]
    assert kvad.json("tokenize", nano / "ckpt.pt", "ABé") == expected
    assert kvad.json("tokenize", nano / "meta.pkl", "ABé") == expected
    assert kvad.json("tokenize", "no-such-model", "ABé", "--tokenizer", nano / "meta.pkl") == expected


def test_model_without_a_tokenizer_says_so(kvad, bare):
    result = kvad("tokenize", bare, "text", env={"HF_HOME": "/nonexistent", "HOME": "/nonexistent"})
    assert result.returncode == 3 and b"--tokenizer" in result.stderr


@pytest.mark.parametrize("ids", ["-1", "512", "2147483648", "x", "1;2", "1 2 \0 3", "1.5"])
def test_wrong_ids_are_refused(kvad, bpe, ids):
    result = kvad("tokenize", bpe, "--decode", stdin=ids.encode())
    assert result.returncode == 2 and not result.stdout and result.stderr


def test_empty_text_is_no_token(kvad, bpe):
    assert kvad.json("tokenize", bpe, "")["ids"] == []
    assert kvad.text("tokenize", bpe, "") == "" and kvad.text("tokenize", bpe, "-d", "") == ""


# bugs.md SERV-11
def test_long_runs_are_no_trouble(kvad, bpe):
    for text in (b"a" * 10**6, b" " * 10**6, b"\xff" * 10**5):
        ids = kvad.json("tokenize", bpe, stdin=text)["ids"]
        assert kvad("tokenize", bpe, "-d", stdin=" ".join(map(str, ids)).encode()).stdout == text
