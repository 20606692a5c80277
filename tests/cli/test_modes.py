"""Options without an effect on what was asked for: typed, they are refused by name and not ignored; as variables, which
are for every call, they are passed over."""

import json

import pytest

TINY = ["bench", "--synthetic", "tiny", "--quick", "--repeat", 1]
COMPUTED = ["memory", "--config", "gpt2"]
MODEL_OPTIONS = ["--tokenizer=x", "--activation=relu", "--weights=q8", "--n-head=2", "--no-map", "--cpu=portable"]
MEASURING = [*MODEL_OPTIONS, "--threads=1", "--quick", "--full", "--fresh", "--seed=2"]

STRAYS = [
    *[(TINY, option, "needs --trace") for option in ("--requests=3", "--seed=2", "--kv-memory=1M")],
    (TINY, "--budget=5", "needs --experiment"),
    (TINY, "--n-head=2", "--synthetic"),
    ([*TINY, "--trace"], "--budget=5", "needs --experiment"),
    *[([*TINY, "--trace", "--trace-file", "x"], option, "--trace-file") for option in ("--requests=3", "--seed=2")],
    *[
        ([*TINY, "--experiment"], option, "needs --trace")
        for option in ("--requests=3", "--seed=2", "--kv-memory=1M", "--trace-file=x")
    ],
    *[(COMPUTED, option, "is for measuring") for option in [*MODEL_OPTIONS, "--threads=1", "--cache=paged"]],
    *[
        (["memory", "--config", "?"], option, "lists names")
        for option in ("--json", "--ctx=5", "--batch=2", "--kv=q8", "--block=32")
    ],
    (["memory", "m"], "--batch=2", "is for --config"),
    *[(["lab", "--from", "r.json", "-o", "d"], option, "--from reads a report") for option in MEASURING],
    *[(["lab", "--compare", "a", "b"], option, "--compare reads two reports") for option in MEASURING],
    *[(["verify", "--faults"], option, "--faults") for option in [*MODEL_OPTIONS, "--seed=2", "--kv=q8", "--full"]],
    *[
        (["generate", "m", "-p", "x"], option, "belongs to --batch")
        for option in ("--parallel=2", "--no-prefix-cache", "--show-cache")
    ],
    *[(["generate", "m", "--batch", "x"], option, "--batch") for option in ("--no-echo", "--samples=2")],
    *[([command, "m", "--ids", "1,2"], "--special", "--ids are ids") for command in ("generate", "score")],
    (["tokenize", "m", "--decode", "1,2"], "--special", "--decode"),
]


@pytest.mark.parametrize("line,option,mode", STRAYS)
def test_an_option_without_effect_is_refused_by_its_name(kvad, tmp_path, line, option, mode):
    result = kvad(*line, option, cwd=tmp_path)
    assert result.returncode == 2 and not result.stdout
    message, hint = result.stderr.decode().splitlines()
    assert option.split("=")[0] in message and mode in message
    assert hint == f"Try 'kvad {line[0]} --help'."


