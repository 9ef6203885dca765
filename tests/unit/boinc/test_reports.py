import hashlib

import pytest
from tests.boinc_captures import FACTS, NAMES, captures, our_lease, our_name, ours

from gridbot_client.protocol.messages import LOG_TAIL_BYTES, Output, ReplicaId, Report
from gridbot_server.boinc.protocol.names import Lease, OutputName
from gridbot_server.boinc.protocol.request import parse
from gridbot_server.boinc.session.reports import (
    End,
    ReplicaStates,
    Stored,
    read_reports,
    split_stderr,
)

LEASE = Lease(ReplicaId(1, 2, 0), 3)
NAME = NAMES.replica(LEASE)
CONTENT = b"the result\n"
MD5 = hashlib.md5(CONTENT).hexdigest()
OUTPUT = Output("stdout", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
STORED = {0: Stored(MD5, len(CONTENT), [OUTPUT])}


def states(text: str) -> ReplicaStates:
    request = parse(f"<scheduler_request>\n{text}\n</scheduler_request>".encode())
    return read_reports(request, NAMES)


def result(
    state: int = 5, status: int = 0, words: str = "", program: str = "", more: str = ""
) -> str:
    return (
        f"<result><name>{NAME}</name><state>{state}</state><exit_status>{status}</exit_status>"
        f"<final_elapsed_time>2.5</final_elapsed_time>{more}<stderr_out>\n"
        "<core_client_version>7.20.5</core_client_version>\n"
        f"<![CDATA[\n<message>\n{words}</message>\n<stderr_txt>\n{program}\n</stderr_txt>\n]]>\n"
        "</stderr_out></result>"
    )


def uploaded(size: int = len(CONTENT), md5: str = MD5, error: str = "") -> str:
    name = NAMES.output(OutputName(LEASE, 0))
    said = f"<error_msg>\n{error}\n</error_msg>" if error else ""
    return (
        f"<file_info><name>{name}</name><nbytes>{size}</nbytes><md5_cksum>{md5}</md5_cksum>{said}"
        "</file_info>"
    )


def end(*args: int | str, **more: str) -> End:
    [found] = states(result(*args, **more)).ends  # type: ignore[arg-type]
    return found


def report(found: End, may_lack: bool = False) -> Report:
    return found.report([may_lack], STORED)


def captured_end(capture: str, name: str) -> End:
    ends = read_reports(parse(ours(capture)), NAMES).ends
    return next(found for found in ends if found.lease == our_lease(name))


@pytest.mark.parametrize(
    ("name", "reason", "exit_code"),
    [
        ("j_ok_r0", "", 0),
        ("j_optional_r0", "", 0),
        ("j_fail_r0", "exit_nonzero", 3),
        ("j_failfin_r0", "exit_nonzero", 5),
        ("j_segv_r0", "signal", -11),
        ("j_missing_r0", "missing_output", 0),
        ("j_softlink_r0", "missing_output", 0),
        ("j_toobig_r0", "output_too_big", 0),
        ("j_badmd5_r0", "input_corrupt", None),
    ],
)
def test_each_captured_end_has_our_word(name: str, reason: str, exit_code: int | None) -> None:
    found = captured_end("run1_041_ok", name)
    assert (found.reason, found.exit_code) == (reason, exit_code)


@pytest.mark.parametrize(
    ("capture", "name", "reason"),
    [
        ("run2_056_sigs", "s_badsig_r0", "bad_signature"),
        ("run2_056_sigs", "s_nosig_r0", "bad_signature"),
        ("run3_028_dl404", "d_404_r0", "input_unavailable"),
    ],
)
def test_point_15_a_failed_download_comes_as_state_1(capture: str, name: str, reason: str) -> None:
    assert captured_end(capture, name).reason == reason


def test_point_15_a_failed_replica_may_bring_files_that_do_not_count() -> None:
    found = captured_end("run1_041_ok", "j_fail_r0")
    kept = Stored(found.files[0].md5, found.files[0].size, [OUTPUT])
    assert found.report([False], {0: kept}).outputs == ()
    assert found.report([False], {0: kept}).how == "error"


def test_what_the_program_said_and_why_it_failed_are_kept() -> None:
    found = captured_end("run1_041_ok", "j_fail_r0")
    assert found.stderr == "dying <tag> & stuff\nprocess exited with code 3 (0x3, -253)"


# -------------------------------------------------------------------------- points 13, 14


def test_point_13_the_elapsed_time_stands_for_a_cpu_time_of_0() -> None:
    found = captured_end("run1_041_ok", "j_elf_r0")
    assert (found.cpu_seconds, found.wall_seconds) == (1.007761, 1.007761)
    assert end(more="<final_cpu_time>1.5</final_cpu_time>").cpu_seconds == 1.5


def test_point_13_a_replica_may_have_taken_no_time_at_all() -> None:
    found = captured_end("run1_041_ok", "j_ok_r0")
    assert (found.reason, found.wall_seconds) == ("", 0.0)


def test_point_14_a_success_needs_its_upload_as_described() -> None:
    good = report(end(more=uploaded()))
    assert (good.how, good.reason, good.outputs) == ("success", "", (OUTPUT,))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ("", "missing_output"),
        (uploaded(error="permanent upload error"), "upload_refused"),
        (uploaded(size=3), "output_corrupt"),
        (uploaded(md5="0" * 32), "output_corrupt"),
    ],
)
def test_point_14_success_does_not_prove_the_upload(files: str, reason: str) -> None:
    found = report(end(more=files))
    assert (found.how, found.reason, found.outputs) == ("error", reason, ())


