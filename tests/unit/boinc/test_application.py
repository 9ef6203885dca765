import hashlib
import io
from dataclasses import replace

import pytest
from tests.windows_slot import needs_compiler

from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.manifest import RequestedWalls
from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId, Resources, manifest_id
from gridbot_client.protocol.programs import HostProgram
from gridbot_client.protocol.template import TemplateError
from gridbot_server.boinc.application import code_keys, code_signatures, description, signed
from gridbot_server.boinc.application.description import (
    Application,
    FileUse,
    JobInstance,
    Terms,
    Workunit,
)
from gridbot_server.boinc.application.shim import windows
from gridbot_server.boinc.application.signed import BadApplication, SignedApplication
from gridbot_server.signing.stock_clients import Unsuitable

PRIVATE = code_keys.generate()
PUBLIC = PRIVATE.public_key()
CONTENTS = {name: f"the {name}".encode() for name in ("prog", "data", "own")}
MD5S = {
    hashlib.sha256(content).hexdigest(): hashlib.md5(content).hexdigest()
    for content in CONTENTS.values()
}


def ref(name: str, content: str, executable: bool = False) -> FileRef:
    digest = hashlib.sha256(CONTENTS[content]).hexdigest()
    return FileRef(name, digest, len(CONTENTS[content]), executable)


def name_of(sha256: str) -> str:
    return f"gb_{sha256}"


def md5_of(file: FileRef) -> str:
    return MD5S[file.sha256]


MANIFEST = Manifest(
    "lab",
    ("prog", "--n={n}", "in/data"),
    placeholders={"n": "int"},
    inputs=(ref("prog", "prog", executable=True), ref("in/data", "data")),
    resources=Resources(cpus=2, memory_mb=100, disk_mb=50, seconds=600),
    max_output_bytes=1000,
    platforms=("linux-x86_64",),
)


def described(manifest: Manifest = MANIFEST, bot: int = 5) -> Application:
    files = signed.check(manifest, signed.sign(manifest, md5_of, PRIVATE), md5_of, PUBLIC)
    return description.describe(manifest, bot, files, name_of)


def ordered(manifest: Manifest = MANIFEST, **fields: object) -> Workunit:
    instance = JobInstance(ReplicaId(5, 7, 1), "gb_5_7_1", {"n": 3}, md5s=MD5S)
    return description.workunit(manifest, instance._replace(**fields))  # type: ignore[arg-type]


def agreed(manifest: Manifest = MANIFEST, expected_seconds: float | None = None) -> Terms:
    return description.terms(manifest, described().versions[0], expected_seconds)


def test_point_9_every_file_of_an_application_is_signed() -> None:
    found = described()
    assert [file.size for file in found.files[1:]] == [8, 8]
    for file in found.files:
        assert code_signatures.is_signed(PUBLIC, file.md5, file.signature)
    (version,) = found.versions
    assert {use.file_name for use in version.files} == {
        name_of(file.sha256) for file in found.files
    }


def test_point_10_the_script_is_signed_by_the_md5_of_its_text() -> None:
    made = signed.sign(MANIFEST, md5_of, PRIVATE)
    script = described().files[0]
    assert script.md5 == hashlib.md5(made.scripts[0].encode()).hexdigest()
    assert script.sha256 == hashlib.sha256(made.scripts[0].encode()).hexdigest()
    assert script.size == len(made.scripts[0].encode())
    assert script.executable


def test_one_file_is_the_main_program_and_the_shim_finds_the_others() -> None:
    (version,) = described().versions
    script, *others = described().files
    assert version.files == (
        FileUse(name_of(script.sha256), main_program=True),
        FileUse(name_of(others[0].sha256), "gb_0"),
        FileUse(name_of(others[1].sha256), "gb_1"),
    )


def test_point_7_one_content_under_two_names_is_one_file_with_two_uses() -> None:
    manifest = replace(MANIFEST, inputs=(*MANIFEST.inputs, ref("copy", "data")))
    found = described(manifest)
    assert len(found.files) == 3
    assert [use.open_name for use in found.versions[0].files] == ["", "gb_0", "gb_1", "gb_2"]
    assert found.versions[0].files[2].file_name == found.versions[0].files[3].file_name


