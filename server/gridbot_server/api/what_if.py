"""What if: when a BOT is likely to end, also under another policy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from flask import Blueprint

from gridbot_server.api.access import bot_owner
from gridbot_server.api.schema import answers, json_body
from gridbot_server.bots.prediction import simulate
from gridbot_server.bots.snapshot import take_snapshot
from gridbot_server.bots.validation import parse_policy
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.matching.progress import LikelyEnd, outlook, outlook_instead
from gridbot_server.models.requests import PREDICTION_SEEDS, WhatIf
from gridbot_server.models.responses.prediction import Prediction
from gridbot_server.overload.transfer_slots import Party

blueprint = Blueprint("what_if", __name__, url_prefix="/api/v1/bots/<int:bot>")


@blueprint.post("/what-if")
@auth.rule("user")
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def predict_end(bot: int, json: WhatIf) -> Prediction:
    """Predict when a BOT ends, and when it would under another policy; nothing is changed.

    Its jobs, the hosts and other BOTs are simulated from their present state on, by the server's
    own scheduling.  That takes up to 45 seconds.  One who asks gets one prediction at a time.  409:
    the end cannot be predicted, and why.
    """
    return predicted(bot, json.policy, json.seeds)


def predicted(bot: int, policy: str | None, seeds: int = PREDICTION_SEEDS) -> Prediction:
    """Predict the end of a BOT that this key may touch.  Call it without a connection in hand."""
    if policy is not None:
        parse_policy(policy)
    with current().predictions.held(Party(owner=auth.key().owner_name)):
        with connection() as conn:
            bot_owner(conn, bot)
            snapshot = take_snapshot(conn, bot)
        found = dict(simulate({"snapshot": snapshot, "policy": policy, "seeds": seeds}))
    as_of = datetime.fromtimestamp(found.pop("as_of"), UTC)
    return Prediction(**found, as_of=as_of, verdict=_verdict(found))


def _verdict(found: Mapping[str, Any]) -> str:
    now, tried = found["now"], found["tried"]
    if tried is None:
        return outlook(_end(now), _why_not(now))
    replicas = found["differences"]["replicas"]
    return outlook_instead(
        _end(tried), _why_not(tried), _end(now), (found["sooner"], found["seeds"]),
        replicas and replicas["percent"],
    )  # fmt: skip


def _end(runs: Mapping[str, Any]) -> LikelyEnd | None:
    left = runs["figures"]["left_seconds"]
    return None if left is None else LikelyEnd(**left)


def _why_not(runs: Mapping[str, Any]) -> str:
    return next((run["why_not"] for run in runs["runs"] if run["why_not"]), "")
