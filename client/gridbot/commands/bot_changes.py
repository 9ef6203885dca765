"""Verbs of `gridbot bot` that change a BOT: append, close, cancel, delete, hold, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gridbot.api.errors import GridbotError
from gridbot.api.session import Session
from gridbot.api.state import BotState, why_held
from gridbot.commands.options import (
    BOT,
    BOTS,
    FILE,
    R,
    as_json,
    jobs_option,
    one_bot,
    print_each,
    print_json,
    say,
    say_away,
    table_of,
    with_session,
)
from gridbot.printing import counted
from gridbot.show.page import bots_table, match_line
from gridbot.show.progress import status_line, transfer
from gridbot_client.terminal import printable


@click.command()
@BOT
@click.argument("values", metavar="[ITEM]...", nargs=-1)
@click.option("--items", metavar="FILE.csv", help="CSV table: one job per row.")
@click.option("--each-line", metavar="FILE", help="Text file: one job per line that is not blank.")
@click.option("--range", metavar="A:B[:STEP]", help="One job per whole number from A to below B.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE[=NAME]|URL#…",
    help="File of each job: a path or URL with a placeholder, as in the submission.  Repeatable.",
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


@click.command()
@BOTS
@as_json
@with_session
def close(session: Session, numbers: Sequence[int], as_json: bool) -> None:
    """Let a growing BOT take no more jobs: it ends with those it has."""

    def closed(number: int) -> tuple[Mapping[str, Any], str]:
        state = session.bot(number).close()
        left = state.jobs_total - state.jobs_finished
        jobs = f", {counted(left, 'job')} left" if left and not state.is_final else ""
        return state.document, f"bot {number}: closed, {state.state}{jobs}"

    print_each("bots", numbers, closed, as_json)


@click.command()
@BOTS
@jobs_option("Cancel only")
@as_json
@with_session
def cancel(session: Session, numbers: Sequence[int], jobs: tuple[int, ...], as_json: bool) -> None:
    """Cancel BOTs, or only some jobs of one.

    Results of finished jobs are kept.
    """
    if jobs:
        one_bot(numbers, "--job")

    def cancelled(number: int) -> tuple[Mapping[str, Any], str]:
        state = session.bot(number).cancel(jobs or None)
        line = _jobs_cancelled(state, jobs) if jobs else _cancelled(state)
        return state.document, f"bot {number}: {line}"

    print_each("bots", numbers, cancelled, as_json)


def _jobs_cancelled(state: BotState, jobs: Sequence[int]) -> str:
    gone = state.document["cancelled"]
    left = len(set(jobs)) - len(gone)
    ended = f", {counted(left, 'job')} had ended before" if left else ""
    return f"{counted(len(gone), 'job')} cancelled{ended}"


def _cancelled(state: BotState) -> str:
    if state.state != "cancelled":
        return f"already ended, {state.state}"
    left = state.jobs_total - state.jobs_finished
    were = f"{left} of {counted(state.jobs_total, 'job')} {'was' if left == 1 else 'were'}"
    return f"{state.state}, {were} not run"


@click.command()
@BOTS
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
@as_json
@with_session
def delete(session: Session, numbers: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete ended BOTs permanently, with their jobs, results and logs."""
    states = [session.bot(number).show() for number in numbers]
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


@click.command()
@BOTS
@as_json
@with_session
def hold(session: Session, numbers: Sequence[int], as_json: bool) -> None:
    """Send nothing more of a BOT until you resume it.

    What hosts have goes on and counts.
    """

    def held(number: int) -> tuple[Mapping[str, Any], str]:
        state = session.bot(number).hold()
        return state.document, f"bot {number}: {status_line(state)}"

    print_each("bots", numbers, held, as_json)


@click.command()
@BOTS
@as_json
@with_session
def resume(session: Session, numbers: Sequence[int], as_json: bool) -> None:
    """Let a held BOT go on as it is.

    Its failures do not hold it again, and --max-failures is lifted.  After a correction, use
    gridbot bot retry.
    """

    def resumed(number: int) -> tuple[Mapping[str, Any], str]:
        state = session.bot(number).resume()
        return state.document, f"bot {number}: {status_line(state)}"

    print_each("bots", numbers, resumed, as_json)


