"""An OpenID provider of Authlib's, which asks for no password and errs where it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import AuthorizationCodeMixin, OpenIDCode
from flask import Flask, jsonify, request
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "console", "a-secret-of-the-client-that-is-long"


class _Client(ClientMixin):  # type: ignore[misc]  # Authlib has no types
    def __init__(self, back: str) -> None:
        self.back = back

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str:
        return self.back

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == self.back

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class _Code(AuthorizationCodeMixin):  # type: ignore[misc]
    code: str
    user: str
    redirect_uri: str
    nonce: str
    code_challenge: str
    code_challenge_method: str
    auth_time: int = field(default_factory=lambda: int(time.time()))

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return "openid"

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return self.auth_time

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None

    def is_expired(self) -> bool:
        return False


class Provider:
    """A provider with one client; `err` changes the claims of its ID tokens."""

    def __init__(self, back: str) -> None:
        self.url = ""
        self.back = back
        self.key = RSAKey.generate_key(2048, {"kid": "first"}, auto_kid=False)
        self.err: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda claims: claims
        self.says = dict[str, Any]()  # of itself, beyond where it is asked what
        self.algorithm = "RS256"
        self.codes: dict[str, _Code] = {}
        self.app = self._made()

    def _signed(self, claims: Mapping[str, Any]) -> str:
        header = {"alg": self.algorithm, "kid": self.key.kid}
        secret = OctKey.import_key(SECRET)
        key = self.key if self.algorithm == "RS256" else secret
        text: str = jwt.encode(header, dict(claims), key, algorithms=[self.algorithm])
        return text

    def _made(provider) -> Flask:
        app = Flask("provider")
        server = AuthorizationServer(
            app, query_client=lambda _: _Client(provider.back), save_token=lambda *_: None
        )

        class Grant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

            def save_authorization_code(self, code: str, asked: Any) -> None:
                given = asked.payload.data
                provider.codes[code] = _Code(
                    code, asked.user, given["redirect_uri"], given["nonce"],
                    given["code_challenge"], given["code_challenge_method"],
                )  # fmt: skip

            def query_authorization_code(self, code: str, client: Any) -> _Code | None:
                return provider.codes.get(code)

            def delete_authorization_code(self, authorization_code: _Code) -> None:
                del provider.codes[authorization_code.code]

            def authenticate_user(self, authorization_code: _Code) -> str:
                return authorization_code.user

        class Code(OpenIDCode):  # type: ignore[misc]
            def exists_nonce(self, nonce: str, request: Any) -> bool:
                return False

            def process_token(self, grant: Any, response: Any) -> None:
                _, body, _ = response
                code: _Code = grant.request.authorization_code
                now = int(time.time())
                claims = {
                    "iss": provider.url, "aud": CLIENT, "sub": code.user, "nonce": code.nonce,
                    "iat": now, "exp": now + 60,
                }  # fmt: skip
                body["id_token"] = provider._signed(provider.err(claims))

        server.register_grant(Grant, [Code(require_nonce=True), CodeChallenge(required=True)])

        @app.get("/.well-known/openid-configuration")
        def describe() -> Any:
            names = {"authorization_endpoint": "a", "token_endpoint": "t", "jwks_uri": "keys"}
            found = {name: f"{provider.url}/{path}" for name, path in names.items()}
            return jsonify(issuer=provider.url, **found, **provider.says)

        @app.get("/keys")
        def show_keys() -> Any:
            return jsonify(keys=[provider.key.as_dict(private=False)])

        @app.get("/a")
        def authorize() -> Any:
            grant = server.get_consent_grant(end_user=request.args["user"])
            return server.create_authorization_response(
                grant_user=request.args["user"], grant=grant
            )

        @app.post("/t")
        def exchange() -> Any:
            return server.create_token_response()

        return app
