"""What a command says when it can not go on."""

import pytest
from hydra.errors import HydraException

from experiments.command_line import as_command
from tosca_avalanche.errors import RecordError


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyboardInterrupt(), "interrupted; give the command again"),
        (RecordError("no run there"), "error: no run there"),
        (ValueError("seeds=x"), "error: seeds=x"),
        (HydraException("no such key"), "error: no such key"),
        (FileNotFoundError(2, "No such file", "a.tar"), r"error: .*No such file: 'a.tar'"),
    ],
)
def test_an_error_of_the_users_is_one_line(error, says):
    with pytest.raises(SystemExit, match=says) as ended, as_command("give the command again"):
        raise error
    assert "\n" not in str(ended.value)


def test_an_error_of_ours_keeps_its_traceback():
    with pytest.raises(AttributeError), as_command("give the command again"):
        raise AttributeError("a bug")
