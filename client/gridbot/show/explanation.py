"""Text output of `gridbot bot explain`: why a BOT does or does not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.api.state import BotState, why_held
from gridbot.printing import counted, cut, table
from gridbot.show.columns import client_name
from gridbot.show.page import (
    boinc_line,
    match_line,
    refusing_grids,
    suspension_line,
    too_long,
)
from gridbot_client.terminal import printable

_COUNTS = 20  # characters that the columns of numbers and the gaps take
_NARROWEST = 30
_OF_VERSIONS = ("--memory", "--disk")  # limits that the next version of a BOT may change


def explanation_page(said: Mapping[str, Any], width: int) -> str:
    """Verdict, table of rejecting conditions, nearest misses and suggested changes."""
    return "\n".join(_page(said, width))


def chosen_change(said: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Suggested change `number`, with its number and the BOT's `id`.  Raises BadInput."""
    changes = said["changes"]
    if number > len(changes):
        raise BadInput(
            f"bot {said['id']}: no change {number};"
            f" {counted(len(changes), 'change')} suggested: gridbot bot explain {said['id']}"
        )
    return {"id": said["id"], "change": number, **changes[number - 1]}


def changed_policy(change: Mapping[str, Any]) -> str:
    """Whole policy with a change applied.  Raises BadInput."""
    policy = change["policy"]
    if policy is None:
        how = _again(change["id"], change["submit"])
        raise BadInput(f"change {change['change']} is not a change of the policy: {how}")
    return str(policy) if policy.endswith("\n") else f"{policy}\n"


def idle_reason(state: BotState) -> str:
    """Reason why no job runs, from the BOT's own state."""
    if state.state == "open":
        return "its submission is not complete"
    if state.is_held:
        return why_held(state)
    if why := state.document.get("suspended"):
        return f"it is suspended: {suspension_line(state.id, why)}"
    if state.growing and not state.jobs_unsent:
        return f"it is growing, and none was appended; to let it end: gridbot bot close {state.id}"
    match = state.document.get("match") or {}
    if not match.get("hosts_matching"):
        line = match_line(match)
        explain = f"; for the reasons: gridbot bot explain {state.id}"
        return f"{line}{explain}" if match.get("hosts_known") else line
    if state.jobs_silent:
        return (
            f"{counted(state.jobs_silent, 'job')} of silent hosts wait for another client;"
            f" for details: gridbot bot explain {state.id}"
        )
    replicas = state.document.get("replicas") or {}
    if replicas.get("made") and not state.jobs_finished:
        # A pilot waits for minutes after a failure: command or node may be at fault.
        return (
            f"no job is done after {counted(replicas['made'], 'replica')}, and hosts back off when"
            f" replicas fail; for the reasons: gridbot bot logs {state.id}"
        )
    return (
        f"{match_line(match)}; waiting for one of them to ask for work;"
        f" for details: gridbot bot explain {state.id}"
    )


def _page(said: Mapping[str, Any], width: int) -> Iterator[str]:
    yield f"bot {said['id']}: {printable(said['verdict'])}"
    if said.get("held"):
        yield f"for the reasons: gridbot bot logs {said['id']} --summary"
        yield f"to go on as it is: gridbot bot resume {said['id']}"
    if why := said.get("suspended"):
        yield f"suspended: {suspension_line(said['id'], why)}"
    host = said.get("host")
    yield from _one(host) if host else _all(said)
    for title, text in (*too_long(said), *refusing_grids(said)):
        yield f"{title:<11}{text}".rstrip()
    if said["conditions"] and not host:
        yield ""
        yield "hosts rejected by each condition, and by that condition alone"
        header = ("rejected", "alone", "condition", "hosts have")
        yield table(header, _rows(said["conditions"], width))
    if said["nearest"]:
        yield ""
        yield "failed conditions" if host else "nearest misses"
        yield from _misses(said["nearest"])
    if said["changes"]:
        yield ""
        yield from _changes(said["id"], said["changes"])


def _one(host: Mapping[str, Any]) -> Iterator[str]:
    client = client_name(host["is_boinc"], host["client_version"])
    yield printable(f"host {host['id']}: {client}, {host['platform'] or 'platform unknown'}")


def _all(said: Mapping[str, Any]) -> Iterator[str]:
    known, stock = counted(said["hosts_known"], "host"), said["hosts_stock"]
    yield f"{known} asked for work in the last day, {said['hosts_matching']} can run it"
    if stock:
        matching = said["hosts_stock_matching"]
        can = f", {matching} of them can run it" if said["signed_for_boinc"] else ""
        are = f"{stock} of {known} {'is a' if stock == 1 else 'are'}"
        clients = "client" if stock == 1 else "clients"
        yield f"{are} stock BOINC {clients}{can}; the BOT is {boinc_line(said)}"
    if said["hosts_left_out"]:
        yield "evaluating this policy takes long: hosts that asked earlier were left out"


def _rows(conditions: Sequence[Mapping[str, Any]], width: int) -> Iterator[tuple[object, ...]]:
    room = max(_NARROWEST, (width - _COUNTS) // 2)
    for item in conditions:
        via = f"  (in {item['via']})" if item["via"] else ""
        have = ", ".join(f"{value['value']} ({value['hosts']})" for value in item["values"])
        yield item["rejects"], item["only"], cut(f"{item['text']}{via}", room), cut(have, room)


def _misses(nearest: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for miss in nearest:
        for fail in miss["fails"]:
            text, host, has = (printable(fail["text"]), printable(miss["host"]), fail["has"])
            yield f"  {text}: {host} has {printable(has)}"


def _again(bot: int, options: str) -> str:
    """What to type for other limits: a new version has them, unless it cannot."""
    if all(option in _OF_VERSIONS for option in options.split()[::2]):
        return f"gridbot bot set {bot} {options}"
    return f"needs a new submission with {options}"


def _changes(bot: int, changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    numbered = list(enumerate(changes, start=1))
    for is_one, items in groupby(numbered, lambda found: bool(found[1]["conditions"] == 1)):
        conditions = "one condition" if is_one else "several conditions together"
        yield f"suggested changes of {conditions}"
        for number, item in items:
            how = f"{printable(item['text'])} instead of {printable(item['instead_of'])}"
            again = f"  ({_again(bot, item['submit'])})" if item["submit"] else ""
            yield f"  {number}. {how}: {counted(item['hosts'], 'host')} more{again}"
    policy = [number for number, item in numbered if item["policy"] and not item["submit"]]
    if policy:
        yield (
            f"gridbot bot explain {bot} --change {policy[0]} > relaxed.ad"
            f" && gridbot bot set {bot} --policy relaxed.ad"
        )
