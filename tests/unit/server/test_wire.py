"""The decoder of requests for work beside its definition, `decode_request` of the message model."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_client.protocol.messages import (
    INLINE_OUTPUT_BYTES,
    LOG_TAIL_BYTES,
    MAX_BIGINT,
    Ahead,
    LiveOutput,
    Output,
    ProtocolError,
    ReplicaId,
    ReplicaProgress,
    Report,
    Scalar,
    WorkRequest,
    decode_request,
    encode_request,
)
from gridbot_server.dispatch.wire import read_request, read_usual

CONTENT = b"3.14\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
LONG = b"x" * INLINE_OUTPUT_BYTES
INT = 2**31 - 1

OUTPUTS = (
    Output("a", SHA256, len(CONTENT), CONTENT),
    Output("part/b", SHA256, 10**12),
    Output("empty", hashlib.sha256(b"").hexdigest(), 0, b""),
)
REPORTS = (
    Report(ReplicaId(1, 2, 3), "success", "", 0, 1.5, 2.0, OUTPUTS, "49 °C\n", "\x1b[31mred"),
    Report(ReplicaId(1, 3, 1), "error", "exit_nonzero", -9),
)
HOST: dict[str, Scalar] = {
    "Name": "nœud",
    "NumCpus": 16,
    "Load": 0.5,
    "IsPilot": False,
    "Requirements": "x" * 8192,
}
REQUEST = WorkRequest(
    "key",
    7,
    HOST,
    5,
    (ReplicaId(1, 4, 1),),
    REPORTS,
    (SHA256,),
    ahead=(Ahead(1, 100),),
    progress=(ReplicaProgress(1, 4, 1, 0.25),),
    live=(LiveOutput(ReplicaId(1, 4, 1), "stderr", 7, b"said"),),
)


def document(request: WorkRequest = REQUEST) -> Any:
    return json.loads(encode_request(request))


def exactly(request: WorkRequest) -> str:
    """All that is in a request, with the types of it."""
    return repr([getattr(request, field.name) for field in dataclasses.fields(WorkRequest)])


def defined(body: bytes) -> str:
    """What the definition makes of a request, or says of it."""
    return outcome(lambda: decode_request(body, orjson.loads))


def outcome(read: Callable[[], WorkRequest]) -> str:
    try:
        return exactly(read())
    except ProtocolError as error:
        return f"refused: {error}"


def test_what_a_client_sends_is_usual() -> None:
    found = read_usual(encode_request(REQUEST))
    assert found is not None
    assert exactly(found) == exactly(REQUEST)


@pytest.mark.parametrize("part", ["holding", "reports", "manifests", "ahead", "progress", "live"])
def test_what_may_be_missing_is_empty(part: str) -> None:
    raw = document()
    del raw[part]
    found = read_usual(json.dumps(raw).encode())
    assert found is not None
    assert getattr(found, part) == ()


def test_what_nobody_knows_is_passed_over() -> None:
    raw = {**document(), "later": [{}]}
    raw["reports"][0]["later"] = raw["reports"][0]["outputs"][0]["later"] = {"a": None}
    found = read_usual(json.dumps(raw).encode())
    assert found is not None
    assert exactly(found) == exactly(decode_request(encode_request(REQUEST)))


def test_what_is_no_utf8_is_refused_also_where_nobody_looks() -> None:
    body = encode_request(REQUEST).replace(b'"stderr"', b'"std\xffrr"', 1)
    assert outcome(lambda: read_request(body)) == defined(body)
    assert "UTF-8" in defined(body)


def text(size: int) -> str:
    return "é" * (size // 2) + "x" * (size % 2)


def uploads(count: int) -> list[dict[str, Any]]:
    return [{"name": f"part{i}", "sha256": SHA256, "size": 1} for i in range(count)]


# A place in a request, values that it may have, and values that it may not.
RULES: list[tuple[tuple[str | int, ...], list[Any], list[Any]]] = [
    (("protocol",), [1, 2], [0, 3, "1", None, True, 1.0]),
    (("key",), ["", text(100)], [text(101), "a\0", "\ud800", 5, None]),
    (("seqno",), [0, MAX_BIGINT], [-1, MAX_BIGINT + 1, 10**30, 1.0, True, "1", None]),
    (("want",), [0, 10_000], [-1, 10_001, 1.0, False, None]),
    (("host",), [{}, dict.fromkeys(map(str, range(100)), 1)], [
        None, [], dict.fromkeys(map(str, range(101)), 1), {text(101): 1}, {"a\0": 1},
    ]),
    (("host", "Name"), [text(1000), "", True, 0, -MAX_BIGINT, MAX_BIGINT, -0.5], [
        text(1001), "a\0", "\udc00", MAX_BIGINT + 1, -MAX_BIGINT - 1, None, [], {},
    ]),
    (("host", "rEquirements"), [text(8192)], [text(8193)]),
    (("holding",), [[], [[1, 1, 1]] * 4096], [[[1, 1, 1]] * 4097, None, {}, [1]]),
    (("holding", 0), [[0, 0, 0], [MAX_BIGINT, MAX_BIGINT, INT]], [
        [-1, 1, 1], [1, -1, 1], [1, 1, -1], [MAX_BIGINT + 1, 1, 1], [1, MAX_BIGINT + 1, 1],
        [1, 1, INT + 1], [1, 1], [1, 1, 1, 1], [1, 1, 1.0], [1, 1, True], ["1", 1, 1], None, 5,
    ]),
    (("preferences",), [None, 0, MAX_BIGINT], [-1, MAX_BIGINT + 1, True, 1.0, "1", []]),
    (("ahead",), [[], [[1, 1]] * 50], [[[1, 1]] * 51, None, {}, [1]]),
    (("ahead", 0), [[0, 0], [MAX_BIGINT, 10_000]], [
        [-1, 1], [1, -1], [MAX_BIGINT + 1, 1], [1, 10_001], [1], [1, 1, 1], [1, 1.0], [1, True],
        ["1", 1], None, 5,
    ]),
    (("live",), [[], document()["live"] * 100], [document()["live"] * 101, None, {}, [1]]),
    (("live", 0, "id"), [[1, 1, 1]], [[1, 1, -1], [1, 1], None]),
    (("live", 0, "stream"), ["stdout"], ["stdin", "", None, 1]),
    (("live", 0, "at"), [0, MAX_BIGINT], [-1, MAX_BIGINT + 1, 1.5, None]),
    (("live", 0, "content"), ["aGk="], ["", "*", None, 5]),
    (("progress",), [[], [[1, 1, 1, 0.5]] * 4096], [[[1, 1, 1, 0.5]] * 4097, None, {}, [1]]),
    (("progress", 0), [[0, 0, 0, 0], [MAX_BIGINT, MAX_BIGINT, INT, 1.0]], [
        [-1, 1, 1, 0.5], [1, 1, 1, -0.1], [1, 1, 1, 1.1], [1, 1, 1], [1, 1, 1, True],
        [1, 1, INT + 1, 0.5], [1, 1, 1, "0.5"], None, 5,
    ]),
    (("manifests",), [[SHA256] * 1000], [[SHA256] * 1001, [None], "a"]),
    (("manifests", 0), ["0" * 64], ["0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n", "", 5]),
    (("reports",), [[], document()["reports"] * 128], [document()["reports"] * 129, [1], None]),
    (("reports", 1, "id"), [[1, 1, 1]], [[1, 1, -1], [1, 1, INT + 1], [1.0, 1, 1], None]),
    (("reports", 1, "how"), ["success", "error"], ["lost", "", 1, None]),
    (("reports", 1, "reason"), ["", "a" * 40, "a_1"], ["a" * 41, "A", "1a", "a\n", None, 3]),
    (("reports", 1, "exit_code"), [None, INT, -INT - 1], [INT + 1, -INT - 2, 1.0, True, "0"]),
    (("reports", 1, "cpu_seconds"), [0, 0.0, 1e9, 10**9, 1e-9], ["1", True, None]),
    (("reports", 1, "wall_seconds"), [0, 1e9], ["1", False, None, []]),
    (("reports", 1, "stdout"), ["", text(LOG_TAIL_BYTES), "\x1b"], [None, 5, []]),
    (("reports", 1, "stderr"), [text(LOG_TAIL_BYTES)], [None, False]),
    (("reports", 0, "outputs"), [[], uploads(256)], [2 * uploads(1), uploads(257), None, [5]]),
    (("reports", 0, "outputs", 1, "name"), ["b" * 200, "B/c+=@%-_.0"], [
        "b" * 201, "../b", "/b", "b/", ".b", "-b", "b\n", "é", "a", "", None, 5,
    ]),
    (("reports", 0, "outputs", 1, "sha256"), ["0" * 64], ["0" * 63, "G" * 64, None, 5]),
    (("reports", 0, "outputs", 1, "size"), [0, MAX_BIGINT], [-1, MAX_BIGINT + 1, 1.0, True, None]),
    (("reports", 0, "outputs", 0, "size"), [len(CONTENT)], [len(CONTENT) + 1]),
    (("reports", 0, "outputs", 0, "sha256"), [SHA256], [SHA256.upper(), "0" * 64]),
    (("reports", 0, "outputs", 0, "content"), [None, base64.b64encode(CONTENT).decode()], [
        "", "MTI=", "MTI", "M TI=", "MTI=\n", "é", 5, [], base64.b64encode(LONG).decode(),
    ]),
]  # fmt: skip

# Nothing is wrong with these, and yet they do not stay as they are.
MENDED: list[tuple[tuple[str | int, ...], list[Any]]] = [
    (("reports", 1, "cpu_seconds"), [-1, 1e10, 10**400, -0.1]),
    (("reports", 1, "wall_seconds"), [2e9]),
    (("reports", 1, "stdout"), [text(LOG_TAIL_BYTES + 1), "a\0b"]),
    (("reports", 1, "stderr"), [text(LOG_TAIL_BYTES + 2), "\0"]),
]


def changed(place: tuple[str | int, ...], value: Any) -> bytes:
    raw = document()
    inner = raw
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("place", "value"), [(place, value) for place, good, _ in RULES for value in good]
)
def test_what_is_within_the_rules_is_usual(place: tuple[str | int, ...], value: Any) -> None:
    body = changed(place, value)
    found = read_usual(body)
    assert found is not None
    assert exactly(found) == defined(body)


@pytest.mark.parametrize(
    ("place", "value"), [(place, value) for place, _, bad in RULES for value in bad]
)
def test_what_is_against_a_rule_is_refused_with_the_words_of_the_definition(
    place: tuple[str | int, ...], value: Any
) -> None:
    body = changed(place, value)
    said = outcome(lambda: read_request(body))
    assert said.startswith("refused: ")
    assert said == defined(body)


@pytest.mark.parametrize(
    ("place", "value"), [(place, value) for place, values in MENDED for value in values]
)
def test_what_is_to_be_mended_is_left_to_the_definition(
    place: tuple[str | int, ...], value: Any
) -> None:
    body = changed(place, value)
    assert read_usual(body) is None
    assert outcome(lambda: read_request(body)) == defined(body)


def test_an_inline_output_has_the_size_it_may_have_and_no_more() -> None:
    for size, is_usual in ((len(LONG), True), (len(LONG) + 1, False)):
        content = b"x" * size
        output = Output("a", hashlib.sha256(content).hexdigest(), size, content)
        report = Report(ReplicaId(1, 2, 3), "success", outputs=(output,))
        body = encode_request(dataclasses.replace(REQUEST, reports=(report,)))
        assert (read_usual(body) is not None) is is_usual
        assert outcome(lambda body=body: read_request(body)) == defined(body)  # type: ignore[misc]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from([SHA256, MAX_BIGINT, INT, "a", base64.b64encode(CONTENT).decode()]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def places(raw: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw)
    found = []
    for step, value in inner:
        found.append((*path, step))
        if isinstance(value, dict | list):
            found += places(value, (*path, step))
    return found


@given(st.lists(st.tuples(st.sampled_from(places(document())), VALUES), max_size=3), st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_comes_is_read_as_the_definition_reads_it(
    changes: list[tuple[tuple[str | int, ...], Any]], data: st.DataObject
) -> None:
    raw = copy.deepcopy(document())
    for place, value in changes:
        inner = raw
        try:
            for step in place[:-1]:
                inner = inner[step]
            inner[place[-1]] = value
        except (TypeError, KeyError, IndexError):  # an earlier change took it away
            continue
    body = json.dumps(raw).encode()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body)))
        body = (
            body[:at] + data.draw(st.binary(max_size=3)) + body[at + data.draw(st.integers(0, 3)) :]
        )
    assert outcome(lambda: read_request(body)) == defined(body)
