"""Compiled policies beside the walker: there is one semantics, so any difference is a fault."""

from __future__ import annotations

from typing import Any

from gridbot_policies import Ads
from gridbot_policies.classad import ParseError, Record, Value, evaluate, parse, record_of
from gridbot_policies.classad.compiler import compile_attributes
from gridbot_policies.classad.nodes import Attribute, RecordNode
from gridbot_policies.policy.ads import LAYOUT

from . import ours
from .cases import Texts
from .ours import NOW
from .values import same

_NOTHING = Record({}, ())


def answers(texts: Texts) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return what code and walker make of the expression as Rank of a BOT that defines MY.

    TARGET is the host, with its values evaluated as clients send them. None if the expression
    is left to the walker.
    """
    my, target, text = texts
    try:
        rank, mine, host = parse(text), _ad(my), _ad(target)
    except ParseError:
        return None
    own = Record({**mine.attributes, "rank": rank}, ())
    sent = {key: evaluate(Attribute(name), host) for key, name in _names(host)}
    ads = Ads(Record(sent, host.names), _NOTHING, _NOTHING, now=NOW)
    scope = own.within(ads.scope)
    walks: list[str] = []

    def walk(name: str, _ads: Ads) -> Value:
        walks.append(name)
        return evaluate(Attribute(name), scope, now=NOW)

    code = compile_attributes(["Rank"], own.attributes, LAYOUT, walk).get("Rank")
    if code is None:
        return None
    value = code(ads)
    walked = evaluate(Attribute("Rank"), scope, now=NOW)
    return None if walks else (ours.tagged(value, scope), ours.tagged(walked, scope))


def disagreement(texts: Texts) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return both values if they are not the same."""
    both = answers(texts)
    return both if both and not same(*both) else None


def _ad(text: str | None) -> Record:
    if text is None:
        return _NOTHING
    node = parse(text)
    assert isinstance(node, RecordNode)
    return record_of(node)


def _names(ad: Record) -> zip[tuple[str, str]]:
    return zip(ad.attributes, ad.names, strict=True)
