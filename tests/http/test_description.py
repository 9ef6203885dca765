import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from tests.factories import HOST, make_bot
from tests.http.conftest import Person, Site
from tests.http.described import Description

from gridbot_client.protocol.messages import (
    Output,
    ReplicaId,
    Report,
    WorkRequest,
    encode_request,
)
from gridbot_client.protocol.preferences import AccountPreferences
from gridbot_server.api.openapi import path_template
from gridbot_server.boinc.session import project
from gridbot_server.buffer import assignment
from gridbot_server.dispatch.catalog import Catalog
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.http import auth
from gridbot_server.overload import refusals

JSON = "application/json"


@pytest.fixture
def document(site: Site) -> dict[str, Any]:
    found = site.app.test_client().get("/api/v1/openapi.json").json
    assert isinstance(found, dict)
    return found


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()


def patterns(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("pattern"), str):
            yield part["pattern"]
        for inner in part.values():
            yield from patterns(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from patterns(inner)


def test_the_description_is_valid_openapi(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == version("gridbot")


def test_all_routes_but_boincs_and_the_consoles_pages_are_described(
    site: Site, document: dict[str, Any]
) -> None:
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    routes = {
        (path_template(rule.rule), method.lower())
        for rule in site.app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"OPTIONS"}
        if not rule.rule.startswith(f"{project.PATH}/")
        and not rule.endpoint.startswith(("console.", "console_static."))
        and not (method == "HEAD" and "GET" in (rule.methods or set()))
    }
    assert described == routes


def test_every_json_answer_has_a_model_and_every_error_the_one_shape(
    document: dict[str, Any],
) -> None:
    for operation in operations(document):
        name, answers = operation["operationId"], operation["responses"]
        successes = [answers[status] for status in answers if status < "300"]
        assert successes, name
        for answer in successes:
            if JSON in answer.get("content", {}) and name != "describe_api":
                schema = answer["content"][JSON]["schema"]
                assert "$ref" in schema or all("$ref" in item for item in schema["anyOf"]), name
        errors = [answers[status] for status in answers if status >= "400"]
        assert errors, name
        assert all(error["$ref"].startswith("#/components/responses/") for error in errors), name
    for answer in document["components"]["responses"].values():
        assert answer["content"][JSON]["schema"]["$ref"].endswith("/ErrorAnswer")


def test_every_operation_says_which_key_it_takes(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"].keys()
    keyless = set()
    for operation in operations(document):
        asked = operation["security"]
        assert all(item.keys() <= schemes for item in asked)
        assert ("401" in operation["responses"]) == bool(asked)
        if not asked:
            keyless.add(operation["operationId"])
    assert keyless == {"show_health", "describe_api", "join_again"}  # with a receipt


def test_operations_have_readable_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(document)]
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch("[a-z]+(_[a-z]+)+", name)] == []


def test_every_operation_belongs_to_a_resource_that_is_explained(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"] if tag["description"]}
    assert {tag for operation in operations(document) for tag in operation["tags"]} == tags


def test_patterns_are_those_of_ecma(document: dict[str, Any]) -> None:
    found = set(patterns(document))
    assert found
    foreign = re.compile(r"\\[zZA]|\(\?P|\(\?[imsx]|\[\[:")
    assert [pattern for pattern in found if foreign.search(pattern)] == []


@pytest.mark.parametrize("name", ["bob\n", "bob\nx", "\nbob"])
def test_a_pattern_spans_the_whole_text(operator: Person, name: str) -> None:
    refused = operator("POST", "/api/v1/owners", json={"name": name})
    assert refused.status_code == 400
    assert "does not match ^" in refused.json["detail"]
    assert refused.json["detail"].endswith(
        "(up to 64 letters, digits and . _ @ -, a letter or digit first)"
    )


RETRIED = ("POST", "/api/v1/bots/{bot}/retry")


@pytest.mark.parametrize(
    ("status", "media_type", "body", "fault"),
    [
        (200, JSON, {"retried": 1, "version": 1}, ""),
        (200, JSON, {"retried": "one", "version": 1}, "$.retried: 'one' is not of type 'integer'"),
        (200, JSON, {"version": 1}, "$: 'retried' is a required property"),
        (
            200,
            JSON,
            {"retried": 1, "version": 1, "by": "ada"},
            "$: Additional properties are not allowed",
        ),
        (200, "text/html", {}, "200 with text/html, described are application/json"),
        (302, JSON, {}, "302 is not described"),
        (404, JSON, {"error": "NotFound", "detail": "none", "retry": False}, ""),
        (404, JSON, {"error": "NotFound", "detail": "none"}, "$: 'retry' is a required property"),
    ],
)
def test_a_wrong_answer_is_found_out(
    document: dict[str, Any], status: int, media_type: str, body: object, fault: str
) -> None:
    description = Description(document)
    operation = description.operation(*RETRIED)
    assert operation is not None
    found = list(description.faults(operation, status, media_type, json.dumps(body).encode()))
    assert len(found) == bool(fault)
    assert "".join(found).startswith(fault)


def test_what_the_engine_renders_is_what_is_described(
    site: Site, alice: Person, document: dict[str, Any]
) -> None:
    bot = make_bot(site.conn, alice.id)
    manifest = Catalog.read(site.conn, [bot])[bot]
    name, inputs = ReplicaId(bot, 0, 1), '[{"name":"x","sha256":"","size":1,"executable":false}]'
    prepared = assignment.prepared(name, manifest.manifest_id, '{"i":1,"x":"0.5"}', inputs)
    reply = ReplyParts(
        acks=[name], reupload=[name], abort=[name],
        assignments=[assignment.completed(prepared, 60.0)],
        manifests={manifest.manifest_id: manifest.rendered},
        message="none", epoch=1, preferences=AccountPreferences(7, {"hours": "22-7"}),
    )  # fmt: skip
    description = Description(document)
    operation = description.operation("POST", "/rpc")
    assert operation is not None
    assert list(description.faults(operation, 200, JSON, reply.render())) == []
    for refusal in (refusals.overloaded(5), refusals.too_often(5)):
        assert list(description.faults(operation, refusal.status, JSON, refusal.body)) == []


def test_what_clients_ask_is_what_is_described(document: dict[str, Any]) -> None:
    name, output = ReplicaId(1, 2, 3), Output("x", "0" * 64, 1, b"x")
    report = Report(name, "error", "exit_nonzero", 1, 0.5, 0.7, (output,), "out", "err")
    asked = WorkRequest("key", 1, HOST, 2, (name,), (report,), ("0" * 64,), preferences=7)
    schema = document["paths"]["/rpc"]["post"]["requestBody"]["content"][JSON]["schema"]
    validator = OAS31Validator({**schema, "components": document["components"]})
    assert list(validator.iter_errors(json.loads(encode_request(asked)))) == []


def test_a_wrong_line_of_a_stream_is_found_out(document: dict[str, Any]) -> None:
    description = Description(document)
    operation = description.operation("GET", "/api/v1/bots/{bot}/logs")
    assert operation is not None
    lines = b'{"seq": "first"}\n'
    found = list(description.faults(operation, 200, "application/jsonl", lines))
    assert "$.seq: 'first' is not of type 'integer'" in found


def test_what_a_view_answers_wrongly_fails_its_test(site: Site, undescribed: list[str]) -> None:
    view = auth.rule("public")(lambda: {"status": "fine"})
    site.app.view_functions["operation.show_health"] = view
    assert site.app.test_client().get("/health").status_code == 200
    assert "GET /health: $.status: 'fine' is not one of ['ok', 'degraded']" in undescribed
    undescribed.clear()
