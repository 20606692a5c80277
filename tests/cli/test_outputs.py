"""Files that a command writes: never one that it reads, and a failed run leaves the old one."""

import json
import os
import resource
import shutil
import signal
import time

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


def has_files_without_names(folder):
    """Where it has not (NFS, for one), a process that is killed leaves NAME.PID.N.tmp."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        return False
    return True


def killed_after(n_bytes):
    """For preexec_fn: the kernel kills the process when a file of it grows beyond so many bytes."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return limit


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize(
    "arguments, n_bytes",
    [
        (["pack", MODEL, "-o", "{}"], 1 << 20),
        (["score", MODEL, "-p", "A" * 900, "--json", "-o", "{}"], 4096),
        (["score", MODEL, "-p", "A" * 900, "--logits", "{}"], 100000),
        (["score", MODEL, "-p", "A" * 900, "--hidden", "{}"], 100000),
    ],
)
def test_a_process_that_is_killed_while_it_writes_leaves_what_was_there(kvad, tmp_path, arguments, n_bytes, is_old):
    if not has_files_without_names(tmp_path):
        pytest.skip("this file system has no files without names (O_TMPFILE)")
    path = tmp_path / "result"
    if is_old:
        path.write_text("precious")
    result = kvad(*[a.format(path) for a in arguments], preexec_fn=killed_after(n_bytes))
    assert result.returncode == -signal.SIGXFSZ
    assert [p.name for p in tmp_path.iterdir()] == (["result"] if is_old else [])
    assert not is_old or path.read_text() == "precious"


@pytest.mark.parametrize("is_old", [False, True])
def test_a_signal_ends_pack_at_once_and_leaves_all_of_a_file_or_none(kvad, tmp_path, is_old):
    if not has_files_without_names(tmp_path):
        pytest.skip("this file system has no files without names (O_TMPFILE)")
    path, whole = tmp_path / "m.kvad", tmp_path / "whole"
    kvad.text("pack", MODEL, "-o", whole, "-q")
    wanted = whole.read_bytes()
    whole.unlink()
    before = b"precious" if is_old else None
    for delay_ms in range(0, 40, 2):  # from the program's start to beyond its end
        path.unlink(missing_ok=True)
        if is_old:
            path.write_bytes(before)
        with kvad.start("pack", MODEL, "-o", path, "-q") as process:
            time.sleep(delay_ms / 1000)
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
        assert code in (0, -signal.SIGINT) and (code != 0 or path.exists())
        after = path.read_bytes() if path.exists() else None
        assert after == wanted or (code != 0 and after == before)
        assert list(tmp_path.iterdir()) == ([] if after is None else [path])


def test_arrays_of_a_run_that_fails_leave_the_old_ones(kvad, shakespeare, tmp_path):
    old = tmp_path / "old.npy"
    old.write_text("precious")
    line = ["score", shakespeare, "-p", "A" * 900, "--weights", "f32", "--against", "f32", "--logits", old]
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))  # noqa: E731: too few to load the reference
    assert kvad(*line, preexec_fn=limit).returncode != 0
    assert old.read_text() == "precious" and list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_text_and_keeps_what_is_there(kvad, shakespeare, tmp_path, name):
    path = tmp_path / "text"
    endless = ["-n", 2**31 - 1, "--on-overflow", "recompute"]
    with kvad.start("generate", shakespeare, "-p", "ROMEO:", *endless, "-v", "-o", path) as process:
        process.stdin.close()
        while b"kernels" not in process.stderr.readline():  # the engine's line: the text begins
            assert process.poll() is None
        time.sleep(0.3)
        process.send_signal(getattr(signal, name))
        assert process.wait(60) == 128 + getattr(signal, name)
    assert list(tmp_path.iterdir()) == [path] and path.read_text().startswith("ROMEO:")


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_signal_that_the_caller_ignores_is_ignored(kvad, shakespeare, tmp_path, name):
    """As shells do for programs in the background, and nohup for the hangup."""
    number = getattr(signal, name)
    line = ["generate", shakespeare, "-p", "ROMEO:", "-n", 2**31 - 1, "--on-overflow", "recompute", "-v"]
    ignoring = lambda: signal.signal(number, signal.SIG_IGN)  # noqa: E731
    with kvad.start(*line, "-o", tmp_path / "text", preexec_fn=ignoring) as process:
        process.stdin.close()
        while b"kernels" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def test_devices_and_pipes_are_written_in_place(kvad, shakespeare):
    assert kvad("generate", shakespeare, "-p", "A", "-n", 2, "-o", "/dev/null").returncode == 0
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")
    result = kvad("score", shakespeare, "-p", "AB", "--json", "-o", "/dev/null", "--logits", "/dev/stdout")
    assert result.stdout == b"" and result.returncode == 0
