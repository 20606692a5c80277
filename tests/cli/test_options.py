"""Parsing: values, ranges, units, variables, suggestions, and that no line whatever brings the program down."""

import itertools
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUICK = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refusal(result):
    assert result.returncode == 2 and not result.stdout
    first, second = result.stderr.decode().splitlines()
    assert second.startswith("Try 'kvad")
    return first


@pytest.mark.parametrize(
    "typo,meant",
    [
        ("--tempreature", "--temperature"),
        ("--top_k", "--top-k"),
        ("--topk=5", "--top-k"),
        ("--max_new_tokens=5", "--max-tokens"),
        ("--num_samples", "--samples"),
        ("--repeat-penalty", "--repetition-penalty"),
        ("--SEED", "--seed"),
        ("--hlep", "--help"),
        ("--jsno", "--json"),
        ("--n-predict", "--max-tokens"),
    ],
)
def test_nearest_option_is_suggested(kvad, typo, meant):
    assert f"did you mean '{meant}'?" in refusal(kvad("generate", "m", typo))


@pytest.mark.parametrize("typo,meant", [("generat", "generate"), ("tokenise", "tokenize"), ("socre", "score")])
def test_nearest_command_is_suggested(kvad, typo, meant):
    assert f"did you mean '{meant}'?" in refusal(kvad(typo, "m"))


@pytest.mark.parametrize("word", ["--zzzzzzzz", "-Z", "--" + "x" * 5000, "--=", "--\x01\xff"])
def test_far_off_options_get_no_suggestion(kvad, word):
    assert "did you mean" not in refusal(kvad("generate", "m", word))


# bugs.md SERV-6, SAMP-19, SAMP-20, SAMP-21
@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "-1"],
        ["-n", "1.5"],
        ["-n", "0x10"],
        ["-n", ""],
        ["-n", "99999999999999999999"],
        ["-n5x"],
        ["--max-tokens=1e400"],
        ["--samples", "0"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--temperature", "inf"],
        ["--temperature", "1e400"],
        ["--temperature", "1e308"],
        ["--temperature", "0.5.5"],
        ["--temperature", "true"],
        ["--top-p", "-1"],
        ["--top-p", "1.01"],
        ["--min-p", "2"],
        ["--typical", "-0.1"],
        ["--top-k", "-5"],
        ["--top-k", "4294967296"],
        ["--presence-penalty", "1e39"],
        ["--seed", "-1"],
        ["--cache", "ring"],
        ["--cache", "Paged"],
        ["--block", "15"],
        ["--threads", "-2"],
        ["--threads", "1000000"],
        ["--kv-memory", "5X"],
        ["--kv-memory", "0"],
        ["--kv-memory", "-5M"],
        ["--kv-memory", "1e300"],
        ["--ids", "1,-2"],
        ["--ids", "1,2147483648"],
        ["--ids", "a"],
        ["--ids", "1;2"],
        ["--stop", ""],
        ["--stop-id", "x"],
        ["--logit-bias", "5"],
        ["--logit-bias", "-1=5"],
        ["--logit-bias", "5=nan"],
        ["--logit-bias", "5=1e39"],
        ["--logit-bias", "5=inf"],
        ["--logit-bias", "2147483648=1"],
        ["--order", "top-k,top-k"],
        ["--order", "top-q"],
        ["--order", ""],
        ["--cpu", "pentium"],
        ["--activation", "swish"],
        ["--json=1"],
        ["-q=1"],
        ["--seed"],
        ["-n"],
        ["-p", "x", "-f", "y"],
        ["-p", "x", "--ids", "1"],
        ["extra"],
    ],
)
def test_bad_value_is_refused_by_name(kvad, arguments):
    message = refusal(kvad("generate", "no-such-model", *arguments))
    name = arguments[0].split("=")[0]
    assert name in message or name[:2] in message or "exclude each other" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n0"],
        ["-n", "5"],
        ["--max-tokens=5"],
        ["-qv"],
        ["-qn5"],
        ["--temperature", "-0.0"],
        ["--temperature=1e-45"],
        ["--temperature", ".5"],
        ["--kv-memory", "512M"],
        ["--kv-memory", "1.5GiB"],
        ["--kv-memory", "10kb"],
        ["--ids", "1 2,3\n4"],
        ["--logit-bias", "5=-inf,6=1e38", "--logit-bias", "7=-1"],
        ["--presence-penalty", "-1"],
        ["--order", "min-p,top-p,typical,top-k,temperature,ngram,penalties,bias"],
        ["--seed", "9007199254740992"],
        ["--stop", "-", "--stop", "--"],
        ["-vvv"],
    ],
)
def test_good_value_is_taken(kvad, arguments):
    """The model that follows does not exist: exit code 3 says that the line itself was right."""
    assert kvad("generate", *arguments, "no-such-model").returncode == 3


