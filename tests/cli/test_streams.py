"""Standard streams and signals: text streams, Ctrl-C is clean, what cannot be written is a failure."""

import ctypes
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from conftest import environment

ENDLESS = ["-n", 2**31 - 1, "--on-overflow", "recompute"]


def read_some(process, n=1, seconds=60):
    """At least n bytes of standard output while the process runs."""
    data = b""
    end = time.monotonic() + seconds
    while len(data) < n and time.monotonic() < end:
        if select.select([process.stdout], [], [], 1)[0]:
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            data += piece
    return data


def test_text_arrives_before_the_end(kvad, shakespeare):
    with kvad.start("generate", shakespeare, *ENDLESS) as process:
        process.stdin.write(b"ROMEO:")
        process.stdin.close()
        text = read_some(process, 40)
        assert text.startswith(b"ROMEO:") and process.poll() is None
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_stop_text_is_never_sent_in_part(kvad, shakespeare):
    """Whatever pieces arrive, together they are the text; a prefix of the stop text is held back."""
    line = ["generate", shakespeare, "-p", "ROMEO:", "-n", 120]
    free = kvad.text(*line)
    stop = free[80:90]
    with kvad.start(*line, "--stop", stop) as process:
        process.stdin.close()
        data = b""
        while piece := read_some(process):
            data += piece
            assert (free[: free.index(stop)]).encode().startswith(data)
    assert data.decode() == free[: free.index(stop)]


# bugs.md SERV-21
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_ctrl_c_ends_cleanly(kvad, shakespeare, json_flag):
    with kvad.start("generate", shakespeare, "-p", "ROMEO:", "-v", *ENDLESS, *json_flag) as process:
        if json_flag:
            time.sleep(1)
        else:
            assert read_some(process, 30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"tokens/s" in err
    if json_flag:
        answer = json.loads(out)
        assert answer["finish_reason"] == "cancelled" and answer["ids"] and answer["text"]


def test_ctrl_c_ends_all_samples(kvad, shakespeare):
    with kvad.start("generate", shakespeare, "-p", "A", *ENDLESS, "--samples", 12, "--json") as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    samples = json.loads(out)["samples"]
    assert process.returncode == 130 and len(samples) == 12
    assert {s["finish_reason"] for s in samples} == {"cancelled"}


def test_ctrl_c_ends_a_long_score(kvad, shakespeare, tmp_path):
    (tmp_path / "text").write_text("A" * 1024)
    with kvad.start("score", shakespeare, "-f", tmp_path / "text", "--cache", "none") as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and not out


def test_ctrl_c_ends_waiting_for_input(kvad, shakespeare):
    for command in ("generate", "score", "tokenize"):
        with kvad.start(command, shakespeare) as process:
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            process.wait(60)
            process.stdin.close()
        assert process.returncode == 130


def test_ctrl_c_ends_a_blocked_writer(kvad, shakespeare):
    """Nobody reads: the pipe fills, and the write must not outlive Ctrl-C."""
    with kvad.start("generate", shakespeare, "-p", "A", *ENDLESS, "--samples", 1, "--top-k", 1) as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        process.stdin.close()


def test_second_ctrl_c_kills(kvad, shakespeare, tmp_path):
    """The first is caught while a fifo that nobody opens for writing keeps the program waiting."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)
    with kvad.start("generate", shakespeare, "-p", "A", *ENDLESS) as process:
        assert read_some(process, 20)
        process.send_signal(signal.SIGSTOP)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) in (130, -signal.SIGINT)
        process.stdin.close()
    os.close(keep)


def test_reader_that_leaves_ends_the_program_quietly(kvad, shakespeare):
    with kvad.start("generate", shakespeare, "-p", "A", *ENDLESS) as process:
        assert read_some(process, 10)
        process.stdout.close()
        assert process.wait(60) in (-signal.SIGPIPE, 128 + signal.SIGPIPE)
        assert process.stderr.read() == b""


LINES = [
    ["generate", "{}", "-p", "A", "-n", "20"],
    ["generate", "{}", "-p", "A", "-n", "20", "--json"],
    ["generate", "{}", "-p", "A", "-n", "0"],
    ["score", "{}", "-p", "ABC"],
    ["score", "{}", "-p", "ABC", "--json"],
    ["tokenize", "{}", "ABC"],
    ["tokenize", "{}", "-d", "1 2"],
    ["inspect", "{}"],
    ["--help"],
    ["--man"],
    ["--completion", "bash"],
]


@pytest.mark.parametrize("line", LINES)
def test_full_disk_is_a_failure(kvad, nano, line):
    arguments = [a.format(nano) for a in line]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [kvad.path, *arguments], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
        )
    assert result.returncode == 1
    assert result.stderr.count(b"\n") == 1 and b"No space left" in result.stderr


@pytest.mark.parametrize("line", LINES[:8])
def test_closed_standard_output_is_a_failure(kvad, nano, line):
    closing = ["sh", "-c", 'exec "$0" "$@" >&-', kvad.path, *(a.format(nano) for a in line)]
    result = subprocess.run(closing, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert result.returncode == 1 and result.stderr


def test_closed_standard_error_does_not_reach_a_file(kvad, nano, tmp_path):
    """Its number must not go to the next file that is opened."""
    out = tmp_path / "logits.npy"
    line = ["score", nano, "-p", "ABC", "-vv", "--logits", out]
    subprocess.run(["sh", "-c", 'exec "$0" "$@" 2>&- >/dev/null', kvad.path, *map(str, line)], check=True)
    closed = out.read_bytes()
    kvad.text(*line)
    assert closed == out.read_bytes()


def test_closed_standard_input_is_an_empty_prompt(kvad, nano):
    line = ["generate", nano, "-n", 3]
    result = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', kvad.path, *map(str, line)], capture_output=True, check=False
    )
    assert result.returncode == 0 and result.stdout.decode() == kvad.text(*line)


def on_terminal(kvad, *line, keys=b""):
    """(exit code, what a terminal shows) with all three streams on it."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [kvad.path, *map(str, line)], stdin=follower, stdout=follower, stderr=follower, env=environment()
    ) as process:
        os.close(follower)
        os.write(leader, keys)
        shown = b""
        try:
            while piece := os.read(leader, 4096):
                shown += piece
        except OSError:  # Linux's way to say that the other side has closed
            pass
        process.wait(60)
    os.close(leader)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_terminal_gets_a_last_newline_and_the_times(kvad, nano):
    status, shown = on_terminal(kvad, "generate", nano, "-p", "AB", "-n", 5)
    text = kvad.text("generate", nano, "-p", "AB", "-n", 5)
    assert status == 0 and not text.endswith("\n")
    assert shown.startswith(text + "\nkvad: load ") and shown.endswith("\n")