def test_a_version_has_its_bots_number_and_resources() -> None:
    (version,) = described().versions
    assert (version.app_name, version.version_num) == ("gridbot_lab", 5)
    assert (version.avg_ncpus, version.plan_class, version.coproc) == (2, "", None)
    assert version.platform == "x86_64-pc-linux-gnu"
    # Below 6.0 clients would not put the messages where the script reads them.
    assert float(version.api_version.split(".")[0]) >= 6


def test_all_bots_of_an_owner_are_versions_of_one_application() -> None:
    one, two = described(bot=5), described(bot=6)
    assert one.app == two.app
    assert one.versions[0].version_num != two.versions[0].version_num


def test_a_bot_for_any_platform_is_offered_where_there_is_a_posix_shell() -> None:
    found = described(replace(MANIFEST, platforms=()))
    offered = {version.platform for version in found.versions}
    assert {"x86_64-pc-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin"} <= offered
    assert not [name for name in offered if "windows" in name or "android" in name]


def test_a_bot_for_a_windows_that_is_not_served_is_not_for_stock_clients() -> None:
    with pytest.raises(Unsuitable, match="no stock client is served on windows-arm64"):
        description.platforms(replace(MANIFEST, platforms=("windows-arm64",)))


@needs_compiler
def test_a_bot_for_windows_alone_runs_by_a_program_in_place_of_the_script() -> None:
    manifest = replace(MANIFEST, platforms=("windows-amd64",))
    (script,) = signed.sign(manifest, md5_of, PRIVATE).scripts
    found = described(manifest)
    (version,) = found.versions
    assert version.platform == "windows_x86_64"
    assert signed.content(script) == windows.render(manifest)
    assert found.files[0].sha256 == hashlib.sha256(signed.content(script)).hexdigest()
    assert found.files[0].executable
    with pytest.raises(Unsuitable, match="holds a line like the scripts that run BOTs"):
        signed.check_input(ref("data", "data"), io.BytesIO(signed.content(script)))


def test_one_command_for_windows_and_others_is_served_where_there_is_a_shell() -> None:
    manifest = replace(MANIFEST, platforms=("linux-x86_64", "windows-amd64"))
    assert description.platforms(manifest) == ("x86_64-pc-linux-gnu",)


def test_a_bot_that_asks_for_walls_is_not_for_stock_clients() -> None:
    with pytest.raises(Unsuitable, match="asks for sandbox level 1, stock clients have 0"):
        described(replace(MANIFEST, walls=RequestedWalls(level=1)))


def test_a_client_gets_the_version_of_its_first_platform_that_fits() -> None:
    found = described(replace(MANIFEST, platforms=("linux-i686", "linux-x86_64")))
    both = ("x86_64-pc-linux-gnu", "i686-pc-linux-gnu")
    for names in (both, both[::-1], both[1:]):
        version = found.version_for(names)
        assert version is not None
        assert version.platform == names[0]
    assert found.version_for(("windows_x86_64",)) is None
    assert found.version_for(()) is None


def test_a_gpu_bot_has_a_plan_class_for_each_vendor() -> None:
    found = described(replace(MANIFEST, resources=Resources(gpus=2)))
    assert {version.plan_class for version in found.versions} == set(description.PLAN_CLASSES)
    version = found.version_for(["x86_64-pc-linux-gnu"], ["ATI"])
    assert version is not None
    assert version.coproc == description.Coproc("ATI", 2)
    assert found.version_for(["x86_64-pc-linux-gnu"]) is None


def test_plan_classes_do_not_make_clients_look_for_a_library() -> None:
    for name in description.PLAN_CLASSES:
        assert not [word for word in ("cuda", "opencl", "ati") if word in name]


def test_a_workunit_is_one_replicas_and_brings_its_values() -> None:
    assert ordered() == Workunit("gb_5_7_1", ":5 :7 :1 : :3 .")
    assert agreed().version.app_name == described().app.name


def test_bounds_come_from_the_resources() -> None:
    unit = agreed(expected_seconds=60)
    version = unit.version
    assert unit.rsc_fpops_est / version.flops == 60
    # The script ends the command after 600 s; the client does so where the script cannot.
    assert unit.rsc_fpops_bound / version.flops > 600
    assert unit.rsc_memory_bound == 100 << 20
    assert (50 << 20) + 1000 < unit.rsc_disk_bound < 52 << 20


def test_no_replica_is_expected_to_take_longer_than_it_may() -> None:
    for expected in (None, 1e9):
        unit = agreed(expected_seconds=expected)
        assert unit.rsc_fpops_est == 600 * description.FLOPS


