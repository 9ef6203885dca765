"""`gridbot invite`: the line that it prints, pasted on machines that know nothing of GridBot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.system.deployment import Deployment, eventually
from tests.system.volunteers import Volunteer, machine


@pytest.fixture
def laptop(private_directory: Path) -> Iterator[Volunteer]:
    with machine(private_directory / "laptop") as made:
        yield made


@pytest.fixture
def desktop(private_directory: Path) -> Iterator[Volunteer]:
    with machine(private_directory / "desktop") as made:
        yield made


def invited(server: Deployment, *options: str) -> dict[str, str]:
    found = json.loads(server.run("invite", "--json", *options))
    assert isinstance(found, dict)
    return found


def test_the_pasted_line_makes_a_fresh_machine_run_the_inviters_bots(
    running: Deployment, laptop: Volunteer
) -> None:
    said = running.run("invite", "--expires", "2h").splitlines()
    [line] = [text for text in said if text.startswith("gridbot client join ")]
    bot = running.submit("--range", "0:3", "--", "echo", "{}")
    laptop.type(line)
    running.wait(bot, 120)


def test_an_invitation_for_somebody_else_makes_machines_of_theirs(
    running: Deployment, laptop: Volunteer
) -> None:
    key = running.add_user("rosalind")
    bot = running.submit("--", "true", key=key)
    found = invited(running, "--for", "rosalind")
    assert "joined" in (said := laptop.type(found["command"]))
    assert " as rosalind, " in said
    running.wait(bot, 120)


def test_an_invitation_holds_for_as_many_machines_as_it_says(
    running: Deployment, laptop: Volunteer, desktop: Volunteer
) -> None:
    found = invited(running)
    join = f"gridbot client join '{found['invitation']}'"
    laptop.type(join)
    refused = desktop.type(join, code=4)
    assert "this invitation was for 1 machine, which has joined; ask for another" in refused
    laptop.type(join)
    listed = json.loads(running.run("token", "list", "--json"))["tokens"]
    [used] = [item for item in listed if item["id"] == found["id"]]
    assert (used["uses"], used["machines"]) == (1, 1)


def test_a_machine_that_was_invited_joins_again_by_itself(
    running: Deployment, laptop: Volunteer
) -> None:
    found = invited(running)
    laptop.type(found["command"])
    running.wait(running.submit("--", "true"), 120)
    # As a database does that is restored from before the machine joined, in the next week.
    [(client,)] = running.rows(
        "UPDATE client SET hash = '\\x00', joined_with = joined_with"
        " WHERE joined_with = %s RETURNING id",
        found["id"],
    )
    running.rows(
        "UPDATE token SET expires_at = now() - interval '1 day' WHERE id = %s RETURNING id",
        found["id"],
    )
    again = "SELECT id FROM client WHERE joined_with = %s AND id > %s"
    eventually(lambda: running.rows(again, found["id"], client), 120, "the machine is back")
    running.wait(running.submit("--", "true"), 120)


def test_a_project_that_is_not_the_inviters_is_refused(
    running: Deployment, laptop: Volunteer
) -> None:
    text = invited(running)["invitation"]
    key, project, *owners = text.partition("#")[2].split(".")
    other = ("B" if project[0] == "A" else "A") + project[1:]
    forged = f"{running.url}#{'.'.join((key, other, *owners))}"
    said = laptop.type(f"gridbot client join '{forged}'", code=3)
    assert f"the project key of {running.url} is not the one pinned" in said
    assert "no server is known" in laptop.type("gridbot client start", code=3)


class Redirector(BaseHTTPRequestHandler):
    """Leads to another server."""

    to = ""

    def do_GET(self) -> None:
        """Answer with the other server's address."""
        self.send_response(301)
        self.send_header("Location", self.to + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_an_invitation_follows_a_server_that_has_moved(
    running: Deployment, laptop: Volunteer
) -> None:
    class Moved(Redirector):
        to = running.url

    _, _, rest = invited(running)["invitation"].partition("#")
    with ThreadingHTTPServer(("127.0.0.1", 0), Moved) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        old = f"http://127.0.0.1:{server.server_port}"
        said = laptop.type(f"gridbot client join '{old}#{rest}'")
        server.shutdown()
    assert f"joined {running.url} as " in said


def test_a_line_that_was_not_copied_whole_is_refused(
    running: Deployment, laptop: Volunteer
) -> None:
    text = invited(running)["invitation"]
    said = laptop.type(f"gridbot client join '{text[:-5]}'", code=2)
    assert "the invitation is not whole; copy all of its line" in said