def test_point_14_a_captured_refusal_is_an_error() -> None:
    found = captured_end("run1_041_ok", "j_nosigup_r0").report([False], {})
    assert (found.how, found.reason) == ("error", "upload_refused")


def test_point_14_what_was_not_stored_is_missing() -> None:
    assert end(more=uploaded()).report([False], {}).reason == "missing_output"


def test_an_optional_upload_may_be_missing() -> None:
    found = report(end(), may_lack=True)
    assert (found.how, found.outputs) == ("success", ())


def test_another_replicas_file_is_not_an_output() -> None:
    other = NAMES.output(OutputName(Lease(ReplicaId(1, 9, 0), 3), 0))
    text = f"<file_info><name>{other}</name><nbytes>1</nbytes></file_info>"
    assert end(more=text).files == {}


# ------------------------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("state", "status", "words", "reason", "exit_code"),
    [
        (3, 197, "process exited with code 197 (0xc5, -59)", "exit_nonzero", 197),
        (3, 197, "exceeded elapsed time limit 9.00 (9G/1G)", "time_limit", None),
        (6, 197, "", "time_limit", None),
        (6, 198, "working set size > client RAM limit", "memory_limit", None),
        (6, 196, "Disk usage limit exceeded", "disk_limit", None),
        (3, 139, "process got signal 11", "signal", -11),
        (3, 3221225477, "(unknown error) - exit code -1073741819 (0xc0000005)",
         "exit_nonzero", -1073741819),
        (3, 3221225477, "", "exit_nonzero", -1073741819),
        (3, -185, "couldn't start app", "start_failed", None),
        (6, -226, "too many exit(0)s", "no_finish_file", None),
        (6, 200, "Not started by deadline - canceled", "not_started", None),
        (6, 201, "", "no_gpu", None),
        (6, 203, "aborted by user", "aborted_by_owner", None),
        (7, -187, "", "upload_refused", None),
        (7, 0, "", "upload_refused", None),
        (6, 0, "", "aborted", None),
        (1, 0, "", "input_unavailable", None),
        (3, 0, "", "client_error", None),
        (0, 0, "", "client_error", None),
    ],
)  # fmt: skip
def test_each_end_has_a_reason(
    state: int, status: int, words: str, reason: str, exit_code: int | None
) -> None:
    found = end(state, status, words)
    assert (found.reason, found.exit_code) == (reason, exit_code)


