"""`gridbot bots` and `gridbot bot …`: follow BOTs, change them, take their results."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gridbot.api.errors import GridbotError, ServerAway
from gridbot.api.session import Bot, Session
from gridbot.api.state import BotState
from gridbot.commands.options import FILE, as_json, print_json, say, with_session
from gridbot.show.collect import collect, print_results, results_document
from gridbot.show.explanation import changed_policy, chosen_change, explanation_page, idle_reason
from gridbot.show.page import bot_page, bots_table, log_page, match_line
from gridbot.show.printing import counted, json_document, printable
from gridbot.show.progress import follow, standing_still

BOT = click.argument("number", metavar="BOT", type=click.IntRange(1))


@click.command()
@click.option("--state", type=click.Choice(["open", "running", "done", "cancelled"]))
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The newest N.")
@as_json
@with_session
def bots(session: Session, state: str | None, limit: int | None, as_json: bool) -> None:
    """List your BOTs, newest first."""
    found = session.bots(state, limit)
    if as_json:
        print_json({"bots": [bot.document for bot in found]})
    else:
        click.echo(bots_table(found))


@click.group()
def bot() -> None:
    """Show, wait for or change a BOT; collect its results and logs."""


@bot.command()
@BOT
@as_json
@with_session
def show(session: Session, number: int, as_json: bool) -> None:
    """Everything about a BOT on one page."""
    state = session.bot(number).show()
    if as_json:
        print_json(state.document)
    else:
        click.echo(bot_page(state))


@bot.command()
@BOT
@click.option("--change", type=click.IntRange(1), metavar="N", help="Print policy change N whole.")
@click.option("--host", metavar="ID|NAME", help="Why this host gets nothing of it.")
@as_json
@with_session
def explain(
    session: Session, number: int, change: int | None, host: str | None, as_json: bool
) -> None:
    """Which hosts a BOT's policy and needs reject, and what to relax."""
    document = session.bot(number).explain(host)
    if change is not None:
        chosen = chosen_change(document, change)
        print_json(chosen) if as_json else click.echo(changed_policy(chosen), nl=False)
    elif as_json:
        print_json(document)
    else:
        click.echo(explanation_page(document, shutil.get_terminal_size().columns))


@bot.command()
@BOT
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up waiting; exit 1.")
@as_json
@with_session
def wait(session: Session, number: int, timeout: float | None, as_json: bool) -> None:
    """Wait until a BOT has ended; exit 1 if jobs failed."""
    wait_for(session.bot(number), as_json=as_json, timeout=timeout)


@bot.command()
@BOT
@as_json
@with_session
def cancel(session: Session, number: int, as_json: bool) -> None:
    """Stop a BOT; the results that are there stay."""
    state = session.bot(number).cancel()
    if as_json:
        print_json(state.document)
    elif state.state != "cancelled":
        click.echo(f"bot {number}: had ended already, {state.state}")
    else:
        left = state.jobs_total - state.jobs_finished
        jobs = f"{left} of {counted(state.jobs_total, 'job')} {'was' if left == 1 else 'were'}"
        click.echo(f"bot {number}: {state.state}, {jobs} not run")


