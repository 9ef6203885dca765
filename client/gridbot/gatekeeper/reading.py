"""Reads what a client sends to make jobs: one or more descriptions, in ADL or xRSL.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from xml.etree import ElementTree

from gridbot.api.errors import BadInput
from gridbot.gatekeeper import adl, xrsl
from gridbot.gatekeeper.descriptions import JobDescription
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
    jobs = _adl(text) if text.lstrip().startswith("<") else _xrsl(text)
    if len(jobs) > MOST_AT_ONCE:
        raise BadInput(f"{len(jobs)} jobs in one request, at most {MOST_AT_ONCE}")
    if not jobs:
        raise BadInput("there is no description of a job")
    return jobs


def again(text: str) -> JobDescription:
    """The job of a text that a `DescribedJob` has.  Raises BadInput."""
    [job] = read(text)
    if isinstance(job.found, BadInput):
        raise job.found
    return job.found


def _adl(text: str) -> list[DescribedJob]:
    return [
        DescribedJob(ElementTree.tostring(item, "unicode"), _tried(adl.described, item))
        for item in adl.jobs_in(adl.parsed(text))
    ]


def _xrsl(text: str) -> list[DescribedJob]:
    return [
        DescribedJob(written(item), _tried(xrsl.described, item))
        for item in xrsl.jobs_in(parse(text))
    ]


def _tried(read_one: Callable[[T], JobDescription], item: T) -> JobDescription | BadInput:
    try:
        return read_one(item)
    except BadInput as error:
        return error
