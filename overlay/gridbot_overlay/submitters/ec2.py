"""EC2 and clouds with its Query API: each pilot is an instance.

Tested against an emulator of the API, not on Amazon's machines.

An instance gets its script as user data, which cloud-init runs as root at the first boot.  The
script holds the pilots' key, so it takes the way to the metadata service from the machine before
the pilot starts as a user of its own.  When the pilot leaves, the machine switches itself off,
which terminates it, and a timer does so where the pilot hangs: nobody pays for a machine that has
lost its constructor.

An instance bears its order's tag and the pilot's index as tags, by which it is found again.  The
request has a client token made of both: when its answer is lost it is made again, and starts
nothing twice.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
"""

from __future__ import annotations

import base64
import gzip
import math
import re
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import GridError, answers, rendering
from gridbot_overlay.submitters.ec2_api import DRY_RUN, Ec2Api, Ec2Error, text_of
from gridbot_overlay.submitters.ec2_young import Young
from gridbot_overlay.submitters.logs import TAIL_BYTES

OPTIONS: dict[str, Any] = {
    "region": "",  # us-east-1
    "image": "",  # an AMI with cloud-init and Python 3.11 or newer: ami-0123456789abcdef0
    "type": "",  # of instances: c7i.xlarge
    "subnet": "",  # default: one of the default VPC
    "security_groups": [],  # ids; default: that of the VPC.  Pilots need no way in
    "key_name": "",  # of who may log in by ssh; default: nobody
    "spot": False,  # cheaper, and taken away at two minutes' notice
    "credentials": "",  # a file in the format of AWS's tools; default: the environment, or theirs
    "endpoint": "",  # of another cloud; default: Amazon's for the region
}
STATES = {
    "pending": PilotState.QUEUED,
    "running": PilotState.RUNNING,
    "stopping": PilotState.HELD,  # by somebody: nothing of ours stops one
    "stopped": PilotState.HELD,
    "shutting-down": PilotState.ENDED,  # and costs nothing any more
    "terminated": PilotState.ENDED,
}
USER_DATA_BYTES = 16 << 10  # at most
BEGIN, END = "----- stderr of the pilot -----", "----- end of the pilot -----"
_SCRIPT = resources.files(__package__).joinpath("ec2.sh").read_text(encoding="utf-8")
_PLACEHOLDER = re.compile("@(minutes|script|begin|end|bytes)@")
_TAG, _INDEX = "gridbot:tag", "gridbot:index"
_GRACE_MINUTES = 5  # of the timer, after the walltime
_LEFT_BY_ITSELF = "Client.InstanceInitiatedShutdown"
_GONE = "InvalidInstanceID."  # .NotFound, .Malformed
_AT_ONCE = 100  # instances of one request
_PAGE, _MOST_PAGES = 1000, 100
_OWNERS_CHARACTERS = 256  # of a tag's value
_REASON_CHARACTERS = 500


