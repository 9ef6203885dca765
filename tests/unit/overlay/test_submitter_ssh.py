"""How a login node is reached, and which options are refused before anything is tried."""

from pathlib import Path
from typing import Any

import pytest

from gridbot_overlay.decide.model import Grid
from gridbot_overlay.submitters import KINDS, GridError, ssh


def made(folder: Path, **options: Any) -> object:
    return KINDS["ssh"](Grid(name="far", kind="ssh", options=options), folder)


def test_our_settings_come_after_the_operators_which_ssh_then_prefers() -> None:
    options = {**ssh.OPTIONS, "host": "login.example", "ssh": ["-o", "ConnectTimeout=3"]}
    command = ssh.login(options, Path("/var/lib/overlay"))
    assert command.index("ConnectTimeout=3") < command.index("ConnectTimeout=15")
    assert command[-2:] == ("--", "login.example")
    assert "ControlPath=/var/lib/overlay/ssh/login" in command
    assert "BatchMode=yes" in command


def test_a_given_identity_is_the_only_one_that_is_tried() -> None:
    options = {**ssh.OPTIONS, "host": "h", "user": "me", "port": 2222, "identity": "/k"}
    command = ssh.login(options, Path("/f"))
    assert "IdentitiesOnly=yes" in command
    for pair in (("-l", "me"), ("-p", "2222"), ("-i", "/k")):
        assert command[command.index(pair[0]) + 1] == pair[1]


def test_a_percent_sign_in_the_folder_is_none_of_sshs() -> None:
    command = ssh.login({**ssh.OPTIONS, "host": "h"}, Path("/100%h"))
    assert "ControlPath=/100%%h/ssh/login" in command


def test_a_folder_too_deep_for_a_socket_goes_without(tmp_path: Path) -> None:
    command = ssh.login({**ssh.OPTIONS, "host": "h"}, Path("/" + "x" * 100))
    assert not any(word.startswith("Control") for word in command)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "host must name a login node"),
        ({"host": "-oProxyCommand=x"}, "host must name a login node"),
        ({"host": "h", "user": "-x"}, "no user's name"),
        ({"host": "h", "via": "local"}, "via is one of grid_engine, htcondor, pbs, slurm"),
        ({"host": "h", "via": "ssh"}, "via is one of"),
        ({"host": "h", "through": ["x"]}, "what this kind is for"),
        ({"host": "h", "port": "22"}, "port is no int"),
        ({"host": "h", "flavour": "torque"}, "slurm has no option 'flavour'"),
    ],
)
def test_wrong_options_are_refused_at_once(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(GridError, match=said) as caught:
        made(tmp_path, **options)
    assert caught.value.is_lasting


def test_the_options_of_the_kind_behind_stand_beside_sshs_own(tmp_path: Path) -> None:
    made(tmp_path, host="h", via="pbs", flavour="torque", environment={"PBS_SERVER": "x"})
