"""What can be said about a policy text without evaluating it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gridbot_policies.ads import (
    BOT_ATTRIBUTES,
    HOST_ATTRIBUTES,
    JOB_ATTRIBUTES,
    QUEUE_ATTRIBUTES,
    REPLICA_HOST_ATTRIBUTES,
    is_replica_name,
)
from gridbot_policies.classad.nodes import (
    Attribute,
    Call,
    Constant,
    Node,
    Selection,
    Subscript,
    walk,
)
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import fold

if TYPE_CHECKING:
    from gridbot_policies.policy_set import PolicySet

_PUBLISHED: Mapping[str, Iterable[str]] = {
    "host": HOST_ATTRIBUTES,
    "bot": (*BOT_ATTRIBUTES, "Job"),
    "queue": QUEUE_ATTRIBUTES,
    "job": JOB_ATTRIBUTES,
}


def closest(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the one of `names` that `name` is most like, in any case; None if none is."""
    by_key = {fold(candidate): candidate for candidate in names}
    found = difflib.get_close_matches(fold(name), by_key, n=1, cutoff=similarity)
    return by_key[found[0]] if found else None


def misspelt_attributes(policies: PolicySet) -> list[str]:
    """Return a hint for every `Host.X`, `BOT.X`, `Queue.X`, `Job.X` that no ad carries.

    Such a name is no error, it is undefined: a policy that relies on it never holds.
    """
    selections = (
        node
        for definition in policies.definitions
        for node in walk(definition.expression)
        if isinstance(node, Selection)
    )
    hints = (_hint(node) for node in selections)
    return sorted({hint for hint in hints if hint is not None})


def _hint(node: Selection) -> str | None:
    names = _names_under(node.base)
    if names is None or fold(node.name) in map(fold, names) or _is_replica(node):
        return None
    meant = closest(node.name, names)
    suggestion = f"; did you mean {unparse(node.base)}.{meant}?" if meant else ""
    return f"{unparse(node)} is not published{suggestion}"


def _names_under(base: Node) -> Iterable[str] | None:
    if isinstance(base, Attribute):
        return _PUBLISHED.get(fold(base.name))
    # Job.Replica1.Host carries less than the host that asks.
    of_replica = (
        isinstance(base, Selection) and fold(base.name) == "host" and _is_replica(base.base)
    )
    return REPLICA_HOST_ATTRIBUTES if of_replica else None


def _is_replica(node: Node) -> bool:
    return isinstance(node, Selection) and is_replica_name(node.name)


def mentions_replicas(expressions: Mapping[str, Node], policies: Sequence[str]) -> bool:
    """Tell whether the policies mention the job or its replicas, directly or through others."""
    by_key = {fold(name): node for name, node in expressions.items()}
    waiting, seen = [fold(name) for name in policies], set[str]()
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        if key in by_key:
            waiting.extend(_names_in(by_key[key]))
        elif key in _OF_JOB or is_replica_name(key):
            return True
    return False


# `Name` and `Age` bare are the job's; `parent` is the job; `eval` may look at anything.
_OF_JOB = frozenset(("job", "parent", "eval()", *map(fold, JOB_ATTRIBUTES)))


def _names_in(expression: Node) -> Iterator[str]:
    for node in walk(expression):
        match node:
            case Attribute(name):
                yield fold(name)
            case Selection(_, name) | Subscript(_, Constant(str(name))):
                # `Host.Name` is not the job's name, but `BOT.Job` is the job.
                if fold(name) not in ("name", "age"):
                    yield fold(name)
            case Subscript(_, index) if not isinstance(index, Constant):
                yield "eval()"  # a computed name
            case Call(function) if fold(function) == "eval":
                yield "eval()"
