"""Reads what a client sends to make jobs: one or more descriptions, in ADL or xRSL.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from gridbot.api.errors import BadInput
from gridbot.gatekeeper import adl, xrsl
from gridbot.gatekeeper.descriptions import MOST_CHARACTERS, JobDescription, check, with_program
from gridbot.rsl import syntax

MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """The text of one description, and its job, or why that cannot run here."""

    text: str
    found: JobDescription | BadInput


def read(text: str) -> list[DescribedJob]:
    """The jobs of a text.  Raises BadInput for wrong syntax, no job, or more than MOST_AT_ONCE."""
    items = _items(text)
    if len(items) > MOST_AT_ONCE:
        raise BadInput(f"{len(items)} jobs in one request, at most {MOST_AT_ONCE}")
    if not items:
        raise BadInput("there is no description of a job")
    return [_described(item) for item in items]


def reread(text: str) -> JobDescription:
    """The job of a text that a `DescribedJob` has.

    It is not checked again: what may be accepted can have changed since then.
    """
    [item] = _items(text)
    return _job(item)


def _items(text: str) -> Sequence[Element | syntax.Spec]:
    if text.lstrip().startswith("<"):
        return adl.jobs_in(adl.parsed(text))
    return xrsl.jobs_in(syntax.parse(text))


def _written(item: Element | syntax.Spec) -> str:
    return adl.written(item) if isinstance(item, Element) else syntax.written(item)


def _job(item: Element | syntax.Spec) -> JobDescription:
    return with_program(adl.described(item) if isinstance(item, Element) else xrsl.described(item))


def _described(item: Element | syntax.Spec) -> DescribedJob:
    text = _written(item)
    try:
        if len(text) > MOST_CHARACTERS:
            raise BadInput(f"a description of {len(text)} characters, at most {MOST_CHARACTERS}")
        job = _job(item)
        check(job)
    except BadInput as error:
        return DescribedJob(text, error)
    return DescribedJob(text, job)
