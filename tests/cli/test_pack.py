"""kvad pack: the packed file is used like the model it came from."""

import re
import resource
import signal

import pytest

MODEL = "models/shakespeare-char"


@pytest.mark.parametrize("weights", ["f32", "bf16", "f16", "q8", "q4"])
def test_packed_model_generates_the_same_ids(kvad, tmp_path, weights):
    packed = tmp_path / "m.kvad"
    kvad.text("pack", MODEL, "--weights", weights, "-o", packed, "-q")
    ask = ["-p", "ROMEO:", "-n", 30, "--temperature", 0]
    a = kvad.json("generate", MODEL, "--weights", weights, *ask)
    b = kvad.json("generate", packed, *ask)
    assert a["ids"] == b["ids"] and a["text"] == b["text"]


def test_pack_says_what_it_wrote(kvad, tmp_path):
    packed = tmp_path / "m.kvad"
    report = kvad.json("pack", MODEL, "--weights", "q8", "-o", packed)
    assert report["schema"] == 1 and report["weights"] == "q8" and report["tokenizer"]
    assert packed.stat().st_size > report["weight_bytes"]
    assert "q8" in kvad.text("inspect", packed, "--verify")


def test_pack_without_a_file_is_usage(kvad):
    result = kvad("pack", MODEL)
    assert result.returncode == 2 and b"-o" in result.stderr


def test_damaged_file_is_code_3(kvad, tmp_path):
    packed = tmp_path / "m.kvad"
    kvad.text("pack", MODEL, "--weights", "q4", "-o", packed, "-q")
    data = bytearray(packed.read_bytes())
    data[-1000] ^= 4
    packed.write_bytes(data)
    result = kvad("inspect", packed, "--verify")
    assert result.returncode == 3 and b"checksum" in result.stderr
    packed.write_bytes(data[:5000])
    assert kvad("generate", packed, "-p", "a", "-n", 1).returncode == 3


def test_missing_folder_leaves_nothing_behind(kvad, tmp_path):
    result = kvad("pack", MODEL, "-o", tmp_path / "missing" / "m.kvad")
    assert result.returncode != 0 and list(tmp_path.iterdir()) == []


def test_write_that_fails_half_way_leaves_nothing_behind(kvad, tmp_path):
    def at_most_a_megabyte():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = kvad("pack", MODEL, "-o", tmp_path / "m.kvad", preexec_fn=at_most_a_megabyte)
    assert result.returncode == 1 and b"cannot write" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_packed_type_cannot_be_asked_for_as_another(kvad, tmp_path):
    packed = tmp_path / "m.kvad"
    kvad.text("pack", MODEL, "--weights", "q4", "-o", packed, "-q")
    for arguments in (["generate", "--weights", "f32"], ["score", "--against", "f32"]):
        result = kvad(arguments[0], packed, "-p", "To be", *arguments[1:])
        assert result.returncode == 4 and b"packed in q4" in result.stderr and result.stdout == b""


def test_a_packed_file_that_cannot_be_packed_again_is_named(kvad, tmp_path):
    packed, again = tmp_path / "m.kvad", tmp_path / "again.kvad"
    kvad.text("pack", MODEL, "-o", packed, "-q")
    result = kvad("pack", packed, "-o", again)
    assert result.returncode == 4 and not again.exists()
    assert result.stderr.decode().startswith(f"kvad: {packed}: ") and result.stderr.count(b"\n") == 1


def test_verbose_tells_the_same_of_a_packed_model(kvad, tmp_path):
    """Family and sizes, as of the model that it was packed from."""
    packed = tmp_path / "m.kvad"
    kvad.text("pack", MODEL, "-o", packed)

    def facts(model):
        said = kvad("generate", model, "-p", "R", "-n", 1, "-v").stderr.decode()
        return re.search(r": (nanogpt, \d+ layers, .* parameters)$", said, re.M).group(1)

    assert facts(packed) == facts(MODEL)
