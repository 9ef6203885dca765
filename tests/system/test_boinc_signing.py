from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.relay import relay
from tests.system.stock_client import StockClient, needs_boinc, stock_client

from gridbot_server.boinc.application import code_keys

pytestmark = needs_boinc


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Where the private keys are: no process of the server looks here."""
    return tmp_path / "vault"


@pytest.fixture
def server(vault: Path) -> Iterator[Deployment]:
    """A server that was given public keys only."""
    with deployment() as made:
        made.run("app", "keys", str(vault))
        made.configure()
        for public in vault.glob("*.pub"):
            (made.data / public.name).write_bytes(public.read_bytes())
        yield made


@contextmanager
def slow_downloads(server: Deployment) -> Iterator[Event]:
    """Start the server behind a network that holds files back while the event is not set."""
    flow = Event()
    flow.set()

    def late(path: str, body: bytes) -> bytes:
        if "/download/" in path:
            flow.wait(120)
        return body

    with relay(server.port) as network:
        network.spoil = late
        server.start("--url", network.url)
        try:
            yield flow
        finally:
            flow.set()


@contextmanager
def attached(server: Deployment) -> Iterator[StockClient]:
    server.run("user", "add", "volunteer")
    made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
    with stock_client(server, str(json.loads(made)["token"]), cpus=2) as client:
        yield client


def trusted(client: StockClient) -> str:
    """The code signing key that a stock client keeps."""
    text = (client.folder / "client_state.xml").read_text()
    return text.partition("<code_sign_key>")[2].partition("</code_sign_key>")[0].strip()


def public(private: Path) -> str:
    return code_keys.public_text(code_keys.load_private(private).public_key())


def test_a_stock_client_runs_what_is_signed_away_from_the_server_and_follows_to_the_next_key(
    server: Deployment, vault: Path, tmp_path: Path
) -> None:
    first, second = vault / "boinc.key", tmp_path / "second" / "boinc.key"
    data = server.file("data", "of the BOT\n")
    with slow_downloads(server) as flow, attached(server) as client:
        assert not server.settings.boinc_key_path.exists()
        assert not server.settings.project_key_path.exists()

        # Signed on a machine that reaches no server.
        bot = server.submit(
            "--range", "0:3", "--time", "10m", "--input", str(data), "--", "cat", "data"
        )
        folder = str(tmp_path / "parcel")
        server.run("app", "fetch", str(bot), "--to", folder)
        assert server.show(bot)["signed_for_boinc"] is False
        Deployment(tmp_path).run("app", "sign", folder, "--yes", "--boinc-key", str(first))
        server.run("app", "send", folder)
        client.update()
        server.wait(bot, 120)
        assert trusted(client) == public(first)

        # Two jobs run, and files of others are on their way, while the key changes.
        gate = server.gate()
        running = server.submit("--range", "0:2", "--time", "10m", "--", *gate.command("echo $1"))
        server.run("app", "sign", str(running), "--yes", "--boinc-key", str(first))
        client.update()
        eventually(lambda: list(client.tasks().values()) == [True] * 2, 120, "two jobs that run")
        flow.clear()
        waiting = server.submit("--range", "0:2", "--time", "10m", "--", "echo", "late")
        server.run("app", "sign", str(waiting), "--yes", "--boinc-key", str(first))
        client.update()
        eventually(lambda: len(client.tasks()) == 4, 120, "two that wait for their files")
        eventually(lambda: client.log.count("Started download") == 4, what="the last download")
        server.run("app", "keys", str(second.parent), "--only", "boinc")
        changed = ("--boinc-key", str(first), "--new-key", str(second))
        told = server.run("app", "rotate", "--yes", *changed)
        assert told.splitlines()[1:] == [f"bot {bot}: signed" for bot in (running, waiting)]
        client.update()
        eventually(lambda: trusted(client) == public(second), what="the new key at the client")
        assert not server.ended(waiting)
        flow.set()
        gate.open()
        server.wait(running, 120)
        server.wait(waiting, 120)

        # And what only the new key signed.
        last = server.submit("--range", "0:2", "--time", "10m", "--", "echo", "{}")
        server.run("app", "sign", str(last), "--yes", "--boinc-key", str(second))
        client.update()
        server.wait(last, 120)
        for bot in (running, waiting, last):
            assert server.made(bot) == {"first": 2}
            assert {end[1] for end in server.ended(bot).values()} == {"success"}
        assert "code signing key" not in client.log
