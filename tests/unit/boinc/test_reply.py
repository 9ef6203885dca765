import re
from dataclasses import replace

import pytest

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId, Resources
from gridbot_server.boinc.application import description
from gridbot_server.boinc.application.signed import AppFile
from gridbot_server.boinc.protocol import reply
from gridbot_server.boinc.protocol.delivery import Places, StockAssignment
from gridbot_server.boinc.protocol.names import Lease, Names
from gridbot_server.boinc.protocol.reply import (
    BoincHost,
    BoincUser,
    Message,
    SchedulerReply,
    SigningKey,
    render,
)
from gridbot_server.boinc.protocol.tags import BoincError, Grammar, Section, read

NAMES = Names(b"secret")
PLACES = Places(
    "http://127.0.0.1/boinc/download", "http://127.0.0.1/boinc/file_upload_handler", NAMES.file
)
SIGNATURE = "45246fad1fe482a0\nef382a1e9550a21a\n."
SCRIPT = AppFile("a" * 64, "1" * 32, 500, True, SIGNATURE)
TOOL = AppFile("b" * 64, "2" * 32, 90_000, True, SIGNATURE)
VOLUNTEER = BoincUser(5, "Ann & Bob", 1_700_000_000, "e" * 32, "c" * 32, 12.5, 0.25, "the <team>")

HOLDERS = frozenset(
    {"app", "file_info", "app_version", "workunit", "result", "project_preferences"}
)
NAMED = frozenset({"result_ack", "result_abort", "result_abort_if_not_started"})
GRAMMAR = Grammar(
    root="scheduler_reply",
    inside={
        "": frozenset({"scheduler_reply"}),
        "scheduler_reply": HOLDERS | NAMED,
        "app_version": frozenset({"file_ref", "coproc"}),
        "workunit": frozenset({"file_ref"}),
        "result": frozenset({"file_ref"}),
    },
)
LINE = re.compile(
    r"</?[a-z_0-9]+>|<[a-z_0-9]+/>|<([a-z_0-9]+)>[^<>]*</\1>"
    r'|<message priority="(?:low|notice)">[^<>]*</message>|[0-9a-f]+|\.'
)


def told(answer: SchedulerReply) -> Section:
    """The reply as a client reads it."""
    return read(render(answer, PLACES), GRAMMAR)


def names(part: Section, tag: str) -> list[str]:
    return [item.text("name") for item in part.all(tag)]


def assignment(seq: int = 1, inputs: tuple[FileRef, ...] = (), gpus: int = 0) -> StockAssignment:
    manifest = Manifest(
        "ann",
        ("./tool", "{i}"),
        {"i": "int"},
        (FileRef("tool", TOOL.sha256, TOOL.size, executable=True),),
        resources=Resources(gpus=gpus),
    )
    described = description.describe(manifest, 9, [(SCRIPT, TOOL)], NAMES.file)
    version = described.version_for(["x86_64-pc-linux-gnu"], {"NVIDIA"})
    assert version is not None
    name = NAMES.replica(Lease(ReplicaId(9, seq, 0), 3))
    md5s = {ref.sha256: "3" * 32 for ref in inputs}
    instance = description.JobInstance(ReplicaId(9, seq, 0), name, {"i": seq}, inputs, md5s)
    workunit = description.workunit(manifest, instance)
    terms = description.terms(manifest, version)
    return StockAssignment(described, terms, workunit, 1_800_000_000, (SIGNATURE,))


FULL = SchedulerReply(
    project="GridBot <test>",
    master_url="http://127.0.0.1/boinc/",
    messages=(Message("no work & no <luck>"), Message("read this", is_notice=True)),
    request_delay_seconds=7,
    next_rpc_seconds=3600,
    volunteer=VOLUNTEER,
    host=BoincHost(4, 1_700_000_001, is_new=True),
    acks=("r1", "an <unknown> & odd one"),
    aborts=("r2",),
    has_messages_acked=True,
    key=SigningKey("1024\n00ff\n.", "ab12\n."),
    assignments=(
        assignment(1),
        assignment(2, (FileRef("data.csv", "d" * 64, 77),)),
        assignment(3, gpus=1),
    ),
)


@pytest.mark.parametrize("answer", [SchedulerReply("p"), FULL, reply.bad_key("p")])
def test_point_4_every_element_has_a_line_of_its_own_without_attributes(
    answer: SchedulerReply,
) -> None:
    for line in render(answer, PLACES).splitlines():
        assert LINE.fullmatch(line), line


