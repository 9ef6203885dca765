"""What is legal in a policy but hardly meant: each rule looks at one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

from gridbot_policies.ads import (
    BOT_ATTRIBUTES,
    HOST_ATTRIBUTES,
    JOB_ATTRIBUTES,
    QUEUE_ATTRIBUTES,
    REPLICA_ATTRIBUTES,
    REPLICA_HOST_ATTRIBUTES,
    is_replica_name,
)
from gridbot_policies.classad import ERROR, evaluate, nodes
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import fold
from gridbot_policies.clauses import bare
from gridbot_policies.hints import closest
from gridbot_policies.policy_set import DEFAULTS
from gridbot_policies.source import Source

_PUBLISHED: Mapping[str, Iterable[str]] = {
    "host": HOST_ATTRIBUTES,
    "target": HOST_ATTRIBUTES,
    "bot": (*BOT_ATTRIBUTES, "Job"),
    "queue": QUEUE_ATTRIBUTES,
    "job": JOB_ATTRIBUTES,
}
_ADS = ("Host", "BOT", "Queue", "Job", "Grid", "Target")
# Names that the language itself gives a meaning.
_SPECIAL = ("self", "my", "parent", "toplevel", "root", "CurrentTime")
_FOUND_BARE = (*_ADS, *_SPECIAL, *DEFAULTS, *JOB_ATTRIBUTES, *BOT_ATTRIBUTES)

_TEXTS = frozenset((
    "name", "owner", "opsys", "arch", "platform", "grid", "clientversion", "cpumodel",
    "requirements",
))  # fmt: skip
_TRUTHS = frozenset(("ispilot", "isdedicated", "onbattery", "signed", "tail"))
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "is", "isnt")
# Functions whose first argument is a pattern: the place of their options.
_PATTERNS = {
    "regexp": 2, "regexpmember": 2, "regexps": 3, "replace": 3, "replaceall": 3,
    "stringlist_regexpmember": 3,
}  # fmt: skip
_UNLIMITED = 1_000  # a function that takes more arguments takes any number


@dataclass(frozen=True, slots=True)
class Doubt:
    """A node, and what is doubtful about it."""

    node: Node
    message: str


def doubts(source: Source) -> Iterator[Doubt]:
    """Yield what the rules find, policy by policy."""
    own = {fold(definition.name): definition.name for definition in source.definitions}
    for definition in source.definitions:
        looked_at = list(_outside_records(definition.expression))
        for node in looked_at:
            for message in (*_of_node(node, own), *_of_policy(definition.name, node)):
                yield Doubt(node, message)
        yield from _of_names(looked_at, own, source)


def _outside_records(expression: Node) -> Iterator[Node]:
    """Yield the parts whose names mean the policy's own scope, from the left."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, nodes.RecordNode):
            waiting.extend(reversed(list(_children(node))))


def _children(node: Node) -> Iterator[Node]:
    for field in fields(node):
        child = getattr(node, field.name)
        if isinstance(child, Node):
            yield child
        elif isinstance(child, tuple):
            yield from child


def _of_node(node: Node, own: Mapping[str, str]) -> Iterator[str]:
    match node:
        case nodes.Selection():
            yield from _unpublished(node)
        case nodes.Call():
            yield from _wrong_call(node)
        case nodes.Binary(operator, left, right) if operator in _COMPARISONS:
            yield from _different_kinds(operator, left, right, own)
        case nodes.Binary("&" | "|" as operator, left, right):
            if _is_condition(left) or _is_condition(right):
                yield (
                    f"{operator} works on the bits of whole numbers; conditions are joined with"
                    f" {operator * 2}"
                )
        case _:
            return


def _unpublished(node: nodes.Selection) -> Iterator[str]:
    names = _names_under(node.base)
    if names is None or fold(node.name) in map(fold, names) or is_replica(node):
        return
    meant = closest(node.name, names)
    suggestion = f"; did you mean {unparse(node.base)}.{meant}?" if meant else ""
    yield f"{unparse(node)} is not published{suggestion}"


def _names_under(base: Node) -> Iterable[str] | None:
    if isinstance(base, nodes.Attribute):
        return _PUBLISHED.get(fold(base.name))
    if is_replica(base):
        return REPLICA_ATTRIBUTES
    # Job.Replica1.Host carries less than the host that asks.
    of_replica = (
        isinstance(base, nodes.Selection) and fold(base.name) == "host" and is_replica(base.base)
    )
    return REPLICA_HOST_ATTRIBUTES if of_replica else None


def is_replica(node: Node) -> bool:
    """Tell whether a node is `Job.Replica1` or the like."""
    return isinstance(node, nodes.Selection) and is_replica_name(node.name)


def _wrong_call(node: nodes.Call) -> Iterator[str]:
    function = FUNCTIONS.get(fold(node.function))
    if function is None:
        meant = closest(node.function, FUNCTIONS)
        suggestion = f"; did you mean {meant}()?" if meant else "; calling it is an error"
        yield f"there is no function {node.function}(){suggestion}"
        return
    given = len(node.arguments)
    if not function.least <= given <= function.most:
        wanted = _count(function.least, function.most)
        yield f"{node.function}() takes {wanted}, not {given}; calling it so is an error"
    yield from _refused_pattern(node)


