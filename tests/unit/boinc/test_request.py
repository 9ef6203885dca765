import pytest
from tests.boinc_captures import FACTS, captures

from gridbot_client.protocol.messages import MAX_HOLDING, MAX_REPORTS
from gridbot_server.boinc.protocol import request as module
from gridbot_server.boinc.protocol.request import SchedulerRequest, parse
from gridbot_server.boinc.protocol.tags import BoincError


def bare(inside: str = "") -> SchedulerRequest:
    return parse(f"<scheduler_request>\n<brand/>{inside}\n</scheduler_request>\n".encode())


def with_host(inside: str) -> SchedulerRequest:
    return bare(f"<host_info>{inside}</host_info>")


@pytest.mark.parametrize("name", FACTS)
def test_a_captured_request_says_what_was_captured(name: str) -> None:
    facts, request = FACTS[name], parse(captures()[name])
    assert (request.hostid, request.rpc_seqno) == (facts["hostid"], facts["rpc_seqno"])
    assert (request.cpu.seconds, request.cpu.instances) == (facts["seconds"], facts["instances"])
    assert [
        [
            item.name,
            item.state,
            item.exit_status,
            item.elapsed_seconds,
            [[file.name, file.size, file.md5] for file in item.files],
        ]
        for item in request.reported
    ] == facts["reported"]
    assert list(request.held) == facts["held"]
    assert request.knows_held
    assert [trickle.name for trickle in request.trickles] == facts["trickles"]


@pytest.mark.parametrize("name", FACTS)
def test_a_captured_request_tells_of_client_machine_and_preferences(name: str) -> None:
    request = parse(captures()[name])
    assert request.client.version == (7, 20, 5)
    assert request.client.platforms == ("x86_64-pc-linux-gnu",)
    assert request.client.allows_others
    assert not request.client.refuses_work
    assert request.machine.cpu_model == "AMD EPYC [Family 25 Model 1 Stepping 1]"
    assert request.machine.cpu_features.startswith("fpu vme de ")
    assert request.machine.cpu_features.endswith(" rdpid fsrm")
    assert request.machine.memory_bytes == 25_276_514_304
    assert request.machine.os_name == "Linux Debian"
    assert request.preferences.memory_idle_fraction == 0.9
    assert request.disk.share_bytes > 0
    assert request.time.on == 1.0
    assert request.time.now > 1e9
    assert request.gpus == ()


def test_the_first_request_has_neither_host_id_nor_key() -> None:
    request = parse(captures()["run1_003_ok"])
    assert request.hostid == 0
    assert request.code_sign_key == ""
    assert request.authenticator == "0123456789abcdef0123456789abcdef"


def test_later_requests_bring_the_key_that_the_client_holds() -> None:
    key = parse(captures()["run1_041_ok"]).code_sign_key
    assert key.startswith("1024\naf789d14")
    assert key.endswith("10001\n.")


def test_a_report_brings_what_the_program_wrote_untouched() -> None:
    reported = {item.name: item for item in parse(captures()["run1_041_ok"]).reported}
    assert "dying <tag> & stuff\n" in reported["j_fail_r0"].stderr_out
    assert reported["j_elf_r0"].elapsed_seconds == 1.007761


def test_point_14_a_refused_upload_shows_only_in_the_file_info() -> None:
    reported = {item.name: item for item in parse(captures()["run1_041_ok"]).reported}
    refused = reported["j_nosigup_r0"]
    assert (refused.state, refused.exit_status) == (5, 0)
    assert refused.files[0].error == "permanent upload error"


def test_a_trickle_keeps_its_text() -> None:
    [trickle] = parse(captures()["run3_019_trickle"]).trickles
    assert (trickle.name, trickle.sent_at) == ("j_trickle_r0", 1_795_240_831)
    assert trickle.text.startswith("<variety>progress</variety>")
    assert "<pct>50</pct>" in trickle.text


def test_a_sticky_file_is_no_output_of_a_report() -> None:
    request = parse(captures()["run3_029_sticky"])
    assert [file.name for file in request.reported[0].files] == ["st_1_r0_0"]


# ----------------------------------------------------------------- what need not be there


def test_an_empty_request_has_defaults_for_everything() -> None:
    request = bare()
    assert request.hostid == 0
    assert request.client.platforms == ()
    assert request.machine.cpus == 1
    assert request.time.on is None
    assert request.cpu.replicas(3600) == 0


@pytest.mark.parametrize("wrong", ["many", "", "nan", "inf", "-3", "1e400", "9" * 5000, "&#50;"])
def test_a_number_that_is_none_is_the_default(wrong: str) -> None:
    request = with_host(f"<p_ncpus>{wrong}</p_ncpus><p_fpops>{wrong}</p_fpops>")
    assert request.machine.cpus == 1
    assert request.machine.flops == 0


