"""Decodes the body of `POST /rpc` into the message model: typed, bounded, mostly in C.

`decode_request` of the message model is the definition of a request: it checks each field in
Python, names what is wrong, and corrects what is no client's fault (a clock that ran backwards, a
log that is too long).  Nearly every request needs none of that.  So msgspec decodes it into the
same dataclasses first, and checks in Python are left for values only: bounds, names, hashes.
What does not pass is decoded again by the definition, which explains or corrects it.

This accepts no document that the definition refuses, with one exception: a number beyond the range
of a double in a field that neither knows.  `tests/unit/server/test_wire.py` compares the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec
import orjson

from gridbot_client.protocol.cached import MAX_TOLD, is_mark
from gridbot_client.protocol.fields import is_clean, is_file_name, is_sha256
from gridbot_client.protocol.messages import (
    INLINE_OUTPUT_BYTES,
    LOG_TAIL_BYTES,
    MAX_AHEAD,
    MAX_ATTRIBUTE_NAME_BYTES,
    MAX_BIGINT,
    MAX_FOLLOWED,
    MAX_HOLDING,
    MAX_HOST_ATTRIBUTES,
    MAX_INT,
    MAX_KEY_BYTES,
    MAX_MANIFESTS,
    MAX_OUTPUTS,
    MAX_REPORTS,
    MAX_SECONDS,
    MAX_WANT,
    Output,
    Report,
    Scalar,
    WorkRequest,
    decode_request,
    is_ahead,
    is_part,
    is_piece,
    is_reason,
    is_replica_id,
    max_attribute_bytes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message(WorkRequest):
    """A request with the version of its protocol, as on the wire."""

    protocol: Literal[1, 2]


_HOSTS_NAMES = 256  # lists of names that are remembered
_MOST_NAMES_BYTES = MAX_HOST_ATTRIBUTES * MAX_ATTRIBUTE_NAME_BYTES  # of each of them
_typed = msgspec.json.Decoder(_Message).decode


def read_request(body: bytes) -> WorkRequest:
    """Decode a request for work.  Raises ProtocolError, which names the field that is wrong."""
    return read_usual(body) or decode_request(body, orjson.loads)


def read_usual(body: bytes) -> WorkRequest | None:
    """Decode a request that is valid as it stands; None for any other."""
    try:
        # From text: msgspec does not check the encoding of the fields that it skips.
        request = _typed(body.decode())
    except (ValueError, RecursionError):  # no JSON, a wrong type, nested too deep
        return None
    return request if _is_usual(request) else None


def _is_usual(request: WorkRequest) -> bool:
    return (
        is_clean(request.key, MAX_KEY_BYTES)
        and 0 <= request.seqno <= MAX_BIGINT
        and 0 <= request.want <= MAX_WANT
        and _is_usual_host(request.host)
        and len(request.holding) <= MAX_HOLDING
        and all(map(is_replica_id, request.holding))
        and 0 <= request.unstarted <= len(request.holding)
        and len(request.reports) <= MAX_REPORTS
        and all(map(_is_usual_report, request.reports))
        and len(request.manifests) <= MAX_MANIFESTS
        and all(map(is_sha256, request.manifests))
        and 0.0 <= request.wait <= MAX_SECONDS
        and (request.preferences is None or 0 <= request.preferences <= MAX_BIGINT)
        and (not (request.ahead or request.live or request.progress) or _has_usual_news(request))
        and (request.cached is None or _is_usual_cache(request.cached))
    )


def _has_usual_news(request: WorkRequest) -> bool:
    """Of what few requests bring: jobs held ahead, live output and progress."""
    return (
        len(request.ahead) <= MAX_AHEAD
        and all(map(is_ahead, request.ahead))
        and len(request.live) <= MAX_FOLLOWED
        and all(map(is_piece, request.live))
        and len(request.progress) <= MAX_HOLDING
        and all(is_replica_id(item[:3]) and is_part(item.part) for item in request.progress)
    )


def _is_usual_cache(cached: Sequence[str]) -> bool:
    return len(cached) <= MAX_TOLD and all(map(is_mark, cached))


def _is_usual_host(attributes: Mapping[str, Scalar]) -> bool:
    if sum(map(len, attributes)) > _MOST_NAMES_BYTES or len(attributes) > MAX_HOST_ATTRIBUTES:
        return False
    limits = _limits(tuple(attributes))
    if limits is None:
        return False
    for value, most in zip(attributes.values(), limits, strict=True):
        if isinstance(value, str):
            if not is_clean(value, most):
                return False
        elif isinstance(value, int) and not -MAX_BIGINT <= value <= MAX_BIGINT:
            return False
    return True


@lru_cache(_HOSTS_NAMES)
def _limits(names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return the most bytes of each of a host's attributes; None if a name is not valid.

    Hosts say the same names in each request, and most of them those of all others.
    """
    if not all(is_clean(name, MAX_ATTRIBUTE_NAME_BYTES) for name in names):
        return None
    return tuple(map(max_attribute_bytes, names))


def _is_usual_report(report: Report) -> bool:
    outputs, code = report.outputs, report.exit_code
    return (
        is_replica_id(report.id)
        and is_reason(report.reason)
        and (code is None or -MAX_INT - 1 <= code <= MAX_INT)
        and 0.0 <= report.cpu_seconds <= MAX_SECONDS
        and 0.0 <= report.wall_seconds <= MAX_SECONDS
        and is_clean(report.stdout, LOG_TAIL_BYTES)
        and is_clean(report.stderr, LOG_TAIL_BYTES)
        and len(outputs) <= MAX_OUTPUTS
        and all(map(_is_usual_output, outputs))
        and len({output.name for output in outputs}) == len(outputs)
    )


def _is_usual_output(output: Output) -> bool:
    content = output.content
    if not is_file_name(output.name):
        return False
    if content is None:
        return 0 <= output.size <= MAX_BIGINT and is_sha256(output.sha256)
    return (
        len(content) == output.size <= INLINE_OUTPUT_BYTES
        and hashlib.sha256(content).hexdigest() == output.sha256
    )
