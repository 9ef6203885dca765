from __future__ import annotations

import json
from pathlib import Path

import pytest

from gridbot_client.host import description
from gridbot_client.net.discovery import (
    Endpoint,
    NoServer,
    find_server,
    login_path,
    signing_key_path,
)


def test_the_machine_id_is_stable() -> None:
    assert description.machine_id() == description.machine_id() != ""


def test_the_host_says_what_its_owner_allows(tmp_path: Path) -> None:
    ad = description.attributes(description.room(3, 700), tmp_path, is_pilot=True)
    assert (ad["NumCpus"], ad["Memory"], ad["IsPilot"]) == (3, 700, True)
    assert ad["Platform"] == f"{ad['OpSys']}-{ad['Arch']}".lower()


# --- finding the server


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRIDBOT_SERVER", "GRIDBOT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRIDBOT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def write_login(url: str, key: str) -> None:
    login_path().parent.mkdir(parents=True)
    login_path().write_text(json.dumps({"url": url, "key": key}))


def write_server(folder: Path, url: str, key: str, **more: str) -> None:
    folder.mkdir(parents=True)
    endpoint = {"url": url, "pid": 1, "data": str(folder), **more}
    (folder / "endpoint.json").write_text(json.dumps(endpoint))
    (folder / "operator.key").write_text(key + "\n")


@pytest.mark.parametrize("below", ["", "server"])
def test_a_server_of_this_user_is_found_with_nothing_typed(tmp_path: Path, below: str) -> None:
    write_server(tmp_path / "data" / below, "http://here:1", "operator")
    assert find_server(None, None) == Endpoint(
        "http://here:1", "operator", signing_key=tmp_path / "data" / below / "signing.key"
    )


def test_a_servers_own_machine_reaches_it_past_any_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, local = "https://grid.invalid", "http://127.0.0.1:1"
    write_server(tmp_path / "data", url, "operator", local_url=local)
    found = find_server(None, None)
    assert (found.url, found.address) == (url, local)
    monkeypatch.setenv("GRIDBOT_SERVER", url)
    assert find_server(None, None) == found
    assert find_server(local, None) == Endpoint(
        local, "operator", signing_key=tmp_path / "data" / "signing.key"
    )
    assert Endpoint(url, "key").address == url


def test_login_goes_before_a_local_server_and_arguments_before_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_server(tmp_path / "data", "http://here:1", "operator")
    write_login("https://far/", "mine")
    mine = signing_key_path()
    assert find_server(None, None) == Endpoint("https://far", "mine", signing_key=mine)
    monkeypatch.setenv("GRIDBOT_SERVER", "http://here:1/")
    assert find_server(None, None) == Endpoint(
        "http://here:1", "operator", signing_key=tmp_path / "data" / "signing.key"
    )
    (tmp_path / "key").write_text("typed\n")
    assert find_server("http://x", tmp_path / "key") == Endpoint(
        "http://x", "typed", signing_key=mine
    )


def test_a_key_is_never_sent_to_another_server() -> None:
    write_login("https://far", "mine")
    with pytest.raises(NoServer, match="no key for https://elsewhere;"):
        find_server("https://elsewhere", None)


def test_nothing_known_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="gridbot server start"):
        find_server(None, None)
    with pytest.raises(NoServer, match=r"cannot read the key file .*: No such file"):
        find_server("http://x", tmp_path / "absent")