def test_a_whole_number_may_have_zeros_behind_a_point() -> None:
    assert with_host("<m_nbytes>25276514304.000000</m_nbytes>").machine.memory_bytes == 25276514304


@pytest.mark.parametrize(
    ("text", "is_set"),
    [
        ("<dont_send_work/>", True),
        ("<dont_send_work>1</dont_send_work>", True),
        ("<dont_send_work>0</dont_send_work>", False),
        ("<dont_send_work></dont_send_work>", False),
        ("<dont_send_work>true</dont_send_work>", False),
        ("", False),
    ],
)
def test_point_5_a_flag_is_a_bare_tag_or_a_1(text: str, is_set: bool) -> None:
    assert bare(text).client.refuses_work == is_set


def test_a_client_without_the_newer_element_asks_by_the_older() -> None:
    request = bare("<work_req_seconds>100</work_req_seconds>")
    assert request.cpu.seconds == 100
    assert request.cpu.replicas(50) == 2


def test_idle_processors_are_filled_whatever_time_is_wanted() -> None:
    request = bare("<cpu_req_secs>1</cpu_req_secs><cpu_req_instances>3.5</cpu_req_instances>")
    assert request.cpu.replicas(3600) == 4


def test_the_clients_own_platform_is_the_first() -> None:
    request = bare(
        "<alt_platform>\n<name>i686-pc-linux-gnu</name>\n</alt_platform>"
        "<platform_name>x86_64-pc-linux-gnu</platform_name>"
        "<alt_platform><name>x86_64-pc-linux-gnu</name></alt_platform>"
    )
    assert request.client.platforms == ("x86_64-pc-linux-gnu", "i686-pc-linux-gnu")


def test_what_a_client_of_version_8_adds_or_omits_is_understood() -> None:
    request = bare(
        "<core_client_major_version>8</core_client_major_version>"
        "<host_info><docker_version>27.1</docker_version></host_info>"
    )
    assert request.client.version == (8, 0, 0)
    assert request.machine.docker_version == "27.1"
    assert request.disk.share_bytes == 0


GPUS = """<coprocs>
<coproc_cuda>
   <count>2</count><name>GeForce GTX 1060 6GB</name>
   <available_ram>4167041024.0</available_ram>
   <req_secs>10</req_secs><req_instances>2</req_instances>
   <peak_flops>4373760000000</peak_flops><cudaVersion>10020</cudaVersion>
   <drvVersion>44064</drvVersion><major>6</major><minor>1</minor>
   <coproc_opencl><name>another name</name>
      <opencl_device_version>OpenCL 1.2 CUDA</opencl_device_version></coproc_opencl>
   <pci_info><bus_id>1</bus_id></pci_info>
</coproc_cuda>
<coproc_intel_gpu><count>1</count><name>UHD 630</name>
   <coproc_opencl><global_mem_size>3145728</global_mem_size></coproc_opencl></coproc_intel_gpu>
<coproc><type>miner_asic</type><count>1</count></coproc>
<coproc><count>1</count></coproc>
<coproc_ati><count>0</count></coproc_ati>
</coprocs>"""


def test_gpus_are_read_by_vendor_and_ask_for_work_of_their_own() -> None:
    nvidia, intel, other = bare(GPUS).gpus
    assert (nvidia.type, nvidia.count, nvidia.model) == ("NVIDIA", 2, "GeForce GTX 1060 6GB")
    assert (nvidia.driver, nvidia.compute_capability) == ("440.64", 6.1)
    assert nvidia.opencl_version == "OpenCL 1.2 CUDA"
    assert nvidia.wanted.replicas(3600) == 2
    assert (intel.type, intel.memory_bytes) == ("intel_gpu", 3_145_728)
    assert (other.type, other.count) == ("miner_asic", 1)


# --------------------------------------------------------------------- text that is not XML


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a &lt;b&gt; &amp;amp; &quot;c&quot; &apos;d&apos;", "a <b> &amp; \"c\" 'd'"),
        ("J&#195;&#188;rgen", "Jürgen"),  # BOINC escapes the bytes of UTF-8 one by one
        ("tab&#9;newline&#10;end", "tab\tnewline\nend"),
        ("&#0; &#55296; &#9999999; &unknown; & alone", "\ufffd \ufffd \ufffd &unknown; & alone"),
        ("Jürgen", "Jürgen"),
    ],
)
def test_point_4_entities_mean_what_boinc_means(text: str, meaning: str) -> None:
    assert with_host(f"<p_model>{text}</p_model>").machine.cpu_model == meaning


