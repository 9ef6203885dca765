"""Reads what a client sends to make jobs: one or more descriptions, in ADL or xRSL.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gridbot.api.errors import BadInput
from gridbot.gatekeeper import adl, xrsl
from gridbot.gatekeeper.descriptions import MOST_CHARACTERS, JobDescription
from gridbot.rsl.syntax import parse, written

T = TypeVar("T")

MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """A description of one job, as a text, and the job, or why it cannot be run here."""

    text: str
    found: JobDescription | BadInput


def read(text: str) -> list[DescribedJob]:
    """The jobs of a text.  Raises BadInput for what is none, or more than are taken at once."""
    if text.lstrip().startswith("<"):
        return _each(adl.jobs_in(adl.parsed(text)), adl.written, adl.described)
    return _each(xrsl.jobs_in(parse(text)), written, xrsl.described)


def again(text: str) -> JobDescription:
    """The job of a text that a `DescribedJob` has.  Raises BadInput."""
    [job] = read(text)
    if isinstance(job.found, BadInput):
        raise job.found
    return job.found


def _each(
    items: Sequence[T], write: Callable[[T], str], describe: Callable[[T], JobDescription]
) -> list[DescribedJob]:
    if len(items) > MOST_AT_ONCE:
        raise BadInput(f"{len(items)} jobs in one request, at most {MOST_AT_ONCE}")
    if not items:
        raise BadInput("there is no description of a job")
    return [_described(write(item), item, describe) for item in items]


def _described(text: str, item: T, describe: Callable[[T], JobDescription]) -> DescribedJob:
    try:
        if len(text) > MOST_CHARACTERS:
            raise BadInput(f"a description of {len(text)} characters, at most {MOST_CHARACTERS}")
        return DescribedJob(text, describe(item))
    except BadInput as error:
        return DescribedJob(text, error)
