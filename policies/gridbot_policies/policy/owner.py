"""A host owner's policy: which BOTs the machine works for, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from gridbot_policies.classad import CLIENT_LIMITS, Node, Record, evaluate, record
from gridbot_policies.classad.lexer import tokens
from gridbot_policies.classad.nodes import Attribute, Definition, Selection, walk
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.parser import MAX_CLIENT_TEXT_BYTES, check_size
from gridbot_policies.classad.source import Source
from gridbot_policies.classad.values import Value, fold
from gridbot_policies.policy.ads import HOST_ATTRIBUTES
from gridbot_policies.policy.clauses import Clause, Splitter
from gridbot_policies.policy.hints import MOST, PUBLISHED, SPECIAL, closest, lacking
from gridbot_policies.policy.policy_set import SemanticError, check_defined_once
from gridbot_policies.policy.unknown import Attempt, Unknown

REQUIREMENTS = Attribute("Requirements")


@dataclass(frozen=True, slots=True)
class OwnerPolicy:
    """The `Requirements` that a host's owner sets for the BOTs, and attributes they use.

    Names are sought in the policy, then in the Host ad; `BOT`, `TARGET` and `Queue` are the
    other ads. No evaluation raises or takes long: nobody has looked at these texts.
    """

    text: str
    attributes: Record
    _source: Source

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(text: str) -> OwnerPolicy:
        """Read an expression, or `Name = expression; …` with Requirements among the names.

        Raises ParseError, also for more than 4096 bytes, and SemanticError without
        Requirements or for a name defined twice.
        """
        source = _read(text)
        definitions = source.definitions
        if source.expression is not None:
            definitions = (Definition(REQUIREMENTS.name, source.expression, 0),)
        check_defined_once(text, definitions)
        attributes = {fold(item.name): item.expression for item in definitions}
        if fold(REQUIREMENTS.name) not in attributes:
            raise SemanticError(_without_requirements(definitions))
        names = tuple(item.name for item in definitions)
        return OwnerPolicy(text, Record(attributes, names), source)

    def accepts(
        self,
        host: Record,
        bot: Record | None = None,
        queue: Record | None = None,
        now: float | None = None,
        unknown: Collection[str] = (),
    ) -> bool | None:
        """Tell whether the host may work for the BOT; None if that depends on what is not known.

        Not known are ads that are None, and the attributes `unknown` of the host. `now`
        (s since 1970) is the time that time functions see.
        """
        if bot is not None and queue is not None and not unknown:
            scope = self._scope(host, bot, queue)
            value = evaluate(REQUIREMENTS, scope, now=now, limits=CLIENT_LIMITS)
            return truth(value) is True
        answers = [answer for _, answer in self._answers(host, bot, queue, now, unknown)]
        return False if False in answers else None if None in answers else True

    def obstacle(
        self,
        host: Record,
        now: float,
        unknown: Collection[str] = (),
        bot: Record | None = None,
    ) -> str | None:
        """Return the clause that keeps a BOT away, as text; None if there is none.

        Without `bot`, the clause that keeps every BOT away.
        """
        return next(self.clauses(False, host, bot, None, now, unknown), None)

    def clauses(
        self,
        answer: bool | None,
        host: Record,
        bot: Record | None,
        queue: Record | None,
        now: float | None,
        unknown: Collection[str],
    ) -> Iterator[str]:
        """Yield the clauses with this answer, as in `accepts`, each as its author wrote it."""
        for clause, found in self._answers(host, bot, queue, now, unknown):
            if found is answer:
                yield self._source.shown(clause.node)

    def warnings(self) -> list[str]:
        """Return what is legal in the policy but hardly meant: names that no ad carries."""
        nodes = (node for value in self.attributes.attributes.values() for node in _within(value))
        found = (_doubt(node, self.attributes) for node in nodes)
        return list(dict.fromkeys(islice((message for message in found if message), MOST)))

    def _answers(
        self,
        host: Record,
        bot: Record | None,
        queue: Record | None,
        now: float | None,
        unknown: Collection[str],
    ) -> Iterator[tuple[Clause, bool | None]]:
        """Say of each clause whether it holds, as far as that can be known.

        All of them share one budget; what cannot be said within it is as good as not known,
        for the whole at once may need less.
        """
        hidden = Record({fold(name): Unknown(name) for name in unknown}, tuple(unknown))
        scope = self._scope(host.overlaid(hidden), bot, queue)
        attempt = Attempt(scope, now, CLIENT_LIMITS)
        for clause in Splitter(self.attributes.attributes).clauses(REQUIREMENTS):
            value = attempt.value(clause.node)
            yield clause, None if value is None else truth(value) is True

    def _scope(self, host: Record, bot: Record | None, queue: Record | None) -> Record:
        other = Unknown("BOT") if bot is None else bot
        outermost: dict[str, Node | Value] = {
            "host": host,
            "bot": other,
            "target": other,
            "queue": Unknown("Queue") if queue is None else queue,
        }
        outer = Record(outermost, ("Host", "BOT", "Target", "Queue"))
        return self.attributes.within(host.within(outer))


def partly_known(values: Mapping[str, object], unknown: Collection[str]) -> Record:
    """An ad with these values, in which the `unknown` attributes have values that nobody knows."""
    hidden = Record({fold(name): Unknown(name) for name in unknown}, tuple(unknown))
    return record(values).overlaid(hidden)


def _read(text: str) -> Source:
    """Read attributes, or an expression alone, which is the Requirements."""
    check_size(text, MAX_CLIENT_TEXT_BYTES)
    words = tokens(text)
    first = next(words)
    is_name = first.kind in ("name", "quoted name")
    if first.value == "[" or (is_name and next(words).value == "="):
        return Source.of_definitions(text)
    return Source.of_expression(text)


def _without_requirements(definitions: Iterable[Definition]) -> str:
    names = [item.name for item in definitions]
    if slip := closest(REQUIREMENTS.name, names):
        return f"a host's policy has no {slip}; did you mean Requirements?"
    return (
        f"the policy defines {', '.join(names) or 'nothing'}, but not Requirements:"
        " write Requirements = EXPRESSION; (== compares)"
    )


def _within(value: Node | Value) -> Iterator[Node]:
    return walk(value) if isinstance(value, Node) else iter(())


_PUBLISHED = {**PUBLISHED, "target": PUBLISHED["bot"]}
_SPECIAL = ("Host", "BOT", "Target", "Queue", *SPECIAL)


def _doubt(node: Node, own: Record) -> str | None:
    match node:
        case Selection(Attribute(ad), name) if fold(ad) in _PUBLISHED:
            return lacking(f"{ad}.", name, _PUBLISHED[fold(ad)], "is not published")
        case Selection(Attribute(ad), name) if fold(ad) == "my":
            names = (*own.names, *HOST_ATTRIBUTES)
            return lacking(f"{ad}.", name, names, "is not published")
        case Attribute(name):
            names = (*own.names, *HOST_ATTRIBUTES, *_SPECIAL)
            return lacking("", name, names, "is no attribute of the host or the policy")
        case _:
            return None
