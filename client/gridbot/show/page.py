"""Text output: the table of BOTs, one BOT, the log of a replica."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from gridbot.api.state import BotState
from gridbot.api.units import limit, time_limit
from gridbot.printing import counted, first_line, table
from gridbot.show.columns import client_name, host_state
from gridbot.show.progress import status_line
from gridbot_client.terminal import printable

_MOST_GRIDS = 5  # of which reasons are shown


def bots_table(bots: Sequence[BotState]) -> str:
    """One line per BOT."""
    if not bots:
        return "no BOTs; to submit one: gridbot submit --range 0:10 -- echo {}"
    header = (
        "bot",
        "name",
        "owner",
        "state",
        "jobs",
        "done",
        "failed",
        "in progress",
        "unsent",
        "created",
    )
    return table(
        header,
        [
            (
                bot.id,
                first_line(bot.name, 30),
                bot.owner,
                bot.phase,
                bot.jobs_total,
                bot.jobs_done,
                bot.jobs_failed,
                bot.jobs_in_progress,
                bot.jobs_total - bot.jobs_finished - bot.jobs_in_progress,
                _local(bot.created_at),
            )
            for bot in bots
        ],
    )


def bot_page(bot: BotState) -> str:
    """State, job counts, replicas by reason, policy, matching hosts and the next command."""
    return "\n".join(f"{name:<11}{value}".rstrip() for name, value in _page(bot))


def _page(bot: BotState) -> Iterator[tuple[str, str]]:
    said = bot.document
    yield f"bot {bot.id}", printable(bot.name)
    signed = _signed(said)
    state = f"{bot.state} and growing" if bot.growing else bot.phase
    yield "", f"of {bot.owner}, {state}, {signed}, created {_local(bot.created_at)}"
    if bot.group:
        yield "group", printable(bot.group)
    if closed := said.get("closed"):
        yield "", f"closed {printable(closed)}"
    if bot.ended_at:
        yield "", f"ended {_local(bot.ended_at)}"
    yield from _commands(said)
    if bot.version > 1:
        yield "version", f"{bot.version}, for what was retried or unsent"
    yield "jobs", f"{status_line(bot)}"
    if turnaround := said.get("mean_turnaround_seconds"):
        yield "", f"mean turnaround {turnaround:.3g} s, from sending to a valid answer"
    yield "replicas", _replicas(said.get("replicas") or {})
    yield from too_long(said)
    if resources := said.get("resources"):
        yield "resources", _resources(resources)
    yield "quorum", str(said.get("quorum", 1))
    yield from _assurance(said, bot.jobs_done)
    if said.get("boinc_url"):
        yield "BOINC", boinc_line(said)
    yield from _policy(said)
    if limit := said.get("max_failures"):
        yield "held if", f"more than {printable(limit)} of its jobs fail"
    if bot.is_held:
        yield "held", printable(bot.held or "")
    if why := said.get("suspended"):
        yield "suspended", suspension_line(bot.id, why)
    if not bot.is_final and (match := said.get("match")):
        yield "hosts", match_line(match)
        if match["hosts_known"] > match["hosts_matching"]:
            yield "", f"for the reasons: gridbot bot explain {bot.id}"
    if not bot.is_final:
        yield from refusing_grids(said)
    yield "next", _next_step(bot)


def too_long(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """That pilots end before replicas of the BOT do."""
    if (cut_off := said.get("cut_off", 0)) > 1:
        grid, seconds = printable(said["cut_off_grid"]), said["cut_off_seconds"]
        yield "too long", f"{cut_off} pilots ended before their replicas: a replica needs more than"
        yield "", f"{seconds:.0f} s; grid {grid} does not give as much to a pilot"


def refusing_grids(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which grids of the overlay send no pilots for the BOT, and why."""
    refused_by, title = said.get("refused_by") or {}, "no pilots"
    for grid, why in sorted(refused_by.items())[:_MOST_GRIDS]:
        yield title, printable(f"from {grid}: {why}")
        title = ""
    if (more := len(refused_by) - _MOST_GRIDS) > 0:
        yield "", f"and from {counted(more, 'other grid')}"


