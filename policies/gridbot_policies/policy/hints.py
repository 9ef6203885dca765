"""What can be said about a policy text without evaluating it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gridbot_policies.classad.functions import references, times
from gridbot_policies.classad.nodes import (
    Absolute,
    Attribute,
    Call,
    Constant,
    Node,
    Selection,
    Subscript,
    walk,
)
from gridbot_policies.classad.source import cut
from gridbot_policies.classad.values import fold
from gridbot_policies.policy.ads import (
    BOT_ATTRIBUTES,
    HOST_ATTRIBUTES,
    JOB_ATTRIBUTES,
    QUEUE_ATTRIBUTES,
    is_replica_name,
)

SHOWN = 80  # characters of a name or an expression in a message
MOST = 50  # messages about one text: who reads more of them?

PUBLISHED: Mapping[str, Iterable[str]] = {
    "host": HOST_ATTRIBUTES,
    "bot": BOT_ATTRIBUTES,
    "queue": QUEUE_ATTRIBUTES,
}
"""What the ads carry that all policies see."""

# Names that the language itself gives a meaning.
SPECIAL = ("self", "my", "parent", "toplevel", "root", "CurrentTime")


def closest(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the one of `names` that `name` is most like, in any case; None if none is."""
    key = fold(name)
    by_key = {
        folded: candidate
        for candidate in names
        if _may_be_alike(len(key), len(folded := fold(candidate)), similarity)
    }
    found = difflib.get_close_matches(key, by_key, n=1, cutoff=similarity)
    return by_key[found[0]] if found else None


def _may_be_alike(first: int, second: int, similarity: float) -> bool:
    """Tell whether words of these lengths can have so many letters in common."""
    return 2 * min(first, second) >= similarity * (first + second)


def lacking(ad: str, name: str, names: Iterable[str], lack: str) -> str | None:
    """Say that `ad` (with its dot) has none of `names` called so; None if it has one."""
    if fold(name) in map(fold, names):
        return None
    meant = closest(name, names)
    suggestion = f"; did you mean {ad}{meant}?" if meant else ""
    return f"{ad}{cut(name, SHOWN)} {lack}{suggestion}"


def mentions_replicas(expressions: Mapping[str, Node], policies: Sequence[str]) -> bool:
    """Tell whether the policies mention the job or its replicas, directly or through others."""
    own = set(map(fold, expressions))
    reached = _reached(expressions, policies, _names_in)
    return any(key not in own and (key in _OF_JOB or is_replica_name(key)) for key in reached)


def mentions_caches(expressions: Mapping[str, Node], policies: Sequence[str]) -> bool:
    """Tell whether the policies mention what a host's cache holds, directly or through others."""
    return not _OF_CACHES.isdisjoint(_reached(expressions, policies, _names_in))


def changes_by_itself(expressions: Mapping[str, Node], policies: Sequence[str]) -> bool:
    """Tell whether the value of policies may change while host, BOT and its jobs stay as they are.

    That is if they look at the time, an age or the queue, directly or through others, or at
    something of which the text does not tell what it is.
    """
    return not _CHANGING.isdisjoint(_reached(expressions, policies, _looked_at))


def _reached(
    expressions: Mapping[str, Node],
    policies: Sequence[str],
    names_in: Callable[[Node], Iterable[str]],
) -> Iterator[str]:
    """Yield all names in the policies, and in what is defined under these, each once."""
    by_key = {fold(name): node for name, node in expressions.items()}
    waiting, seen = [fold(name) for name in policies], set[str]()
    while waiting:
        key = waiting.pop()
        if key not in seen:
            seen.add(key)
            yield key
            if key in by_key:
                waiting.extend(names_in(by_key[key]))


def _looked_at(expression: Node) -> Iterator[str]:
    """Yield the names that an expression looks at, and `_COMPUTED` where that is unknown."""
    nodes = list(walk(expression))
    # `BOT.Tail` names the BOT to look at one attribute of it, `string(BOT)` to look at all.
    bases = {id(node.base) for node in nodes if isinstance(node, Selection)}
    for node in nodes:
        match node:
            case Attribute(name) if id(node) in bases and fold(name) in _OTHER_ADS:
                pass
            case Attribute(name) | Selection(_, name) | Subscript(_, Constant(str(name))):
                yield fold(name)
            case Absolute() | Subscript():
                yield _COMPUTED
            case Call(function) if fold(function) in _OPAQUE_CALLS:
                yield _COMPUTED


_COMPUTED = "eval()"  # stands for any name
_CHANGING = frozenset(
    (_COMPUTED, "age", *map(fold, (*QUEUE_ATTRIBUTES, *SPECIAL, "queue", "bot", "job")))
)
_OPAQUE_CALLS = frozenset((*times.TABLE, *references.TABLE, "eval", "evalineachcontext"))


# `Name` and `Age` bare are the job's; `parent` is the job; `eval` may look at anything.
_OTHER_ADS = frozenset(("host", "target", "bot", "queue"))
_OF_CACHES = frozenset(("cached", "cachedmb", "eval()"))
_OF_JOB = frozenset(("job", "parent", "eval()", *map(fold, JOB_ATTRIBUTES)))


def _names_in(expression: Node) -> Iterator[str]:
    for node in walk(expression):
        match node:
            case Attribute(name):
                yield fold(name)
            case Selection(Attribute(ad), name) if fold(ad) in _OTHER_ADS:
                # `Host.Name` is not the job's name, but `BOT.Job` is the job.
                if fold(name) not in ("name", "age"):
                    yield fold(name)
            case Selection(_, name) | Subscript(_, Constant(str(name))):
                yield fold(name)
            case Subscript(_, index) if not isinstance(index, Constant):
                yield "eval()"  # a computed name
            case Call(function) if fold(function) == "eval":
                yield "eval()"
