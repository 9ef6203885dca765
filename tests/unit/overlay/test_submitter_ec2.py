"""What EC2 is told, and what is read from its answers, written after Amazon's API reference."""

import base64
import gzip
import http.server
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters import KINDS, GridError, answers
from gridbot_overlay.submitters.ec2 import (
    BEGIN,
    END,
    OPTIONS,
    Ec2,
    given,
    parameters,
    script,
    sighting,
    size,
    words,
)
from gridbot_overlay.submitters.ec2_api import refusal
from gridbot_overlay.submitters.ec2_young import YOUNG_SECONDS, Young

GIVEN = {"region": "eu-west-1", "image": "ami-1", "type": "c7i.large"}
NAMESPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def started(*directives: str, **options: Any) -> dict[str, str]:
    order = make_order("gb-x", "SECRET", *directives)
    return parameters(order, 3, "cloud", {**OPTIONS, **GIVEN, **options})


def test_an_instance_ends_with_its_machine_and_bears_the_pilots_name() -> None:
    asked = started()
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert (asked["MinCount"], asked["MaxCount"]) == ("1", "1")
    tags = {
        asked[f"TagSpecification.1.Tag.{number}.Key"]: asked[
            f"TagSpecification.1.Tag.{number}.Value"
        ]
        for number in range(1, 6)
    }
    assert tags == {
        "Name": "gridbot cloud gb-x.3",
        "gridbot:tag": "gb-x",
        "gridbot:index": "3",
        "gridbot:grid": "cloud",
        "gridbot:owners": "alice",
    }


def test_the_key_is_in_the_user_data_alone_which_is_the_same_each_time() -> None:
    asked = started()
    data = asked.pop("UserData")
    assert data == started()["UserData"]
    assert "SECRET" in gzip.decompress(base64.b64decode(data)).decode()
    assert "SECRET" not in str(asked)


def test_the_metadata_service_is_not_there_where_the_machines_rule_does_not_hold() -> None:
    assert started()["MetadataOptions.HttpProtocolIpv6"] == "disabled"


def test_user_data_that_ec2_would_not_take_is_refused_before_it_is_sent() -> None:
    noise = random.Random(1).randbytes(16_384).hex()  # packs to a half
    with pytest.raises(GridError, match="EC2 takes 16384") as refused:
        parameters(make_order("gb-x", noise), 0, "cloud", {**OPTIONS, **GIVEN})
    assert refused.value.is_lasting


def test_what_is_optional_is_asked_for_only_if_it_is_given() -> None:
    asked = started(subnet="subnet-1", security_groups=["sg-1", "sg-2"], key_name="k", spot=True)
    more = {name: asked[name] for name in asked.keys() - started().keys()}
    assert more == {
        "SubnetId": "subnet-1",
        "SecurityGroupId.1": "sg-1",
        "SecurityGroupId.2": "sg-2",
        "KeyName": "k",
        "InstanceMarketOptions.MarketType": "spot",
    }


def test_directives_are_parameters_and_none_of_ours(tmp_path: Path) -> None:
    assert given(["EbsOptimized=true", "IamInstanceProfile.Name=a=b"]) == {
        "EbsOptimized": "true",
        "IamInstanceProfile.Name": "a=b",
    }
    for wrong in ("--partition=long", "EbsOptimized", "=x", "A b=c"):
        with pytest.raises(GridError, match="is no parameter of RunInstances"):
            given([wrong])
    ours = Grid(name="c", kind="ec2", options=GIVEN, directives=("MaxCount=9",))
    with pytest.raises(GridError, match="directive MaxCount is set by GridBot"):
        Ec2(ours, tmp_path).submit(make_order("gb-x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": ""}, "option image must be given"),
        ({"region": ""}, "option region must be given"),
        ({"type": ""}, "option type must be given"),
        ({"endpoint": "http://ec2.example"}, "option endpoint must be https"),
        ({"endpoint": "https://ec2.example/path"}, "option endpoint must be https"),
        ({"endpoint": "https://["}, "option endpoint must be https"),
        ({"region": "x@evil.example/"}, "option endpoint must be https"),
        ({"size": "large"}, "no option 'size'"),
        ({"spot": "yes"}, "option spot is no bool"),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GridError, match=message):
        KINDS["ec2"](Grid(name="c", kind="ec2", options={**GIVEN, **options}), tmp_path)


