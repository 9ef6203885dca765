"""A BOT's policy: its text with what the check says, what each clause rejects, and what if."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import Response, redirect, request
from werkzeug.wrappers import Response as BaseResponse

from gridbot_policies.lint.check import Finding, check
from gridbot_server.api.bots import change_bot, details_of, explained, list_policies
from gridbot_server.api.schema import call
from gridbot_server.console.blueprint import (
    FORM_BYTES,
    blueprint,
    contents,
    model,
    page,
    shared,
    viewer,
)
from gridbot_server.errors import RequestError
from gridbot_server.http import auth
from gridbot_server.models.requests import BotChange

_WORD = re.compile(r"[\w.]+|\S")
_EXPLAINED_SECONDS = 15.0
MOST_CHARACTERS = 20_000  # of a policy that is tried on a page


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a policy: what stands before, in and behind the place that a finding is about."""

    before: str
    marked: str
    after: str
    findings: Sequence[Finding]

    @property
    def kind(self) -> str:
        """Error or warning, if something is to be said."""
        return min((finding.severity for finding in self.findings), default="")


def lines_of(text: str) -> list[Line]:
    """Return the lines of a policy with what the check has to say of each."""
    found = dict[int, list[Finding]]()
    for finding in check(text):
        found.setdefault(finding.line, []).append(finding)
    return [_line(line, found.get(number, [])) for number, line in enumerate(text.split("\n"), 1)]


def _line(text: str, findings: Sequence[Finding]) -> Line:
    if not findings:
        return Line(text, "", "", ())
    begin = findings[0].column - 1
    word = _WORD.match(text, begin)
    end = word.end() if word else begin
    return Line(text[:begin], text[begin:end], text[end:], findings)


@blueprint.get("/bots/<int:bot>/policy")
@auth.rule("console user")
def policy_page(bot: int) -> Response:
    """Show a BOT's policy, and the form that changes it."""
    return _page(bot, None)


@blueprint.post("/bots/<int:bot>/policy")
@auth.rule("console user")
def try_policy(bot: int) -> BaseResponse:
    """Show what another policy would change, or change it."""
    text = request.form.get("policy", "").replace("\r\n", "\n")
    if len(text) > MOST_CHARACTERS:
        raise RequestError(f"policy: more than {MOST_CHARACTERS} characters")
    if any(finding.severity == "error" for finding in check(text)):
        return _page(bot, text)
    if request.form.get("do") != "apply":
        return _page(bot, text, explained(bot, policy=text))
    if request.form.get("version") != str(details_of(bot).policy_version):
        fault = "The BOT was changed meanwhile: look at what is there now, and try again."
        return _page(bot, text, fault=fault)
    call(change_bot, bot=bot, json=model(BotChange, {"policy": text}))
    contents().expire()
    return redirect(f"/bots/{bot}/policy", HTTPStatus.SEE_OTHER)


try_policy.body_limit = lambda _: FORM_BYTES  # type: ignore[attr-defined]  # see `schema.body_limit`


def _explained_lately(bot: int, version: int) -> Any:
    """Explain a BOT, as it was some seconds ago: two thousand hosts take a tenth of a second."""
    key = f"explained {bot} {version}", viewer()
    return shared(key, _EXPLAINED_SECONDS, lambda: explained(bot))


def _page(bot: int, text: str | None, after: Any = None, fault: str = "") -> Response:
    """Show the policy that is there, and a `text` that somebody tries instead."""
    details = details_of(bot)
    shown: dict[str, Any] = {
        "title": f"Policy · {details.name}",
        "bot": details,
        "lines": lines_of(details.policy),
        "now": explained(bot) if after else _explained_lately(bot, details.policy_version),
        "after": after,
        "text": details.policy if text is None else text,
        "tried": None if text is None else lines_of(text),
        "fault": fault,
        "versions": call(list_policies, bot=bot).policies,
    }
    return page("policy.html", shown)
