"""A byte order mark at the head of a text, as some editors write it, changes nothing."""

import json
import shutil

MARK = b"\xef\xbb\xbf"


def marked(path):
    path.write_bytes(MARK + path.read_bytes())


def test_a_mark_before_a_prompt_is_no_part_of_it(kvad, shakespeare, tmp_path):
    plain = kvad.json("tokenize", shakespeare, "-p", "ROMEO:")
    path = tmp_path / "prompt.txt"
    path.write_bytes(MARK + b"ROMEO:")
    assert kvad.json("tokenize", shakespeare, "-f", path) == plain
    assert kvad.json("tokenize", shakespeare, "-", stdin=MARK + b"ROMEO:") == plain
    path.write_bytes(b"ROMEO:" + MARK)  # elsewhere it is a character, which this model does not have
    assert b"U+FEFF" in kvad("tokenize", shakespeare, "-f", path).stderr
    path.write_bytes(MARK)
    assert kvad.json("tokenize", shakespeare, "-f", path)["ids"] == []
    path.write_bytes(MARK[:2])  # not a whole one
    assert kvad("tokenize", shakespeare, "-f", path).returncode == 2


def test_a_mark_before_a_batch_is_no_part_of_its_first_line(kvad, shakespeare, tmp_path):
    path = tmp_path / "batch.jsonl"
    path.write_bytes(MARK + b'"ROMEO:"\n')
    answer = json.loads(kvad.text("generate", shakespeare, "-n", 3, "--batch", path))
    assert answer["ids"] == kvad.json("generate", shakespeare, "-n", 3, "-p", "ROMEO:")["ids"]


def test_a_mark_before_a_models_own_files_changes_nothing(kvad, bytes_model, tmp_path):
    model, tokenizer = bytes_model
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(tokenizer / name, folder / name)
    wanted = kvad.json("tokenize", folder, "any text"), kvad.json("score", folder, "-p", "abc")["logprobs"]
    for name in ("config.json", "vocab.json", "merges.txt"):
        marked(folder / name)
    assert (kvad.json("tokenize", folder, "any text"), kvad.json("score", folder, "-p", "abc")["logprobs"]) == wanted
