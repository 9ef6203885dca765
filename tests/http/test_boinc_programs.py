"""Claims about BOTs with several programs: what stock clients of different machines are sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import pytest
from tests.factories import make_lease
from tests.http.boinc_site import FIRST, Site, hostid, keep, opened

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId
from gridbot_client.protocol.programs import HostProgram
from gridbot_server.boinc.application import code_keys, code_signatures
from gridbot_server.boinc.protocol.tags import Section
from gridbot_server.settings import Settings
from gridbot_server.storage import db

CONTENTS = {"linux/prog": b"for Linux", "arm/prog": b"for ARM", "mac/prog": b"for a Mac"}
LINUX, ARM, MAC, WINDOWS = (
    "x86_64-pc-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin", "windows_x86_64",
)  # fmt: skip
GPU = """<coprocs>
<coproc_cuda>
<count>1</count>
<name>Imagined 4090</name>
<req_secs>1.0</req_secs>
<req_instances>1.0</req_instances>
<peak_flops>1e13</peak_flops>
<available_ram>8589934592</available_ram>
<drvVersion>53510</drvVersion>
<cudaVersion>12020</cudaVersion>
</coproc_cuda>
</coprocs>"""


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


def ref(name: str) -> FileRef:
    content = CONTENTS[name]
    return FileRef(name, hashlib.sha256(content).hexdigest(), len(content), executable=True)


def program(where: str, name: str, *words: str) -> HostProgram:
    return HostProgram(where, (name, *words, "{i}"), (name,) if name in CONTENTS else ())


PROGRAMS = (
    program("linux-x86_64", "linux/prog"),
    program("linux-x86_64 gpu=nvidia cuda>=11 driver>=500", "linux/prog", "--gpu"),
    program("linux-aarch64", "arm/prog"),
    program("darwin-arm64", "mac/prog"),
    program("windows-aarch64", "echo"),
)
MANIFEST = Manifest(
    "ann",
    PROGRAMS[0].command,
    {"i": "int"},
    tuple(map(ref, CONTENTS)),
    platforms=("linux-x86_64", "linux-aarch64", "darwin-arm64", "windows-arm64"),
    programs=PROGRAMS,
)


def request(site: Site, platform: str, gpu: str) -> bytes:
    """What a client of such a machine says, by a captured request."""
    body = site.request(FIRST, platform_name=platform)
    return body.replace(b"<app_versions>", f"{gpu}\n<app_versions>".encode())


def sent(
    site: Site,
    platform: str,
    gpu: str = "",
    manifest: Manifest = MANIFEST,
    files: Iterable[bytes] = CONTENTS.values(),
) -> Section:
    """The reply to a new client that has lost a replica of the BOT."""
    keep(site.conn, site.settings, files)
    client = hostid(site.ask(body=request(site, platform, gpu)))
    make_lease(site.conn, ReplicaId(site.bot(manifest), 2, 1), client)
    return site.ask(body=request(site, platform, gpu))


def contents(site: Site, reply: Section) -> set[bytes]:
    """What the client downloads, without the script."""
    names = [item.text("url").rpartition("/")[2] for item in reply.all("file_info")]
    found = [site.get(f"download/{name}").data for name in names if "/download/" not in name]
    return {content for content in found if content in CONTENTS.values()}


@pytest.mark.parametrize(
    ("platform", "name", "plan_class"),
    [(LINUX, "linux/prog", "cpu_1"), (ARM, "arm/prog", "cpu_3"), (MAC, "mac/prog", "cpu_4")],
)
def test_each_machine_is_sent_the_program_for_its_platform_and_no_other_files(
    site: Site, platform: str, name: str, plan_class: str
) -> None:
    reply = sent(site, platform)
    (version,) = reply.all("app_version")
    (result,) = reply.all("result")
    for told in (version, result):
        assert (told.text("platform"), told.text("plan_class")) == (platform, plan_class)
    assert contents(site, reply) == {CONTENTS[name]}


def test_a_machine_with_a_new_enough_gpu_is_sent_the_program_for_it(site: Site) -> None:
    (version,) = sent(site, LINUX, GPU).all("app_version")
    assert version.text("plan_class") == "gpu_nvidia_2"
    assert "<type>NVIDIA</type>" in version.raw("coproc")


@pytest.mark.parametrize("older", [("12020", "10020"), ("53510", "47063"), ("12020", "0")])
def test_a_machine_with_an_older_driver_is_sent_the_program_without_gpu(
    site: Site, older: tuple[str, str]
) -> None:
    (version,) = sent(site, LINUX, GPU.replace(*older)).all("app_version")
    assert version.text("plan_class") == "cpu_1"


@pytest.mark.parametrize("platform", [WINDOWS, "windows_arm64"])
def test_a_windows_machine_is_sent_nothing_that_needs_a_shell(site: Site, platform: str) -> None:
    reply = sent(site, platform)
    assert (reply.all("app_version"), reply.all("result")) == ([], [])


def test_every_file_that_is_sent_is_signed(site: Site) -> None:
    reply = sent(site, LINUX)
    public = code_keys.parse_public(reply.raw("code_sign_key"))
    files = [item for item in reply.all("file_info") if item.text("md5_cksum")]
    assert len(files) == 2, "the script and the program"
    for item in files:
        assert code_signatures.is_signed(
            public, item.text("md5_cksum"), item.raw("file_signature").strip()
        )


API_PROGRAMS = (
    HostProgram("linux-x86_64", ("linux", "{i}"), ("linux",)),
    HostProgram("windows-x86_64", ("windows.exe", "--quiet", "{i}"), ("windows.exe",)),
)
API_CONTENTS = {"linux": b"ELF", "windows.exe": b"MZ"}


def for_boincs_api() -> Manifest:
    inputs = tuple(
        FileRef(name, hashlib.sha256(content).hexdigest(), len(content), executable=True)
        for name, content in API_CONTENTS.items()
    )
    return Manifest(
        "ann", API_PROGRAMS[0].command, {"i": "int"}, inputs, ("result",), boinc_api=True,
        platforms=("linux-x86_64", "windows-amd64"), programs=API_PROGRAMS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("platform", "line", "content"), [(LINUX, "2", b"ELF"), (WINDOWS, "--quiet 2", b"MZ")]
)
def test_a_windows_machine_is_sent_the_program_of_boincs_api_for_it(
    site: Site, platform: str, line: str, content: bytes
) -> None:
    reply = sent(site, platform, manifest=for_boincs_api(), files=API_CONTENTS.values())
    (version,), (unit,) = reply.all("app_version"), reply.all("workunit")
    assert (version.text("platform"), unit.text("command_line")) == (platform, line)
    program, _output = reply.all("file_info")
    assert site.get(f"download/{program.text('name')}").data == content
