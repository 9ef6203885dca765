"""`gridbot data hash`: what `--input` needs to know of files that lie elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import click

from gridbot.api.errors import BadInput, GridbotError
from gridbot_client.net.sources import SourceClient, SourceFailed, SourceTerms
from gridbot_client.net.transport import ServerUnavailable
from gridbot_client.protocol.fields import ProtocolError
from gridbot_client.protocol.sources import check_url


@click.command("hash")
@click.argument("urls", nargs=-1, required=True, metavar="URL…")
def measure(urls: Sequence[str]) -> None:
    """Print a URL as an input, with hash and size of what it gives.

    Several URLs must give the same file; the machines of the jobs try them in this order:

    \b
      gridbot submit --input "$(gridbot data hash https://host/a.dat)" -- wc a.dat
    """
    found = {url: _measured(url.partition("#")[0]) for url in urls}
    if len(set(found.values())) > 1:
        told = "; ".join(f"{url}: {size} bytes, {sha256}" for url, (sha256, size) in found.items())
        raise GridbotError(f"these are different files: {told}")
    ((sha256, size),) = set(found.values())
    first, *others = (url.partition("#")[0] for url in urls)
    click.echo(" ".join([f"{first}#sha256={sha256}&size={size}", *others]))


def _measured(url: str) -> tuple[str, int]:
    try:
        return SourceClient().measure(check_url(url, "URL"), SourceTerms(may_be_private=True))
    except ProtocolError as error:
        raise BadInput(str(error)) from None
    except (SourceFailed, ServerUnavailable) as error:
        raise GridbotError(str(error)) from None


SOURCE_COMMANDS = (measure,)