def run_machine(folder: Path, text: str, **programs: str) -> tuple[str, list[str]]:
    """Run a machine's script with programs of our own; what it prints, and their calls in order."""
    fakes = {"shutdown": "", "ip": "", "useradd": "", "chown": "", **programs}
    fakes.setdefault("runuser", 'shift 3; exec env "$@"')
    for name, does in fakes.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> "{folder}/calls"\n{does}\n')
        program.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "TMPDIR": str(folder)}
    done = subprocess.run(
        ["/bin/sh", "-c", text], env=environment, capture_output=True, text=True, timeout=60
    )
    return done.stdout, (folder / "calls").read_text().splitlines()


def test_a_machine_runs_the_pilot_then_shows_its_stderr_and_switches_itself_off(
    tmp_path: Path,
) -> None:
    body = 'echo "I am $GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX" >&2; test ! -e "$0" && exit 5'
    order = make_order("gb-x", body, shape=PilotShape(walltime_seconds=601))
    printed, calls = run_machine(tmp_path, script(order, 3))
    assert calls[:2] == [
        "shutdown -P +16",
        "ip rule add to 169.254.169.254 pref 1 protocol kernel prohibit",
    ]
    assert calls[-1] == "shutdown -P now"
    shown = base64.b64encode(printed.replace("\n", "\r\n").encode()).decode()
    # Elsewhere a machine has no id.
    own = [line for line in words(shown).splitlines() if "instance-id" not in line]
    assert own == ["I am gb-x 3"]


def test_a_machine_that_cannot_hide_the_key_starts_no_pilot_and_switches_itself_off(
    tmp_path: Path,
) -> None:
    order = make_order("gb-x", f"touch {tmp_path}/started")
    printed, calls = run_machine(tmp_path, script(order, 0), ip="echo no rules >&2; exit 2")
    assert calls[-1] == "shutdown -P now"
    assert not (tmp_path / "started").exists()
    assert words(base64.b64encode(printed.encode()).decode()) == "no rules\n"


@pytest.mark.parametrize("output", ["", "no base64", base64.b64encode(b"Linux\n").decode()])
def test_a_console_that_does_not_show_the_pilots_stderr_shows_nothing(output: str) -> None:
    assert words(output) == ""


def test_only_what_stands_after_the_last_mark_is_the_pilots() -> None:
    console = f"{BEGIN}\nold\n{END}\n{BEGIN}\nnew\n\n{END}\n[ OK ] Reached target\n"
    assert words(base64.b64encode(console.encode()).decode()) == "new\n"


def instance(
    state: str, code: str = "", message: str = "", tag: str = "gb-a", index: str = "7"
) -> ElementTree.Element:
    tags = "".join(
        f"<item><key>{key}</key><value>{value}</value></item>"
        for key, value in (("gridbot:tag", tag), ("gridbot:index", index))
    )
    return ElementTree.fromstring(
        f"<item {NAMESPACE}><instanceId>i-1</instanceId><instanceState><code>0</code>"
        f"<name>{state}</name></instanceState><privateDnsName>ip-10-0-0-1</privateDnsName>"
        f"<stateReason><code>{code}</code><message>{message}</message></stateReason>"
        f"<tagSet>{tags}</tagSet></item>"
    )


@pytest.mark.parametrize(
    ("state", "code", "message", "expected", "reason"),
    [
        ("pending", "pending", "pending", PilotState.QUEUED, ""),
        ("running", "", "", PilotState.RUNNING, ""),
        ("a new word", "", "", PilotState.RUNNING, ""),
        ("stopped", "Client.UserInitiatedShutdown", "stopped", PilotState.HELD,
         "Client.UserInitiatedShutdown: stopped"),
        ("shutting-down", "Client.InstanceInitiatedShutdown", "x", PilotState.ENDED, ""),
        ("terminated", "Server.SpotInstanceTermination",
         "Server.SpotInstanceTermination: no room", PilotState.ENDED,
         "Server.SpotInstanceTermination: no room"),
        ("terminated", "", "", PilotState.ENDED, ""),
    ],
)  # fmt: skip
def test_a_pilot_is_where_its_instance_is(
    state: str, code: str, message: str, expected: PilotState, reason: str
) -> None:
    seen = sighting(instance(state, code, message), "gb-")
    assert seen is not None
    assert (seen.tag, seen.index, seen.native_id) == ("gb-a", 7, "i-1")
    assert (seen.state, seen.reason, seen.node) == (expected, reason, "ip-10-0-0-1")


