"""One file of a DAG while it is read: its place, its prefix, and names looked up from it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gridbot.dag.language.draft import DagDraft
from gridbot.dag.language.lines import DagLine, Words
from gridbot.dag.language.model import FilePlace, Kind

if TYPE_CHECKING:
    from gridbot.dag.language.reader import Reading


class LineRefused(ValueError):
    """What is wrong with a line."""


@dataclass(frozen=True)
class DagPart:
    """A file, from `folder` on, whose nodes have names with `prefix`."""

    reading: Reading
    draft: DagDraft
    file: str
    folder: str
    prefix: str
    included_at: FilePlace | None = None
    above: tuple[str, ...] = ()
    is_rescue: bool = False

    @property
    def shown(self) -> str:
        """Path of the file, as messages say it."""
        return os.path.join(self.folder, self.file)

    def at(self, line: DagLine) -> FilePlace:
        """Place of a line."""
        return FilePlace(self.shown, line.number)

    def path(self, file: str) -> str:
        """A path that the file says, relative to where the DAG was started."""
        return os.path.join(self.folder, file)

    def read_text(self) -> str:
        """What stands in the file.  Raises OSError or UnicodeDecodeError."""
        return Path(self.reading.base, self.shown).read_text(encoding="utf-8")

    @staticmethod
    def needed(words: Words, what: str) -> str:
        """The next word.  Raises Refused."""
        word = words.next()
        if not word:
            raise LineRefused(f"{what} is missing")
        return word

    @classmethod
    def integer(cls, words: Words, what: str, least: int | None = None) -> int:
        """The next word as a whole number.  Raises Refused."""
        return cls.number(cls.needed(words, what), what, least)

    @staticmethod
    def number(word: str, what: str, least: int | None = None) -> int:
        """A whole number.  Raises Refused."""
        try:
            value = int(word)
        except ValueError:
            raise LineRefused(f"{what}: {word!r} is no whole number") from None
        if least is not None and value < least:
            raise LineRefused(f"{what}: {word} is less than {least}")
        return value

    def refuse_taken(self, name: str) -> None:
        """Raise Refused if a node or a splice has this name."""
        if name in self.draft.nodes:
            raise LineRefused(f"{name} is a node already, of {self.draft.nodes[name].place}")
        if name in self.draft.splices:
            raise LineRefused(f"{name} is a splice already, of {self.draft.splices[name].place}")

    def node(self, words: Words) -> str:
        """The node that is named next.  Raises Refused."""
        name = self.needed(words, "a node")
        if self.prefix + name not in self.draft.nodes and not (
            self.is_rescue and name in self.draft.nodes
        ):
            raise LineRefused(f"{name} is no node")
        return self.prefix + name

    def named(self, words: Words, refused: Iterable[Kind] = (Kind.SERVICE,)) -> list[str]:
        """The node that is named next, or all of this part for ALL_NODES.  Raises Refused."""
        name = self.needed(words, "a node")
        if name.upper() == "ALL_NODES":
            aside = (Kind.FINAL, Kind.SERVICE, Kind.PROVISIONER, Kind.JOIN)
            return [
                known
                for known, node in self.draft.nodes.items()
                if node.kind not in aside and self._is_own(known)
            ]
        full = self.prefix + name
        if full not in self.draft.nodes or not (self.is_rescue or self._is_own(full)):
            raise LineRefused(f"{name} is no node")
        if (kind := self.draft.nodes[full].kind) in refused:
            raise LineRefused(f"{name} is a {kind.value} node, which cannot have this")
        return [full]

    def _is_own(self, name: str) -> bool:
        """Whether a node is one of this part, not of a splice in it or of another file."""
        return name.startswith(self.prefix) and "+" not in name[len(self.prefix) :]
