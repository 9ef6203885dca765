"""Claims about stock clients on Windows: what they are sent, and that it runs, under Wine.

The requests are those of Debian's client with another platform's name: no client for Windows was
captured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.boinc_site import FIRST, GRAMMAR, SECOND, Site, acks, hostid, keep, opened
from tests.windows_slot import DEADLINE, needs_compiler, needs_wine, wine

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.protocol.programs import HostProgram
from gridbot_server.boinc.application.shim import windows
from gridbot_server.boinc.protocol.names import output_name
from gridbot_server.boinc.protocol.tags import Grammar, Section, read
from gridbot_server.settings import Settings
from gridbot_server.storage import db

LINUX, WINDOWS = "x86_64-pc-linux-gnu", "windows_x86_64"
REPLY = Grammar(
    root=GRAMMAR.root,
    inside={
        **GRAMMAR.inside,
        "app_version": frozenset({"file_ref"}),
        "workunit": frozenset({"file_ref"}),
        "result": frozenset({"file_ref"}),
    },
    raw=GRAMMAR.raw,
)
OWN = b"MZ and the rest of a program"


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


def ref(name: str, content: bytes) -> FileRef:
    return FileRef(name, hashlib.sha256(content).hexdigest(), len(content), executable=True)


def table(program: bytes) -> Manifest:
    """A BOT of a shell command on Linux, and on Windows of a program that shows its argument."""
    rows = (
        HostProgram("linux-x86_64", ("echo", "{i}")),
        HostProgram("windows-x86_64", ("program.exe", "arguments", "job {i}"), ("program.exe",)),
    )
    return Manifest(
        "ann", rows[0].command, {"i": "int"}, (ref("program.exe", program),),
        platforms=("linux-x86_64", "windows-amd64"), programs=rows,
    )  # fmt: skip


def request(site: Site, platform: str, capture: str = FIRST, client: int = 0) -> bytes:
    system = "Microsoft Windows 11" if platform == WINDOWS else "Linux Debian"
    return site.request(capture, platform_name=platform, os_name=system, hostid=client)


def ask(site: Site, body: bytes) -> Section:
    answer = site.post("scheduler", body)
    assert answer.status_code == 200
    return read(answer.text, REPLY)


def main_program(site: Site, version: Section) -> bytes:
    (name,) = (u.text("file_name") for u in version.all("file_ref") if u.flag("main_program"))
    content: bytes = site.get(f"download/{name}").data
    return content


@needs_compiler
def test_each_of_two_machines_is_sent_its_own_program_and_no_other(site: Site) -> None:
    keep(site.conn, site.settings, [OWN])
    site.bot(table(OWN))
    with site.fed():
        on_windows, on_linux = (ask(site, request(site, name)) for name in (WINDOWS, LINUX))
    (version,) = on_windows.all("app_version")
    assert (version.text("platform"), version.text("plan_class")) == (WINDOWS, "cpu_2")
    assert main_program(site, version).startswith(windows.build() + b"\n# Manifest ")
    _, own = version.all("file_ref")
    assert (own.text("open_name"), own.flag("copy_file")) == ("gb_0", True)
    assert site.get(f"download/{own.text('file_name')}").data == OWN
    (version,) = on_linux.all("app_version")
    assert version.text("platform") == LINUX
    assert main_program(site, version).startswith(b"#!/bin/sh\n")
    assert len(version.all("file_ref")) == 1
    assert on_linux.all("result") and on_windows.all("result")


@needs_compiler
@pytest.mark.parametrize(
    ("platforms", "is_given"),
    [
        (("windows-amd64",), {WINDOWS: True, LINUX: False}),
        # One command is not for a shell and for Windows.
        (("linux-x86_64", "windows-amd64"), {WINDOWS: False, LINUX: True}),
        ((), {WINDOWS: False, LINUX: True}),
    ],
)
def test_one_command_goes_to_windows_if_it_is_for_windows_alone(
    site: Site, platforms: tuple[str, ...], is_given: dict[str, bool]
) -> None:
    site.bot(Manifest("ann", ("cmd", "/c", "ver"), {"i": "int"}, platforms=platforms))
    with site.fed():
        found = {name: bool(ask(site, request(site, name)).all("result")) for name in is_given}
    assert found == is_given


def told(name: str, output: bytes, log: str) -> str:
    """A report of a good end, as the captured client writes it."""
    return (
        f"<result>\n<name>{name}</name>\n<state>5</state>\n<exit_status>0</exit_status>\n"
        f"<stderr_out>\n<![CDATA[\n<stderr_txt>\n{log}\n</stderr_txt>\n]]>\n</stderr_out>\n"
        f"<file_info>\n<name>{output_name(name)}</name>\n<nbytes>{len(output)}</nbytes>\n"
        f"<md5_cksum>{hashlib.md5(output).hexdigest()}</md5_cksum>\n</file_info>\n</result>\n"
    )


def upload(site: Site, name: str, output: bytes, offered: Section) -> str:
    most, certificate = offered.integer("max_nbytes"), offered.raw("xml_signature")
    head = (
        f"<data_server_request>\n<file_upload>\n<file_info>\n<name>{output_name(name)}</name>\n"
        f"<xml_signature>\n{certificate}</xml_signature>\n"
        f"<max_nbytes>{most}</max_nbytes>\n</file_info>\n<nbytes>{len(output)}</nbytes>\n"
        f"<md5_cksum>{hashlib.md5(output).hexdigest()}</md5_cksum>\n<offset>0</offset>\n<data>\n"
    )
    return site.post("file_upload_handler", head.encode() + output).text


@needs_wine
def test_what_a_windows_machine_is_sent_runs_and_its_answer_counts(
    site: Site, tmp_path: Path
) -> None:
    with wine() as installed:
        keep(site.conn, site.settings, [installed.program])
        bot = site.bot(table(installed.program))
        with site.fed():
            reply = ask(site, request(site, WINDOWS))
        (version,), unit = reply.all("app_version"), reply.all("workunit")[0]
        # As a client does: files in the slot by copy, the program beside it under its name.
        slot, main = tmp_path / "slot", tmp_path / "gb_main"
        slot.mkdir()
        main.write_bytes(main_program(site, version))
        for use in version.all("file_ref")[1:]:
            content = site.get(f"download/{use.text('file_name')}").data
            (slot / use.text("open_name")).write_bytes(content)
        words = unit.text("command_line").split()
        with installed.start(main, *words, cwd=slot) as process:
            assert process.wait(DEADLINE) == 0
    name = unit.text("name")
    output = (slot / "gb_out").read_bytes()
    offered = next(
        part for part in reply.all("file_info") if part.text("name") == output_name(name)
    )
    assert "<status>0</status>" in upload(site, name, output, offered)
    body = request(site, WINDOWS, SECOND, hostid(reply)).replace(
        b"<other_results>",
        f"{told(name, output, (slot / 'stderr.txt').read_text())}<other_results>".encode(),
    )
    assert acks(ask(site, body)) == [name]
    ((seq, how, stdout),) = site.rows("SELECT seq, how, stdout FROM ended WHERE bot = %s", bot)
    assert (how, bytes.fromhex(stdout.strip())) == ("success", f"job {seq}".encode())
