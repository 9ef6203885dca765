import logging

import pytest
from flask import Flask
from tests.factories import make_bot
from tests.http.conftest import Person, Site
from werkzeug.test import EnvironBuilder, run_wsgi_app

from gridbot_client.protocol.messages import WorkRequest, encode_request
from gridbot_server.api.rpc import UNCHECKED_BYTES
from gridbot_server.http import auth
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.web.app import create_app

ROUTES_FOR_EVERYBODY = {
    "/api/v1/clients/again",
    "/boinc/stats/",
    "/boinc/stats/<name>",
    "/health",
    "/api/v1/openapi.json",
    "/boinc/",
    "/boinc/get_project_config.php",
    "/boinc/create_account.php",
    "/boinc/lookup_account.php",
    "/boinc/get_passwd.php",
    "/boinc/notices.php",
    # The console's: its files, its door, and what asks for a session by itself.
    "/",
    "/console/<digest>/<name>",
    "/enter/<code>",
    "/login",
    "/login/forgotten",
    "/login/password",
    "/login/openid",
    "/login/openid/back",
    "/project",
}
# They refuse in the words of their protocol.
ROUTES_OF_BOINC = {
    "/boinc/scheduler",
    "/boinc/file_upload_handler",
    "/boinc/download/<name>",
    "/boinc/account",
    "/boinc/am_get_info.php",
    "/boinc/am_set_info.php",
    "/boinc/am_set_host_info.php",
}


def _rules(app: Flask) -> dict[str, str | None]:
    return {
        f"{rule.rule} {sorted(rule.methods or ())}": getattr(
            app.view_functions[rule.endpoint], "auth_rule", None
        )
        for rule in app.url_map.iter_rules()
    }


def test_every_route_has_an_auth_rule(settings: Settings) -> None:
    rules = _rules(create_app(settings))
    assert [route for route, rule in rules.items() if rule is None] == []
    public = {route.split()[0] for route, rule in rules.items() if rule == "public"}
    assert public == ROUTES_FOR_EVERYBODY
    boinc = {route.split()[0] for route, rule in rules.items() if rule == "boinc"}
    assert boinc == ROUTES_OF_BOINC


def test_a_route_without_a_rule_answers_nobody(site: Site, operator: Person) -> None:
    site.app.add_url_rule("/forgotten", "forgotten", lambda: "secret")
    answer = operator("GET", "/forgotten")
    assert answer.status_code == 500
    assert b"secret" not in answer.data


