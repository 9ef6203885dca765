"""Submit ads of Stork: `[ dap_type = transfer; src_url = "file:/a"; dest_url = "ftp://h/a"; ]`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gridbot.api.errors import BadInput
from gridbot.placement.places import DataPlace, ProtocolPair, pairs_of, place_of
from gridbot_client.quantities import megabytes, seconds
from gridbot_policies.classad import ParseError, evaluate, parse
from gridbot_policies.classad.nodes import Attribute, Node
from gridbot_policies.classad.values import Record

_WITHOUT_EFFECT = ("log", "lognotes", "x509proxy", "cred_name", "output", "err", "output_file")
_UNITS = re.compile(r"\b(second|minute|hour|day)s?\b")
# Ends of ads are sought outside of texts and comments.
_PARTS = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|[\[\]]', re.DOTALL)


@dataclass(frozen=True)
class TransferRequest:
    """A file that is to be copied; `arguments` go to the module that does it."""

    source: DataPlace
    destination: DataPlace
    alternates: tuple[ProtocolPair, ...] = ()
    sha256: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class ReserveRequest:
    """Space that is to be kept at a place for a time, under a name of the user's or ""."""

    where: DataPlace
    megabytes: int
    seconds: float
    name: str = ""


@dataclass(frozen=True)
class ReleaseRequest:
    """A reservation that is given up, by the name that the user gave it."""

    name: str


PlacementRequest = TransferRequest | ReserveRequest | ReleaseRequest


def requests_of(text: str) -> tuple[list[PlacementRequest], list[str]]:
    """What the ads of a file ask for, and notes on what has no effect.  Raises BadInput."""
    found: list[PlacementRequest] = []
    notes: list[str] = []
    for number, ad in enumerate(_ads(text), 1):
        said = _Said(number, _record(ad, number))
        found.append(_request(said))
        notes += [f"ad {number}: {name} has no effect here" for name in said.left()]
    if not found:
        raise BadInput("there is no ad [ … ] in the file")
    return found, notes


def _ads(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for part in _PARTS.finditer(text):
        if part[0] == "[":
            start = part.start() if not depth else start
            depth += 1
        elif part[0] == "]":
            depth -= 1
            if depth < 0:
                raise BadInput("a ] without its [")
            if not depth:
                yield text[start : part.end()]
    if depth:
        raise BadInput("a [ without its ]")


def _record(ad: str, number: int) -> Record:
    try:
        found = evaluate(parse(ad))
    except ParseError as error:
        raise BadInput(f"ad {number}: {error}") from None
    if not isinstance(found, Record):
        raise BadInput(f"ad {number}: it is no list of attributes")
    return found


class _Said:
    """Attributes of an ad, and which of them nobody has asked for."""

    def __init__(self, number: int, record: Record) -> None:
        self.number = number
        self._record = record
        self._asked: set[str] = set()

    def text(self, name: str, usual: str | None = None) -> str:
        """Value of an attribute as a text; without `usual` it must be there."""
        self._asked.add(name)
        node = self._record.get(name)
        value = evaluate(node, self._record) if isinstance(node, Node) else node
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
        if usual is None or name in self._record.attributes:
            raise BadInput(f"ad {self.number}: {name} is missing, or no text")
        return usual

    def word(self, name: str) -> str:
        """Value of an attribute that ads also write as a bare name, in lower case."""
        node = self._record.get(name)
        self._asked.add(name)
        return (node.name if isinstance(node, Attribute) else str(node)).lower()

    def left(self) -> list[str]:
        """Attributes that say nothing here.  Raises BadInput for unknown ones."""
        left = [name for name in self._record.attributes if name not in self._asked]
        for name in left:
            if name not in _WITHOUT_EFFECT:
                raise BadInput(f"ad {self.number}: {name} is unknown")
        return left


def _request(said: _Said) -> PlacementRequest:
    kind = said.word("dap_type")
    if kind == "transfer":
        source, sha256 = place_of(said.text("src_url"))
        destination, other = place_of(said.text("dest_url"))
        if other:
            raise BadInput(f"ad {said.number}: a SHA-256 stands behind src_url")
        alternates = pairs_of(said.text("alt_protocols", ""))
        arguments = said.text("arguments", "")
        try:
            shlex.split(arguments)
        except ValueError as error:
            raise BadInput(f"ad {said.number}: arguments {arguments!r}: {error}") from None
        return TransferRequest(source, destination, alternates, sha256, arguments)
    if kind == "reserve":
        where, _ = place_of(said.text("dest_host"))
        size, time = said.text("reserve_size"), said.text("duration", "1d")
        name = said.text("reserve_id", "")
        try:
            return ReserveRequest(where, megabytes(size), seconds(_short(time)), name)
        except ValueError as error:
            raise BadInput(f"ad {said.number}: {error}") from None
    if kind == "release":
        said.text("dest_host", "")
        return ReleaseRequest(said.text("reserve_id"))
    raise BadInput(f"ad {said.number}: dap_type {kind!r} is not transfer, reserve or release")


def _short(duration: str) -> str:
    """2 hours as 2 h."""
    return _UNITS.sub(lambda match: match[1][0], duration)