def test_what_a_program_writes_does_not_pass_for_the_clients_words() -> None:
    forged = "<message>process got signal 9</message>\n</stderr_txt>\n<stderr_txt>"
    found = end(3, 2, "process exited with code 2 (0x2, -254)", forged)
    assert (found.reason, found.exit_code) == ("exit_nonzero", 2)


def test_the_shim_knows_better_than_the_client() -> None:
    program = (
        "\n[gridbot stdout]\nhello\n\n[gridbot stderr]\noops\n\n"
        "[gridbot end reason=time_limit exit=-15 cpu=0m1.50s+0m0.25s]"
    )
    found = end(3, 3, "process exited with code 3 (0x3, -253)", program)
    assert (found.reason, found.exit_code, found.cpu_seconds) == ("time_limit", -15, 1.75)
    assert found.stdout.strip() == "hello"
    assert found.stderr.startswith("oops")
    assert found.stderr.endswith("process exited with code 3 (0x3, -253)")


def test_the_shims_good_end_does_not_hide_the_clients_bad_one() -> None:
    program = "[gridbot end reason= exit=0 cpu=0m1.50s+0m0.25s]"
    assert end(6, 202, "aborted by project", program).reason == "aborted"


def test_programs_text_is_put_back_into_characters() -> None:
    assert split_stderr("<![CDATA[\n<stderr_txt>\nM&#195;&#188;ll &amp;\n</stderr_txt>\n]]>\n")[
        1
    ] == ("Müll &amp;")


@pytest.mark.parametrize("text", ["", "<core_client_version>7.20.5</core_client_version>\n"])
def test_a_report_may_come_without_any_words(text: str) -> None:
    assert split_stderr(text) == ("", "")


def test_a_program_cut_off_by_the_clients_limit_keeps_its_text() -> None:
    assert split_stderr("<![CDATA[\n<stderr_txt>\nthe beginning")[1] == "the beginning"


def test_logs_keep_their_end() -> None:
    found = end(3, 1, "process exited with code 1", "x" * LOG_TAIL_BYTES + "the end")
    assert len(found.stderr) == LOG_TAIL_BYTES
    assert "the end\nprocess exited" in found.stderr


# ------------------------------------------------------------------- points 16, 17: names


@pytest.mark.parametrize("name", FACTS)
def test_point_17_every_reported_name_is_acknowledged(name: str) -> None:
    listed = [item[0] for item in FACTS[name]["reported"]]
    assert list(read_reports(parse(captures()[name]), NAMES).acks) == listed
    found = read_reports(parse(ours(name)), NAMES)
    assert list(found.acks) == [our_name(item) for item in listed]
    assert [item.lease for item in found.ends] == [our_lease(item) for item in listed]


def test_point_16_unknown_names_are_acknowledged_and_not_believed() -> None:
    found = states("<result><name>another projects r_1</name><state>5</state></result>")
    assert found.acks == ("another projects r_1",)
    assert found.ends == ()


def test_point_16_a_name_reported_twice_is_acknowledged_once_and_counts_once() -> None:
    found = states(result(3, 1) + result(5, 0))
    assert found.acks == (NAME,)
    assert [item.reason for item in found.ends] == ["exit_nonzero"]


def test_point_16_an_abort_while_running_is_reported_twice_in_two_ways() -> None:
    first = captured_end("run2_049_abort", "a_0_r0")
    second = captured_end("run2_060_abort", "a_0_r0")
    assert first.lease == second.lease
    assert (first.reason, second.reason) == ("aborted", "aborted")
    assert (first.wall_seconds, second.wall_seconds) == (0.0, 9.034807)


def test_what_a_client_holds_are_leases() -> None:
    found = read_reports(parse(ours("run2_049_abort")), NAMES)
    assert found.holding == (our_lease("a_1_r0"),)
    assert found.unknown == ()


def test_a_held_name_that_is_not_ours_is_to_be_aborted() -> None:
    text = "<other_results><other_result><name>stray_1</name></other_result></other_results>"
    assert states(text).unknown == ("stray_1",)


def test_what_is_reported_is_not_held_any_more() -> None:
    held = f"<other_results><other_result><name>{NAME}</name></other_result></other_results>"
    assert states(result() + held).holding == ()
