"""Ads to evaluate a policy on: of this machine, a known host, a BOT or a file, with --set."""

from __future__ import annotations

import getpass
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput, NotFound
from gridbot.api.session import Session
from gridbot.api.state import BotState
from gridbot_client.host import description
from gridbot_policies import Ads
from gridbot_policies.classad import (
    UNDEFINED,
    ParseError,
    Record,
    evaluate,
    parse,
    parse_definitions,
    record,
    record_of,
)
from gridbot_policies.classad.nodes import Attribute, RecordNode
from gridbot_policies.classad.values import Value, fold
from gridbot_policies.policy.ads import BOT_ATTRIBUTES, HOST_ATTRIBUTES

# Statistics of a host to which the server has not sent any job.
_NEW_HOST = {"ErrorRate": 0.1, "JobsToday": 0, "RecentCpuTime": 0.0, "Running": 0}
# What a host holds of a BOT's inputs, unless --set says otherwise.
_NOTHING_CACHED: Mapping[str, Any] = {"CachedMB": 0.0, "Cached": []}
# A BOT that has just been submitted.
_NEW_BOT = {
    "Id": 1, "Name": "bot", "JobsTotal": 100, "JobsLeft": 100, "JobsDone": 0, "JobsFailed": 0,
    "JobsUnsent": 100, "JobsRunning": 0, "Tail": False, "Age": 0.0, "Signed": False,
}  # fmt: skip

Connect = Callable[[], Session]

# Kinds of conditions in the server's explanation that are parts of the policy.
_IN_THE_POLICY = ("JobRequirements", "Concurrency")


@dataclass(frozen=True)
class EvaluationContext:
    """Ads to evaluate a policy on.

    `policy` is the policy of a BOT of the server, else empty.  `refused` holds the conditions
    outside the policy that keep the BOT from the host, if the server knows both.
    """

    host: Record
    bot: Record
    queue: Record
    job: Record | None
    policy: str = ""
    refused: Sequence[str] = ()

    def ads(self, now: float) -> Ads:
        """Ads of an evaluation at `now`, in seconds since 1970."""
        return Ads(self.host, self.bot, self.queue, self.job, now)

    def without_host(self) -> EvaluationContext:
        """The same without a host, as for ReplicationRequirements."""
        return replace(self, host=record({}))


def evaluation_context(
    connect: Connect, host: str | None, bot: str | None, job: Path | None
) -> EvaluationContext:
    """Read the named ads; connects to the server only for hosts and BOTs of the server."""
    known = connect().bot(int(bot)).show() if bot and bot.isdecimal() else None
    said = known.document if known else None
    return EvaluationContext(
        host=_host(connect, host),
        bot=_bot_ad(known) if known else _file_or(bot, "bot", _NEW_BOT),
        queue=record({"BOTsInQueue": 1, "JobsInQueue": (said or _NEW_BOT).get("jobs_unsent", 100)}),
        job=_from_file(job) if job else None,
        policy=said["policy"] if said else "",
        refused=_refusals(connect, known.id, host) if known and host and not is_file(host) else (),
    )


def _refusals(connect: Connect, bot: int, host: str) -> list[str]:
    found = connect().bot(bot).explain(host)["conditions"]
    return [item["text"] for item in found if item["kind"] not in _IN_THE_POLICY]


def changed(context: EvaluationContext, setting: str) -> EvaluationContext:
    """Return the context with one attribute set, given as `Host.Memory=2048`."""
    path, equals, text = setting.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not equals or not all(names):
        raise BadInput(f"--set {setting!r}: write AD.NAME=VALUE, such as Host.Memory=2048")
    if len(names) == 1:
        names.insert(0, _ad_with(names[0]))
    value = _setting(text)
    match fold(names[0]):
        case "host":
            return replace(context, host=_with(context.host, names[1:], value))
        case "bot":
            return replace(context, bot=_with(context.bot, names[1:], value))
        case "queue":
            return replace(context, queue=_with(context.queue, names[1:], value))
        case "job":
            return replace(context, job=_with(context.job or record({}), names[1:], value))
        case _:
            raise BadInput(f"--set {setting!r}: {names[0]} is not one of Host, BOT, Queue, Job")


