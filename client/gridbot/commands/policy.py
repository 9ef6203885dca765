"""`gridbot policy`: what can be said about a policy without submitting it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from gridbot.api.errors import BadInput
from gridbot.api.session import connect
from gridbot.commands.options import FILE, as_json, print_json, say
from gridbot.show.ads import changed, is_file, scene
from gridbot.show.findings import finding_page
from gridbot.show.printing import printable
from gridbot.show.trial import trial_page, try_text
from gridbot_policies.lint.check import Finding
from gridbot_policies.lint.check import check as check_text

_TEXT = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group()
def policy() -> None:
    """Check a policy file, or try it on a host."""


@policy.command()
@click.argument("files", type=_TEXT, nargs=-1, required=True, metavar="FILE...")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@as_json
def check(files: Sequence[Path], strict: bool, as_json: bool) -> None:
    """Show where FILEs are wrong, and what in them is legal but hardly meant.

    - is the standard input. Exits with 1 if a file would be refused.
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
@click.option("--host", metavar="NAME|FILE", help="A known host, or an ad [this machine].")
@click.option("--bot", metavar="ID|FILE", help="A BOT of the server, or an ad [a new one].")
@click.option("--job", type=FILE, metavar="FILE", help="The ad of a job [one not yet sent].")
@click.option("--set", "settings", multiple=True, metavar="AD.NAME=VALUE", help="Repeatable.")
@click.option("--server", metavar="URL", help="The server [GRIDBOT_SERVER].")
@click.option("--key-file", type=FILE, help="A file that holds your key [GRIDBOT_KEY].")
@as_json
def eval_(
    text: str | None, host: str | None, bot: str | None, job: Path | None,
    settings: Sequence[str], server: str | None, key_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Evaluate a policy or an expression, and show the value of every part.

    Ads in files are JSON or ClassAds. Without a text it is the policy of --bot ID.

    e.g.  gridbot policy eval 'Host.Memory > 4096' --set Host.Memory=2048
    """
    with ExitStack() as opened:
        seen = scene(lambda: opened.enter_context(connect(server, key_file)), host, bot, job)
    for setting in settings:
        seen = changed(seen, setting)
    if text is None and not (bot and bot.isdecimal()):
        raise click.UsageError("a file, an expression or --bot ID is needed")
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
        say(f"note: whatever the policy says, the host gets nothing: {printable(reason)}")


def _show(found: dict[str, list[Finding]]) -> None:
    width = shutil.get_terminal_size().columns
    for name, findings in found.items():
        for item in findings:
            say(finding_page(name, item, width))
        if not findings:
            click.echo(f"{name}: good")


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _read(file: Path) -> str:
    try:
        with click.open_file(str(file), encoding="utf-8") as stream:
            return str(stream.read())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{_name(file)}: is not UTF-8 text") from None
