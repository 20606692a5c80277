"""Files that a command writes: never one that it reads, and a failed run leaves the old one."""

import json
import shutil

import pytest

MODEL = "models/shakespeare-char"


@pytest.fixture
def copy(tmp_path):
    """A copy of the model's files, and what they held."""
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "{m}/ckpt.pt", "-p", "A", "-n", 2, "-o", "{m}/ckpt.pt"],
        ["generate", "{m}", "-p", "A", "-n", 2, "-o", "{m}/meta.pkl"],
        ["generate", "{m}/ckpt.pt", "-p", "A", "-n", 2, "-o", "{m}/../link"],
        ["score", "{m}/ckpt.pt", "-p", "AB", "--logits", "{m}/ckpt.pt"],
        ["score", "{m}", "-p", "AB", "--hidden", "{m}/ckpt.pt"],
        ["pack", "{m}/ckpt.pt", "-o", "{m}/ckpt.pt"],
        ["generate", MODEL, "-f", "{m}/meta.pkl", "-n", 2, "-o", "{m}/meta.pkl"],
    ],
)
def test_output_never_destroys_an_input(kvad, copy, arguments):
    before = {name: (copy / name).read_bytes() for name in ("ckpt.pt", "meta.pkl")}
    (copy / "../link").symlink_to(copy / "ckpt.pt")
    result = kvad(*[str(a).format(m=copy) for a in arguments])
    assert result.returncode == 2 and result.stderr.count(b"\n") == 1
    assert before == {name: (copy / name).read_bytes() for name in before}


@pytest.mark.parametrize("options", [["--logits", "{x}", "--hidden", "{x}"], ["-o", "{x}", "--logits", "{x}"]])
def test_two_outputs_to_one_file_are_refused(kvad, tmp_path, options):
    path = tmp_path / "x"
    result = kvad("score", MODEL, "-p", "AB", *[o.format(x=path) for o in options])
    assert result.returncode == 2 and not path.exists()


def test_a_run_that_fails_leaves_the_old_result(kvad, tmp_path):
    old = tmp_path / "old.txt"
    old.write_text("precious")
    for model, prompt in (("nosuchmodel", "A"), (MODEL, "A" * 5000)):
        result = kvad("generate", model, "-p", prompt, "-o", old)
        assert result.returncode != 0 and old.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [old]


def test_a_run_that_succeeds_replaces_it(kvad, tmp_path):
    path = tmp_path / "new.json"
    path.write_text("old")
    kvad.text("generate", MODEL, "-p", "A", "-n", 2, "--json", "-o", path)
    assert len(json.loads(path.read_text())["ids"]) == 2
    assert list(tmp_path.iterdir()) == [path]