class Ec2:
    """Pilots as instances in one region of a cloud."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        self._options = rendering.options(grid, OPTIONS)
        for name, example in (("region", "us-east-1"), ("image", "ami-…"), ("type", "c7i.xlarge")):
            if not self._options[name]:
                text = f"grid {grid.name}: option {name} must be given, such as {example}"
                raise GridError(text, is_lasting=True)
        self._grid = grid
        self._given = given(grid.directives)
        region = self._options["region"]
        endpoint = self._options["endpoint"] or f"https://ec2.{region}.amazonaws.com"
        if not answers.keeps_secrets(endpoint):
            text = f"grid {grid.name}: option endpoint must be https://HOST, not {endpoint!r}"
            raise GridError(text, is_lasting=True)
        self._api = Ec2Api.of(endpoint.rstrip("/"), region, self._options["credentials"])
        self._young = Young(folder / "young")

    def submit(self, order: PilotOrder) -> list[str]:
        """Start one instance after the other, each by a request that can be made again."""
        return list(
            rendering.in_parts(order.count, 1, lambda index, _: [self._start(order, index)])
        )

    def _start(self, order: PilotOrder, index: int) -> str:
        name = rendering.job_name(order.tag, index)
        parameters = self._parameters(order, index) | {"ClientToken": name}
        try:
            document = self._api.call("RunInstances", parameters)
        except GridError as error:
            if error.is_lasting or (isinstance(error, Ec2Error) and error.is_too_fast):
                raise  # nothing was started
            document = self._start_again(parameters)
        made = [*_instances(document)]
        if len(made) != 1 or not (native_id := text_of(made[0], "{*}instanceId")):
            raise GridError(f"RunInstances names {len(made)} instances, not one")
        self._young.add(name, native_id, time.time())
        return native_id

    def _start_again(self, parameters: dict[str, str]) -> Element:
        """Repeat a request; whatever is said of it now, the first may have started an instance."""
        try:
            return self._api.call("RunInstances", parameters)
        except GridError as error:
            raise GridError(str(error)) from error

    def _parameters(self, order: PilotOrder, index: int) -> dict[str, str]:
        own = parameters(order, index, self._grid.name, self._options)
        if both := sorted(own.keys() & self._given):
            text = f"grid {self._grid.name}: directive {both[0]} is set by GridBot"
            raise GridError(text, is_lasting=True)
        return own | self._given

    def pilots(self, prefix: str) -> list[Sighting]:
        """List the instances with our tags, and those that are too new to be listed."""
        found = [
            seen
            for instance in self._listed(prefix)
            if (seen := sighting(instance, prefix)) is not None
        ]
        listed = {seen.native_id for seen in found}
        return [*found, *self._young.unlisted(prefix, listed, time.time())]

    def _listed(self, prefix: str) -> Iterator[Element]:
        query = {
            "Filter.1.Name": f"tag:{_TAG}",
            "Filter.1.Value.1": f"{prefix}*",
            "MaxResults": str(_PAGE),
        }
        for _ in range(_MOST_PAGES):
            document = self._api.call("DescribeInstances", query)
            yield from _instances(document)
            if not (following := text_of(document, "{*}nextToken")):
                return
            query["NextToken"] = following
        raise GridError(f"DescribeInstances has more than {_MOST_PAGES} pages")

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Terminate instances, many with each request."""
        for first, count in rendering.parts(len(native_ids), _AT_ONCE):
            self._terminate(native_ids[first : first + count])

    def _terminate(self, native_ids: Sequence[str]) -> None:
        query = {f"InstanceId.{number}": id for number, id in enumerate(native_ids, 1)}
        try:
            self._api.call("TerminateInstances", query)
        except Ec2Error as error:
            if not error.code.startswith(_GONE):
                raise
            # For one that has gone, the whole request is refused.
            for native_id in native_ids if len(native_ids) > 1 else ():
                self._terminate([native_id])

    def tail(self, native_id: str, tag: str) -> str:  # noqa: ARG002  # its id names the pilot
        """Return the end of the pilot's stderr, which a machine shows when its pilot has left."""
        try:
            document = self._api.call("GetConsoleOutput", {"InstanceId": native_id})
        except Ec2Error as error:
            if error.code.startswith(_GONE):
                return ""
            raise
        return words(text_of(document, "{*}output"))

    def check(self) -> list[CheckResult]:
        """Look at credentials, rights, price, and whether the machine is as large as its pilot."""
        found = [self._check_price()]
        try:
            live = [seen for seen in self.pilots("gb") if seen.state is not PilotState.ENDED]
        except GridError as error:
            return [*found, CheckResult("EC2", False, str(error))]
        text = f"{self._api.endpoint} lets us in; pilots there: {len(live)}"
        return [*found, CheckResult("EC2", True, text), self._check_type(), self._try()]

    def _check_price(self) -> CheckResult:
        if self._grid.price:
            budget = "a budget is set" if self._grid.limits.budget else "no budget is set"
            return CheckResult("price", True, f"{self._grid.price:g} for an hour; {budget}")
        text = "none is set, so that no budget can hold: write price = 0.1 (of a pilot for an hour)"
        return CheckResult("price", bool(self._options["endpoint"]), text)

    def _check_type(self) -> CheckResult:
        kind, shape = self._options["type"], self._grid.shape
        try:
            document = self._api.call("DescribeInstanceTypes", {"InstanceType.1": kind})
            cpus, memory, gpus = size(document)
        except (GridError, ValueError) as error:
            return CheckResult("type", False, f"{kind}: {error}")
        is_enough = shape.cpus <= cpus and shape.memory_mb < memory and shape.gpus <= gpus
        text = f"{kind} has {cpus} cores, {memory} MB and {gpus} GPUs"
        text += f"; a pilot is said to have {shape.cpus}, {shape.memory_mb} and {shape.gpus}"
        return CheckResult("type", is_enough, text)

    def _try(self) -> CheckResult:
        """Ask whether an instance would be started, and start none."""
        order = PilotOrder(
            tag="gridbot-check", count=1, shape=self._grid.shape, script="", owners=(),
            directives=self._grid.directives,
        )  # fmt: skip
        try:
            self._api.call("RunInstances", self._parameters(order, 0) | {"DryRun": "true"})
        except Ec2Error as error:
            if error.code == DRY_RUN:
                return CheckResult("instance", True, "we may start such instances")
            return CheckResult("instance", False, str(error))
        except GridError as error:
            return CheckResult("instance", False, str(error))
        return CheckResult("instance", False, "a dry run started an instance: look for it")