@pytest.mark.parametrize("header", [None, "Basic abc", "Bearer ", "Bearer gb_unknown"])
def test_no_route_answers_without_a_good_token(site: Site, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for rule in site.app.url_map.iter_rules():
        if rule.rule in ROUTES_FOR_EVERYBODY | ROUTES_OF_BOINC or (rule.rule == "/rpc" and header):
            continue
        with site.app.test_request_context():
            url = site.app.url_map.bind("localhost").build(
                rule.endpoint, {name: "1" for name in rule.arguments}
            )
        for method in (rule.methods or set()) - {"OPTIONS"}:
            answer = site.app.test_client().open(url, method=method, headers=headers)
            if rule.endpoint.startswith("console."):  # browsers are sent to the login
                assert answer.headers["Location"].startswith("/login"), (method, url)
                continue
            assert answer.status_code == 401, (method, url)
            assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("token", ["", "with é", "x" * 5000])
def test_an_odd_token_is_just_unknown(site: Site, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    answer = site.app.test_client().get("/api/v1/bots", headers=headers)
    assert answer.status_code == 401
    assert answer.json and answer.json["error"] == "Unauthorized"


def test_an_expired_or_revoked_key_opens_nothing(site: Site, alice: Person) -> None:
    for column in ("expires_at", "revoked_at"):
        answer = site.key_of(alice, "user", **{column: "2020-01-01Z"})("GET", "/api/v1/bots")
        assert answer.status_code == 401
        assert answer.json["detail"] == "the key is unknown, expired or revoked"


def test_a_scope_opens_what_it_names_and_no_more(site: Site, alice: Person) -> None:
    joiner = site.key_of(alice, "join")
    refused = joiner("GET", "/api/v1/bots")
    assert refused.status_code == 403
    assert refused.json["detail"] == "this needs a key of scope user, this one has join"
    assert alice("GET", "/api/v1/owners").status_code == 403
    assert alice("GET", "/metrics").status_code == 403
    assert site.client_of(alice)("GET", "/api/v1/bots").status_code == 401
    assert alice("PUT", "/api/v1/clients/self", json={}).status_code == 401


def test_an_unknown_url_and_a_wrong_method_are_json(alice: Person) -> None:
    missing = alice("GET", "/api/v1/nothing")
    assert (missing.status_code, missing.json["error"]) == (404, "NotFound")
    wrong = alice("DELETE", "/api/v1/bots")
    assert (wrong.status_code, wrong.json["error"]) == (405, "MethodNotAllowed")
    assert alice("GET", f"/api/v1/bots/{2**63}").status_code == 404
    assert alice("GET", f"/api/v1/bots/{2**63 - 1}").status_code == 404


def test_a_defect_tells_the_log_and_not_the_caller(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> str:
        raise ZeroDivisionError("the secret")

    site.app.add_url_rule("/broken/<path:x>", "broken", auth.rule("public")(lambda x: broken()))
    with caplog.at_level(logging.ERROR):
        answer = site.app.test_client().get("/broken/a%07b")
    assert answer.status_code == 500
    assert answer.json and answer.json["error"] == "InternalError"
    assert "secret" not in answer.text
    assert "the secret" in caplog.text
    assert "'/broken/a\\x07b'" in caplog.text


def test_a_database_that_is_away_means_try_again(settings: Settings) -> None:
    away = Settings(data=settings.data, dsn="host=/nonexistent dbname=none")
    app = create_app(away)
    services = app.extensions["gridbot"]
    services.pool.timeout = 0.1
    for path in ("/health", "/api/v1/bots"):
        answer = app.test_client().get(path, headers={"Authorization": "Bearer x"})
        assert answer.status_code == 503
        assert answer.json == {
            "error": "DatabaseAway",
            "detail": "the database does not answer, try again in a few seconds",
            "retry": True,
        }
        assert int(answer.headers["Retry-After"]) > 0
    services.close()


def test_connections_that_the_database_closed_are_replaced_at_once(
    site: Site, alice: Person
) -> None:
    assert alice("GET", "/api/v1/bots").status_code == 200
    site.conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'gridbot web' AND datname = current_database()"
    )
    assert alice("GET", "/api/v1/bots").status_code == 200


def test_every_connection_of_the_pool_has_timeouts(site: Site) -> None:
    with site.app.extensions["gridbot"].pool.connection() as conn:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        for name in names:
            row = conn.execute("SELECT current_setting(%s)", [name]).fetchone()
            assert row is not None
            assert row[0] != "0", name


def test_answers_are_neither_stored_nor_guessed_at(alice: Person) -> None:
    answer = alice("GET", "/api/v1/bots")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/boinc/", "/boinc/account", "/boinc/stats/", "/health", "/api/v1/bots", "/nowhere"]
)
def test_pages_run_no_scripts_are_framed_nowhere_and_tell_no_other_site(
    alice: Person, path: str
) -> None:
    headers = alice("GET", path).headers
    policy = headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'"} <= {*policy}
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("sent", [0, 1, 9])
@pytest.mark.parametrize("path", ["/api/v1/bots/{bot}/cancel", "/api/v1/bots", "/rpc"])
def test_a_body_that_ends_early_is_refused_and_nothing_is_done(
    site: Site, alice: Person, path: str, sent: int
) -> None:
    bot = make_bot(site.conn, alice.id)
    builder = EnvironBuilder(path=path.format(bot=bot), method="POST", data=b"x" * sent)
    builder.headers["Authorization"] = f"Bearer {alice.token}"
    builder.headers["Content-Type"] = "application/json"
    # As gunicorn gives it: the stream ends, and says that this is the end of the body.
    environ = {**builder.get_environ(), "CONTENT_LENGTH": "10", "wsgi.input_terminated": True}
    body, status, _ = run_wsgi_app(site.app, environ)
    assert status == "400 BAD REQUEST"
    assert f"the body ended after {sent} of the 10 bytes" in b"".join(body).decode()
    assert alice("GET", f"/api/v1/bots/{bot}").json["state"] == "running"


def test_a_request_for_work_reaches_the_engine_as_it_came(site: Site, alice: Person) -> None:
    client = site.client_of(alice)
    answer = client("POST", "/rpc", data=b"[1]", content_type="application/json")
    assert answer.status_code == 200
    assert answer.json["message"] == "[1]"
    assert site.app.test_client().post("/rpc", data=b"[1]").status_code == 401
    assert client("POST", "/rpc", data=b" " * 200_000).status_code == 413


def test_a_wrong_token_gets_no_work(settings: Settings, conn: db.Connection) -> None:
    app = create_app(settings)
    request = encode_request(WorkRequest(key="1", seqno=1, host={}, want=1))
    headers = {"Authorization": "Bearer x"}
    answer = app.test_client().post("/rpc", data=request, headers=headers)
    app.extensions["gridbot"].close()
    assert (answer.status_code, answer.json and answer.json["error"]) == (401, "Unauthorized")


def test_a_large_request_for_work_is_not_read_for_strangers(site: Site) -> None:
    body = b"[" * (UNCHECKED_BYTES + 1)
    strange = {"Authorization": "Bearer gb_nobody"}
    answer = site.app.test_client().post("/rpc", data=body, headers=strange)
    assert answer.status_code == 401