def test_point_11_a_jobs_own_files_are_copied_to_where_the_shim_finds_them() -> None:
    work = ordered(inputs=(ref("x/own", "own"),))
    (file,) = work.inputs
    assert (file.sha256, file.md5) == (ref("", "own").sha256, md5_of(ref("", "own")))
    assert work.command_line.split()[3] == ":x/own"


def test_point_9_a_program_of_a_single_job_is_refused_for_it_has_no_signature() -> None:
    with pytest.raises(Unsuitable, match="a job's input own is a program"):
        ordered(inputs=(ref("own", "own", executable=True),))


def test_a_value_of_a_wrong_type_is_not_sent() -> None:
    with pytest.raises(TemplateError, match=r"placeholder \{n\} is of type int, got 'x'"):
        ordered(args={"n": "x"})


@pytest.mark.parametrize(
    ("outputs", "optional", "most"),
    [
        (("stdout",), False, 1000),
        (("result.txt",), False, 1000),
        (("*.csv",), True, 60_000),
        (("stdout", "*.csv"), False, 60_000),
    ],
)
def test_point_19_a_replica_uploads_one_file(
    outputs: tuple[str, ...], optional: bool, most: int
) -> None:
    [upload] = agreed(replace(MANIFEST, outputs=outputs)).uploads
    assert upload.optional == optional
    assert 1000 <= upload.max_nbytes <= most


def test_a_bot_with_checkpoints_has_room_for_them_and_for_the_inputs_of_further_parts() -> None:
    saving = replace(MANIFEST, checkpoint=CheckpointRule(("state",)))
    room = agreed(saving).rsc_disk_bound - agreed().rsc_disk_bound
    assert room == (MANIFEST.resources.disk_mb << 20) + 2 * MANIFEST.max_output_bytes


def test_without_outputs_nothing_is_uploaded() -> None:
    assert agreed(replace(MANIFEST, outputs=())).uploads == ()


def test_what_is_signed_offline_travels_as_text() -> None:
    made = signed.sign(MANIFEST, md5_of, PRIVATE)
    assert SignedApplication.from_text(made.text()) == made


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"script": 1, "signatures": {}}', '{"script": "", "signatures": []}',
             '{"script": "", "signatures": {"a": 1}}'],
)  # fmt: skip
def test_what_is_no_signed_application_is_refused(text: str) -> None:
    with pytest.raises(BadApplication, match=r"expected|is not a signed application"):
        SignedApplication.from_text(text)


def test_what_another_version_signed_before_stays_signed() -> None:
    made = signed.sign(MANIFEST, md5_of, PRIVATE)
    script = made.scripts[0] + "# another version\n"
    content = script.encode()
    signature = code_signatures.sign_md5(PRIVATE, hashlib.md5(content).hexdigest())
    signatures = {**made.signatures, hashlib.sha256(content).hexdigest(): signature}
    given = SignedApplication((script,), signatures)
    ((first, *_),) = signed.check(MANIFEST, given, md5_of, PUBLIC)
    assert first.sha256 == hashlib.sha256(content).hexdigest()


def test_what_the_key_did_not_sign_is_refused_by_its_hash() -> None:
    made = signed.sign(MANIFEST, md5_of, PRIVATE)
    data = ref("", "data").sha256
    lacking = {sha256: text for sha256, text in made.signatures.items() if sha256 != data}
    for wrong in (
        replace(made, scripts=(made.scripts[0] + "\n",)),
        replace(made, signatures={}),
        replace(made, signatures=lacking),
        signed.sign(MANIFEST, md5_of, code_keys.generate()),
    ):
        with pytest.raises(BadApplication, match=r"file [0-9a-f]{64}: not signed by the code"):
            signed.check(MANIFEST, wrong, md5_of, PUBLIC)


def test_only_what_this_server_writes_is_a_bots_script() -> None:
    made = signed.sign(MANIFEST, md5_of, PRIVATE)
    signed.check_scripts(MANIFEST, made.scripts)
    other = replace(MANIFEST, command=("prog", "in/data", "-q"))
    for script in (
        signed.sign(other, md5_of, PRIVATE).scripts[0],
        made.scripts[0] + "\n",
        f"#!/bin/sh\n# Manifest {manifest_id(MANIFEST.text())}\n",
    ):
        with pytest.raises(BadApplication, match="the script is not this BOT's"):
            signed.check_scripts(MANIFEST, (script,))