def test_point_6_a_reply_begins_and_ends() -> None:
    lines = render(SchedulerReply("p")).splitlines()
    assert (lines[0], lines[-1]) == ("<scheduler_reply>", "</scheduler_reply>")


def test_text_comes_back_as_it_was() -> None:
    part = told(FULL)
    assert part.text("project_name") == "GridBot <test>"
    assert part.text("user_name") == "Ann & Bob"
    assert part.text("team_name") == "the <team>"
    assert names(part, "result_ack") == ["r1", "an <unknown> & odd one"]


def test_text_cannot_break_out_of_its_line() -> None:
    text = render(SchedulerReply("p", messages=(Message("a\nb\r\x00<hostid>1</hostid>"),)))
    assert '<message priority="low">a b  &lt;hostid&gt;1&lt;/hostid&gt;</message>\n' in text


def test_messages_have_the_priority_of_a_line_or_a_notice() -> None:
    text = render(FULL, PLACES)
    assert '<message priority="low">no work &amp; no &lt;luck&gt;</message>\n' in text
    assert '<message priority="notice">read this</message>\n' in text


def test_point_8_the_host_id_is_told_only_when_it_is_assigned() -> None:
    known = replace(FULL, host=BoincHost(4, 1_700_000_001))
    assert told(FULL).integer("hostid") == 4
    assert "hostid" not in told(known)
    assert told(known).integer("host_create_time") == 1_700_000_001


def test_the_answers_name_what_they_are_about() -> None:
    part = told(FULL)
    assert names(part, "result_abort") == ["r2"]
    assert part.flag("message_ack")
    assert (part.number("request_delay"), part.number("next_rpc_delay")) == (7, 3600)
    assert part.one("project_preferences").number("resource_share") == 100


def test_what_is_not_said_is_not_there() -> None:
    text = render(SchedulerReply("p"))
    assert text == (
        "<scheduler_reply>\n<scheduler_version>720</scheduler_version>\n<dont_use_dcf/>\n"
        "<project_name>p</project_name>\n</scheduler_reply>\n"
    )


def test_keys_and_signatures_keep_their_lines() -> None:
    text = render(FULL, PLACES)
    assert "<code_sign_key>\n1024\n00ff\n.\n</code_sign_key>\n" in text
    assert "<code_sign_key_signature>\nab12\n.\n</code_sign_key_signature>\n" in text
    first = render(SchedulerReply("p", key=SigningKey("1024\n00\n.\n")))
    assert "<code_sign_key>\n1024\n00\n.\n</code_sign_key>\n" in first
    assert "code_sign_key_signature" not in first


# ---------------------------------------------------------------------------------- work


def test_point_7_whatever_an_entity_refers_to_is_in_the_same_reply() -> None:
    part = told(FULL)
    files, apps = set(names(part, "file_info")), names(part, "app")
    versions = {
        (item.text("platform"), item.text("version_num"), item.text("plan_class"))
        for item in part.all("app_version")
        if item.text("app_name") in apps
    }
    uses = [
        use.text("file_name")
        for tag in ("app_version", "workunit", "result")
        for item in part.all(tag)
        for use in item.all("file_ref")
    ]
    assert set(uses) <= files
    for item in part.all("result"):
        key = (item.text("platform"), item.text("version_num"), item.text("plan_class"))
        assert key in versions
        assert item.text("wu_name") in names(part, "workunit")
    assert len(part.all("result")) == 3


def test_what_assignments_share_is_sent_once() -> None:
    part = told(SchedulerReply("p", assignments=(assignment(1), assignment(2))))
    assert len(part.all("app")) == len(part.all("app_version")) == 1
    listed = names(part, "file_info")
    assert len(listed) == len(set(listed)) == 4  # two of the application, two outputs


def test_point_9_every_file_of_an_application_has_a_signature() -> None:
    part = told(SchedulerReply("p", assignments=(assignment(1),)))
    signed = {
        item.text("name")
        for item in part.all("file_info")
        if item.text("file_signature", 2000) == SIGNATURE
    }
    [version] = part.all("app_version")
    assert {use.text("file_name") for use in version.all("file_ref")} == signed
    assert signed == {NAMES.file(SCRIPT.sha256), NAMES.file(TOOL.sha256)}


