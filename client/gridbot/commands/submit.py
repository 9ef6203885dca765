"""`gridbot submit`: submit a bag of tasks from the command line or from a BOT.toml."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gridbot.api.bot import Bot
from gridbot.api.botfile import read_bot_file
from gridbot.api.errors import BadInput, GridbotError, ServerAway
from gridbot.api.programs import PlatformProgram
from gridbot.api.session import Session
from gridbot.api.units import seconds
from gridbot.commands.bots import complain, wait_for
from gridbot.commands.options import (
    as_json,
    print_json,
    say,
    say_away,
    table_of,
    with_session,
)
from gridbot.commands.rsl import submission_of
from gridbot.printing import counted
from gridbot.show.page import boinc_line, match_line
from gridbot.show.progress import transfer
from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.manifest import ANY, MAX_TOGETHER
from gridbot_client.terminal import printable

HELP = """Submit a bag of tasks (BOT): one job per item, each running COMMAND with its values.

COMMAND may hold placeholders.  {} or {i} is the item of a range or the line of a file, {name} is
a column of a CSV table.  {{ and }} are literal braces.  No shell interprets COMMAND.  Without
--items, --each-line or --range the BOT has one job.  A program with a relative path, such as
./prog, is uploaded with the BOT.

\b
  gridbot submit --range 0:100 -- ./prog {}
  gridbot submit --items points.csv --input point.py -- python3 point.py {theta}
  gridbot submit --items runs.csv --input data/{name}.dat --output '*.out' \\
                 -- ./prog data/{name}.dat

A BOT.toml file holds the same options; its keys are the options' names.  Paths in it are relative
to the file.  Options on the command line override it.

\b
  name = "scan"
  command = ["python3", "point.py", "{theta}"]
  items = "points.csv"         # or each_line = "names.txt", or range = "0:100"
  input = ["point.py"]
  output = ["stdout", "*.png"]
  policy = "fair.ad"
  time = "10m"                 # also cpus, disk, gpus, quorum, attempts, …
  memory = "2GB"

\b
  [programs.linux-x86_64]      # in place of command: programs for several platforms
  command = ["linux/prog", "{theta}"]
  [programs."linux-x86_64 gpu=nvidia cuda>=11"]
  command = ["cuda/prog", "{theta}"]
  input = ["cuda/kernels.bin"]

