"""What is legal in a policy but hardly meant: each rule looks at one node."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice

from gridbot_policies.classad import nodes
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.functions.regex import refusal
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.source import Source, brief, cut
from gridbot_policies.classad.values import fold
from gridbot_policies.policy.ads import (
    BOT_ATTRIBUTES,
    HOST_ATTRIBUTES,
    JOB_ATTRIBUTES,
    QUEUE_ATTRIBUTES,
    REPLICA_ATTRIBUTES,
    REPLICA_HOST_ATTRIBUTES,
    is_replica_name,
)
from gridbot_policies.policy.clauses import bare
from gridbot_policies.policy.hints import PUBLISHED, SHOWN, SPECIAL, closest, lacking
from gridbot_policies.policy.policy_set import DEFAULTS

_PUBLISHED: Mapping[str, Iterable[str]] = {
    **PUBLISHED,
    "target": HOST_ATTRIBUTES,
    "bot": (*BOT_ATTRIBUTES, "Job"),
    "job": JOB_ATTRIBUTES,
}
_ADS = ("Host", "BOT", "Queue", "Job", "Grid", "Target")
_FOUND_BARE = (*_ADS, *SPECIAL, *DEFAULTS, *JOB_ATTRIBUTES, *BOT_ATTRIBUTES)

_TEXTS = frozenset((
    "name", "owner", "opsys", "arch", "platform", "grid", "clientversion", "cpumodel",
    "requirements", "platforms", "wants", "venue", "cpuvendor", "cpufeatures", "opsysname",
    "opsysversion", "product", "virtualbox", "docker", "gpumodel", "gpudriver", "gpuopencl",
    "pythonversion", "containers", "unfitfor", "sandbox",
))  # fmt: skip
_TRUTHS = frozenset(("ispilot", "isdedicated", "isboinc", "haswsl", "onbattery", "signed", "tail"))
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "is", "isnt")
# Functions whose first argument is a pattern: the place of their options.
_PATTERNS = {
    "regexp": 2, "regexpmember": 2, "regexps": 3, "replace": 3, "replaceall": 3,
    "stringlist_regexpmember": 3,
}  # fmt: skip
_MOST_PATTERNS = 20  # that are tried: one may take a millisecond
_MOST_COMPARED = 200  # names of the owner's own, with one that nobody knows
_UNLIMITED = 1_000  # a function that takes more arguments takes any number


@dataclass(frozen=True, slots=True)
class Doubt:
    """A node, and what is doubtful about it."""

    node: Node
    message: str


def doubts(source: Source) -> Iterator[Doubt]:
    """Yield what the rules find, policy by policy; each further one takes time to find."""
    own = {fold(definition.name): definition.name for definition in source.definitions}
    known = {*own, *map(fold, _FOUND_BARE)}
    for definition in source.definitions:
        for node in _outside_records(definition.expression):
            for message in (*_of_node(node, own), *_of_policy(definition.name, node)):
                yield Doubt(node, message)
            if isinstance(node, nodes.Attribute) and _is_unknown(node.name, known):
                yield Doubt(node, _unknown_name(node, own, source))
    yield from _refused_patterns(source)


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
    if names is not None and not is_replica(node):
        message = lacking(f"{_shown(node.base)}.", node.name, names, "is not published")
        yield from (message,) if message else ()


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
    """Tell whether a node is `Job.Replica1`, or `BOT.Job.Replica1`."""
    match node:
        case nodes.Selection(nodes.Attribute() | nodes.Selection(nodes.Attribute()), name):
            return is_replica_name(name)
        case _:
            return False


def _wrong_call(node: nodes.Call) -> Iterator[str]:
    function = FUNCTIONS.get(fold(node.function))
    if function is None:
        meant = closest(node.function, FUNCTIONS)
        suggestion = f"; did you mean {meant}()?" if meant else "; calling it is an error"
        yield f"there is no function {cut(node.function, SHOWN)}(){suggestion}"
        return
    given = len(node.arguments)
    if not function.least <= given <= function.most:
        wanted = _count(function.least, function.most)
        yield f"{node.function}() takes {wanted}, not {given}; calling it so is an error"


def _count(least: int, most: int) -> str:
    if least == most:
        return f"{least} {'argument' if least == 1 else 'arguments'}"
    return f"at least {least} arguments" if most >= _UNLIMITED else f"{least} to {most} arguments"


def _refused_patterns(source: Source) -> Iterator[Doubt]:
    expressions = (definition.expression for definition in source.definitions)
    looked_at = (node for expression in expressions for node in _outside_records(expression))
    tried = (item for item in map(_pattern, looked_at) if item)
    for call, pattern, options in islice(tried, _MOST_PATTERNS):
        if why := refusal(pattern, options):
            shown = _shown(nodes.Constant(pattern))
            yield Doubt(call, f"the pattern {shown} is an error: {why}")


def _pattern(node: Node) -> tuple[nodes.Call, str, str] | None:
    """Return a call with the pattern and the options that are written out in it."""
    if not isinstance(node, nodes.Call) or (place := _PATTERNS.get(fold(node.function))) is None:
        return None
    match node.arguments[:1], node.arguments[place : place + 1]:
        case (nodes.Constant(str(pattern)),), ():
            return node, pattern, ""
        case (nodes.Constant(str(pattern)),), (nodes.Constant(str(options)),):
            return node, pattern, options
        case _:
            return None


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
        other = f"{_shown(constant)} is {'a string' if is_text else 'none'}"
        yield f"{_shown(bare(named))} is {kind} and {other}: {outcome}{_advice(constant)}"


def _advice(constant: nodes.Constant) -> str:
    text = constant.value
    if not isinstance(text, str):
        return f'; write "{_shown(constant)}"' if not isinstance(text, float) else ""
    plain = cut(text.strip(), SHOWN)
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


def _is_unknown(name: str, known: Container[str]) -> bool:
    return fold(name) not in known and not is_replica_name(name)


def _unknown_name(node: nodes.Attribute, own: Mapping[str, str], source: Source) -> str:
    name = cut(node.name, SHOWN)
    if (written := source.shown(node)).startswith("'"):
        shown = cut(written, SHOWN)
        return f'{shown} is the name of an attribute; a string is written "{name}"'
    for ad, names in (("Host", HOST_ATTRIBUTES), ("Queue", QUEUE_ATTRIBUTES)):
        if fold(node.name) in map(fold, names):
            return f"nothing is called {name} here; did you mean {ad}.{name}?"
    elsewhere = (f"Host.{attribute}" for attribute in HOST_ATTRIBUTES)
    near = (*islice(own.values(), _MOST_COMPARED), *_FOUND_BARE)
    meant = closest(name, near) or closest(f"Host.{name}", elsewhere, 0.8)
    suggestion = f"; did you mean {meant}?" if meant else ", so it is undefined"
    return f"nothing is called {name} here{suggestion}"


def _shown(node: Node) -> str:
    return brief(node, SHOWN)
