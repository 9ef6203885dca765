"""The command `gridbot`: each package contributes subcommands, imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points, version

import click

from gridbot.api.errors import (
    BadInput,
    GridbotError,
    NotFound,
    PolicyError,
    Refused,
    ServerAway,
)
from gridbot_client.installation import install_command

GROUP = "gridbot.commands"

# In errors click calls a number by its type's name, "integer range".
click.IntRange.name = "whole number"

# The help is written here, so that showing it loads none of the packages behind it.
_AUDIENCES = (
    (
        "For scientists",
        "gridbot submit --range 0:100 --wait -- ./prog {}",
        {
            "submit": "Submit a bag of tasks: a command over a table, lines or a range.",
            "dag": "Run workflows that are written for HTCondor's DAGMan.",
            "bot": "List, show, explain, wait for, change, cancel or retry BOTs; get results.",
            "group": "List, show, wait for or cancel BOTs with the same label; get their results.",
            "status": "Show the server, this machine's client and your BOTs on one page.",
            "top": "Show that page, and the hosts, again every two seconds.",
            "login": "Save a server's URL and your key.",
            "grid": "List the clusters that the overlay submits pilots to.",
            "invite": "Print a line that lets another machine run your BOTs.",
            "policy": "Check, evaluate or simulate a policy, or print an example.",
            "key": "List, name and revoke the keys that sign your BOTs.",
            "storage": "Add, list and remove buckets of yours to which outputs go.",
            "data": "Copy files between places as jobs, through failures and crashes.",
            "rsl": "Check job descriptions of Globus GRAM, and print what they become.",
            "ftsh": "Run scripts of the fault tolerant shell: retries, alternatives, time limits.",
            "completion": "Let the shell complete names with the tab key.",
        },
    ),
    (
        "For volunteers",
        "gridbot client join https://grid.example.org --key KEY",
        {
            "client": "Run jobs of a server on this machine.",
            "account": "Say when and how much all your machines work.",
            "team": "Create, join, leave and list teams of volunteers.",
        },
    ),
    (
        "For operators",
        "gridbot server start",
        {
            "server": "Start, stop, inspect and check a server.",
            "overlay": "Submit pilots to clusters, as many as the BOTs need.",
            "host": "List, show, ban, unban and forget hosts; set their venue.",
            "user": "Add and list users; show their credit.",
            "token": "Create, revoke and list access keys.",
            "news": "Post, list and remove news for all volunteers.",
            "app": "Sign BOTs for volunteers' clients; create and rotate signing keys.",
        },
    ),
)
# Subcommands whose packages need more than the client's dependencies.
_EXTRAS = {"server": "server", "overlay": "overlay", "app": "server"}


# What a script can tell apart; 1 is any other failure, jobs that failed among them.
_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (PolicyError, 2),
    (BadInput, 2),
    (ServerAway, 3),
    (NotFound, 4),
    (Refused, 4),
    (TimeoutError, 5),
)


# Another way to write a group's verb `list`, as in `gridbot bots`.
_PLURALS = {"bots": "bot", "hosts": "host", "groups": "group", "grids": "grid"}
# What other systems call it, or where it is not searched for.
_ELSEWHERE = {
    **dict.fromkeys(("ls", "list", "ps", "jobs", "queue", "q"), "bot list"),
    **dict.fromkeys(("nodes", "workers", "machines"), "host list"),
    **dict.fromkeys(("sub", "run", "qsub", "sbatch"), "submit"),
    **dict.fromkeys(("kill", "rm", "qdel", "scancel"), "bot cancel"),
}


class CommandFailed(click.ClickException):
    """An expected failure: one line on stderr, and an exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it of the instance

    def show(self, file: object = None) -> None:  # noqa: ARG002  # click's signature
        """Print the message; a policy's error has the form of `gridbot policy check`."""
        click.echo(self.message, err=True)


class Verbs(click.Group):
    """Subcommands that installed packages contribute as entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of all subcommands, sorted."""
        return sorted(_verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a subcommand's package.  Raises CommandFailed with the pip command needed."""
        verb = _verbs().get(cmd_name)
        return _load(verb) if verb else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a subcommand; for one that is misspelt the error names the nearest.

        A plural is its group with the verb after it, or else `list`: `bots` is `bot list`.
        """
        name, verbs = args[0], self.list_commands(ctx)
        if group := _PLURALS.get(name):
            has_verb = args[1:] and args[1] in _verbs_of(group)
            args = [group, *args[1:]] if has_verb else [group, "list", *args[1:]]
        elif name not in verbs and (meant := _meant(name, verbs)):
            ctx.fail(f"No such command {name!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands grouped by audience."""
        there = self.list_commands(ctx)
        for audience, example, verbs in _AUDIENCES:
            rows = [(verb, line) for verb, line in verbs.items() if verb in there]
            if not rows:
                continue
            with formatter.section(audience):
                formatter.write_dl(rows)
                formatter.write_text(f"e.g.  {example}")
        known = {verb for _, _, verbs in _AUDIENCES for verb in verbs}
        if others := [verb for verb in there if verb not in known]:
            with formatter.section("Others"):
                formatter.write_text(", ".join(others))

    def invoke(self, ctx: click.Context) -> object:
        """Run a subcommand; expected errors become CommandFailed with one line."""
        try:
            return super().invoke(ctx)
        except (GridbotError, TimeoutError) as error:
            message = error.pretty if isinstance(error, PolicyError) else f"gridbot: {error}"
            raise CommandFailed(message, _exit_code(error)) from None
        except (CommandFailed, click.UsageError):
            raise
        except click.ClickException as error:
            raise CommandFailed(f"gridbot: {error.message}", error.exit_code) from None


def _exit_code(error: Exception) -> int:
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)


def _verbs() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _verbs_of(group: str) -> list[str]:
    """Names of a group's subcommands; none if its package is not installed."""
    verb = _verbs().get(group)
    command = _load(verb) if verb else None
    return list(command.commands) if isinstance(command, click.Group) else []


def _meant(name: str, verbs: Sequence[str]) -> str:
    """The command that was probably meant by an unknown name, or an empty text."""
    if found := _ELSEWHERE.get(name):
        return found
    for group in _PLURALS.values():
        if name in _verbs_of(group):
            return f"{group} {name}"
    near = get_close_matches(name, verbs, n=1)
    return near[0] if near else ""


def _load(verb: EntryPoint) -> click.Command:
    try:
        command = getattr(importlib.import_module(verb.module), verb.attr)
    except ImportError as error:  # a package that is not here, or is too old
        extra = _EXTRAS.get(verb.name)
        # One of our own modules that is missing is a defect, not an extra.
        if extra is None or (error.name or "").startswith("gridbot"):
            raise
        raise CommandFailed(
            f"gridbot {verb.name}: needs the {extra}'s packages;"
            f" install them with: {install_command(extra)}"
        ) from None
    assert isinstance(command, click.Command)
    return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("gridbot"), message="gridbot %(version)s")
def gridbot() -> None:
    """Run bags of tasks (BOTs) on volunteers' machines and clusters.

    For details of a command: gridbot COMMAND --help
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run `gridbot`; README.md says what its exit codes mean."""
    gridbot(args=argv, prog_name="gridbot")