@pytest.mark.parametrize(("tag", "index"), [("gc-a", "7"), ("gb-a", ""), ("gb-a", "-1"), ("", "7")])
def test_an_instance_without_our_tags_is_no_pilot(tag: str, index: str) -> None:
    assert sighting(instance("running", tag=tag, index=index), "gb-") is None


def test_a_type_has_cores_memory_and_gpus() -> None:
    gpus = "".join(f"<item><name>A</name><count>{count}</count></item>" for count in (4, 2))
    text = f"""<DescribeInstanceTypesResponse {NAMESPACE}><instanceTypeSet><item>
        <vCpuInfo><defaultVCpus>96</defaultVCpus></vCpuInfo>
        <memoryInfo><sizeInMiB>1152</sizeInMiB></memoryInfo>
        <gpuInfo><gpus>{gpus}</gpus></gpuInfo>
        </item></instanceTypeSet></DescribeInstanceTypesResponse>"""
    assert size(ElementTree.fromstring(text)) == (96, 1152, 6)


def refused(code: str, message: str = "no\n room") -> str:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"


@pytest.mark.parametrize(
    ("status", "code", "is_lasting"),
    [
        (400, "InstanceLimitExceeded", True),
        (400, "VcpuLimitExceeded", True),
        (401, "AuthFailure", True),
        (403, "UnauthorizedOperation", True),
        (500, "InsufficientInstanceCapacity", True),  # refused, with the status of a fault
        (500, "InternalError", False),
        (503, "Unavailable", False),
        (503, "RequestLimitExceeded", False),
        (400, "RequestLimitExceeded", False),
    ],
)
def test_a_refusal_keeps_its_name_and_says_whether_to_ask_again(
    status: int, code: str, is_lasting: bool
) -> None:
    error = refusal(status, ElementTree.fromstring(refused(code)))
    assert (str(error), error.is_lasting) == (f"{code}: no room", is_lasting)


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'.encode(
            "utf-16"
        ),
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
        b"<a>&b;</a>",
        b"<a>",
        b"",
    ],
)
def test_a_document_with_entities_or_none_at_all_is_not_read(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        answers.xml(text)


class Answering(http.server.ThreadingHTTPServer):
    """Gives one prepared answer after the other, the last one again and again."""

    def __init__(self, *prepared: tuple[int, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.prepared, self.asked = list(prepared), list[dict[str, str]]()

    @property
    def options(self) -> dict[str, Any]:
        return {**GIVEN, "endpoint": f"http://127.0.0.1:{self.server_port}"}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Answering

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append({name: values[0] for name, values in parse_qs(body).items()})
        prepared = self.server.prepared
        status, text = prepared.pop(0) if len(prepared) > 1 else prepared[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")


@pytest.fixture
def answering() -> Iterator[Any]:
    made = list[Answering]()

    def answer(*prepared: tuple[int, str]) -> Answering:
        made.append(Answering(*prepared))
        threading.Thread(target=made[-1].serve_forever, daemon=True).start()
        return made[-1]

    yield answer
    for server in made:
        server.shutdown()
        server.server_close()


def pilots_at(cloud: Answering, folder: Path) -> Ec2:
    return Ec2(Grid(name="c", kind="ec2", options=cloud.options), folder)


def listing(*ids: str, token: str = "") -> str:
    items = "".join(
        ElementTree.tostring(instance("running", index=id.removeprefix("i-")), encoding="unicode")
        .replace(">i-1<", f">{id}<")
        for id in ids
    )  # fmt: skip
    found = f"<reservationSet><item><instancesSet>{items}</instancesSet></item></reservationSet>"
    following = f"<nextToken>{token}</nextToken>" if token else ""
    return f"<DescribeInstancesResponse {NAMESPACE}>{found}{following}</DescribeInstancesResponse>"


def made(id: str) -> str:
    item = f"<item><instanceId>{id}</instanceId></item>"
    found = f"<instancesSet>{item}</instancesSet>"
    return f"<RunInstancesResponse {NAMESPACE}>{found}</RunInstancesResponse>"


@pytest.mark.usefixtures("keys")
def test_a_request_whose_answer_was_lost_is_made_again_with_the_same_token(
    answering: Any, tmp_path: Path
) -> None:
    cloud = answering((500, refused("InternalError")), (200, made("i-9")))
    assert pilots_at(cloud, tmp_path).submit(make_order("gb-x")) == ["i-9"]
    first, second = cloud.asked
    assert first == second
    assert first["ClientToken"] == "gb-x"
    assert "very secret" not in str(first)


@pytest.mark.usefixtures("keys")
def test_what_a_full_cloud_refuses_is_not_asked_for_again_at_once(
    answering: Any, tmp_path: Path
) -> None:
    full = (500, refused("InsufficientInstanceCapacity"))
    cloud = answering(full)
    with pytest.raises(GridError, match="InsufficientInstanceCapacity") as all_refused:
        pilots_at(cloud, tmp_path).submit(make_order("gb-x", count=3))
    assert all_refused.value.is_lasting
    assert len(cloud.asked) == 1
    cloud = answering((200, made("i-1")), full)
    with pytest.raises(GridError, match="only 1 of 3 pilots") as partly:
        pilots_at(cloud, tmp_path).submit(make_order("gb-x", count=3))
    assert not partly.value.is_lasting


@pytest.mark.usefixtures("keys")
def test_all_pages_are_read(answering: Any, tmp_path: Path) -> None:
    cloud = answering((200, listing("i-1", "i-2", token="next")), (200, listing("i-3")))
    found = pilots_at(cloud, tmp_path).pilots("gb-")
    assert [(seen.native_id, seen.index) for seen in found] == [("i-1", 1), ("i-2", 2), ("i-3", 3)]
    assert [asked.get("NextToken") for asked in cloud.asked] == [None, "next"]
    assert cloud.asked[0]["Filter.1.Value.1"] == "gb-*"


@pytest.mark.usefixtures("keys")
def test_pages_without_an_end_are_an_error(answering: Any, tmp_path: Path) -> None:
    with pytest.raises(GridError, match="more than 100 pages"):
        pilots_at(answering((200, listing(token="next"))), tmp_path).pilots("gb-")


@pytest.mark.usefixtures("keys")
def test_too_many_requests_are_not_repeated_at_once(answering: Any, tmp_path: Path) -> None:
    too_many = (503, refused("RequestLimitExceeded"))
    cloud = answering(too_many)
    with pytest.raises(GridError, match="RequestLimitExceeded") as at_first:
        pilots_at(cloud, tmp_path).submit(make_order("gb-x", count=3))
    cloud_later = answering((200, made("i-1")), too_many)
    with pytest.raises(GridError, match="only 1 of 3 pilots") as later:
        pilots_at(cloud_later, tmp_path).submit(make_order("gb-x", count=3))
    assert (len(cloud.asked), len(cloud_later.asked)) == (1, 2)
    assert (at_first.value.is_lasting, later.value.is_lasting) == (False, False)


@pytest.mark.usefixtures("keys")
def test_an_instance_that_is_not_listed_yet_has_not_ended_also_after_a_restart(
    answering: Any, tmp_path: Path
) -> None:
    cloud = answering((200, made("i-9")), (200, listing()))
    before = pilots_at(cloud, tmp_path)
    before.submit(make_order("gb-x"))
    for pilots in (before, pilots_at(cloud, tmp_path)):
        [seen] = pilots.pilots("gb-")
        assert (seen.tag, seen.index, seen.native_id) == ("gb-x", 0, "i-9")
        assert seen.state is PilotState.QUEUED
        assert pilots.pilots("gc-") == []


@pytest.mark.usefixtures("keys")
def test_an_instance_that_cannot_be_written_down_is_found_by_its_tag(
    answering: Any, tmp_path: Path
) -> None:
    (tmp_path / "young").touch()  # where its folder should be
    cloud = answering((200, made("i-0")), (200, listing("i-0")))
    with pytest.raises(GridError, match="i-0 has started, but is not written down") as found:
        pilots_at(cloud, tmp_path).submit(make_order("gb-x", count=2))
    assert not found.value.is_lasting  # which would end the pilot's record
    (tmp_path / "young").unlink()
    [seen] = pilots_at(cloud, tmp_path).pilots("gb-")
    assert (seen.native_id, seen.index, seen.state) == ("i-0", 0, PilotState.RUNNING)


def test_an_instance_is_young_for_a_minute_and_shown_while_it_is_not_listed(tmp_path: Path) -> None:
    young = Young(tmp_path / "young")
    assert young.unlisted("gb-", (), 100.0) == []
    young.add("gb-x", "i-1", 100.0)
    young.add("gb-x+1", "i-2", 101.0)
    assert [seen.native_id for seen in young.unlisted("gb-", {"i-1"}, 102.0)] == ["i-2"]
    both = young.unlisted("gb-", (), 100.0 + YOUNG_SECONDS)  # the next listing may not have it
    assert {(seen.native_id, seen.index) for seen in both} == {("i-1", 0), ("i-2", 1)}
    assert [seen.native_id for seen in young.unlisted("gb-", (), 100.5 + YOUNG_SECONDS)] == ["i-2"]
    assert young.unlisted("gb-", (), 102.0 + YOUNG_SECONDS) == []
    assert not [*(tmp_path / "young").iterdir()]


def test_a_file_that_goes_while_it_is_read_is_of_no_young_instance(tmp_path: Path) -> None:
    (tmp_path / "gb-x.json").symlink_to(tmp_path / "gone")  # named by the folder, and not there
    assert Young(tmp_path).unlisted("gb-", (), 100.0) == []


@pytest.mark.parametrize("content", ["", "[]", "5", '["i-1", "now"]', "no JSON"])
def test_a_file_of_a_young_instance_that_cannot_be_read_is_an_error_that_names_it(
    content: str, tmp_path: Path
) -> None:
    (tmp_path / "gb-x.json").write_text(content)
    with pytest.raises(GridError, match=r"gb-x\.json cannot be read"):
        Young(tmp_path).unlisted("gb-", (), 100.0)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "text", ["", "<html>", "no document", '<!DOCTYPE a [<!ENTITY b "c">]><a/>']
)
def test_an_answer_that_is_none_of_ec2s_is_an_error_that_names_the_endpoint(
    text: str, answering: Any, tmp_path: Path
) -> None:
    cloud = answering((200, text))
    with pytest.raises(GridError, match=rf"127.0.0.1:{cloud.server_port} answers 200"):
        pilots_at(cloud, tmp_path).pilots("gb-")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "answers_to_it",
    [
        [(200, "<html>")],
        [(404, "<html>")],
        [(500, refused("InternalError")), (500, refused("InsufficientInstanceCapacity"))],
        [(200, "<html>"), (401, refused("AuthFailure"))],
    ],
)
def test_a_request_that_may_have_started_an_instance_is_not_refused(
    answers_to_it: list[tuple[int, str]], answering: Any, tmp_path: Path
) -> None:
    cloud = answering(*answers_to_it)
    with pytest.raises(GridError) as unclear:
        pilots_at(cloud, tmp_path).submit(make_order("gb-x"))
    assert not unclear.value.is_lasting
    assert [asked["ClientToken"] for asked in cloud.asked] == ["gb-x", "gb-x"]


def test_a_file_of_credentials_must_be_its_owners_alone(
    answering: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other secret")
    file = tmp_path / "keys"
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = very secret\n")
    file.chmod(0o640)
    cloud = answering((200, listing()))
    options = {**cloud.options, "credentials": str(file)}
    pilots = Ec2(Grid(name="c", kind="ec2", options=options), tmp_path)
    with pytest.raises(GridError, match="may be read by others: chmod 600") as refused:
        pilots.pilots("gb-")
    assert refused.value.is_lasting
    assert not cloud.asked
    file.chmod(0o600)
    assert pilots.pilots("gb-") == []