A JOB.rsl is a job description of Globus GRAM; gridbot rsl --json JOB.rsl prints what it becomes.
"""

# Names of options that are not those of the fields of a Submission.
_FIELDS = {
    "input": "inputs",
    "output": "outputs",
    "platform": "platforms",
}
_SOFTWARE = {"requirements", "conda_pack", "image"}  # options that may name files
_BESIDE_RSL = {"name", "priority", "attempts", "max_failures", "gather", "idempotency_key"}


@click.command(help=HELP)
@click.argument("command", nargs=-1, metavar="BOT.toml | JOB.rsl | -- COMMAND…")
@click.option("--name", metavar="TEXT", help="Name of the BOT.  [default: the program's name]")
@click.option(
    "--policy",
    metavar="FILE.ad",
    help="Policy of the BOT: which hosts may run it, in which order, with how many replicas.",
)
@click.option(
    "--priority",
    type=int,
    metavar="N",
    help="Send its jobs before those of your BOTs with a lower one.  [default: 0]",
)
@click.option(
    "--items", metavar="FILE.csv", help="CSV table: one job per row, one placeholder per column."
)
@click.option("--each-line", metavar="FILE", help="Text file: one job per line that is not blank.")
@click.option(
    "--range", metavar="A:B[:STEP]", help="One job per whole number from A up to, not including, B."
)
@click.option(
    "--input",
    multiple=True,
    metavar="FILE[=NAME]|URL#sha256=…&size=…",
    help="File or directory to upload; jobs find it under the same relative path, or as NAME."
    "  A directory is read-only there, and unpacked once per host."
    "  A path with a placeholder names one file per job."
    "  A URL, or several of one file with spaces between, is fetched by the machines of the jobs;"
    " gridbot data hash URL prints it.  Repeatable.",
)
@click.option(
    "--output",
    multiple=True,
    metavar="PATTERN|FOUND=NAME",
    help="Files to return, by name or pattern, or under another NAME; placeholders name them by the"
    " job.  Repeatable.  [default: stdout]",
)
@click.option(
    "--cpus", type=click.IntRange(1), metavar="N", help="CPU cores per job.  [default: 1]"
)
@click.option(
    "--memory", metavar="SIZE", help="Memory per job, such as 500MB or 2GB.  [default: 512MB]"
)
@click.option("--disk", metavar="SIZE", help="Disk space per job.  [default: 1GB]")
@click.option(
    "--time", metavar="TIME", help="Time limit per job, such as 90s, 10m or 2h.  [default: 1d]"
)
@click.option("--gpus", type=click.IntRange(0), metavar="N", help="GPUs per job.  [default: 0]")
@click.option(
    "--platform",
    multiple=True,
    metavar="NAME",
    help="Platform of the hosts, such as linux-x86_64.  Repeatable."
    "  [default: what ./prog was compiled for, or any]",
)
@click.option(
    "--sandbox",
    type=click.IntRange(0, 3),
    metavar="LEVEL",
    help="Least sandbox level of the hosts; from 1 on no BOINC clients.  [default: 0]",
)
@click.option(
    "--network",
    is_flag=True,
    default=None,
    help="Jobs use the network; strangers' hosts allow it only if their owner does.",
)
@click.option(
    "--exit-codes",
    metavar="N,N…|any",
    help="Exit codes with which a job gives an answer; others are failures.  [default: 0]",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable of the jobs; VALUE may hold placeholders.  Repeatable.",
)
@click.option(
    "--stdin",
    metavar="NAME",
    help="Input that jobs read as standard input, by its name there.  [default: empty]",
)
@click.option(
    "--requirements",
    metavar="FILE",
    help="For pip: each host installs it once, and jobs have it on their PATH.",
)
@click.option(
    "--conda-pack",
    metavar="FILE.tar.gz",
    help="Environment of conda as conda-pack packs it: unpacked once per host, on the jobs' PATH.",
)
@click.option(
    "--image",
    metavar="NAME|FILE",
    help="Image of the container in which jobs run, on hosts with Podman or Apptainer.",
)
@click.option(
    "--max-output",
    metavar="SIZE",
    help="Total output size per job.  [default: 64MB]",
)
@click.option(
    "--quorum",
    type=click.IntRange(1),
    metavar="N",
    help="Equal answers that a job needs, each from another host.  [default: 1]",
)
@click.option(
    "--validator",
    metavar="RULE",
    help="When answers agree: exact, text, numbers:rel=1e-6,abs=1e-9, json:ignore=/time, or"
    " command:./compare."
    "  [default: exact]",
)
@click.option(
    "--known-answers",
    metavar="FILE",
    help="Results that you have already, by which hosts are judged: a JSON object a line, as in"
    ' {"job": 17, "outputs": {"stdout": "42\\n"}}.',
)
@click.option(
    "--attempts",
    type=click.IntRange(1),
    metavar="N",
    help="Failed replicas after which a job fails.  [default: 3]",
)
@click.option(
    "--max-replicas",
    type=click.IntRange(1),
    metavar="N",
    help="Replicas of one job at the same time.  [default: 5]",
)
@click.option(
    "--failover-after",
    type=click.IntRange(1),
    metavar="N",
    help="Send a job to dedicated hosts only, after N failed replicas.  [default: never]",
)
@click.option(
    "--max-failures",
    metavar="N|P%",
    help="Hold the BOT when more than N jobs, or P percent of them, fail.  100% also lets it go on"
    " when its first replicas all fail alike.  [default: any number]",
)
@click.option(
    "--tail-threshold",
    type=click.IntRange(0),
    metavar="N",
    help="Enter the tail phase when fewer than N jobs are unsent.  [default: automatic]",
)
@click.option(
    "--together",
    type=click.IntRange(1, MAX_TOGETHER),
    metavar="K",
    help="Each K consecutive jobs are a gang: they start at the same time, on machines whose owners"
    " trust you, and begin anew if one fails.",
)
@click.option(
    "--gather",
    metavar="TIME",
    help="How long jobs of a gang wait for each other before others may run; once all have a"
    " core, ten times as long, 10 minutes at least, to fetch inputs.  [default: 60s]",
)
@click.option(
    "--checkpoint",
    multiple=True,
    metavar="NAME",
    help="File that the program saves before it exits with 85: it is started again with it, on this"
    " host or another one.  Repeatable.  [default: begin anew]",
)
@click.option(
    "--checkpoint-exit-code",
    type=click.IntRange(1, 255),
    metavar="N",
    help="Exit code that says so.  [default: 85]",
)
@click.option(
    "--checkpoint-every",
    metavar="TIME",
    help="How often to save; jobs see it in GRIDBOT_CHECKPOINT_EVERY.  [default: 10m]",
)
@click.option(
    "--boinc-api",
    is_flag=True,
    default=None,
    help="The program is made for BOINC's API: only BOINC clients run it.",
)
@click.option(
    "--growing",
    is_flag=True,
    default=None,
    help="Take further jobs (gridbot bot append) until gridbot bot close; needs no items yet.",
)
@click.option(
    "--reuse",
    is_flag=True,
    default=None,
    help="Run no job that your BOTs have an answer of already: same command, arguments, files,"
    " environment and outputs.",
)
@click.option(
    "--outputs-to",
    metavar="NAME",
    help="Storage of yours to which outputs go (gridbot storage add).  [default: the server]",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Label of BOTs that are followed, collected and cancelled together (gridbot group)."
    "  [default: none]",
)
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="Repeating a submission with the same key continues it instead of making a second BOT."
    "  [default: random]",
)
@click.option("--key", hidden=True, help="Deprecated name of --idempotency-key.")
@click.option("--wait", is_flag=True, help="Wait for the end of the BOT; exit 1 if jobs failed.")
@as_json
@with_session
def submit(
    session: Session, command: Sequence[str], wait: bool, as_json: bool, **options: Any
) -> None:
    """Submit a bag of tasks."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    fields = {"idempotency_key": str(uuid.uuid4()), **submission_fields(command, given)}
    with transfer(silent=as_json) as progress:
        bot = _submit(session, {"progress": progress, "told": say_away, **fields})
    if as_json and not wait:
        print_json(bot.submitted)
    if not as_json:
        _tell(bot, wait)
        if fields.get("growing"):
            say(
                f"to add jobs: gridbot bot append {bot.id} ITEM…;"
                f" after the last one: gridbot bot close {bot.id}"
            )
    if wait:
        state = wait_for(bot, silent=as_json)
        if as_json:
            print_json({**bot.submitted, **state.document})
        complain([state])


