"""`gridbot bots` and `gridbot bot …`: follow and change BOTs, get their results."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gridbot.api.errors import GridbotError
from gridbot.api.session import Bot, Session
from gridbot.api.state import BotState, why_held
from gridbot.commands.options import (
    FILE,
    as_json,
    print_json,
    say,
    say_away,
    table_of,
    with_session,
)
from gridbot.printing import counted, json_document
from gridbot.show.collect import collect, print_results, results_document
from gridbot.show.explanation import changed_policy, chosen_change, explanation_page, idle_reason
from gridbot.show.page import bot_page, bots_table, digest_page, log_page, match_line
from gridbot.show.progress import follow, standing_still, status_line, transfer
from gridbot_client.terminal import printable

BOT = click.argument("number", metavar="BOT", type=click.IntRange(1))


@click.command()
@click.option(
    "--state",
    type=click.Choice(["open", "running", "held", "done", "cancelled"]),
    help="List only BOTs in this state.  [default: all]",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="List the newest N.  [default: all]"
)
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
    """Show, explain, wait for, change, resume, cancel, retry or delete a BOT.

    Get its results and logs.  Append jobs to a growing BOT and close it.

    BOT is the number that `gridbot submit` and `gridbot bots` print.
    """


@bot.command()
@BOT
@as_json
@with_session
def show(session: Session, number: int, as_json: bool) -> None:
    """Show a BOT's state, jobs, resources, policy and matching hosts."""
    state = session.bot(number).show()
    if as_json:
        print_json(state.document)
    else:
        click.echo(bot_page(state))


@bot.command()
@BOT
@click.option(
    "--change",
    type=click.IntRange(1),
    metavar="N",
    help="Print the whole policy with suggested change N applied.",
)
@click.option("--host", metavar="ID|NAME", help="Explain why this host gets no job of the BOT.")
@as_json
@with_session
def explain(
    session: Session, number: int, change: int | None, host: str | None, as_json: bool
) -> None:
    """Show which conditions reject which hosts; suggest changes."""
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
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help="Stop waiting after this time and exit with 5.  [default: no limit]",
)
@as_json
@with_session
def wait(session: Session, number: int, timeout: float | None, as_json: bool) -> None:
    """Wait until a BOT has ended, and show its progress.

    Exits with 1 if jobs failed, or the BOT is held or was cancelled.
    """
    wait_for(session.bot(number), as_json=as_json, timeout=timeout)


@bot.command()
@BOT
@click.argument("values", metavar="[ITEM]...", nargs=-1)
@click.option("--items", metavar="FILE.csv", help="CSV table: one job per row.")
@click.option("--each-line", metavar="FILE", help="Text file: one job per line that is not blank.")
@click.option("--range", metavar="A:B[:STEP]", help="One job per whole number from A to below B.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE[=NAME]",
    help="File of each job: a path with a placeholder, as in the submission.  Repeatable.",
)
@click.option(
    "--offset",
    type=click.IntRange(0),
    metavar="N",
    help="Number of the first job: to repeat the command then changes nothing."
    "  [default: behind all others]",
)
@as_json
@with_session
def append(
    session: Session,
    number: int,
    values: Sequence[str],
    inputs: Sequence[str],
    offset: int | None,
    as_json: bool,
    **tables: str | None,
) -> None:
    """Append jobs to a BOT that was submitted with --growing.

    An ITEM is the value of {} or {i} of one job.  Prints the numbers of the jobs.
    """
    bot = session.bot(number)
    given = {name: text for name, text in tables.items() if text is not None}
    table = table_of(given, Path())
    if (table is None) == (not values):
        raise click.UsageError("give either items or one of --items, --each-line and --range")
    made = bot.append(values if table is None else table, inputs, offset, told=say_away)
    if as_json:
        print_json({"id": number, "first": made.start, "appended": len(made)})
    else:
        jobs = f"job {made[0]}" if len(made) == 1 else f"jobs {made.start} to {made.stop - 1}"
        click.echo(f"bot {number}: {jobs} appended")


@bot.command()
@BOT
@as_json
@with_session
def close(session: Session, number: int, as_json: bool) -> None:
    """Let a growing BOT take no more jobs: it ends with those it has."""
    state = session.bot(number).close()
    if as_json:
        print_json(state.document)
    else:
        left = state.jobs_total - state.jobs_finished
        jobs = f", {counted(left, 'job')} left" if left and not state.is_final else ""
        click.echo(f"bot {number}: closed, {state.state}{jobs}")


