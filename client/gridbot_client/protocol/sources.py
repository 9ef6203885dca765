"""Where clients fetch inputs: URLs in the order in which they are tried, before the server itself.

A manifest has them by the name of the input.  Names and URLs may have placeholders, so that jobs
have inputs of their own; a job's hash and size of it are in the job table.  So the signatures cover
all three, and a source cannot give anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from ipaddress import IPv6Address
from typing import Any, NamedTuple

from gridbot_client.protocol import fields
from gridbot_client.protocol.fields import MAX_NAME_BYTES, ProtocolError, Scalar
from gridbot_client.protocol.template import Template, TemplateError

MAX_SOURCES = 8  # of one input
MAX_SOURCED = 1000  # inputs of a BOT that have sources
MAX_VARYING = 100  # of them, with placeholders
MAX_URL_BYTES = 2000

# Of RFC 3986, without user names and fragments: what every program reads alike.
_URL = re.compile(
    r"https?://(?:[A-Za-z0-9.-]+|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:[/?][A-Za-z0-9!$%&'()*+,./:;=?@_~\[\]-]*)?"
)
_MOST_SHOWN = 100

Sources = Mapping[str, tuple[str, ...]]


def check_url(url: str, where: str) -> str:
    """Return a URL that clients fetch from.  Raises ProtocolError for any other."""
    if not _is_usable(url):
        raise ProtocolError(
            f"{where}: {url[:_MOST_SHOWN]!r} is not a usable URL (http:// or https://, a host, at"
            f" most {MAX_URL_BYTES} characters of plain ASCII; no user name; others as %XX)"
        )
    return url


def _is_usable(url: str) -> bool:
    found = _URL.fullmatch(url) if len(url) <= MAX_URL_BYTES else None
    if not found or int(found["port"] or 0) > 0xFFFF:
        return False
    try:
        return not found["ipv6"] or bool(IPv6Address(found["ipv6"]))
    except ValueError:
        return False


def read_sources(raw: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Validate sources by name; those with placeholders are checked for each job."""
    if len(raw) > MAX_SOURCED:
        raise ProtocolError(f"sources: {len(raw)} inputs have some, at most {MAX_SOURCED}")
    found = {}
    for name, urls in raw.items():
        fields.text(name, "sources", MAX_NAME_BYTES)
        where = f"sources.{name[:_MOST_SHOWN]}"
        if not isinstance(urls, list) or not 0 < len(urls) <= MAX_SOURCES:
            raise ProtocolError(f"{where}: expected a list of 1 to {MAX_SOURCES} URLs")
        found[name] = tuple(fields.text(url, where, MAX_URL_BYTES) for url in urls)
        for url in found[name]:
            if not _varies(url):
                check_url(url, where)
    return found


class SourceTemplates(NamedTuple):
    """The sources of a BOT's inputs, taken apart once to be filled for many jobs."""

    fixed: Sources
    varying: Sequence[tuple[Template, ...]]  # of a name, and of its URLs

    @classmethod
    def parse(cls, sources: Sources) -> SourceTemplates:
        """Take sources apart.  Raises TemplateError on an unpaired brace."""
        varying = {name: urls for name, urls in sources.items() if _varies(name, *urls)}
        fixed = {name: urls for name, urls in sources.items() if name not in varying}
        return cls(
            fixed, [(*map(Template.parse, (name, *urls)),) for name, urls in varying.items()]
        )

    def fill(
        self, types: Mapping[str, str], args: Mapping[str, Scalar], own: Container[str]
    ) -> Sources:
        """The sources of a job with these arguments and inputs of its `own`, by input.

        Those of inputs that it does not have cost no more than their names.  Raises TemplateError.
        """
        found = dict(self.fixed)
        for templates in self.varying:
            name = templates[0].fill(types, args)
            if name not in own:
                continue
            urls = [template.fill(types, args) for template in templates[1:]]
            try:
                found[name] = tuple(check_url(url, f"the source of input {name}") for url in urls)
            except ProtocolError as error:
                raise TemplateError(str(error)) from None
        return found


def check_sources(sources: Sources, shared: Container[str], is_own: Callable[[str], bool]) -> None:
    """Make sure that sources are those of inputs, as far as can be told without a job.

    `is_own` says whether a job may have an input of this name.  Raises ProtocolError.
    """
    if sum(_varies(name, *urls) for name, urls in sources.items()) > MAX_VARYING:
        raise ProtocolError(f"sources: more than {MAX_VARYING} differ from job to job")
    for name, urls in sources.items():
        if name in shared:
            if _varies(*urls):
                raise ProtocolError(f"sources.{name}: all jobs share it, so no URL differs")
        elif not _varies(name) and not is_own(name):
            raise ProtocolError(f"sources: {name[:_MOST_SHOWN]!r} is not the name of an input")


def _varies(*texts: str) -> bool:
    return any("{" in text for text in texts)