KEY = code_keys.public_text(PUBLIC)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("#!/bin/sh\n# Manifest " + "0" * 64 + "\nrm -r x\n", "holds a line like the scripts"),
        ("x\n# Manifest " + "0" * 64, "holds a line like the scripts"),
        (KEY, "reads like a key"),
        (KEY.replace("1024\n", "1024" + " " * 5000 + "\n"), "reads like a key"),
        (KEY.replace("\n", "\n ", 1), "reads like a key"),
    ],
)
def test_data_whose_signature_would_be_good_for_more_is_not_signed(content: str, why: str) -> None:
    with pytest.raises(Unsuitable, match=f"input notes {why}"):
        signed.check_input(FileRef("notes", "0" * 64, 1), io.BytesIO(content.encode()))


@pytest.mark.parametrize("content", ["", "data", f"{KEY}\n", "5\n1.5\n", "5\nx", "# Manifest 1\n"])
def test_data_that_is_data_is_signed(content: str) -> None:
    signed.check_input(FileRef("notes", "0" * 64, 1), io.BytesIO(content.encode()))


# ---------------------------------------------------------------------------------- programs

TABLE = replace(
    MANIFEST,
    command=("linux/prog", "{n}"),
    inputs=(
        ref("linux/prog", "prog", executable=True),
        ref("mac/prog", "own", executable=True),
        ref("data", "data"),
    ),
    platforms=("linux-x86_64", "darwin-arm64", "windows-arm64"),
    programs=(
        HostProgram("linux-x86_64", ("linux/prog", "{n}"), ("linux/prog",)),
        HostProgram("linux-x86_64 cpus=8", ("linux/prog", "-t8", "{n}"), ("linux/prog",)),
        HostProgram("linux-x86_64 gpu=nvidia", ("linux/prog", "-g", "{n}"), ("linux/prog",)),
        HostProgram("darwin-arm64", ("mac/prog", "{n}"), ("mac/prog",)),
        HostProgram("windows-arm64", ("windows.exe", "{n}")),
    ),
)


def test_each_program_that_stock_clients_can_run_is_an_app_version_with_its_own_script() -> None:
    found = described(TABLE)
    told = [(v.platform, v.plan_class, v.avg_ncpus) for v in found.versions]
    assert told == [
        ("x86_64-pc-linux-gnu", "cpu_1", 2),
        ("x86_64-pc-linux-gnu", "mt_2", 8),
        ("x86_64-pc-linux-gnu", "gpu_nvidia_3", 2),
        ("arm64-apple-darwin", "cpu_4", 2),
    ]
    assert [v.coproc and (v.coproc.type, v.coproc.count) for v in found.versions] == [
        None, None, ("NVIDIA", 1), None,
    ]  # fmt: skip
    assert len({version.files[0].file_name for version in found.versions}) == 4, "scripts"
    for file in found.files:
        assert code_signatures.is_signed(PUBLIC, file.md5, file.signature)


def test_no_plan_class_holds_a_word_by_which_clients_look_for_a_library() -> None:
    classes = [version.plan_class for version in described(TABLE).versions]
    assert not [c for c in classes for word in ("cuda", "opencl", "ati", "vbox") if word in c]


def test_a_version_needs_the_files_of_its_own_program_and_those_for_all() -> None:
    found = described(TABLE)
    shared, linux, mac = (ref("", name).sha256 for name in ("data", "prog", "own"))
    for version in found.versions:
        files = [file.sha256 for file in found.files_of(version)][1:]
        assert files == ([mac, shared] if "apple" in version.platform else [linux, shared])
        assert {use.file_name for use in version.files} == {
            name_of(file.sha256) for file in found.files_of(version)
        }


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({"Platforms": "linux-x86_64", "NumCpus": 4}, "cpu_1"),
        ({"Platforms": "linux-x86_64", "NumCpus": 8}, "mt_2"),
        ({"Platforms": "linux-x86_64", "NumCpus": 4, "NumNvidiaGpus": 1}, "gpu_nvidia_3"),
        ({"Platforms": "darwin-arm64"}, "cpu_4"),
        ({"Platforms": "windows-arm64"}, None),
        ({}, None),
    ],
)
def test_a_host_is_given_the_version_of_the_program_that_it_runs(
    host: dict[str, object], expected: str | None
) -> None:
    found = described(TABLE).variant_for(host)
    assert (found.version.plan_class if found else None) == expected


