"""`POST /rpc`: a client's request for work, handed to the engine as it came."""

from flask import Blueprint, Response, request

from gridbot_server import auth
from gridbot_server.services import current

blueprint = Blueprint("rpc", __name__)

# The engine looks tokens up together with everything else of a batch, once bodies are read.
# Reading a large one is work that only a client that we know may ask of us.
UNCHECKED_BYTES = 64 * 1024


@blueprint.post("/rpc")
@auth.rule("engine")
def rpc() -> Response:
    """Report, ask for work."""
    token = auth.bearer_hash()
    if (request.content_length or 0) > UNCHECKED_BYTES:
        auth.check_client()
    reply = current().engine.handle(token, request.get_data(cache=False))
    return Response(reply, mimetype="application/json")
