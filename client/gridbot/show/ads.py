"""The ads that a policy is tried on: of this machine, a known host, a file, and what one sets."""

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

# What the server has of a host that it has never sent anything.
_NEW_HOST = {"ErrorRate": 0.1, "JobsToday": 0, "RecentCpuTime": 0.0, "Running": 0}
# A BOT that has just been submitted.
_NEW_BOT = {
    "Id": 1, "Name": "bot", "JobsTotal": 100, "JobsLeft": 100, "JobsDone": 0, "JobsFailed": 0,
    "JobsUnsent": 100, "JobsRunning": 0, "Tail": False, "Age": 0.0, "Signed": False,
}  # fmt: skip

Connect = Callable[[], Session]

# Kinds of conditions, as the server explains them, of which a trial shows the values.
_IN_THE_POLICY = ("JobRequirements", "Concurrency")


@dataclass(frozen=True)
class Scene:
    """What a policy is evaluated against; `policy` is that of the BOT, if the server has it.

    `refused` is why the host gets nothing of the BOT whatever its policy says, if it knows both.
    """

    host: Record
    bot: Record
    queue: Record
    job: Record | None
    policy: str = ""
    refused: Sequence[str] = ()

    def ads(self, now: float) -> Ads:
        """The ads of an evaluation at `now`, seconds since 1970."""
        return Ads(self.host, self.bot, self.queue, self.job, now)

    def without_host(self) -> Scene:
        """The scene of a policy that is evaluated when no host asks."""
        return replace(self, host=record({}))


def scene(connect: Connect, host: str | None, bot: str | None, job: Path | None) -> Scene:
    """Read the ads that were named; the server is asked only for what is on it."""
    known = connect().bot(int(bot)).show() if bot and bot.isdecimal() else None
    said = known.document if known else None
    return Scene(
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


def changed(scene: Scene, setting: str) -> Scene:
    """Return the scene with one attribute set, given as `Host.Memory=2048`."""
    path, equals, text = setting.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not equals or not all(names):
        raise BadInput(f"{setting!r} is no setting; write it as Host.Memory=2048")
    if len(names) == 1:
        names.insert(0, _ad_with(names[0]))
    value = _setting(text)
    match fold(names[0]):
        case "host":
            return replace(scene, host=_with(scene.host, names[1:], value))
        case "bot":
            return replace(scene, bot=_with(scene.bot, names[1:], value))
        case "queue":
            return replace(scene, queue=_with(scene.queue, names[1:], value))
        case "job":
            return replace(scene, job=_with(scene.job or record({}), names[1:], value))
        case _:
            raise BadInput(f"{setting!r}: {names[0]} is none of Host, BOT, Queue and Job")


def _ad_with(name: str) -> str:
    for ad, names in (("BOT", BOT_ATTRIBUTES), ("Host", HOST_ATTRIBUTES)):
        if fold(name) in map(fold, names):
            return ad
    raise BadInput(f"{name} is in no ad; write Host.{name}=… or BOT.{name}=…")


def _with(ad: Record, names: list[str], value: Value) -> Record:
    if len(names) == 1:
        return ad.holding(names[0], value)
    inner = ad.get(names[0])
    inner = inner if isinstance(inner, Record) else record({})
    return ad.holding(names[0], _with(inner, names[1:], value))


def _setting(text: str) -> Value:
    """Return the value that was meant; a bare word is a string, as the shell takes quotes away."""
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
        return record({**_NEW_HOST, "Owner": getpass.getuser(), **own, **live})
    if is_file(name):
        return _from_file(Path(name))
    known = connect().connection.get("/hosts")["hosts"]
    found = [host for host in known if name in (host["name"], str(host["id"]))]
    if not found:
        names = ", ".join(sorted({str(host["name"]) for host in known})[:10]) or "none"
        raise NotFound(f"there is no file and no host {name}; known: {names}")
    if len(found) > 1:
        numbers = ", ".join(str(host["id"]) for host in found)
        raise BadInput(f"several hosts are called {name}; give one of their numbers: {numbers}")
    return record(_host_ad(found[0]))


def _host_ad(said: Mapping[str, Any]) -> dict[str, Any]:
    """The ad of a host as the server lists it."""
    return {
        **said["attributes"],
        "Owner": said["owner"],
        "ErrorRate": said["error_rate"],
        "JobsToday": said["jobs_today"],
        "MeanTurnaround": said["mean_turnaround_seconds"],
        "RecentCpuTime": said["recent_cpu_seconds"],
        "Running": said["replicas_running"],
    }


def _bot_ad(state: BotState) -> Record:
    """The ad of a BOT as the server shows it."""
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
        raise BadInput(f"{name!r} is neither a file nor the number of a {what}")
    return _from_file(Path(name))


def is_file(text: str) -> bool:
    """Tell whether a text names a file; what is too long for a name does not."""
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
        raise BadInput(f"{path}: {error} is missing") from None
    except RecursionError:
        raise BadInput(f"{path}: is no ad: it is nested too deep") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: is no ad: {error}") from None
