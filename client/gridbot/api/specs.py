"""Inputs as they are written: `FILE`, `FILE=NAME`, or sources, `URL#sha256=…&size=…`.

Several URLs, with spaces between, are sources of one input, tried in this order.  What follows `#`
stands behind any of them: `sha256`, `size` in bytes, and `name`, by default the last part of the
first URL's path.  With placeholders each job has an input of its own, whose hash and size are among
its values: `https://host/{file}#sha256={hash}&size={bytes}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urldefrag, urlsplit

from gridbot.api.errors import BadInput
from gridbot_client.protocol import template
from gridbot_client.protocol.fields import ProtocolError, Scalar, file_name, is_sha256
from gridbot_client.protocol.manifest import FileRef
from gridbot_client.protocol.sources import MAX_SOURCES, check_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FACTS = ("sha256", "size", "name")
_MOST_SHOWN = 100


@dataclass(frozen=True)
class InputSpec:
    """One `FILE` or `FILE=NAME`; with placeholders it stands for one file per job."""

    source: str
    name: str
    is_folder: bool = False

    @property
    def placeholders(self) -> frozenset[str]:
        """Names of the placeholders in both parts."""
        return placeholders_in(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """All that may have placeholders."""
        return self.source, self.name

    def filled(self, row: Mapping[str, Scalar]) -> InputSpec:
        """That of the job with the values `row`."""
        source, name = template.fill(self.texts, dict.fromkeys(row, "text"), row)
        return InputSpec(source, name)


@dataclass(frozen=True)
class SourcedSpec:
    """An input by its sources; with placeholders it stands for one file per job."""

    urls: tuple[str, ...]
    name: str
    sha256: str
    size: str
    is_folder = False

    @property
    def source(self) -> str:
        """The first source, for messages."""
        return self.urls[0][:_MOST_SHOWN]

    @property
    def placeholders(self) -> frozenset[str]:
        """Names of the placeholders in all parts."""
        return placeholders_in(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """All that may have placeholders."""
        return (*self.urls, self.name, self.sha256, self.size)

    def filled(self, row: Mapping[str, Scalar]) -> SourcedSpec:
        """That of the job with the values `row`."""
        *urls, name, sha256, size = template.fill(self.texts, dict.fromkeys(row, "text"), row)
        return SourcedSpec(tuple(urls), name, sha256, size)

    def ref(self, *, executable: bool = False) -> FileRef:
        """The input of a spec without placeholders.  Raises BadInput."""
        try:
            for url in self.urls:
                check_url(url, "input")
            name = file_name(self.name, "input")
        except ProtocolError as error:
            raise BadInput(f"{error}; to name it: {self.source}#name=NAME") from None
        if not is_sha256(self.sha256) or not (self.size.isascii() and self.size.isdigit()):
            raise BadInput(
                f"input {self.source}: expected #sha256=HASH&size=BYTES behind it, of 64 lower-case"
                f" hex digits and a whole number; for both: gridbot data hash {self.source}"
            )
        return FileRef(name, self.sha256, int(self.size), executable)


Spec = InputSpec | SourcedSpec


def placeholders_in(texts: Sequence[str]) -> frozenset[str]:
    """Names of the placeholders in some texts.  Raises BadInput on an unpaired brace."""
    try:
        return frozenset(template.placeholders_in(texts))
    except template.TemplateError as error:
        raise BadInput(str(error)) from None


def specs_of(inputs: Sequence[str | Path], base: Path) -> list[Spec]:
    """Parse inputs.  Raises BadInput."""
    return [_spec(text, base) for text in inputs]


def _spec(given: str | Path, base: Path) -> Spec:
    if isinstance(given, str) and _is_url(given):
        return _sourced_spec(given)
    text = str(given)
    source, equals, name = text.rpartition("=")
    # A file whose own name holds "=" is taken literally.
    if not equals or (base / text).exists():
        source, name = text, name_there(text)
    return InputSpec(source, name, (base / source).is_dir())


def name_there(source: str) -> str:
    """Name of an input in a job's directory: the same relative path.

    So a command that works here works there.  Of an absolute path, or one through `..`, only the
    last part is kept.
    """
    path = PurePosixPath(os.path.normpath(source))
    return path.name if path.is_absolute() or ".." in path.parts else str(path)


def _is_url(text: str) -> bool:
    """Whether an input is given by URLs."""
    return _SCHEME.match(text) is not None


def _sourced_spec(text: str) -> SourcedSpec:
    """Parse an input that is given by URLs.  Raises BadInput."""
    urls, facts = [], dict[str, str]()
    for part in text.split():
        url, fragment = urldefrag(part)
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"input {part[:_MOST_SHOWN]}: clients fetch from http:// and https://")
        urls.append(url)
        for fact in filter(None, fragment.split("&")):
            key, _, value = fact.partition("=")
            if key not in _FACTS or facts.setdefault(key, value) != value:
                raise BadInput(
                    f"input {url[:_MOST_SHOWN]}: {fact[:_MOST_SHOWN]!r} behind # is not one of"
                    f" {', '.join(_FACTS)}, or contradicts another"
                )
    if len(urls) > MAX_SOURCES:
        raise BadInput(f"input {urls[0][:_MOST_SHOWN]}: {len(urls)} sources, at most {MAX_SOURCES}")
    name = facts.get("name") or unquote(urlsplit(urls[0]).path.rpartition("/")[2])
    return SourcedSpec(tuple(urls), name, facts.get("sha256", ""), facts.get("size", ""))