@bot.command()
@BOT
@click.option(
    "--job",
    "jobs",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Cancel only job N, counted from 0.  Repeatable.",
)
@as_json
@with_session
def cancel(session: Session, number: int, jobs: tuple[int, ...], as_json: bool) -> None:
    """Cancel a BOT, or only some of its jobs.

    Results of finished jobs are kept.
    """
    state = session.bot(number).cancel(jobs or None)
    if as_json:
        print_json(state.document)
    elif jobs:
        gone = state.document["cancelled"]
        left = len(set(jobs)) - len(gone)
        ended = f", {counted(left, 'job')} had ended before" if left else ""
        click.echo(f"bot {number}: {counted(len(gone), 'job')} cancelled{ended}")
    elif state.state != "cancelled":
        click.echo(f"bot {number}: already ended, {state.state}")
    else:
        left = state.jobs_total - state.jobs_finished
        were = f"{left} of {counted(state.jobs_total, 'job')} {'was' if left == 1 else 'were'}"
        click.echo(f"bot {number}: {state.state}, {were} not run")


@bot.command()
@click.argument("numbers", metavar="BOT...", nargs=-1, required=True, type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
@as_json
@with_session
def delete(session: Session, numbers: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete ended BOTs permanently, with their jobs, results and logs."""
    states = [session.bot(number).show() for number in dict.fromkeys(numbers)]
    for state in states:
        if not state.is_final:
            raise GridbotError(
                f"bot {state.id} is {state.state}; cancel it first: gridbot bot cancel {state.id}"
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
    """Show the BOTs and ask for confirmation.  Raises GridbotError unless it is given."""
    say(bots_table(states))
    jobs = counted(sum(state.jobs_total for state in states), "job")
    question = f"delete {counted(len(states), 'BOT')} with {jobs} permanently?"
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:  # no terminal, or end of input
        raise GridbotError("nothing deleted: confirm at a terminal, or add --yes") from None
    raise GridbotError("nothing deleted: not confirmed")


@bot.command()
@BOT
@as_json
@with_session
def resume(session: Session, number: int, as_json: bool) -> None:
    """Let a held BOT go on as it is.

    Its failures do not hold it again, and --max-failures is lifted.  After a correction, use
    gridbot bot retry.
    """
    state = session.bot(number).resume()
    if as_json:
        print_json(state.document)
    else:
        click.echo(f"bot {number}: {status_line(state)}")


@bot.command()
@BOT
@click.option("--failed", is_flag=True, help="Retry all failed jobs.  This is the default.")
@click.option(
    "--job",
    "jobs",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Retry only failed job N, counted from 0.  Repeatable.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE[=NAME]",
    help="File or directory that replaces the input of its name, or comes beside.  Repeatable.",
)
@click.option("--memory", metavar="SIZE", help="Memory per job from now on, such as 4GB.")
@click.option("--disk", metavar="SIZE", help="Disk space per job from now on.")
@click.option("--time", metavar="TIME", help="Time limit per job from now on, such as 2h.")
@click.option("--max-output", metavar="SIZE", help="Total output size per job from now on.")
@as_json
@with_session
def retry(
    session: Session,
    number: int,
    failed: bool,
    jobs: tuple[int, ...],
    as_json: bool,
    **changes: Any,
) -> None:
    """Retry the failed jobs of a BOT, also with other files or limits.

    With one of --input, --memory, --disk, --time and --max-output, the BOT gets a new version,
    which its unsent jobs run, too.  Results that are there stay.
    """
    if failed and jobs:
        raise click.UsageError("give either --failed or --job")
    with transfer(silent=as_json) as progress:
        bot = session.bot(number)
        was_signed = bot.show().document.get("signed")
        retried = bot.retry(jobs or None, progress=progress, **changes)
    state = bot.show()
    if as_json:
        print_json({"id": number, "retried": retried, "version": state.version})
        return
    version = f" with version {state.version}" if state.version > 1 else ""
    click.echo(f"bot {number}: retrying {counted(retried, 'failed job')}{version}")
    if was_signed and not state.document.get("signed"):
        say(
            f"note: the project's signature does not pass to version {state.version}; for"
            f" strangers' hosts: gridbot app sign {number}"
        )
    if state.is_held:
        say(why_held(state))


@bot.command(name="set")
@BOT
@click.option("--policy", type=FILE, metavar="FILE.ad", help="Replace the policy.")
@click.option("--name", metavar="TEXT", help="Rename the BOT.")
@click.option(
    "--attempts",
    "max_attempts",
    type=click.IntRange(1),
    metavar="N",
    help="Failed replicas after which a job fails.",
)
@click.option(
    "--max-replicas",
    type=click.IntRange(1),
    metavar="N",
    help="Replicas of one job at the same time.",
)
@click.option(
    "--failover-after",
    metavar="N|never",
    help="Send a job to dedicated hosts only, after N failed replicas.",
)
@click.option(
    "--max-failures",
    metavar="N|P%|never",
    help="Hold the BOT when more than N jobs, or P percent of them, fail.",
)
@click.option(
    "--tail-threshold",
    metavar="N|auto",
    help="Enter the tail phase when fewer than N jobs are unsent.",
)
@click.option(
    "--tail-sticky/--no-tail-sticky",
    default=None,
    help="Stay in the tail phase once it is entered.",
)
@as_json
@with_session
def set_(session: Session, number: int, as_json: bool, **options: Any) -> None:
    """Change a BOT while it runs.  Options that are not given keep their value."""
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("no change given; for the options: gridbot bot set --help")
    for name, nothing in {"tail_threshold": "auto", "failover_after": "never"}.items():
        if name in changes:
            changes[name] = _number_or(nothing, changes[name], f"--{name.replace('_', '-')}")
    if changes.get("max_failures") == "never":
        changes["max_failures"] = None
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
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save each output as DIR/SEQ/NAME, and the table of jobs as DIR/results.csv.",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the table of jobs in FILE.",
)
@click.option("--follow", is_flag=True, help="Wait for further results until the BOT has ended.")
@as_json
@with_session
def results(
    session: Session, number: int, to: Path | None, csv: Path | None, follow: bool, as_json: bool
) -> None:
    """Print a BOT's results, or save them as files.

    SEQ is the job's number, counted from 0.  An interrupted download with --to continues where it
    stopped when the command is repeated.
    """
    bot = session.bot(number)
    try:
        if to or csv:
            collected = collect(bot, to, csv, follow=follow, told=say_away)
            document = {"id": number, "results": collected, "to": to and str(to)}
            print_json(document) if as_json else click.echo(
                f"bot {number}: {counted(collected, 'new result')}"
            )
        elif as_json:
            for part in results_document(bot, follow=follow):
                click.echo(part, nl=False)
        else:
            print_results(bot, follow=follow, told=say_away)
    except KeyboardInterrupt:
        raise GridbotError(
            f"interrupted; the BOT keeps running: gridbot bot wait {number}"
        ) from None


@bot.command()
@BOT
@click.option("--failed", is_flag=True, help="Show only failed replicas.")
@click.option(
    "--seq", type=click.IntRange(0), metavar="N", help="Show only replicas of job N, from 0."
)
@click.option(
    "--summary",
    is_flag=True,
    help="Group failed replicas that are alike, with an example that can be run here.",
)
@as_json
@with_session
def logs(
    session: Session, number: int, failed: bool, seq: int | None, summary: bool, as_json: bool
) -> None:
    """Show the output and the reason of the end of each replica."""
    if summary:
        _summarize(session.bot(number), as_json=as_json)
        return
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


def _summarize(bot: Bot, *, as_json: bool) -> None:
    groups = [{**group, "command": bot.command(group["args"])} for group in bot.failures()]
    if as_json:
        print_json({"id": bot.id, "groups": groups})
    elif groups:
        click.echo(digest_page(bot.id, groups))
    else:
        say(f"bot {bot.id}: no replica has failed")


def wait_for(
    bot: Bot,
    as_json: bool,
    timeout: float | None = None,
    also: Mapping[str, Any] | None = None,
) -> None:
    """Follow a BOT to its end.  Raises GridbotError if jobs failed or it was cancelled."""
    bot.show()  # an unknown BOT is reported before the progress bar starts
    try:
        states = standing_still(bot.watch(timeout, say_away), _idle, time.monotonic)
        state = follow(states, silent=as_json)
    except KeyboardInterrupt:
        raise GridbotError(
            f"interrupted; the BOT keeps running: gridbot bot wait {bot.id}"
        ) from None
    if as_json:
        print_json({**(also or {}), **state.document})
    if problem := _problem(state):
        raise GridbotError(problem)


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


def _number_or(nothing: str, text: str, option: str) -> int | None:
    if text == nothing:
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor {nothing}", param_hint=option)
    return int(text)
