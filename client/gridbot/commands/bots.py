"""`gridbot bot …`: list BOTs, follow them, get their results."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gridbot.api.bot import Bot
from gridbot.api.errors import GridbotError
from gridbot.api.session import Session
from gridbot.api.state import BotState, why_held
from gridbot.commands import bot_changes
from gridbot.commands.options import (
    BOTS,
    as_json,
    one_bot,
    print_each,
    print_json,
    say,
    say_away,
    with_session,
)
from gridbot.commands.what_if import what_if
from gridbot.printing import counted, json_document
from gridbot.show.collect import collect, print_results, results_document
from gridbot.show.explanation import changed_policy, chosen_change, explanation_page, idle_reason
from gridbot.show.live import live_documents, live_lines
from gridbot.show.page import bot_page, bots_table, digest_page, log_page
from gridbot.show.progress import follow, standing_still
from gridbot_client.quantities import TIME


@click.group()
def bot() -> None:
    """List, show, explain, predict, wait for, change, hold, resume, cancel, retry or delete BOTs.

    Get their results and logs.  Append jobs to a growing BOT and close it.

    BOT is the number that `gridbot submit` and `gridbot bot list` print.
    """


for change in bot_changes.VERBS:
    bot.add_command(change)
bot.add_command(what_if)


@bot.command(name="list")
@click.option(
    "--state",
    type=click.Choice(["open", "running", "held", "done", "cancelled"]),
    help="List only BOTs in this state.  [default: all]",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="List the newest N.  [default: all]"
)
@click.option("--group", metavar="NAME", help="List only BOTs of this group.  [default: all]")
@as_json
@with_session
def list_bots(
    session: Session, state: str | None, limit: int | None, group: str | None, as_json: bool
) -> None:
    """List your BOTs, newest first."""
    found = session.bots(state, limit, group)
    if as_json:
        print_json({"bots": [bot.document for bot in found]})
    else:
        click.echo(bots_table(found))


@bot.command()
@BOTS
@as_json
@with_session
def show(session: Session, numbers: Sequence[int], as_json: bool) -> None:
    """Show a BOT's state, jobs, resources, policy and matching hosts."""

    def said(number: int) -> tuple[Mapping[str, Any], str]:
        state = session.bot(number).show()
        return state.document, bot_page(state)

    print_each("bots", numbers, said, as_json)


@bot.command()
@BOTS
@click.option(
    "--change",
    type=click.IntRange(1),
    metavar="N",
    help="Print the whole policy of one BOT with suggested change N applied.",
)
@click.option("--host", metavar="ID|NAME", help="Explain why this host gets no job of the BOT.")
@as_json
@with_session
def explain(
    session: Session, numbers: Sequence[int], change: int | None, host: str | None, as_json: bool
) -> None:
    """Show which conditions reject which hosts; suggest changes."""
    if change is not None:
        one_bot(numbers, "--change")
        chosen = chosen_change(session.bot(numbers[0]).explain(host), change)
        print_json(chosen) if as_json else click.echo(changed_policy(chosen), nl=False)
        return

    def explained(number: int) -> tuple[Mapping[str, Any], str]:
        document = session.bot(number).explain(host)
        return document, explanation_page(document, shutil.get_terminal_size().columns)

    print_each("bots", numbers, explained, as_json)


@bot.command()
@BOTS
@click.option(
    "--timeout",
    type=TIME,
    metavar="TIME",
    help="Stop waiting after this time, such as 90s or 2h, and exit with 5.  [default: no limit]",
)
@as_json
@with_session
def wait(session: Session, numbers: Sequence[int], timeout: float | None, as_json: bool) -> None:
    """Wait until BOTs have ended, and show their progress.

    Exits with 1 if jobs failed, or a BOT is held or was cancelled.
    """
    end = None if timeout is None else time.monotonic() + timeout
    states = []
    for number in numbers:
        left = None if end is None else max(0.0, round(end - time.monotonic(), 2))
        states.append(wait_for(session.bot(number), silent=as_json, timeout=left))
    if as_json:
        documents = [state.document for state in states]
        print_json(documents[0] if len(numbers) == 1 else {"bots": documents})
    complain(states)


