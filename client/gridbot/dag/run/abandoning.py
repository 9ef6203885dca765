"""The end of an interrupted run that nobody goes on with: nothing of it stays at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gridbot.api.errors import GridbotError, NotFound
from gridbot.api.session import Session
from gridbot.dag import journal
from gridbot.dag.run import leftovers


def abandon(
    documents: Sequence[journal.Document],
    connect: Callable[[], Session],
    say: Callable[[str], None],
) -> None:
    """Kill the programs of the run of a journal on this machine, and cancel its BOTs."""
    leftovers.end_run(documents[0]["run"])
    numbers = dict.fromkeys(item["number"] for item in documents if item.get("number"))
    for number in numbers:
        try:
            connect().bot(number).cancel()
        except NotFound:
            continue
        except GridbotError as error:
            say(f"BOT {number} of the earlier run is not cancelled: {error}")
