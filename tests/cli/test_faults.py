"""kvad verify --faults in an ordinary program, which has no faults. (scripts/check_faults looks at one that has.)"""

import pytest


def test_a_program_without_faults_says_how_to_get_one_that_has_them(kvad):
    result = kvad("verify", "--faults")
    assert result.returncode == 4 and not result.stdout
    message = result.stderr.decode()
    assert message.count("\n") == 1 and "make verify-faults" in message and "-DKVAD_FAULTS=ON" in message


@pytest.mark.parametrize("more", [["model"], ["--full"], ["--checks", "chunks"]])
def test_faults_are_tried_on_a_model_of_their_own(kvad, more):
    result = kvad("verify", "--faults", *more)
    assert result.returncode == 2 and b"leave MODEL" in result.stderr
