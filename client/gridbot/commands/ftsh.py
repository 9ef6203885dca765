"""`gridbot ftsh`: runs scripts of the fault tolerant shell."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from gridbot.api.errors import BadInput
from gridbot.ftsh.reader import read
from gridbot.ftsh.run.script import run_script
from gridbot.ftsh.run.settings import KILL_MODES, insists, settings_of
from gridbot.ftsh.tree import FtshScript, ScriptError

_MOST_BYTES = 4 << 20


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-f", "log_file", metavar="FILE", help="Append the log to FILE (standard error).")
@click.option(
    "-l",
    "log_level",
    type=click.IntRange(0, 100),
    help="Detail of the log: 0 none, 10 failures, 20 commands, 30 structures, 40 processes (10).",
)
@click.option("-D", "decimal", is_flag=True, help="Times of the log in seconds since 1970.")
@click.option(
    "-t",
    "grace",
    type=click.IntRange(0, 86_400),
    metavar="SECONDS",
    help="Time between SIGTERM and SIGKILL for programs that are cancelled (30).",
)
@click.option(
    "-k",
    "kill_mode",
    type=click.Choice(KILL_MODES),
    help="strong: kill again until all are dead; weak: once (strong).",
)
@click.option("-n", "-p", "only_read", is_flag=True, help="Read the script, run nothing.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def ftsh(
    ctx: click.Context,
    script: str,
    arguments: tuple[str, ...],
    log_file: str | None,
    log_level: int | None,
    decimal: bool,
    grace: int | None,
    kill_mode: str | None,
    only_read: bool,
) -> None:
    """Run a script of the fault tolerant shell: commands that are tried again, within limits.

    \b
      try for 1 hour or 5 times
        forany host in mirror1 mirror2 mirror3
          wget http://${host}/data.tar.gz
        end
      end

    A command that fails ends what is around it, up to a try. A limit of time ends all programs
    inside. The language is described in client/gridbot/ftsh/README.md. A script may begin with
    #!/usr/bin/env -S gridbot ftsh.
    """
    found = _read(script)
    try:
        settings = settings_of(os.environ)
    except ValueError as error:
        raise BadInput(str(error)) from None
    if grace is not None and "FTSH_KILL_TIMEOUT" in os.environ:
        grace = min(grace, settings.grace)  # a nested shell is never more patient
    settings = replace(
        settings,
        log_file=settings.log_file if log_file is None else os.path.abspath(log_file),
        log_level=settings.log_level if log_level is None else log_level,
        has_decimal_times=settings.has_decimal_times or decimal,
        grace=settings.grace if grace is None else grace,
        insists=settings.insists if kill_mode is None else insists(kill_mode),
    )
    if only_read:
        return
    try:
        code = run_script(found, (script, *arguments), os.environ, settings)
    except OSError as error:
        raise BadInput(f"{settings.log_file}: {error.strerror}") from None
    ctx.exit(code)


def _read(path: str) -> FtshScript:
    """Read a script.  Raises BadInput with file and line."""
    try:
        with open(path, "rb") as source:
            content = source.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise BadInput(f"{path}: more than {_MOST_BYTES} bytes")
    try:
        return read(os.fsdecode(content))
    except ScriptError as error:
        raise BadInput(f"{path}:{error.line}: {error.what}") from None