@pytest.mark.parametrize(
    "name,value",
    [
        ("KVAD_THREADS", "many"),
        ("KVAD_TEMPERATURE", "-1"),
        ("KVAD_TOP_K", "x"),
        ("KVAD_CACHE", "ring"),
        ("KVAD_JSON", "maybe"),
        ("KVAD_LOGIT_BIAS", "5"),
        ("KVAD_KV_MEMORY", "lots"),
        ("KVAD_VERBOSE", "loud"),
    ],
)
def test_bad_variable_is_named(kvad, name, value):
    assert f" {name}: '{value}'" in refusal(kvad("generate", "no-such-model", env={name: value}))


def test_empty_variable_counts_as_unset(kvad):
    assert kvad("generate", "no-such-model", env={"KVAD_THREADS": "", "KVAD_CACHE": ""}).returncode == 3


def test_option_wins_over_its_variable(kvad):
    result = kvad("generate", "no-such-model", "--cache", "grow", env={"KVAD_CACHE": "ring"})
    assert result.returncode == 3


def test_variables_of_other_commands_are_not_read(kvad):
    assert kvad("inspect", "no-such-model", env={"KVAD_TEMPERATURE": "hot"}).returncode == 3


def test_prompt_has_no_variable(kvad):
    """A prompt left in the environment would change every later call."""
    result = kvad("generate", "no-such-model", "-p", "x", env={"KVAD_FILE": "y", "KVAD_IDS": "z"})
    assert result.returncode == 3


@pytest.mark.parametrize("command", ["generate", "score", "tokenize", "inspect"])
def test_model_is_asked_for(kvad, command):
    assert "MODEL is missing" in refusal(kvad(command))


NAMES = """--prompt --file --ids --special --max-tokens --samples --stop --stop-id --temperature --top-k --logit-bias
    --order --cache --ctx --block --kv-memory --threads --cpu --json --output --quiet --chunk --logits --decode
    --tokenizer --n-head -p -n -q -v --""".split()
VALUES = ["", "-", "--", "0", "1", "-1", "1e9", "nan", "512M", "paged", "1,2", "5=1", "5=-inf", "/dev/null", "=", "é"]
WORDS = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(VALUES),
    st.builds("{}={}".format, st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.text(string.printable, max_size=12),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=6),
)


# bugs.md SERV-7, SERV-12
@QUICK
@given(command=st.sampled_from(["generate", "score", "tokenize", "inspect"]), words=st.lists(WORDS, max_size=8))
def test_no_line_brings_the_program_down(kvad, tmp_path, command, words):
    result = kvad(command, "no-such-model", *words, cwd=tmp_path)
    assert 0 <= result.returncode <= 6
    assert result.returncode == 0 or result.stderr


@QUICK
@given(words=st.lists(WORDS, max_size=5))
def test_no_first_word_brings_the_program_down(kvad, tmp_path, words):
    assert 0 <= kvad(*words, cwd=tmp_path).returncode <= 6


VARIABLES = ["KVAD_THREADS", "KVAD_TOP_K", "KVAD_CACHE", "KVAD_LOGIT_BIAS", "KVAD_STOP", "KVAD_JSON", "KVAD_ORDER"]


@QUICK
@given(
    env=st.dictionaries(
        st.sampled_from(VARIABLES),
        st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8),
    )
)
def test_no_variable_brings_the_program_down(kvad, env):
    assert kvad("generate", "no-such-model", env=env).returncode in (2, 3)


def test_every_pair_of_one_letter_options_parses_or_is_refused(kvad):
    for pair in itertools.product("pfnqvoszx", repeat=2):
        assert kvad("generate", "no-such-model", "-" + "".join(pair), "/dev/null").returncode in (1, 2, 3)
