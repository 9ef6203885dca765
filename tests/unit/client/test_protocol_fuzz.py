"""A hostile server's words are read or refused with ProtocolError, and prove no false job."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fakes.project_server import with_proofs

from gridbot_client.protocol import job_table
from gridbot_client.protocol.job_table import Proof
from gridbot_client.protocol.messages import (
    Assignment,
    JobRange,
    Manifest,
    ProtocolError,
    ReplicaId,
    SignedManifest,
    WorkReply,
    decode_reply,
    encode_reply,
    manifest_id,
    read_revocations,
)
from gridbot_client.protocol.signatures import Introduction
from gridbot_client.work.manifests import Manifests
from gridbot_client.work.trust import Distrusted, Pins, Trust

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
MANIFEST = Manifest("bob", ("echo", "{x}"), {"x": "text"}, owner_key=PUBLIC.hex(), bot="7" * 32)
SIGNED = SignedManifest(
    MANIFEST.text(), bytes(64), bytes(64), PUBLIC, (Introduction(PUBLIC, PUBLIC, bytes(64)),)
)
ID = manifest_id(MANIFEST.text())
JOBS = [Assignment(ReplicaId(9, n, 1), ID, {"x": f"value {n}"}, 60.0) for n in range(70)]
TABLE = with_proofs(JOBS, KEY)
REPLY = encode_reply(
    WorkReply(
        epoch=1, next_request_seconds=5.0, assignments=tuple(TABLE[:3]), manifests={ID: SIGNED}
    )
)

SCALARS: list[Any] = [
    None, True, False, 0, -1, 2**63, 10**400, 0.5, 1e308, "", "x" * 300, "\ud800", "../x", "0" * 64,
]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(SCALARS) | st.text(max_size=20) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def spoilt(draw: st.DrawFn, value: Any) -> Any:
    """A document with a place of it replaced, removed or doubled."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: spoilt(draw, value[name])}
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        doubled = [value[at]] * draw(st.integers(0, 2))
        return [*value[:at], spoilt(draw, value[at]), *doubled, *value[at + 1 :]]
    return draw(VALUES)


@st.composite
def documents(draw: st.DrawFn, whole: Callable[[], Any]) -> str:
    document = whole()
    for _ in range(draw(st.integers(1, 3))):
        document = spoilt(draw, document)
    return json.dumps(document)


def manifest_document() -> Any:
    rich = replace(MANIFEST, range=JobRange(0, 1, 9))
    return json.loads(json.dumps(asdict(rich)))


@given(documents(manifest_document))
@example("[" * 100_000)
@example('{"command": ' * 5_000)
@example("9" * 5_000)
@example('"\\ud800"')
@example("")
@example("\x00")
def test_any_manifest_is_read_or_refused(text: str) -> None:
    try:
        found = Manifest.from_text(text)
    except ProtocolError:
        return
    assert Manifest.from_text(found.text()) == found


@given(documents(lambda: json.loads(REPLY)))
@example("[" * 100_000)
def test_any_reply_is_taken_or_refused_whole(text: str) -> None:
    try:
        reply = decode_reply(text.encode("utf-8", "surrogatepass"))
    except ProtocolError:
        return
    manifests = Manifests(Trust(Pins("0" * 64, "", frozenset()), lambda: 0.0))
    with suppress(ProtocolError):
        manifests.take_in(reply.manifests)
    for job in reply.assignments:
        judged = manifests.get(job.manifest)
        assert judged is None or manifests.rejection(judged, job), "nobody signed anything"


@given(documents(lambda: {"revocations": [{"subject": "0" * 64, "signer": "0" * 64}]}))
def test_any_list_of_revocations_is_read_or_refused(text: str) -> None:
    try:
        found = read_revocations(json.loads(text))
    except ProtocolError:
        return
    assert not any(item.is_valid() for item in found)


@given(st.binary(max_size=400))
def test_any_bytes_are_one_proof_or_none(raw: bytes) -> None:
    try:
        proof = Proof.decode(raw)
    except ProtocolError:
        return
    assert proof.encode() == raw
    with suppress(ProtocolError):
        job_table.proven_root(bytes(32), proof)


@given(st.data())
def test_a_spoilt_proof_proves_nothing(data: st.DataObject) -> None:
    job = data.draw(st.sampled_from(TABLE))
    raw = bytearray(job.proof)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["change", "remove", "insert"])):
            case "change":
                raw[at] = data.draw(st.integers(0, 255))
            case "remove":
                del raw[at]
            case _:
                raw.insert(at, data.draw(st.integers(0, 255)))
    if bytes(raw) == job.proof:
        return
    trust = Trust(Pins("0" * 64, "", frozenset()), lambda: 0.0)
    with pytest.raises(Distrusted):
        trust.check_job(SIGNED, MANIFEST, replace(job, proof=bytes(raw)))


@given(st.data())
def test_a_proof_of_one_job_proves_no_other(data: st.DataObject) -> None:
    job, other = data.draw(st.sampled_from(TABLE)), data.draw(st.sampled_from(TABLE))
    if job is other:
        return
    trust = Trust(Pins("0" * 64, "", frozenset()), lambda: 0.0)
    with pytest.raises(Distrusted):
        trust.check_job(SIGNED, MANIFEST, replace(job, proof=other.proof))
    with pytest.raises(Distrusted):
        trust.check_job(SIGNED, MANIFEST, replace(job, id=other.id))
