"""Help, version, manual pages and completion: no model, no input, standard output, success."""

import re
import shutil
import subprocess

import pytest

COMMANDS = ["generate", "score", "tokenize", "inspect", "pack", "verify", "bench", "memory", "lab"]


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], ["--version"], ["-V"], ["--man"], []])
def test_main_pages_need_no_model(kvad, arguments):
    result = kvad(*arguments)
    assert result.returncode == 0 and result.stdout and not result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "arguments",
    [
        ["{}", "--help"],
        ["{}", "-h"],
        ["--help", "{}"],
        ["help", "{}"],
        ["{}", "no-such-model", "--help"],
        ["{}", "--no-such-option", "--help"],
        ["{}", "--threads", "--help"],
        ["{}", "--json", "m", "a", "b", "c", "-h"],
    ],
)
def test_help_works_anywhere_on_the_line(kvad, command, arguments):
    result = kvad(*(a.format(command) for a in arguments))
    assert result.returncode == 0 and not result.stderr
    assert result.stdout.decode().startswith(f"kvad {command}: ")


def test_help_as_a_value_is_text(kvad):
    """A prompt may be any text; after -- nothing is an option."""
    assert kvad("generate", "no-such-model", "-p", "--help").returncode == 3
    assert kvad("inspect", "--", "--help").returncode == 3


def test_nonsense_in_variables_does_not_hide_the_help(kvad):
    assert kvad("generate", "--help", env={"KVAD_THREADS": "many"}).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples_first_and_every_line_fits(kvad, command):
    text = kvad.text(command, "--help")
    assert text.index("Examples:") < text.index("--json")
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"[ \t]$", text, re.M)


def test_short_help_names_every_command(kvad):
    text = kvad.text()
    assert all(re.search(rf"^  {command} ", text, re.M) for command in COMMANDS)


def test_version_tells_kernels_and_licence(kvad):
    lines = kvad.text("--version").splitlines()
    assert re.fullmatch(r"kvad \d+\.\d+\.\d+", lines[0])
    assert "portable" in lines[1] or "baseline" in lines[1]
    assert "MIT" in lines[-1]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_manual_pages_are_clean_roff(kvad, command):
    page = kvad.text("--man", *([command] if command else []))
    assert page.startswith(".TH KVAD")
    assert kvad.text("--man" if not command else f"--man={command}") == page
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    check = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z"], input=page.encode(), capture_output=True, check=False
    )
    assert check.returncode == 0 and not check.stderr, check.stderr.decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_manual_names_every_option_of_the_help(kvad, command):
    page = kvad.text("--man", command).replace("\\-", "-")
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", kvad.text(command, "--help"), re.M))
    assert len(options) > 5
    assert all(f"\\fB{option}\\fR" in page for option in options)


@pytest.mark.parametrize("shell,check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])])
def test_completion_scripts_parse(kvad, shell, check, tmp_path):
    script = tmp_path / "script"
    script.write_text(kvad.text("--completion", shell))
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([*check, script], capture_output=True, check=False)
    assert result.returncode == 0 and not result.stderr, result.stderr.decode()


@pytest.mark.parametrize(
    "words,expected",
    [
        (["ge"], "generate"),
        (["generate", "m", "--cac"], "--cache"),
        (["generate", "m", "--cache", "p"], "paged"),
        (["generate", "m", "--cache", "=", "st"], "static"),
        (["--man", "sc"], "score"),
        (["--completion", "z"], "zsh"),
        (["inspect", "/et"], "/etc"),
        (["generate", "m", "--k", ""], "same f32 f16 bf16 q8"),
        (["generate", "m", "-p", "x"], ""),
    ],
)
def test_bash_completes(kvad, words, expected):
    script = kvad.text("--completion", "bash") + (
        'compopt() { :; }\nCOMP_WORDS=(kvad "$@"); COMP_CWORD=$#; _kvad; echo "${COMPREPLY[*]}"\n'
    )
    run = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, check=True)
    assert run.stdout.decode().strip() == expected


@pytest.mark.parametrize(
    "arguments", [["--completion"], ["--completion", "csh"], ["--man", "nothing"], ["--no-such"], ["-x"]]
)
def test_wrong_main_options_are_usage_errors(kvad, arguments):
    result = kvad(*arguments)
    assert result.returncode == 2 and not result.stdout and b"--help" in result.stderr
