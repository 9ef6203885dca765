"""`POST /rpc`: a client's request for work, handed to the engine as it came."""

from flask import Blueprint, Response, request

from gridbot_server import auth
from gridbot_server.services import current

blueprint = Blueprint("rpc", __name__)


@blueprint.post("/rpc")
@auth.rule("engine")
def rpc() -> Response:
    """Report, ask for work."""
    token = auth.bearer_hash()
    reply = current().engine.handle(token, request.get_data(cache=False))
    return Response(reply, mimetype="application/json")
