"""The page that says why a BOT does not run, or where nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gridbot.errors import BadInput
from gridbot.page import match_line
from gridbot.printing import cut, printable, table
from gridbot.state import BotState

_COUNTS = 20  # columns of the table that the numbers take
_NARROWEST = 30


def explanation_page(said: Mapping[str, Any], width: int) -> str:
    """The verdict, what rejects hosts, the nearest misses, and what to relax."""
    return "\n".join(_page(said, width))


def changed_policy(said: Mapping[str, Any], number: int) -> str:
    """The whole policy with one of the changes made.  Raises BadInput."""
    changes = said["changes"]
    if number > len(changes):
        raise BadInput(f"bot {said['id']}: there is no change {number}, only {len(changes)}")
    policy = changes[number - 1]["policy"]
    if policy is None:
        raise BadInput(f"change {number} is no change of the policy: it takes a new submission")
    return str(policy) if policy.endswith("\n") else f"{policy}\n"


def idle_reason(state: BotState) -> str:
    """Why nothing runs, as far as the BOT's own state tells."""
    if state.state == "open":
        return "its submission has not been completed"
    match = state.document.get("match") or {}
    if not match.get("hosts_matching"):
        line = match_line(match)
        return f"{line}; see gridbot bot explain {state.id}" if match.get("hosts_known") else line
    return f"{match_line(match)}, but none has asked; see gridbot bot explain {state.id}"


def _page(said: Mapping[str, Any], width: int) -> Iterator[str]:
    yield f"bot {said['id']}: {printable(said['verdict'])}"
    known = said["hosts_known"]
    yield f"{_hosts(known)} asked for work in the last day, {said['hosts_matching']} can run it"
    if said["hosts_left_out"]:
        yield "this policy takes long: hosts that asked earlier were not looked at"
    if said["conditions"]:
        yield ""
        yield table(
            ("rejects", "only it", "condition", "hosts have"), _rows(said["conditions"], width)
        )
    if said["nearest"]:
        yield ""
        yield "nearest misses"
        yield from _misses(said["nearest"])
    if said["changes"]:
        yield ""
        yield from _changes(said["id"], said["changes"])


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


def _changes(bot: int, changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "to relax one condition"
    for number, item in enumerate(changes, start=1):
        how = f"{printable(item['text'])} instead of {printable(item['instead_of'])}"
        submit = f"  (submit again with {item['submit']})" if item["submit"] else ""
        yield f"  {number}. {how}: {_hosts(item['hosts'])} more{submit}"
    policy = [number for number, item in enumerate(changes, start=1) if item["policy"]]
    if policy:
        yield (
            f"gridbot bot explain {bot} --change {policy[0]} > relaxed.ad"
            f" && gridbot bot set {bot} --policy relaxed.ad"
        )


def _hosts(number: int) -> str:
    return f"{number} host" if number == 1 else f"{number} hosts"