def _replicas(replicas: Mapping[str, Any]) -> str:
    reasons = replicas.get("by_reason") or {}
    why = ", ".join(f"{printable(name)} {count}" for name, count in reasons.items() if count)
    part = replicas.get("progress")
    told = "" if part is None else f"; those in progress say that they are {100 * part:.0f} % done"
    return f"{replicas.get('made', 0)} made" + (f" ({why})" if why else "") + told


def _assurance(said: Mapping[str, Any], done: int) -> Iterator[tuple[str, str]]:
    """The confidence that was asked for and reached, and what it cost."""
    asked, reached = said.get("assurance"), said.get("confidence")
    if asked is None and reached is None:
        return
    parts = [] if asked is None else [f"{asked:g} asked for"]
    if reached is not None:
        made = (said.get("replicas") or {}).get("made", 0)
        parts += [f"{reached:.6g} reached", f"{made / max(1, done):.2f} replicas a job"]
    if open_ := said.get("provisional"):
        parts.append(f"{counted(open_, 'job')} provisional")
    yield "assurance", ", ".join(parts)


def host_page(said: Mapping[str, Any]) -> str:
    """One host: its machine, what its answers came to, and what follows."""
    wrong, width = said["answers_wrong"], int(said["width"])
    lines = [
        f"host {said['id']}   {printable(said['name'] or '')} of {said['owner']},"
        f" {host_state(said)}",
        f"machine   {_machine(said)}",
        f"answers   {said['answers_right']} right, {wrong} wrong,"
        f" {said['answers_unchecked']} not checked",
        f"width     {width} replicas of other people in progress or unjudged",
        f"errors    {100 * said['error_rate']:.1f} % of its recent replicas failed",
    ]
    if since := said["banned_at"]:
        why = printable(said["banned_why"]) or "no reason given"
        lines.append(
            f"banned    since {_local(datetime.fromisoformat(since))}: {why};"
            f" to lift it: gridbot host unban {said['id']}"
        )
    if said.get("too_old"):
        lines.append(
            "too old   its client cannot check signatures, so it gets no signed BOT; to update it:"
            " install the server's version there and start it again"
        )
    if since := said.get("silent_since"):
        lines.append(
            f"silent    since {_local(datetime.fromisoformat(since))}, and has"
            f" {counted(said['replicas_running'], 'replica')}; to give them to others for good:"
            f" gridbot host forget {said['id']}"
        )
    if wrong:
        lines.append(
            "          it was caught: what relied on it was run again, and all it answers is"
            " checked until it has made up for that"
        )
    return "\n".join(lines)


def _machine(said: Mapping[str, Any]) -> str:
    ad = said["attributes"]
    parts = [counted(ad.get("NumCpus", 0), "cpu"), f"{limit(ad.get('Memory', 0))} memory"]
    parts += [str(ad.get("Platform", "")), client_name(ad.get("IsBoinc"), ad.get("ClientVersion"))]
    if said["venue"]:
        parts.append(f"venue {said['venue']}")
    return printable(", ".join(part for part in parts if part))


def _resources(resources: Mapping[str, Any]) -> str:
    parts = [
        counted(resources.get("cpus", 1), "cpu"),
        f"{limit(resources.get('memory_mb', 0))} memory",
        f"{limit(resources.get('disk_mb', 0))} disk",
        time_limit(resources.get("seconds", 0)),
    ]
    if resources.get("gpus"):
        parts.append(counted(resources["gpus"], "gpu"))
    return ", ".join(parts)