def test_a_job_is_checked_against_the_command_of_every_program() -> None:
    values = {f"v{number}": "text" for number in range(70)}
    long = tuple(f"{{{name}}}" for name in values)
    programs = (TABLE.programs[0], replace(TABLE.programs[3], command=("mac/prog", *long)))
    manifest = replace(TABLE, placeholders={"n": "int", **values}, programs=programs)
    with pytest.raises(Unsuitable, match="70 placeholders"):
        description.check_manifest(manifest)


def test_scripts_of_several_programs_travel_and_are_checked_together() -> None:
    made = signed.sign(TABLE, md5_of, PRIVATE)
    assert SignedApplication.from_text(made.text()) == made
    signed.check_scripts(TABLE, made.scripts)
    for wrong in (made.scripts[::-1], made.scripts[:-1], (*made.scripts, made.scripts[0])):
        with pytest.raises(BadApplication, match="the script is not this BOT's"):
            signed.check_scripts(TABLE, wrong)
    with pytest.raises(BadApplication, match="3 scripts, expected 4"):
        signed.check(TABLE, replace(made, scripts=made.scripts[:-1]), md5_of, PUBLIC)


def test_a_server_that_knows_no_tables_takes_none_for_a_plain_command() -> None:
    rows = (HostProgram("linux-x86_64 gpu=nvidia", ("nvcc",)), TABLE.programs[-1])
    manifest = replace(
        TABLE, command=("nvcc",), inputs=(), programs=rows, platforms=TABLE.platforms[::2]
    )
    made = signed.sign(manifest, md5_of, PRIVATE)
    assert len(made.scripts) == 1
    # What it looks for, in all that a server keeps or is handed.
    assert "script" not in made.document()
    assert "script" not in SignedApplication.from_text(made.text()).document()


def test_a_table_without_a_program_for_stock_clients_is_unsuitable_for_them() -> None:
    only = TABLE.programs[-1:]
    manifest = replace(TABLE, command=only[0].command, programs=only, platforms=("windows-arm64",))
    with pytest.raises(Unsuitable, match="no stock client is served on windows-arm64"):
        description.check_manifest(manifest)


WINDOWS_ROW = HostProgram("windows-x86_64", ("windows.exe", "{n}"))
WITH_WINDOWS = replace(
    TABLE,
    programs=(*TABLE.programs[:-1], WINDOWS_ROW),
    platforms=("linux-x86_64", "darwin-arm64", "windows-amd64"),
)


@needs_compiler
def test_a_row_for_windows_is_an_app_version_with_a_program_of_its_own() -> None:
    found = described(WITH_WINDOWS)
    version = found.versions[-1]
    assert (version.platform, version.plan_class) == ("windows_x86_64", "cpu_5")
    host = {"Platforms": "windows-amd64 windows-x86"}
    assert (chosen := found.variant_for(host)) is not None
    assert chosen.version == version
    made = signed.sign(WITH_WINDOWS, md5_of, PRIVATE)
    assert SignedApplication.from_text(made.text()) == made
    assert [signed.content(script)[:2] for script in made.scripts] == [b"#!"] * 4 + [b"MZ"]
    signed.check_scripts(WITH_WINDOWS, made.scripts)
    other = signed.sign(replace(WITH_WINDOWS, owner="else"), md5_of, PRIVATE).scripts
    with pytest.raises(BadApplication, match="the script is not this BOT's"):
        signed.check_scripts(WITH_WINDOWS, (*made.scripts[:-1], other[-1]))


def test_what_is_no_base64_is_no_program() -> None:
    with pytest.raises(BadApplication, match="not in base64"):
        signed.content("base64:*")


def test_a_table_that_asks_what_windows_lacks_is_served_elsewhere() -> None:
    manifest = replace(WITH_WINDOWS, checkpoint=CheckpointRule(("state",)))
    assert set(description.platforms(manifest)) == {"x86_64-pc-linux-gnu", "arm64-apple-darwin"}


def test_a_jobs_own_file_with_a_name_that_windows_takes_for_another_is_refused() -> None:
    description.check_job(TABLE, {"n": 1}, [ref("DATA", "own")])
    with pytest.raises(Unsuitable, match="files data and DATA would be one on Windows"):
        description.check_job(WITH_WINDOWS, {"n": 1}, [ref("DATA", "own")])