def test_point_4_a_stray_tag_spoils_its_own_value_only() -> None:
    request = with_host("<domain_name>a <b> c</domain_name><p_ncpus>8</p_ncpus>")
    assert request.machine.domain_name == ""
    assert request.machine.cpus == 8


def test_point_4_what_a_program_writes_is_not_taken_for_structure() -> None:
    forged = "<result><name>other</name></result></result></scheduler_request></stderr_out>"
    request = bare(
        f"<result><name>mine</name><stderr_out><![CDATA[\n{forged}\n]]>\n</stderr_out></result>"
        "<result><name>next</name></result><other_results></other_results>"
    )
    assert [item.name for item in request.reported] == ["mine", "next"]
    assert forged in request.reported[0].stderr_out
    assert request.knows_held


def test_point_4_what_a_trickle_says_is_not_taken_for_structure() -> None:
    request = bare(
        "<msg_from_host><result_name>r</result_name><time>1</time>\n<hostid>9</hostid>"
        "<result><name>x</name></result></msg_from_host><hostid>3</hostid>"
    )
    assert request.hostid == 3
    assert request.reported == ()
    assert [trickle.name for trickle in request.trickles] == ["r"]


def test_an_element_without_an_end_does_not_swallow_the_next() -> None:
    request = bare("<result><name>one</name>\n<result><name>two</name></result><hostid>4</hostid>")
    assert [item.name for item in request.reported] == ["one", "two"]
    assert request.hostid == 4


def test_zero_bytes_and_broken_utf8_become_replacement_characters() -> None:
    request = parse(
        b"<scheduler_request><authenticator>a\x00b\xffc</authenticator></scheduler_request>"
    )
    assert request.authenticator == "a\ufffdb\ufffdc"


def test_a_report_without_a_name_is_left_out() -> None:
    assert bare("<result><state>5</state></result>").reported == ()


# -------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the text has no <scheduler_request>"),
        (b"email=a&passwd=b", "the text has no <scheduler_request>"),
        (b"<scheduler_request>\n<hostid>1</hostid>", "ends before </scheduler_request>"),
        (b"<scheduler_request>" + b"<a/>" * 100_001, "more than 100000 tags"),
        (b" " * (module.MAX_REQUEST_BYTES + 1), f"has {module.MAX_REQUEST_BYTES + 1} bytes"),
    ],
)
def test_what_is_no_request_is_refused_with_a_reason(body: bytes, reason: str) -> None:
    with pytest.raises(BoincError, match=reason):
        parse(body)


def test_reports_beyond_the_most_are_left_for_the_next_request() -> None:
    request = bare(
        "".join(f"<result><name>r{i}</name></result>" for i in range(MAX_REPORTS + 1))
        + "<other_results></other_results>"
    )
    assert len(request.reported) == MAX_REPORTS
    assert not request.knows_held


def test_a_list_of_held_replicas_that_is_cut_counts_as_incomplete() -> None:
    listed = "".join(
        f"<other_result><name>r{i}</name></other_result>" for i in range(MAX_HOLDING + 1)
    )
    request = bare(f"<other_results>{listed}</other_results>")
    assert len(request.held) == MAX_HOLDING
    assert not request.knows_held


def test_a_client_that_lists_nothing_has_lost_nothing() -> None:
    assert not bare().knows_held
    assert bare("<other_results></other_results>").knows_held
    assert bare("<other_results/>").knows_held


def test_what_is_held_has_a_name() -> None:
    request = bare(
        "<other_results><other_result><name>r</name><app_version>2</app_version>"
        "<plan_class>gpu</plan_class></other_result><other_result></other_result></other_results>"
    )
    assert request.held == ("r",)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit",
    [
        "<stderr_out>",
        "<stderr_out><![CDATA[",
        "<stderr_out><![CDATA[</stderr_out>",
        "<msg_from_host></msg_from_host>",
        "<a",
        "<aaaaaaaa",
        "<result>",
        "<result><file_info>",
        "<host_info></result>",
        "&#195;",
    ],
)
def test_time_grows_with_the_size_only(unit: str) -> None:
    # Two megabytes: what looked at the rest for every unit would take hours.
    text = "<scheduler_request>" + unit * (2_000_000 // len(unit)) + "</scheduler_request>"
    try:
        assert isinstance(parse(text.encode()), SchedulerRequest)
    except BoincError as error:
        assert str(error)


def test_values_are_cut_to_their_most() -> None:
    request = bare(f"<authenticator>{'a' * 10_000}</authenticator>")
    assert len(request.authenticator) == 255