def _policy(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    lines = (said.get("policy") or "").strip().splitlines() or ["the default"]
    for name, line in zip(("policy", *[""] * len(lines)), lines, strict=False):
        yield name, printable(line, keep="\t")


def suspension_line(bot: int, why: str) -> str:
    """Why a BOT gets no work until its policy is changed, and how to change it, in one line."""
    return f"{printable(why)}: gridbot bot set {bot} --policy FILE"


def match_line(match: Mapping[str, Any]) -> str:
    """Number of hosts that can run the BOT, or the reason why none can, in one line."""
    last = f"the {match['hosts_known']} hosts that asked lately" if match.get("is_sample") else ""
    if matching := match.get("hosts_matching"):
        stock = match.get("hosts_stock")
        some = f", {match['hosts_stock_matching']} of {stock} stock BOINC clients" if stock else ""
        known = last or counted(match["hosts_known"], "known host")
        return f"{matching} of {known} can run it{some}"
    nobody = f"none of {last}" if last else "no known host"
    return f"{nobody} can run it now: {printable(match.get('reason') or 'no host is known')}"


def boinc_line(said: Mapping[str, Any]) -> str:
    """Availability of the BOT to stock BOINC clients, in one line."""
    if said.get("signed_for_boinc"):
        return "signed for stock BOINC clients"
    if why := said.get("boinc_unsuitable"):
        return f"unsuitable for stock BOINC clients: {printable(why)}"
    return f"not signed for stock BOINC clients: gridbot app sign {said['id']} --boinc-key FILE"


def _next_step(bot: BotState) -> str:
    if bot.state == "open":
        return (
            "the submission was interrupted; repeat it with the same --idempotency-key,"
            f" or cancel it: gridbot bot cancel {bot.id}"
        )
    if bot.is_held:
        return (
            f"gridbot bot logs {bot.id} --summary, then gridbot bot retry {bot.id} --input FILE,"
            f" or gridbot bot resume {bot.id}"
        )
    if bot.growing:
        return f"gridbot bot append {bot.id} ITEM, or gridbot bot close {bot.id}"
    if not bot.is_final:
        return f"gridbot bot wait {bot.id}"
    if bot.jobs_failed > bot.jobs_cancelled:
        return f"gridbot bot logs {bot.id} --summary, then gridbot bot retry {bot.id}"
    return f"gridbot bot results {bot.id} --to results-{bot.id}"


def log_page(entry: Mapping[str, Any]) -> str:
    """One ended replica: host, result, exit code, wall time, and the end of its output."""
    ended = entry["how"] + (f" ({entry['reason']})" if entry.get("reason") else "")
    replica = f"job {entry['seq']} replica {entry['replica']} ({entry['why']})"
    parts = [f"{replica} on {entry['host']}: {ended}"]
    if entry.get("exit_code") is not None:
        parts.append(f"exit code {entry['exit_code']}")
    if entry.get("wall_seconds") is not None:
        parts.append(f"{entry['wall_seconds']:.3g} s")
    lines = [f"--- {printable(', '.join(parts))}"]
    if difference := entry.get("difference"):
        lines.append(f"lost: {printable(difference)}")
    for stream in ("said", "stdout", "stderr"):
        if text := entry.get(stream):
            safe = printable(text, keep="\n\t").rstrip("\n")
            lines += [f"{stream}:", *(f"  {line}" for line in safe.split("\n"))]
    return "\n".join(lines)


def digest_page(bot: int, groups: Sequence[Mapping[str, Any]]) -> str:
    """Groups of failed replicas that are alike, each with an example."""
    return "\n".join(line for group in groups for line in _group(bot, group))


def _group(bot: int, group: Mapping[str, Any]) -> Iterator[str]:
    count = counted(group["replicas"], "replica")
    where = f"{counted(group['jobs'], 'job')} on {counted(group['hosts'], 'host')}"
    how = [group["reason"] or "failed"]
    if group["exit_code"] is not None:
        how.append(f"exit code {group['exit_code']}")
    if group["signal"] is not None:
        how.append(f"signal {group['signal']}")
    yield printable(f"{count} of {where}: {', '.join(how)}")
    if group["line"]:
        yield f"  {printable(group['line'])}"
    yield f"  such as job {group['seq']}: gridbot bot logs {bot} --failed --job {group['seq']}"
    yield f"  to run it here: {printable(group['command'])}"


def _commands(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What hosts run: the same, or each the program for it."""
    programs = said.get("programs") or ()
    if not programs:
        yield "command", printable(shlex.join(said.get("command") or ()))
    for number, program in enumerate(programs):
        line = f"{program['where']}: {shlex.join(program['command'])}"
        yield "" if number else "programs", printable(line)


def _local(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _signed(said: Mapping[str, Any]) -> str:
    """Who has signed it, in words."""
    if said.get("signed"):
        return "signed by the project"
    if said.get("owner_signed"):
        return "signed by its owner"
    if said.get("waits_for_signature"):
        return f"waiting for a signature (gridbot app sign {said['id']})"
    return "not signed for native clients"