@bot.command()
@BOTS
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save each output as DIR/SEQ/NAME, and the table of jobs as DIR/results.csv; of several"
    " BOTs, in DIR/BOT.",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the table of jobs of one BOT in FILE.",
)
@click.option("--follow", is_flag=True, help="Wait for further results until the BOT has ended.")
@as_json
@with_session
def results(
    session: Session, numbers: Sequence[int], to: Path | None, csv: Path | None, follow: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Print the results of BOTs, or save them as files.

    SEQ is the job's number, counted from 0.  An interrupted download with --to continues where it
    stopped when the command is repeated.
    """
    if csv:
        one_bot(numbers, "--csv")

    def saved(number: int) -> tuple[Mapping[str, Any], str]:
        place = to / str(number) if to and len(numbers) > 1 else to
        collected = collect(session.bot(number), place, csv, follow=follow, told=say_away)
        document = {"id": number, "results": collected, "to": place and str(place)}
        return document, f"bot {number}: {counted(collected, 'new result')}"

    try:
        if to or csv:
            print_each("bots", numbers, saved, as_json)
        elif as_json:
            _print_parts(results_document(session.bot(each), follow=follow) for each in numbers)
        else:
            for number in numbers:
                _say_which(number, numbers)
                print_results(session.bot(number), follow=follow, told=say_away)
    except KeyboardInterrupt:
        listed = " ".join(map(str, numbers))
        raise GridbotError(
            f"interrupted; what was submitted keeps running: gridbot bot wait {listed}"
        ) from None


def _say_which(number: int, numbers: Sequence[int]) -> None:
    """Say of which of several BOTs the following lines are; to stderr, as those may be parsed."""
    if len(numbers) > 1:
        say(f"bot {number}:")


def _print_parts(documents: Iterable[Iterator[str]]) -> None:
    """Print one JSON document in parts, or several as a list under `bots`."""
    first, *others = documents
    before, between, after = ('{"bots": [\n', ", ", "]}\n") if others else ("", "", "")
    click.echo(before, nl=False)
    for number, document in enumerate((first, *others)):
        click.echo(between if number else "", nl=False)
        for part in document:
            click.echo(part, nl=False)
    click.echo(after, nl=False)


@bot.command()
@BOTS
@click.option("--failed", is_flag=True, help="Show only failed replicas.")
@click.option(
    "--job", "--seq", "seq", type=click.IntRange(0), metavar="N",
    help="Show only replicas of job N, counted from 0.",
)  # fmt: skip
@click.option(
    "--summary",
    is_flag=True,
    help="Group failed replicas that are alike, with an example that can be run here.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Print what the jobs of one BOT print while they run, until they have ended; with --json a"
    " document a line.",
)
@as_json
@with_session
def logs(
    session: Session, numbers: Sequence[int], failed: bool, seq: int | None, summary: bool,
    follow: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show the output and the reason of the end of each replica."""
    if seq is not None:
        one_bot(numbers, "--job")
    if follow:
        one_bot(numbers, "--follow")
        if failed or summary:
            raise click.UsageError("--follow shows what runs; leave out --failed and --summary")
        _follow_output(session.bot(numbers[0]), seq, as_json=as_json)
    elif summary:
        print_each("bots", numbers, lambda number: _digest(session.bot(number)), as_json)
    elif as_json:
        _print_parts(
            json_document(number, "logs", session.bot(number).logs(seq=seq, failed=failed))
            for number in numbers
        )
    else:
        for number in numbers:
            _say_which(number, numbers)
            _print_logs(session.bot(number), seq, failed=failed)


def _follow_output(bot: Bot, seq: int | None, *, as_json: bool) -> None:
    bot.show()  # an unknown BOT is reported at once
    try:
        printed = bot.follow_output(seq, say_away)
        lines = live_documents(printed) if as_json else live_lines(printed, is_one=seq is not None)
        for line, is_error in lines:
            click.echo(line, err=is_error)
    except KeyboardInterrupt:
        raise GridbotError(
            f"interrupted; the BOT keeps running: gridbot bot logs {bot.id} --follow"
        ) from None


def _print_logs(bot: Bot, seq: int | None, *, failed: bool) -> None:
    nothing = True
    for entry in bot.logs(seq=seq, failed=failed):
        nothing = False
        click.echo(log_page(entry))
    if nothing:
        of_job = "" if seq is None else f" of job {seq}"
        say(f"bot {bot.id}: no replica{of_job} has {'failed' if failed else 'ended yet'}")


def _digest(bot: Bot) -> tuple[Mapping[str, Any], str]:
    groups = [{**group, "command": bot.command(group["args"])} for group in bot.failures()]
    page = digest_page(bot.id, groups) if groups else f"bot {bot.id}: no replica has failed"
    return {"id": bot.id, "groups": groups}, page


def wait_for(bot: Bot, silent: bool, timeout: float | None = None) -> BotState:
    """Follow a BOT until it has ended or is held.  Raises NotFound or TimeoutError."""
    bot.show()  # an unknown BOT is reported before the progress bar starts
    try:
        states = standing_still(bot.watch(timeout, say_away), _idle, time.monotonic)
        return follow(states, silent=silent)
    except KeyboardInterrupt:
        raise GridbotError(
            f"interrupted; the BOT keeps running: gridbot bot wait {bot.id}"
        ) from None


def complain(states: Sequence[BotState]) -> None:
    """Raise GridbotError if jobs failed, or a BOT is held or was cancelled."""
    problems = [problem for state in states if (problem := _problem(state))]
    for problem in problems[:-1]:
        say(f"gridbot: {problem}")
    if problems:
        raise GridbotError(problems[-1])


def _problem(state: BotState) -> str:
    if state.state == "cancelled":
        jobs = f"{state.jobs_done} of {counted(state.jobs_total, 'job')}"
        return f"bot {state.id} was cancelled with {jobs} done"
    if state.is_held:
        return why_held(state)
    if failed := state.jobs_failed - state.jobs_cancelled:
        return (
            f"{failed} of {counted(state.jobs_total, 'job')} failed;"
            f" for the reasons: gridbot bot logs {state.id} --summary"
        )
    return ""


def _idle(state: BotState) -> None:
    say(f"bot {state.id}: no job is running: {idle_reason(state)}")