def test_terminal_without_a_prompt_starts_at_once(kvad, nano):
    status, shown = on_terminal(kvad, "generate", nano, "-n", 4, "-q")
    assert status == 0 and shown.rstrip("\n") == kvad.text("generate", nano, "-n", 4).rstrip("\n")


def test_terminal_is_told_that_a_text_is_wanted(kvad, nano):
    assert on_terminal(kvad, "score", nano)[0] == 2
    status, shown = on_terminal(kvad, "tokenize", nano, "-", keys=b"AB\n\x04")
    assert status == 0 and "Ctrl-D" in shown and "33\tA" in shown


def without_roots_rights():
    """For preexec_fn: a program that root starts may no longer read what its mode forbids."""
    libc, drop = ctypes.CDLL(None), 24  # PR_CAPBSET_DROP
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if os.geteuid() == 0 and libc.prctl(drop, capability, 0, 0, 0) != 0:
            raise OSError("cannot drop a capability")


def test_file_without_permission_is_refused(kvad, nano, tmp_path):
    for name, line, code in (
        ("model.pt", ["inspect", tmp_path / "model.pt"], 3),
        ("text", ["score", nano, "-f", tmp_path / "text"], 1),
    ):
        (tmp_path / name).touch(mode=0)
        result = kvad(*line, preexec_fn=without_roots_rights)
        assert result.returncode == code and b"ermission denied" in result.stderr


@pytest.mark.parametrize("place", ["/dev/full", "/no-such-folder/x", "/"])
def test_arrays_that_cannot_be_written_are_a_failure(kvad, nano, place):
    for option in ("--logits", "--hidden"):
        result = kvad("score", nano, "-p", "ABC", option, place)
        assert result.returncode == 1 and place.encode() in result.stderr


@pytest.mark.parametrize("place", ["/no-such-file", "/"])
def test_prompt_file_that_cannot_be_read_is_a_failure(kvad, nano, place):
    for command in ("generate", "score", "tokenize"):
        result = kvad(command, nano, "-f", place)
        assert result.returncode == 1 and place.encode() in result.stderr and not result.stdout
