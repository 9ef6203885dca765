"""A BOT's policy: its text with what the check says, what each clause rejects, and what if.

What if is which hosts a tried policy wins or loses, and when the BOT is likely to end under it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import Response, redirect, request
from werkzeug.wrappers import Response as BaseResponse

from gridbot_policies.lint.check import Finding, check
from gridbot_server.api.bots import change_bot, details_of, explained, list_policies
from gridbot_server.api.schema import call
from gridbot_server.api.what_if import predicted
from gridbot_server.console.blueprint import (
    FORM_BYTES,
    blueprint,
    contents,
    model,
    page,
    shared,
    viewer,
)
from gridbot_server.console.words import decimal, duration, number
from gridbot_server.errors import Conflict, RequestError, ServerBusy
from gridbot_server.http import auth
from gridbot_server.models.requests import MAX_TRIED_POLICY, BotChange
from gridbot_server.models.responses.prediction import FigureRange, PredictedRuns, Prediction

_WORD = re.compile(r"[\w.]+|\S")
_EXPLAINED_SECONDS = 15.0
_MOST_CLIENTS = 500  # that are looked at: a view is to take less than a tenth of a second
# Figures of a prediction: what each is called, and how it is written.
_FIGURES: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("left_seconds", "Time left", duration),
    ("tail_seconds", "Tail phase", duration),
    ("replicas", "Replicas", number),
    ("speculative", "Speculative copies", number),
    ("failed", "Jobs that fail", number),
    ("cpu_hours", "CPU hours", decimal),
)


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


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """A figure of a prediction, as it is written."""

    title: str
    now: str
    tried: str  # "" if no policy is tried


def predicted_rows(prediction: Prediction) -> list[PredictedRow]:
    """Return the figures of a prediction: medians, and in brackets 80 % ranges."""

    def written(runs: PredictedRuns | None, name: str, write: Callable[[float], str]) -> str:
        return "" if runs is None else _range(getattr(runs.figures, name), write)

    return [
        PredictedRow(
            title, written(prediction.now, name, write), written(prediction.tried, name, write)
        )
        for name, title, write in _FIGURES
    ]


def _range(found: FigureRange | None, write: Callable[[float], str]) -> str:
    if found is None:
        return "\N{EN DASH}"
    return f"{write(found.median)} ({write(found.low)} to {write(found.high)})"


@blueprint.get("/bots/<int:bot>/policy")
@auth.rule("console user")
def policy_page(bot: int) -> Response:
    """Show a BOT's policy, and the form that changes it."""
    return _page(bot, None)


@blueprint.post("/bots/<int:bot>/policy")
@auth.rule("console user")
def try_policy(bot: int) -> BaseResponse:
    """Show what another policy would change, or when the BOT is likely to end, or change it."""
    do = request.form.get("do")
    if do == "predict" and "policy" not in request.form:
        return _predicting(bot, None)
    text = request.form.get("policy", "").replace("\r\n", "\n")
    if len(text) > MAX_TRIED_POLICY:
        raise RequestError(f"policy: more than {MAX_TRIED_POLICY} characters")
    if any(finding.severity == "error" for finding in check(text)):
        return _page(bot, text)
    if do == "predict":
        return _predicting(bot, text)
    if do != "apply":
        return _page(bot, text, _explained(bot, text))
    if request.form.get("version") != str(details_of(bot).policy_version):
        fault = "The BOT was changed meanwhile: look at what is there now, and try again."
        return _page(bot, text, fault=fault)
    call(change_bot, bot=bot, json=model(BotChange, {"policy": text}))
    contents().expire()
    return redirect(f"/bots/{bot}/policy", HTTPStatus.SEE_OTHER)


try_policy.body_limit = lambda _: FORM_BYTES  # type: ignore[attr-defined]  # see `schema.body_limit`


def _explained_lately(bot: int, version: int) -> Any:
    """Explain a BOT, as it was some seconds ago."""
    key = f"explained {bot} {version}", viewer()
    return shared(key, _EXPLAINED_SECONDS, lambda: _explained(bot))


def _explained(bot: int, policy: str | None = None) -> Any:
    """Explain a BOT, as if it had a `policy`; the same hosts are looked at each time."""
    return explained(bot, most=_MOST_CLIENTS, policy=policy)


def _predicting(bot: int, text: str | None) -> Response:
    """Show when a BOT is likely to end, also under a `text` that somebody tries, or why not."""
    after = None if text is None else _explained(bot, text)
    try:
        return _page(bot, text, after, prediction=predicted(bot, text))
    except (Conflict, ServerBusy) as error:
        return _page(bot, text, after, fault=f"{error.detail[:1].upper()}{error.detail[1:]}.")


def _page(
    bot: int,
    text: str | None,
    after: Any = None,
    fault: str = "",
    prediction: Prediction | None = None,
) -> Response:
    """Show the policy that is there, and a `text` that somebody tries instead."""
    details = details_of(bot)
    shown: dict[str, Any] = {
        "title": f"Policy · {details.name}",
        "bot": details,
        "lines": lines_of(details.policy),
        "now": _explained(bot) if after else _explained_lately(bot, details.policy_version),
        "after": after,
        "most": _MOST_CLIENTS,
        "text": details.policy if text is None else text,
        "tried": None if text is None else lines_of(text),
        "fault": fault,
        "prediction": prediction,
        "predicted": predicted_rows(prediction) if prediction else (),
        "versions": call(list_policies, bot=bot).policies,
    }
    return page("policy.html", shown)