EVERY_CALL = {
    "KVAD_WEIGHTS": "q8",
    "KVAD_KV": "q8",
    "KVAD_CACHE": "paged",
    "KVAD_SEED": "5",
    "KVAD_KV_MEMORY": "64M",
    "KVAD_N_HEAD": "4",
    "KVAD_THREADS": "1",
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    path = tmp_path_factory.mktemp("batch") / "prompts.jsonl"
    path.write_text('"A"\n')
    return path


def test_variables_that_an_experiment_has_no_use_for_are_passed_over(kvad):
    env = {**EVERY_CALL, "KVAD_PREFILL": "5", "KVAD_BATCH": "2", "KVAD_REQUESTS": "3"}
    line = [*TINY, "--experiment", "--contexts", "1,63"]

    def read(run):
        return [(point["cached"]["bytes"], point["naive"]["bytes"]) for point in run["points"]]

    assert read(kvad.json(*line, env=env)) == read(kvad.json(*line))


def test_variables_that_a_trace_has_no_use_for_are_passed_over(kvad):
    env = {**EVERY_CALL, "KVAD_CONTEXTS": "5", "KVAD_PREFILL": "5", "KVAD_BATCH": "2", "KVAD_BUDGET": "9"}
    assert len(kvad.json(*TINY, "--trace", env=env)["policies"]) == 3


def test_variables_that_single_steps_have_no_use_for_are_passed_over(kvad):
    env = {**EVERY_CALL, "KVAD_BUDGET": "9", "KVAD_REQUESTS": "3"}
    run = kvad.json(*TINY, "--contexts", 5, "--prefill", "", "--batch", "", env=env)
    assert {case["weights"] for case in run["decode"]} == {"q8"}


def test_variables_that_computing_has_no_use_for_are_passed_over(kvad, nano):
    assert kvad.json(*COMPUTED, env={**EVERY_CALL, "KVAD_KV": "f32"}) == kvad.json(*COMPUTED)
    assert kvad.json("memory", nano, "--cache", "paged", env={"KVAD_BATCH": "3"})["exact"]


def test_variables_that_generate_has_no_use_for_are_passed_over(kvad, nano, batch):
    kvad.text("generate", nano, "-p", "A", "-n", 1, env={"KVAD_SHOW_CACHE": "1", "KVAD_PARALLEL": "2"})
    kvad.text("generate", nano, "--ids", "1", "-n", 1, env={"KVAD_SPECIAL": "1"})
    answers = kvad.text(
        "generate", nano, "--batch", batch, "-n", 1, env={"KVAD_SAMPLES": "3", "KVAD_NO_ECHO": "1"}
    ).splitlines()
    assert [json.loads(answer)["index"] for answer in answers] == [0]


def test_variables_of_a_models_checks_do_not_stop_the_faults(kvad):
    """4: this program has none of them, which is what it says."""
    assert kvad("verify", "--faults", env={"KVAD_FULL": "1", "KVAD_CHECKS": "chunks"}).returncode == 4


@pytest.mark.parametrize("line", [["verify", "no-such-model"], ["lab", "no-such-model", "-o", "report"]])
def test_a_typed_option_wins_over_the_variable_that_excludes_it(kvad, tmp_path, line):
    """The model that follows does not exist: exit code 3 says that the line itself was right."""
    assert kvad(*line, "--full", env={"KVAD_QUICK": "1"}, cwd=tmp_path).returncode == 3
    assert kvad(*line, "--quick", env={"KVAD_FULL": "1"}, cwd=tmp_path).returncode == 3
    both = kvad(*line, env={"KVAD_QUICK": "1", "KVAD_FULL": "1"}, cwd=tmp_path)
    assert both.returncode == 2 and b"KVAD_QUICK and KVAD_FULL exclude each other" in both.stderr


@pytest.mark.parametrize(
    "line,name,value,words",
    [
        ([*TINY, "--trace"], "KVAD_WEIGHTS", "f32,q8", "--trace and this KVAD_WEIGHTS"),
        ([*TINY, "--trace"], "KVAD_KV", "f32,q8", "--trace and this KVAD_KV"),
        (COMPUTED, "KVAD_KV", "f32,q8", "KVAD_KV takes one type"),
        (["memory", "no-such-model"], "KVAD_KV", "q4", "KVAD_KV: q4"),
    ],
)
def test_a_variable_that_applies_and_cannot_be_is_refused_under_its_own_name(kvad, line, name, value, words):
    result = kvad(*line, env={name: value})
    assert result.returncode == 2 and words in result.stderr.decode()
    assert "--" + name.removeprefix("KVAD_").lower() not in result.stderr.decode()


def test_a_variable_that_the_model_cannot_take_is_refused_under_its_own_name(kvad, nano):
    for name, value in (("KVAD_CTX", "38"), ("KVAD_STOP_ID", "65")):
        result = kvad("generate", nano, "-p", "A", "-n", 1, env={name: value})
        assert result.returncode == 2 and f"{name} {value}" in result.stderr.decode()
