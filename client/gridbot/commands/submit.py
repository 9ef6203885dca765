"""`gridbot submit`: a bag of tasks from the command line or from a BOT.toml."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gridbot.api.botfile import read_bot_file
from gridbot.api.errors import BadInput, GridbotError, ServerAway
from gridbot.api.items import CsvItems, Items, LineItems, parse_range
from gridbot.api.session import Bot, Session
from gridbot.api.units import seconds
from gridbot.commands.bots import wait_for
from gridbot.commands.options import as_json, print_json, say, with_session
from gridbot.show.page import boinc_line, match_line
from gridbot.show.printing import counted, printable
from gridbot.show.progress import transfer

HELP = """Upload a bag of tasks: one job for each item, COMMAND with its placeholders filled.

{} or {i} is the item of a range or a line, {name} a column of a CSV table; {{ is a brace.
No shell is involved.  Without items it is one job.  A program named ./like-this is sent along.

\b
  gridbot submit --range 0:100 -- ./prog {}
  gridbot submit --items points.csv --input point.py -- python3 point.py {theta}
  gridbot submit --items runs.csv --input data/{name}.dat --output '*.out' \\
                 -- ./prog data/{name}.dat

The same as a file, gridbot submit BOT.toml; options on the command line win over it, its
paths are relative to it.  Its keys are the options' names:

\b
  name = "scan"
  command = ["python3", "point.py", "{theta}"]
  items = "points.csv"         # or each_line = "names.txt", or range = "0:100"
  input = ["point.py"]
  output = ["stdout", "*.png"]
  policy = "fair.ad"
  time = "10m"                 # also cpus, memory, disk, gpus, quorum, attempts, …
"""

# Names of options that are not those of the fields of a Submission.
_FIELDS = {
    "input": "inputs",
    "output": "outputs",
    "platform": "platforms",
    "memory": "memory_mb",
    "disk": "disk_mb",
    "max_output": "max_output_mb",
    "attempts": "max_attempts",
}


@click.command(help=HELP)
@click.argument("command", nargs=-1, metavar="BOT.toml | -- COMMAND…")
@click.option("--name", help="What to call it [the program's name].")
@click.option("--policy", metavar="FILE.ad", help="Which hosts, in which order, how many copies.")
@click.option("--items", metavar="FILE.csv", help="One job per row; columns are placeholders.")
@click.option("--each-line", metavar="FILE", help="One job per line that is not blank.")
@click.option("--range", metavar="A:B[:STEP]", help="One job per whole number; B is not in it.")
@click.option(
    "--input",
    multiple=True,
    metavar="FILE[=NAME]",
    help="A file or a directory that jobs find under the same relative path, or as NAME;"
    " with a placeholder: one file per job.",
)
@click.option("--output", multiple=True, metavar="PATTERN", help="What to bring back [stdout].")
@click.option("--cpus", type=click.IntRange(1), metavar="N", help="Cores of one job [1].")
@click.option("--memory", type=click.IntRange(1), metavar="MB", help="Memory of one job [512].")
@click.option("--disk", type=click.IntRange(1), metavar="MB", help="Disk of one job [1024].")
@click.option("--time", metavar="TIME", help="Longest run: 90s, 10m, 2h [1d].")
@click.option("--gpus", type=click.IntRange(0), metavar="N", help="GPUs of one job [0].")
@click.option("--platform", multiple=True, metavar="NAME", help="As linux-x86_64 [any].")
@click.option("--max-output", type=click.IntRange(1), metavar="MB", help="All its outputs [64].")
@click.option("--quorum", type=click.IntRange(1), metavar="N", help="Equal answers needed [1].")
@click.option("--validator", metavar="NAME", help="How answers are compared [exact].")
@click.option("--attempts", type=click.IntRange(1), metavar="N", help="Tries of one job [3].")
@click.option("--max-replicas", type=click.IntRange(1), metavar="N", help="Copies of a job [5].")
@click.option(
    "--failover-after", type=click.IntRange(1), metavar="N",
    help="Jobs that failed N times go to dedicated hosts only [never].",
)  # fmt: skip
@click.option("--tail-threshold", type=click.IntRange(0), metavar="N", help="Unsent jobs [auto].")
@click.option("--key", metavar="TEXT", help="Submissions with one key are one BOT.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 1 if jobs failed.")
@as_json
@with_session
def submit(
    session: Session, command: Sequence[str], wait: bool, as_json: bool, **options: Any
) -> None:
    """Upload a bag of tasks."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    fields = submission_fields(command, given)
    with transfer(silent=as_json) as progress:
        bot = _submit(session, {"key": str(uuid.uuid4()), "progress": progress, **fields})
    if as_json and not wait:
        print_json(bot.submitted)
    if not as_json:
        _tell(bot, wait)
    if wait:
        wait_for(bot, as_json=as_json, also=bot.submitted)


def _submit(session: Session, fields: dict[str, Any]) -> Bot:
    """Submit; when that is broken off, say how to go on with the same BOT."""
    again = f"go on with the same command and --key {fields['key']}"
    try:
        return session.submit(**fields)
    except KeyboardInterrupt:
        raise GridbotError(f"stopped; {again}") from None
    except ServerAway as error:
        raise GridbotError(f"{error}; {again}") from error


def submission_fields(command: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the Submission that a command line means.  Raises BadInput or UsageError."""
    base = Path()
    if len(command) == 1 and command[0].endswith(".toml"):
        path = Path(command[0])
        in_file, base = read_bot_file(path), path.parent
        # A path on the command line is relative to where one stands, not to the file.
        options = {**in_file, **_absolute(options)}
    elif command:
        options = {**options, "command": command}
    else:
        raise click.UsageError("no command is given; write it last: gridbot submit -- ./prog {}")
    fields = {_FIELDS.get(name, name): value for name, value in options.items()}
    items = _items(fields, base)
    if "time" in fields:
        fields["seconds"] = seconds(fields.pop("time"))
    if "policy" in fields:
        fields["policy"] = Path(fields["policy"])
    return {**fields, "items": items, "base": base}


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    paths = {"policy", "items", "each_line"} & options.keys()
    return {**options, **{name: str(Path(options[name]).absolute()) for name in paths}}


def _items(fields: dict[str, Any], base: Path) -> Items | None:
    """Take the source of the items out of `fields`."""
    kinds: dict[str, Callable[[str], Items]] = {
        "items": lambda text: CsvItems.at(base / text),
        "each_line": lambda text: LineItems(base / text),
        "range": parse_range,
    }
    given = [name for name in kinds if name in fields]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} are given, but jobs come from one of them only")
    return kinds[given[0]](fields.pop(given[0])) if given else None


def _tell(bot: Bot, wait: bool) -> None:
    document = bot.submitted
    click.echo(f"bot {bot.id}: {counted(document['jobs_total'], 'job')}")
    for warning in bot.warnings:
        say(f"note: {printable(warning)}")
    if document.get("boinc_url") and _is_told_of_boinc(document):
        say(boinc_line(document))
    match = document["match"]
    waits = "" if match["hosts_matching"] else "; it waits for one that can"
    say(f"{match_line(match)}{waits}")
    if not wait:
        say(f"follow it with: gridbot bot wait {bot.id}")


def _is_told_of_boinc(document: Mapping[str, Any]) -> bool:
    """Whether the server tried to sign it for BOINC; where nobody does, that is no news."""
    return bool(document.get("signed_for_boinc") or document.get("boinc_unsuitable"))
