"""The one command `gridbot`: each package contributes its verbs, loaded only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version

import click

from gridbot.api.errors import GridbotError, PolicyError

GROUP = "gridbot.commands"

# The help is written here, so that showing it loads none of the packages behind it.
_AUDIENCES = (
    (
        "For scientists",
        "gridbot submit --range 0:100 --wait -- ./prog {}",
        {
            "submit": "Upload a bag of tasks: a command over a table, lines or a range.",
            "bots": "List your BOTs.",
            "bot": "Show, explain, wait for, cancel, retry or change one; its results and logs.",
            "login": "Remember a server and a key.",
            "policy": "Check a policy, or try it on a host.",
        },
    ),
    (
        "For volunteers",
        "gridbot client join https://grid.example.org --key KEY",
        {
            "client": "Let this machine work for a server.",
            "team": "Found, join, leave and list teams of volunteers.",
        },
    ),
    (
        "For operators",
        "gridbot server start",
        {
            "server": "Run the server.",
            "overlay": "Submit pilots to clusters as BOTs demand them.",
            "hosts": "List the machines that are known.",
            "host": "Change what is known of a machine.",
            "user": "Add and list people, show their credit.",
            "token": "Create, revoke and list keys.",
            "app": "Sign what BOTs run, away from the server; make and change keys.",
        },
    ),
)
# Verbs whose packages need more than the light client brings.
_EXTRAS = {"server": "server", "overlay": "overlay", "app": "server"}


class Failure(click.ClickException):
    """An expected failure: one line on stderr, exit code 1."""

    def show(self, file: object = None) -> None:  # noqa: ARG002  # click's signature
        """Print the line; a policy's error is as `gridbot policy check` shows it."""
        click.echo(self.message, err=True)


class Verbs(click.Group):
    """The verbs that installed packages contribute as entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Every verb, by name."""
        return sorted(_verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the package behind a verb, or say how to install what it lacks."""
        verb = _verbs().get(cmd_name)
        return _load(verb) if verb else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by the people who use them."""
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
        """Run a verb; what was expected to fail fails in one line."""
        try:
            return super().invoke(ctx)
        except PolicyError as error:
            raise Failure(error.pretty) from None
        except (GridbotError, TimeoutError) as error:
            raise Failure(f"gridbot: {error}") from None
        except (Failure, click.UsageError):
            raise
        except click.ClickException as error:
            raise Failure(f"gridbot: {error.message}") from None


def _verbs() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(verb: EntryPoint) -> click.Command:
    try:
        command = getattr(importlib.import_module(verb.module), verb.attr)
    except ImportError as error:  # a package that is not here, or is too old
        extra = _EXTRAS.get(verb.name)
        # One of our own modules that is missing is a defect, not an extra.
        if extra is None or (error.name or "").startswith("gridbot"):
            raise
        raise Failure(
            f"gridbot {verb.name}: needs the {extra}'s packages;"
            f" install them with: pip install 'gridbot[{extra}]'"
        ) from None
    assert isinstance(command, click.Command)
    return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("gridbot"), message="gridbot %(version)s")
def gridbot() -> None:
    """Bags of tasks on volunteers' machines and clusters, by pull.

    Every verb explains itself: gridbot VERB --help
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run `gridbot`; exits 0 when done, 1 on an expected failure, 2 on wrong usage."""
    gridbot(args=argv, prog_name="gridbot")