@bot.command()
@click.argument("numbers", metavar="BOT...", nargs=-1, required=True, type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Delete without asking.")
@as_json
@with_session
def delete(session: Session, numbers: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete BOTs that have ended, with their jobs, results and logs, for good."""
    states = [session.bot(number).show() for number in dict.fromkeys(numbers)]
    for state in states:
        if not state.is_final:
            raise GridbotError(
                f"bot {state.id} is {state.state}: cancel it first: gridbot bot cancel {state.id}"
            )
    if not yes:
        _approve_deletion(states)
    for state in states:
        session.bot(state.id).delete()
        if not as_json:
            click.echo(f"bot {state.id}: deleted")
    if as_json:
        print_json({"deleted": [state.id for state in states]})


def _approve_deletion(states: Sequence[BotState]) -> None:
    """Show what would be gone, and ask."""
    say(bots_table(states))
    jobs = counted(sum(state.jobs_total for state in states), "job")
    try:
        if click.confirm(f"delete {counted(len(states), 'BOT')} with {jobs} for good?", err=True):
            return
    except click.Abort:  # nobody is there to answer
        raise GridbotError("nothing is deleted: answer at a terminal, or add --yes") from None
    raise GridbotError("nothing is deleted, as you said")


@bot.command()
@BOT
@click.option("--failed", is_flag=True, help="The failed jobs, which is what is retried anyway.")
@as_json
@with_session
def retry(session: Session, number: int, failed: bool, as_json: bool) -> None:  # noqa: ARG001
    """Give the failed jobs of a BOT new attempts.

    They run the files that were submitted: after changing one, submit again.
    """
    retried = session.bot(number).retry()
    if as_json:
        print_json({"id": number, "retried": retried})
    else:
        click.echo(f"bot {number}: {counted(retried, 'failed job')} again")


@bot.command(name="set")
@BOT
@click.option("--policy", type=FILE, metavar="FILE.ad", help="Replaces the policy from now on.")
@click.option("--name")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N")
@click.option("--max-replicas", type=click.IntRange(1), metavar="N")
@click.option(
    "--failover-after", metavar="N|never", help="Failures after which only dedicated hosts serve."
)
@click.option("--tail-threshold", metavar="N|auto", help="Unsent jobs below which the tail begins.")
@click.option("--tail-sticky/--no-tail-sticky", default=None, help="Once in the tail, stay there.")
@as_json
@with_session
def set_(session: Session, number: int, as_json: bool, **options: Any) -> None:
    """Change a BOT while it runs."""
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to change is given; see gridbot bot set --help")
    for name, nothing in {"tail_threshold": "auto", "failover_after": "never"}.items():
        if name in changes:
            changes[name] = _number_or(nothing, changes[name], f"--{name.replace('_', '-')}")
    state = session.bot(number).set(**changes)
    if as_json:
        print_json(state.document)
        return
    for warning in state.document.get("warnings", ()):
        say(f"note: {printable(warning)}")
    click.echo(f"bot {number}: changed")
    if (match := state.document.get("match")) and not state.is_final:
        say(match_line(match))


@bot.command()
@BOT
@click.option("--to", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option("--csv", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--follow", is_flag=True, help="Go on until the BOT has ended.")
@as_json
@with_session
def results(
    session: Session, number: int, to: Path | None, csv: Path | None, follow: bool, as_json: bool
) -> None:
    """Print results, or collect them: outputs as DIR/SEQ/NAME, and DIR/results.csv.

    Collecting may be broken off and repeated: it goes on where it stopped.
    """
    bot = session.bot(number)
    try:
        if to or csv:
            collected = collect(bot, to, csv, follow=follow, told=_away)
            document = {"id": number, "results": collected, "to": to and str(to)}
            print_json(document) if as_json else click.echo(
                f"bot {number}: {counted(collected, 'new result')}"
            )
        elif as_json:
            for part in results_document(bot, follow=follow):
                click.echo(part, nl=False)
        else:
            print_results(bot, follow=follow, told=_away)
    except KeyboardInterrupt:
        raise GridbotError(f"stopped; the BOT goes on: gridbot bot wait {number}") from None


@bot.command()
@BOT
@click.option("--failed", is_flag=True, help="Only replicas that failed.")
@click.option("--seq", type=click.IntRange(0), metavar="N", help="Only those of one job.")
@as_json
@with_session
def logs(session: Session, number: int, failed: bool, seq: int | None, as_json: bool) -> None:
    """What replicas printed, and why they ended."""
    entries = session.bot(number).logs(seq=seq, failed=failed)
    if as_json:
        for part in json_document(number, "logs", entries):
            click.echo(part, nl=False)
        return
    nothing = True
    for entry in entries:
        nothing = False
        click.echo(log_page(entry))
    if nothing:
        of_job = "" if seq is None else f" of job {seq}"
        say(f"bot {number}: no replica{of_job} has {'failed' if failed else 'ended yet'}")


def wait_for(
    bot: Bot,
    as_json: bool,
    timeout: float | None = None,
    also: Mapping[str, Any] | None = None,
) -> None:
    """Follow a BOT to its end; exit 1 unless all jobs are done."""
    bot.show()  # a BOT that does not exist is said at once, whatever the terminal
    try:
        states = standing_still(bot.watch(timeout, _away), _idle, time.monotonic)
        state = follow(states, silent=as_json)
    except KeyboardInterrupt:
        raise GridbotError(f"stopped waiting; the BOT goes on: gridbot bot wait {bot.id}") from None
    if as_json:
        print_json({**(also or {}), **state.document})
    if problem := _problem(state):
        raise GridbotError(problem)


def _problem(state: BotState) -> str:
    if state.state == "cancelled":
        jobs = f"{state.jobs_done} of {counted(state.jobs_total, 'job')}"
        return f"bot {state.id} was cancelled with {jobs} done"
    if state.jobs_failed:
        return (
            f"{state.jobs_failed} of {counted(state.jobs_total, 'job')} failed;"
            f" see why: gridbot bot logs {state.id} --failed"
        )
    return ""


def _away(error: ServerAway) -> None:
    say(f"{error}; waiting for it")


def _idle(state: BotState) -> None:
    say(f"bot {state.id}: nothing runs: {idle_reason(state)}")


def _number_or(nothing: str, text: str, option: str) -> int | None:
    if text == nothing:
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor {nothing}", param_hint=option)
    return int(text)