def _ad_with(name: str) -> str:
    for ad, names in (("BOT", BOT_ATTRIBUTES), ("Host", HOST_ATTRIBUTES)):
        if fold(name) in map(fold, names):
            return ad
    raise BadInput(f"--set {name}: unknown attribute; write Host.{name}=… or BOT.{name}=…")


def _with(ad: Record, names: list[str], value: Value) -> Record:
    if len(names) == 1:
        return ad.holding(names[0], value)
    inner = ad.get(names[0])
    inner = inner if isinstance(inner, Record) else record({})
    return ad.holding(names[0], _with(inner, names[1:], value))


def _setting(text: str) -> Value:
    """Value of a setting; a bare word is a string, because the shell removes quotes."""
    try:
        node = parse(text)
    except ParseError:
        return text.strip()
    value = evaluate(node, record({}))
    return node.name if isinstance(node, Attribute) and value is UNDEFINED else value


def _host(connect: Connect, name: str | None) -> Record:
    if name is None:
        room = description.room()
        own = description.attributes(room, Path(tempfile.gettempdir()))
        live = description.live_attributes(time.time())
        return record({**_NEW_HOST, **_NOTHING_CACHED, "Owner": getpass.getuser(), **own, **live})
    if is_file(name):
        return _from_file(Path(name))
    known = connect().connection.get("/hosts")["hosts"]
    found = [host for host in known if name in (host["name"], str(host["id"]))]
    if not found:
        names = ", ".join(sorted({str(host["name"]) for host in known})[:10]) or "none"
        raise NotFound(f"--host {name}: no such file and no such host; known hosts: {names}")
    if len(found) > 1:
        numbers = ", ".join(str(host["id"]) for host in found)
        raise BadInput(f"--host {name}: several hosts have this name; give an ID: {numbers}")
    return record(_host_ad(found[0]))


def _host_ad(said: Mapping[str, Any]) -> dict[str, Any]:
    """Ad of a host from the server's list of hosts."""
    return {
        **_NOTHING_CACHED,
        **said["attributes"],
        "Owner": said["owner"],
        "ErrorRate": said["error_rate"],
        "JobsToday": said["jobs_today"],
        "MeanTurnaround": said["mean_turnaround_seconds"],
        "RecentCpuTime": said["recent_cpu_seconds"],
        "Running": said["replicas_running"],
    }


def _bot_ad(state: BotState) -> Record:
    """Ad of a BOT from the server's document."""
    said = state.document
    return record(
        {
            "Id": said["id"],
            "Name": said["name"],
            "Owner": said["owner"],
            "JobsTotal": said["jobs_total"],
            "JobsLeft": said["jobs_left"],
            "JobsDone": said["jobs_done"],
            "JobsFailed": said["jobs_failed"],
            "JobsUnsent": said["jobs_unsent"],
            "JobsRunning": said["jobs_running"],
            "Tail": said["tail"],
            "MeanTurnaround": said["mean_turnaround_seconds"],
            "Age": time.time() - state.created_at.timestamp() if state.created_at else None,
            "Signed": said["signed"],
        }
    )


def _file_or(name: str | None, what: str, default: Mapping[str, Any]) -> Record:
    if name is None:
        return record({**default, "Owner": getpass.getuser()})
    if not is_file(name):
        raise BadInput(f"--{what} {name!r}: neither a file nor a number")
    return _from_file(Path(name))


def is_file(text: str) -> bool:
    """True if the text is the path of a file; texts too long for a path are not."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def _from_file(path: Path) -> Record:
    """Read an ad: JSON, or ClassAd attributes with or without brackets around them."""
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("{"):
            said = json.loads(text)
            return record(_host_ad(said) if "attributes" in said else said)
        return record_of(RecordNode(parse_definitions(text)))
    except ParseError as error:
        raise BadInput(f"{path}: {error}") from None
    except KeyError as error:
        raise BadInput(f"{path}: attribute {error} is missing") from None
    except RecursionError:
        raise BadInput(f"{path}: not an ad: nested too deep") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: not an ad: {error}") from None
