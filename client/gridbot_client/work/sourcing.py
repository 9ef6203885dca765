"""Fetches an input from its sources in their order, and from the server last."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from gridbot_client.net.sources import SourceClient, SourceFailed, SourceTerms
from gridbot_client.net.transport import CorruptDownload, RequestRefused, Transport
from gridbot_client.protocol.manifest import Manifest
from gridbot_client.protocol.messages import Assignment
from gridbot_client.protocol.sources import Sources, SourceTemplates
from gridbot_client.work.runner import Stop

log = logging.getLogger(__name__)


class NoSource(Exception):
    """No source gives a content, and the server has none; the message says why, each in a line."""

    def __init__(self, failures: list[SourceFailed], refused: str, reached: int) -> None:
        super().__init__("\n".join(["no source gives it", *map(str, failures), refused]))
        self.may_pass = any(failure.may_pass for failure in failures)
        self.reached = reached  # bytes that are here
        self.reason = "input_unavailable"
        if all(failure.is_wrong for failure in failures):
            self.reason = "input_corrupt"


@dataclass(frozen=True, slots=True)
class JobSources:
    """Where the inputs of one job are; safe to use from the thread that runs it."""

    client: SourceClient
    urls: Sources
    terms: SourceTerms
    owner: str

    @classmethod
    def of(
        cls, client: SourceClient, manifest: Manifest, assignment: Assignment, stop: Stop,
        *, is_stranger: bool,
    ) -> JobSources:  # fmt: skip
        """The sources of a job.  Raises TemplateError."""
        templates = SourceTemplates.parse(manifest.sources)
        own = {ref.name for ref in assignment.inputs}
        urls = templates.fill(manifest.placeholders, assignment.args, own)
        terms = SourceTerms(may_be_private=not is_stranger, is_stopped=lambda: stop.is_asked)
        return cls(client, urls, terms, manifest.owner)

    def whose(self, name: str) -> str:
        """For whom alone an input is kept: the BOT's owner, who need not have had it; "": all."""
        return self.owner if name in self.urls else ""

    def download(self, name: str, transport: Transport, sha256: str, size: int, part: Path) -> None:
        """Complete a partial file, as Transport.download does.  Raises NoSource, too."""
        failures = []
        for url in self.urls.get(name, ()):
            try:
                return self.client.download(url, sha256, size, part, self.terms)
            except SourceFailed as error:
                log.warning("input %s: %s", name, error)
                failures.append(error)
        begun = part.exists() and part.stat().st_size > 0
        try:
            try:
                transport.download(sha256, size, part)
            except CorruptDownload:
                if not begun:  # else what a source gave before may have been wrong
                    raise
                transport.download(sha256, size, part)
        except RequestRefused as error:
            if error.shuts_out or not failures:
                raise
            reached = part.stat().st_size if part.exists() else 0
            raise NoSource(failures, f"the server: {error}", reached) from None