def _count(least: int, most: int) -> str:
    if least == most:
        return f"{least} {'argument' if least == 1 else 'arguments'}"
    return f"at least {least} arguments" if most >= _UNLIMITED else f"{least} to {most} arguments"


def _refused_pattern(node: nodes.Call) -> Iterator[str]:
    place = _PATTERNS.get(fold(node.function))
    if place is None or not node.arguments:
        return
    pattern = node.arguments[0]
    options = node.arguments[place] if len(node.arguments) > place else nodes.Constant("")
    if _is_string(pattern) and _is_string(options):
        tried = nodes.Call("regexp", (pattern, nodes.Constant(""), options))
        if evaluate(tried) is ERROR:
            yield (
                f"the pattern {unparse(pattern)} is an error: it is not in RE2's syntax,"
                " which has no look-around and no back-references"
            )


def _is_string(node: Node) -> bool:
    return isinstance(node, nodes.Constant) and isinstance(node.value, str)


def _different_kinds(
    operator: str, left: Node, right: Node, own: Mapping[str, str]
) -> Iterator[str]:
    for named, written in ((left, right), (right, left)):
        kind, constant = _kind(bare(named), own), bare(written)
        if kind is None or not isinstance(constant, nodes.Constant):
            continue
        is_text = isinstance(constant.value, str)
        if not is_text and not isinstance(constant.value, bool | int | float):
            continue
        if is_text == (kind == "a string"):
            continue
        outcome = "never equal" if operator in ("is", "isnt") else "an error to compare"
        other = f"{unparse(constant)} is {'a string' if is_text else 'none'}"
        yield f"{unparse(named)} is {kind} and {other}: {outcome}{_advice(constant)}"


def _advice(constant: nodes.Constant) -> str:
    text = constant.value
    if not isinstance(text, str):
        return f'; write "{unparse(constant)}"' if not isinstance(text, float) else ""
    plain = text.strip()
    is_plain = plain.replace(".", "", 1).isdigit() or plain.lower() in ("true", "false")
    return f"; write {plain}" if is_plain else ""


def _kind(node: Node, own: Mapping[str, str]) -> str | None:
    """Return what an attribute holds, where that is known."""
    match node:
        case nodes.Selection(base, name):
            names = _names_under(base)
        case nodes.Attribute(name) if fold(name) not in own:
            names = (*JOB_ATTRIBUTES, *BOT_ATTRIBUTES)
        case _:
            return None
    key = fold(name)
    if names is None or key not in map(fold, names) or key in ("host", "job"):
        return None
    return "a string" if key in _TEXTS else "true or false" if key in _TRUTHS else "a number"


def _is_condition(node: Node) -> bool:
    inner = bare(node)
    return (isinstance(inner, nodes.Unary) and inner.operator == "!") or (
        isinstance(inner, nodes.Binary) and inner.operator in (*_COMPARISONS, "&&", "||")
    )


def _of_policy(policy: str, node: Node) -> Iterator[str]:
    """Say where a policy looks at an ad that it does not get."""
    if not isinstance(node, nodes.Attribute):
        return
    match fold(policy), fold(node.name):
        case "replicationrequirements", "host" | "target":
            yield (
                f"{policy} sees no {node.name}, since no host asks then;"
                " those that hold the job are Job.Replica1.Host, Job.Replica2.Host, …"
            )
        case "gridpolicy", "host":
            yield f"{policy} sees no Host; the grid's ad is Grid"
        case (("jobrequirements" | "rank" | "concurrency" | "deadline"), "grid"):
            yield f"{policy} sees no Grid; the name of the host's grid is Host.Grid"
        case _:
            return


def _of_names(looked_at: list[Node], own: Mapping[str, str], source: Source) -> Iterator[Doubt]:
    known = {*own, *map(fold, _FOUND_BARE)}
    for node in looked_at:
        if not isinstance(node, nodes.Attribute) or fold(node.name) in known:
            continue
        if not is_replica_name(node.name):
            yield Doubt(node, _unknown_name(node.name, own, source.shown(node)))


def _unknown_name(name: str, own: Mapping[str, str], shown: str) -> str:
    if shown.startswith("'"):
        return f'{shown} is the name of an attribute; a string is written "{name}"'
    for ad, names in (("Host", HOST_ATTRIBUTES), ("Queue", QUEUE_ATTRIBUTES)):
        if fold(name) in map(fold, names):
            return f"nothing is called {name} here; did you mean {ad}.{name}?"
    elsewhere = (f"Host.{attribute}" for attribute in HOST_ATTRIBUTES)
    meant = closest(name, (*own.values(), *_FOUND_BARE)) or closest(f"Host.{name}", elsewhere, 0.8)
    suggestion = f"; did you mean {meant}?" if meant else ", so it is undefined"
    return f"nothing is called {name} here{suggestion}"