def _limits(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options for limits of a BOT's next version to a command."""
    for option in (
        click.option("--memory", metavar="SIZE", help="Memory per job from now on, such as 4GB."),
        click.option("--disk", metavar="SIZE", help="Disk space per job from now on."),
        click.option("--time", metavar="TIME", help="Time limit per job from now on, such as 2h."),
        click.option("--max-output", metavar="SIZE", help="Output size per job from now on."),
    ):
        command = option(command)
    return command


@click.command()
@BOTS
@click.option("--failed", is_flag=True, help="Retry all failed jobs.  This is the default.")
@jobs_option("Retry only failed")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE[=NAME]|URL#…",
    help="File, directory or URL that replaces the input of its name, or comes beside."
    "  Repeatable.",
)
@_limits
@as_json
@with_session
def retry(
    session: Session,
    numbers: Sequence[int],
    failed: bool,
    jobs: tuple[int, ...],
    as_json: bool,
    **changes: Any,
) -> None:
    """Retry the failed jobs of BOTs, also with other files or limits.

    With one of --input, --memory, --disk, --time and --max-output, the BOT gets a new version,
    which its unsent jobs run, too.  Results that are there stay.
    """
    if failed and jobs:
        raise click.UsageError("give either --failed or --job")
    if jobs:
        one_bot(numbers, "--job")

    def retried(number: int) -> tuple[Mapping[str, Any], str]:
        bot = session.bot(number)
        with transfer(silent=as_json) as progress:
            was_signed = bot.show().document.get("signed")
            count = bot.retry(jobs or None, progress=progress, **changes)
        state = bot.show()
        if not as_json:
            _tell_of_retry(state, bool(was_signed))
        document = {"id": number, "retried": count, "version": state.version}
        return (
            document,
            f"bot {number}: {_retried(state, count, has_changed=any(changes.values()))}",
        )

    print_each("bots", numbers, retried, as_json)


def _retried(state: BotState, count: int, *, has_changed: bool) -> str:
    version = f" with version {state.version}" if state.version > 1 else ""
    if count:
        return f"retrying {counted(count, 'failed job')}{version}"
    if has_changed:
        left = counted(state.jobs_total - state.jobs_finished, "job")
        return f"{left} left, which run version {state.version} unless a host has them already"
    return "no job has failed, so none is retried"


def _tell_of_retry(state: BotState, was_signed: bool) -> None:
    if was_signed and not state.document.get("signed"):
        say(
            f"note: the project's signature does not pass to version {state.version}; for"
            f" strangers' hosts: gridbot app sign {state.id}"
        )
    if state.is_held:
        say(why_held(state))


@click.command(name="set")
@BOTS
@click.option("--policy", type=FILE, metavar="FILE.ad", help="Replace the policy.")
@click.option(
    "--priority", type=int, metavar="N", help="Send its jobs before those of lower priority."
)
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
@_limits
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
def set_(session: Session, numbers: Sequence[int], as_json: bool, **options: Any) -> None:
    """Change BOTs while they run.  Options that are not given keep their value.

    Limits of jobs change for those that are left, which then run a new version of the BOT.  To run
    failed jobs again as well: gridbot bot retry
    """
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("no change given; for the options: gridbot bot set --help")
    for name, nothing in {"tail_threshold": "auto", "failover_after": "never"}.items():
        if name in changes:
            changes[name] = _number_or(nothing, changes[name], f"--{name.replace('_', '-')}")
    if changes.get("max_failures") == "never":
        changes["max_failures"] = None

    def changed(number: int) -> tuple[Mapping[str, Any], str]:
        state = session.bot(number).set(**changes)
        if not as_json:
            _tell_of_change(state)
        return state.document, f"bot {number}: changed"

    print_each("bots", numbers, changed, as_json)


def _tell_of_change(state: BotState) -> None:
    for warning in state.document.get("warnings", ()):
        say(f"note: {printable(warning)}")
    if (match := state.document.get("match")) and not state.is_final:
        say(match_line(match))


def _number_or(nothing: str, text: str, option: str) -> int | None:
    if text == nothing:
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor {nothing}", param_hint=option)
    return int(text)


VERBS = (append, close, cancel, delete, hold, resume, retry, set_)