def test_an_applications_file_keeps_its_signature_as_an_input() -> None:
    own = assignment(1, (FileRef("copy", TOOL.sha256, TOOL.size),))
    text = render(SchedulerReply("p", assignments=(own,)), PLACES)
    assert text.count(f"<url>{PLACES.download_url}/{NAMES.file(TOOL.sha256)}</url>") == 1
    assert text.count("<file_signature>") == 2


def test_an_input_has_its_size_and_md5_and_no_signature() -> None:
    work = assignment(1, (FileRef("data.csv", "d" * 64, 77),))
    part = told(SchedulerReply("p", assignments=(work,)))
    [found] = [item for item in part.all("file_info") if item.text("name") == NAMES.file("d" * 64)]
    assert (found.integer("nbytes"), found.text("md5_cksum")) == (77, "3" * 32)
    assert "file_signature" not in found
    assert not found.flag("executable")


def test_point_11_all_but_the_main_program_are_copied() -> None:
    work = assignment(1, (FileRef("data.csv", "d" * 64, 77),))
    part = told(SchedulerReply("p", assignments=(work,)))
    uses = [
        use
        for tag in ("app_version", "workunit", "result")
        for item in part.all(tag)
        for use in item.all("file_ref")
    ]
    assert len(uses) == 4
    assert all(use.flag("copy_file") != use.flag("main_program") for use in uses)
    assert {"gb_own_0", "gb_out"} <= {use.text("open_name") for use in uses}
    assert [use.flag("main_program") for use in uses].count(True) == 1


def test_an_output_says_where_and_how_large_and_by_which_certificate() -> None:
    given = assignment(1)
    part = told(SchedulerReply("p", assignments=(given,)))
    [found] = [item for item in part.all("file_info") if "xml_signature" in item]
    assert found.text("name") == f"{given.workunit.name}_0"
    assert found.text("url") == PLACES.upload_url
    [upload] = given.terms.uploads
    assert found.integer("max_nbytes") == upload.max_nbytes
    assert found.text("xml_signature", 2000) == SIGNATURE


def test_a_percent_sign_is_text_like_any_other() -> None:
    odd = "http://127.0.0.1/100%25 %(name)s"
    places = Places(f"{odd}/download", f"{odd}/file_upload_handler", NAMES.file)
    given = assignment(1)
    workunit = given.workunit._replace(command_line=":50% :%(name)s .")
    answer = SchedulerReply("100% %s", assignments=(given._replace(workunit=workunit),))
    part = read(render(answer, places), GRAMMAR)
    [upload] = [item for item in part.all("file_info") if "xml_signature" in item]
    assert upload.text("url") == places.upload_url
    assert part.one("workunit").text("command_line") == workunit.command_line
    assert part.text("project_name") == "100% %s"


def test_a_result_is_reported_at_once_and_has_a_deadline() -> None:
    [found] = told(SchedulerReply("p", assignments=(assignment(1),))).all("result")
    assert found.flag("report_immediately")
    assert found.integer("report_deadline") == 1_800_000_000


def test_a_gpu_version_names_its_processors() -> None:
    [found] = told(SchedulerReply("p", assignments=(assignment(1, gpus=1),))).all("app_version")
    assert found.text("plan_class") == "gpu_nvidia"
    assert (found.one("coproc").text("type"), found.one("coproc").integer("count")) == (
        "NVIDIA",
        1,
    )


def test_work_without_places_is_a_mistake() -> None:
    with pytest.raises(BoincError, match="must say where its files are"):
        render(SchedulerReply("p", assignments=(assignment(1),)))


@pytest.mark.parametrize(
    ("download", "upload"),
    [("http://a.b/d", "http://a.b/u"), ("http://a.b/file_upload_handler", "http://a.b/u")],
)
def test_clients_tell_uploads_from_downloads_by_a_word(download: str, upload: str) -> None:
    with pytest.raises(BoincError, match="must hold file_upload_handler"):
        Places(download, upload, NAMES.file)


# ------------------------------------------------------------------------- whole replies


def test_a_project_that_is_down_says_so_and_when_to_come_back() -> None:
    text = render(reply.project_is_down("p", "the database restarts", 60))
    assert "<project_is_down/>\n" in text
    assert '<message priority="notice">the database restarts</message>\n' in text
    assert "<request_delay>60</request_delay>\n" in text
    assert "userid" not in text


def test_a_bad_key_is_told_to_the_user_once_a_day() -> None:
    part = told(reply.bad_key("p"))
    assert part.number("request_delay") == 86_400
    assert "hostid" not in part