def _submit(session: Session, fields: dict[str, Any]) -> Bot:
    """Submit; if that is interrupted, the error says how to continue the same BOT."""
    again = (
        "to continue this submission, repeat the command with"
        f" --idempotency-key {fields['idempotency_key']}"
    )
    try:
        return session.submit(**fields)
    except KeyboardInterrupt:
        raise GridbotError(f"interrupted; {again}") from None
    except ServerAway as error:
        raise ServerAway(f"{error}; {again}", error.retry_after) from error


def submission_fields(command: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Submission` from a command line.  Raises BadInput or UsageError."""
    base = Path()
    if len(command) == 1 and command[0].endswith(".toml"):
        path = Path(command[0])
        in_file, base = read_bot_file(path), path.parent
        # A path on the command line is relative to the current directory, not to the file.
        options = {**_renamed(in_file), **_absolute(_renamed(options))}
    elif len(command) == 1 and command[0].endswith(".rsl"):
        return {**submission_of(command[0]), **_plain(options)}
    elif command:
        options = {**_renamed(options), "command": command}
    else:
        raise click.UsageError("missing COMMAND; write it last: gridbot submit -- ./prog {}")
    fields = {_FIELDS.get(name, name): value for name, value in options.items()}
    items = table_of(fields, base)
    if "exit_codes" in fields:
        fields["exit_codes"] = exit_codes(fields["exit_codes"])
    if "env" in fields:
        fields["env"] = dict(map(_variable, fields["env"]))
    if rule := _checkpoint_rule(fields):
        fields["checkpoint"] = rule
    if "policy" in fields:
        fields["policy"] = Path(fields["policy"])
    if "programs" in fields:
        fields["programs"] = {
            where: PlatformProgram(row.get("command", ()), row.get("input", ()))
            for where, row in fields["programs"].items()
        }
        fields.setdefault("command", ())
    return {**fields, "items": items, "base": base}


def _checkpoint_rule(fields: dict[str, Any]) -> CheckpointRule | None:
    """Take the options about checkpoints.  Raises BadInput."""
    named = {"exit_code": "checkpoint_exit_code", "every": "checkpoint_every"}
    given = {name: fields.pop(key) for name, key in named.items() if key in fields}
    if "checkpoint" not in fields:
        if given:
            raise BadInput(f"--{named[next(iter(given))].replace('_', '-')} needs --checkpoint")
        return None
    if "every" in given:
        try:
            given["every"] = seconds(given["every"])
        except BadInput as error:
            raise BadInput(f"checkpoint-every: {error}") from None
    return CheckpointRule(tuple(fields["checkpoint"]), **given)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options beside a description in RSL, which says all about the jobs."""
    if others := sorted(options.keys() - _BESIDE_RSL):
        named = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise BadInput(f"{named}: a description in RSL says that by its own attributes")
    return dict(options)


def exit_codes(text: str) -> tuple[int, ...] | str:
    """Read `0,3` or `any`.  Raises BadInput."""
    if text == ANY:
        return ANY
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise BadInput(f"exit codes {text!r}: write numbers such as 0,1,3 or {ANY}")
    return tuple(int(part) for part in parts)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"environment variable {text!r}: write NAME=VALUE")
    return name, value


def _renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the deprecated `key` under its new name."""
    renamed = dict(options)
    if "key" in renamed:
        say("note: key is deprecated; write idempotency_key (--idempotency-key)")
        renamed.setdefault("idempotency_key", renamed.pop("key"))
        renamed.pop("key", None)
    return renamed


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    paths = {"policy", "items", "each_line", "known_answers"} & options.keys()
    paths |= {name for name in _SOFTWARE & options.keys() if Path(options[name]).is_file()}
    return {**options, **{name: str(Path(options[name]).absolute()) for name in paths}}


def _tell(bot: Bot, wait: bool) -> None:
    document = bot.submitted
    click.echo(f"bot {bot.id}: {counted(document['jobs_total'], 'job')}")
    if reused := document.get("jobs_reused"):
        say(f"{counted(reused, 'job')} of them not run: the answers are there already")
    for warning in bot.warnings:
        say(f"note: {printable(warning)}")
    if document.get("boinc_url") and _is_told_of_boinc(document):
        say(boinc_line(document))
    match = document["match"]
    queued = "" if match["hosts_matching"] else "; the BOT stays queued until a host matches"
    say(f"{match_line(match)}{queued}")
    if not wait:
        say(f"to follow its progress: gridbot bot wait {bot.id}")


def _is_told_of_boinc(document: Mapping[str, Any]) -> bool:
    """True if the server tried to sign the BOT for BOINC clients."""
    return bool(document.get("signed_for_boinc") or document.get("boinc_unsuitable"))
