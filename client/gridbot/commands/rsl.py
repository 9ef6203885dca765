"""`gridbot rsl`: reads job descriptions of Globus, and says what they become here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from gridbot.api.errors import BadInput
from gridbot.commands.options import as_json, print_json, say
from gridbot.rsl.requests import Converted, convert
from gridbot.rsl.syntax import parse, written
from gridbot_client.terminal import printable

_MOST_BYTES = 1 << 20
# What GRAM defines beside what the description does.
_PREDEFINED = ("HOME", "LOGNAME")


@click.command()
@click.argument("file", metavar="FILE")
@as_json
def rsl(file: str, as_json: bool) -> None:
    """Check a job description in RSL, and print its canonical form; - reads standard input.

    With --json also print the BOT that `gridbot submit FILE` would make of it.
    """
    text = read(file)
    if not as_json:
        click.echo(printable(written(parse(text))))
        return
    found = converted(text, Path(file).parent)
    fields = {name: _shown(value) for name, value in found.fields.items() if name != "base"}
    print_json({"rsl": written(parse(text)), "submission": fields, "notes": list(found.notes)})


def read(file: str) -> str:
    """Text of a description.  Raises BadInput."""
    try:
        with sys.stdin.buffer if file == "-" else open(file, "rb") as source:
            found = source.read(_MOST_BYTES + 1)
        if len(found) > _MOST_BYTES:
            raise BadInput(f"{file}: more than {_MOST_BYTES} bytes")
        return found.decode()
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: {error}") from None


def converted(text: str, base: Path) -> Converted:
    """The BOT that a description asks for.  Raises BadInput."""
    known = {name: os.environ[name] for name in _PREDEFINED if name in os.environ}
    return convert(parse(text), known, base)


def submission_of(file: str) -> dict[str, Any]:
    """Fields of the submission that a file asks for; what it cannot say is printed.

    Raises BadInput.
    """
    found = converted(read(file), Path(file).parent)
    for note in found.notes:
        say(f"note: {printable(note)}")
    if found.is_dry_run:
        raise BadInput(f"{file}: dry_run is yes: it is right, and nothing was submitted")
    return found.fields


def _shown(value: Any) -> Any:
    return [value.start, value.stop] if isinstance(value, range) else value
