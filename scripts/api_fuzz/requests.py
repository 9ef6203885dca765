"""Makes requests: to every operation that the API describes, and to BOINC's pages."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from scripts.boinc_replay import captured
from scripts.boinc_replay.damage import cut, mutated

from .values import Values

CONTENT = b"a content that the server has"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_PAGES = (
    "/boinc/", "/boinc/account", "/boinc/stats/", "/boinc/stats/host.gz", "/boinc/stats/../x",
    "/boinc/get_project_config.php", "/boinc/create_account.php", "/boinc/lookup_account.php",
    "/boinc/am_get_info.php", "/boinc/am_set_info.php", "/boinc/am_set_host_info.php",
    "/boinc/get_passwd.php", "/boinc/notices.php", "/boinc/download/x", "/login/forgotten",
    "/login/password", "/nowhere", "//", "/%00", "/api/v1/bots/%ff",
)  # fmt: skip
_FORMS = ("/boinc/account", "/login/forgotten", "/login/password")
_FIELDS = (
    "email_addr",
    "passwd_hash",
    "user_name",
    "email",
    "password",
    "decision",
    "team",
    "ping",
    "code",
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `name` is the operation that it is for."""

    name: str
    method: str
    target: str
    token: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Cast:
    """Whose keys there are, and the numbers of what they can ask for."""

    tokens: list[str]
    numbers: list[int]
    spared: set[int]  # keys that nobody is to revoke: the cast could not be made anew


class Requests:
    """Makes requests without end; the same seed and cast make the same ones."""

    def __init__(self, document: Mapping[str, Any], rng: random.Random) -> None:
        self._rng = rng
        self._operations = [
            (path, method, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if method in ("get", "put", "post", "patch", "delete", "head")
        ]
        self._document = document
        self._captured = captured.kept()

    def make(self, cast: Cast) -> Iterator[Request]:
        """Yield requests that speak of what the cast knows."""
        known = [*cast.numbers, SHA256, "alice", "root", "x"]
        values = Values(self._document, known, self._rng)
        while True:
            if self._rng.random() < 0.25:
                yield self._boinc(cast)
            else:
                yield self._described(cast, values)

    def _described(self, cast: Cast, values: Values) -> Request:
        rng = self._rng
        path, method, operation = rng.choice(self._operations)
        if path.endswith("/tokens/{token}") or "/bans" in path:
            numbers = [n for n in range(1, 40) if n not in cast.spared]
        else:
            numbers = cast.numbers
        target, query = path, {}
        for parameter in operation.get("parameters", ()):
            schema = parameter.get("schema", {})
            value = values.make(schema, name=parameter["name"])
            is_number = schema.get("type") == "integer"
            if is_number and (value in tuple(cast.spared) or rng.random() < 0.7):
                value = rng.choice(numbers)
            if parameter["in"] == "path":
                target = target.replace(f"{{{parameter['name']}}}", _in_path(value))
            elif parameter["in"] == "query" and rng.random() < 0.8:
                query[parameter["name"]] = value
        if query:
            target += "?" + urlencode(query, errors="replace")
        body, headers = self._body(operation, values)
        if rng.random() < 0.05:
            headers["Range"] = rng.choice(
                ("bytes=0-", "bytes=9-2", "bytes=-5", "lines=1", "bytes=0-0,5-9")
            )
        return Request(
            f"{method} {path}", method.upper(), target, rng.choice(cast.tokens), body, headers
        )

    def _body(self, operation: Mapping[str, Any], values: Values) -> tuple[bytes, dict[str, str]]:
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return (b"x" * self._rng.randrange(20) if self._rng.random() < 0.05 else b""), {}
        kind, described = self._rng.choice(list(content.items()))
        if kind == "application/octet-stream":
            body = CONTENT[: self._rng.choice((0, 5, len(CONTENT)))]
        else:
            made = [
                values.make(described.get("schema", {})) for _ in range(self._rng.randint(1, 3))
            ]
            lines = made if "jsonl" in kind else made[:1]
            body = b"\n".join(json.dumps(line).encode() for line in lines)
        return self._damaged(body), {
            "Content-Type": kind if self._rng.random() < 0.97 else "text/x"
        }

    def _damaged(self, body: bytes) -> bytes:
        chance = self._rng.random()
        return (
            mutated(body, self._rng)
            if chance < 0.15
            else cut(body, self._rng)
            if chance < 0.2
            else body
        )

    def _boinc(self, cast: Cast) -> Request:
        rng = self._rng
        token = rng.choice(cast.tokens)
        if rng.random() < 0.5:
            asked = rng.choice(self._captured)
            path = quote(asked.path, safe="/?&=%")
            body = self._damaged(asked.body.replace(b"@authenticator@", token.encode()))
            return Request(f"BOINC {asked.path[:20]}", asked.method, f"/boinc/{path}", token, body,
                           {"Content-Type": _FORM})  # fmt: skip
        page = rng.choice(_PAGES)
        texts = ("ann@example.com", "x" * 300, "0" * 32, "\0", "é", "<b>", "yes", "")
        fields = {name: rng.choice(texts) for name in rng.sample(_FIELDS, rng.randrange(5))}
        form = urlencode(fields)
        if page in _FORMS and rng.random() < 0.5:
            body = self._damaged(form.encode())
            return Request(f"post {page}", "POST", page, "", body, {"Content-Type": _FORM})
        return Request(f"page {page}", "GET", f"{page}?{form}", token)


def _in_path(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return quote(text.encode(errors="replace")[:500], safe="") or "x"
