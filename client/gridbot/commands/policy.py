"""`gridbot policy`: check and evaluate a policy without submitting it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from gridbot.api.errors import BadInput
from gridbot.api.findings import finding_page
from gridbot.api.session import connect
from gridbot.commands.options import FILE, as_json, print_json, say, server_options
from gridbot.commands.simulation import compare, simulate, suggest
from gridbot.show.context import changed, evaluation_context, is_file
from gridbot.show.trial import trial_page, try_text
from gridbot_client.terminal import printable
from gridbot_policies import examples
from gridbot_policies.lint.check import Finding
from gridbot_policies.lint.check import check as check_text

_TEXT = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group()
def policy() -> None:
    """Check, evaluate, simulate, compare or suggest policies."""


policy.add_command(simulate)
policy.add_command(compare)
policy.add_command(suggest)


@policy.command()
@click.argument("files", type=_TEXT, nargs=-1, required=True, metavar="FILE...")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@as_json
def check(files: Sequence[Path], strict: bool, as_json: bool) -> None:
    """Print errors and likely mistakes in policy FILEs.

    FILE may be -, the standard input.  Exits with 1 if the server would refuse a file.
    """
    found = {_name(file): check_text(_read(file)) for file in files}
    if as_json:
        print_json(
            {
                "files": [
                    {"file": name, "findings": [item.document() for item in findings]}
                    for name, findings in found.items()
                ]
            }
        )
    else:
        _show(found)
    severe = {"error", "warning"} if strict else {"error"}
    if any(item.severity in severe for findings in found.values() for item in findings):
        click.get_current_context().exit(1)


@policy.command(name="eval")
@click.argument("text", metavar="[FILE|EXPRESSION]", required=False)
@click.option(
    "--host",
    metavar="NAME|ID|FILE",
    help="Host to evaluate for: one that the server knows, or a file with its ad."
    "  [default: this machine]",
)
@click.option(
    "--bot",
    metavar="ID|FILE",
    help="BOT to evaluate for: one of the server, or a file with its ad.  [default: a new BOT]",
)
@click.option(
    "--job",
    type=FILE,
    metavar="FILE",
    help="File with the ad of the job.  [default: a job not yet sent]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="AD.NAME=VALUE",
    help="Add or replace one attribute of an ad, such as Host.Memory=2048.  Repeatable.",
)
@server_options
@as_json
def eval_(
    text: str | None, host: str | None, bot: str | None, job: Path | None,
    settings: Sequence[str], server: str | None, key_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Evaluate a policy or an expression on a host.

    Prints the value of every part.  Without FILE or EXPRESSION the policy of --bot ID is
    evaluated.  Files with ads hold JSON or ClassAds.

    e.g.  gridbot policy eval 'Host.Memory > 4096' --set Host.Memory=2048
    """
    with ExitStack() as opened:
        seen = evaluation_context(
            lambda: opened.enter_context(connect(server, key_file)), host, bot, job
        )
    for setting in settings:
        seen = changed(seen, setting)
    if text is None and not (bot and bot.isdecimal()):
        raise click.UsageError("missing FILE or EXPRESSION; or name a BOT with --bot ID")
    is_whole = text is None or text == "-" or text.endswith(".ad") or is_file(text)
    file = f"bot {bot}" if text is None else _name(Path(text)) if is_whole else None
    content = seen.policy if text is None else _read(Path(text)) if is_whole else text
    trials = try_text(content, seen, time.time(), file)
    if as_json:
        values = [trial.document() for trial in trials]
        print_json({"values": values, "refused": list(seen.refused)})
        return
    click.echo(trial_page(trials, shutil.get_terminal_size().columns))
    for reason in seen.refused:
        say(f"note: the host gets no job of this BOT, whatever the policy: {printable(reason)}")


@policy.command(name="examples")
@click.argument("name", required=False)
def examples_(name: str | None) -> None:
    """List policies to copy from, or print the one called NAME.

    e.g.  gridbot policy examples reliable-tail > tail.ad
    """
    if name is None:
        listed = click.HelpFormatter(max_width=shutil.get_terminal_size().columns)
        listed.write_dl([(name, examples.summary(name)) for name in examples.names()])
        click.echo(listed.getvalue(), nl=False)
        return
    try:
        click.echo(examples.text(name), nl=False)
    except KeyError:
        known = ", ".join(examples.names())
        raise BadInput(f"there is no example {printable(name)}, only {known}") from None


def _show(found: dict[str, list[Finding]]) -> None:
    width = shutil.get_terminal_size().columns
    for name, findings in found.items():
        for item in findings:
            say(finding_page(name, item, width))
        if not findings:
            click.echo(f"{name}: no problems found")


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _read(file: Path) -> str:
    try:
        with click.open_file(str(file), encoding="utf-8") as stream:
            return str(stream.read())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{_name(file)}: not UTF-8 text") from None