def parameters(order: PilotOrder, index: int, grid: str, options: dict[str, Any]) -> dict[str, str]:
    """Describe the instance of one pilot, as RunInstances wants it."""
    pilot = f"{order.tag}.{index}"
    tags = {
        "Name": f"gridbot {grid} {pilot}",
        _TAG: order.tag,
        _INDEX: str(index),
        "gridbot:grid": grid,
        "gridbot:owners": rendering.owners(order)[:_OWNERS_CHARACTERS],
    }
    found = {
        "ImageId": options["image"],
        "InstanceType": options["type"],
        "MinCount": "1",
        "MaxCount": "1",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions.HttpTokens": "required",
        "MetadataOptions.HttpProtocolIpv6": "disabled",  # the script's rule is one of IPv4
        "UserData": user_data(order, index),
        "TagSpecification.1.ResourceType": "instance",
    }
    for number, (name, value) in enumerate(tags.items(), 1):
        found[f"TagSpecification.1.Tag.{number}.Key"] = name
        found[f"TagSpecification.1.Tag.{number}.Value"] = value
    for number, group in enumerate(options["security_groups"], 1):
        found[f"SecurityGroupId.{number}"] = str(group)
    if options["subnet"]:
        found["SubnetId"] = options["subnet"]
    if options["key_name"]:
        found["KeyName"] = options["key_name"]
    if options["spot"]:
        found["InstanceMarketOptions.MarketType"] = "spot"
    return found


def user_data(order: PilotOrder, index: int) -> str:
    """Render what the machine runs, as user data: packed, the same each time."""
    text = script(order, index)
    packed = gzip.compress(text.encode(), mtime=0)
    if len(packed) > USER_DATA_BYTES:
        text = (
            f"the pilot's script has {len(packed)} bytes when packed; EC2 takes {USER_DATA_BYTES}"
        )
        raise GridError(f"{text}: shorten setup of this grid", is_lasting=True)
    return base64.b64encode(packed).decode()


def script(order: PilotOrder, index: int) -> str:
    """Render what the machine runs as root."""
    native_id = '"$(cat /var/lib/cloud/data/instance-id)"'
    # Gone before the first job starts, which is of the same user.
    own = rendering.script(order, str(index), native_id, 'rm -f "$0"')
    values = {
        "minutes": str(math.ceil(order.shape.walltime_seconds / 60) + _GRACE_MINUTES),
        "script": own.rstrip("\n"),
        "begin": BEGIN,
        "end": END,
        "bytes": str(TAIL_BYTES),
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], _SCRIPT)


def given(directives: Sequence[str]) -> dict[str, str]:
    """Read the operator's own parameters of RunInstances: NAME=VALUE each."""
    found = dict[str, str]()
    for directive in directives:
        name, is_given, value = directive.partition("=")
        if not is_given or not re.fullmatch(r"[A-Z][A-Za-z0-9.]{0,127}", name):
            text = f"directive {directive!r} is no parameter of RunInstances"
            raise GridError(f"{text}, such as EbsOptimized=true", is_lasting=True)
        found[name] = value
    return found


def size(document: Element) -> tuple[int, int, int]:
    """Read what a type of instances has: cores, MB, GPUs.  Raises ValueError."""
    gpus = document.iterfind(".//{*}gpuInfo/{*}gpus/{*}item")
    return (
        int(text_of(document, ".//{*}vCpuInfo/{*}defaultVCpus")),
        int(text_of(document, ".//{*}memoryInfo/{*}sizeInMiB")),
        sum(int(text_of(gpu, "{*}count")) for gpu in gpus),
    )


def sighting(instance: Element, prefix: str) -> Sighting | None:
    """Read what EC2 says of an instance; None of one that is not ours."""
    tags = {
        text_of(tag, "{*}key"): text_of(tag, "{*}value")
        for tag in instance.findall("{*}tagSet/{*}item")
    }
    named = rendering.read_name(tags.get(_TAG, ""), prefix)
    index = tags.get(_INDEX, "")
    native_id = text_of(instance, "{*}instanceId")
    if named is None or not native_id or not re.fullmatch("[0-9]{1,9}", index):
        return None  # somebody else's, perhaps made of one of ours
    # Of a state that is new to us: a pilot must not disappear.
    state = STATES.get(text_of(instance, "{*}instanceState/{*}name"), PilotState.RUNNING)
    return Sighting(
        tag=named[0], native_id=native_id, index=int(index), state=state,
        reason=_reason(instance, state)[:_REASON_CHARACTERS],
        node=text_of(instance, "{*}privateDnsName"),
    )  # fmt: skip


def _reason(instance: Element, state: PilotState) -> str:
    """Why an instance has ended, "" where its pilot has left."""
    code = text_of(instance, "{*}stateReason/{*}code")
    if state in (PilotState.QUEUED, PilotState.RUNNING) or code == _LEFT_BY_ITSELF:
        return ""
    message = text_of(instance, "{*}stateReason/{*}message")
    return message if message.startswith(code) else f"{code}: {message}"


def words(output: str) -> str:
    """Find the pilot's stderr in a console's output, as GetConsoleOutput gives it."""
    try:
        shown = base64.b64decode(output).decode(errors="replace").replace("\r\n", "\n")
    except ValueError:
        return ""
    _, is_there, rest = shown.rpartition(f"{BEGIN}\n")
    said = rest.partition(f"\n{END}")[0] if is_there else ""
    return said.encode()[-TAIL_BYTES:].decode(errors="replace")


def _instances(document: Element) -> Iterator[Element]:
    yield from document.iterfind(".//{*}instancesSet/{*}item")
