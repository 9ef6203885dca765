"""The least that a request can cost under our gunicorn: a view that answers with what it got."""

from contextlib import ExitStack

from flask import Flask, Response, request

PATH = "/floor"

app = Flask("floor", static_folder=None)
app.extensions["gridbot"] = ExitStack()  # nothing to close, when gunicorn's settings close it


@app.post(PATH)
def floor() -> Response:
    """Read the body, send it back."""
    return Response(request.get_data(cache=False), mimetype="application/json")
