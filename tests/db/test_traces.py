"""Which spans a process notes of replicas."""

from __future__ import annotations

import pytest
from tests.collector import collector
from tests.factories import make_bot, make_client, make_ended, make_owner

from gridbot_client.protocol.messages import ReplicaId
from gridbot_client.spans import TIMEOUT
from gridbot_server.metrics.traces import TracedReplicas, Tracing
from gridbot_server.storage.db import Connection

KNOWN = 10_000  # BOTs whose traces a process remembers


def test_a_failure_is_told_also_when_too_many_traces_are_known(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMEOUT, "300")
    owner = make_owner(conn, "alice")
    client, _ = make_client(conn, owner)
    first, later = (
        make_bot(conn, owner, jobs=9, trace=bytes([n]) * 24, traced_jobs=2) for n in (1, 2)
    )
    right, wrong = ReplicaId(first, 0, 1), ReplicaId(later, 5, 1)
    make_ended(conn, right, client, valid=True)
    make_ended(conn, wrong, client, how="error", reason="exit_code", valid=False)
    with collector() as there:
        tracing = Tracing(there.url, 2)
        traced = TracedReplicas(tracing)
        traced.note_reported(conn, [ReplicaId(later + 1 + n, 0, 1) for n in range(KNOWN)])
        traced.note_judged(conn, [right], [wrong])
        traced.tell()
        tracing.close()
    told = {(span.attributes["gridbot.bot"], span.name) for span in there.spans}
    assert told == {(first, "reported"), (later, "leased"), (later, "reported")}
