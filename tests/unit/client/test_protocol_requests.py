from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from gridbot_client.protocol.messages import ProtocolError, decode_request

CONTENT = b"3.14\n"


def output(name: str, **changes: Any) -> dict[str, Any]:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    content = base64.b64encode(CONTENT).decode()
    return {"name": name, "sha256": sha256, "size": len(CONTENT), "content": content, **changes}


def request(*outputs: dict[str, Any]) -> bytes:
    report = {"id": [1, 2, 3], "how": "success", "outputs": outputs}
    return json.dumps(
        {"protocol": 1, "key": "k", "seqno": 1, "want": 1, "reports": [report]}
    ).encode()


def test_outputs_arrive_as_they_were_sent() -> None:
    (report,) = decode_request(request(output("a"), output("b/c", content=None))).reports
    assert [(item.name, item.content) for item in report.outputs] == [("a", CONTENT), ("b/c", None)]


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        ([output("a"), output("a")], "two outputs have the same name"),
        ([output("a"), output("a", content=None)], "two outputs have the same name"),
        ([output("a", content="MTI=")], "does not match the hash"),
        ([output("a", content="MTI")], "expected base64"),
        ([output("a", content="M TI=")], "expected base64"),
        ([output("a", content="é")], "expected base64"),
        ([output("a", content=5)], "expected base64"),
        ([output("../a")], "is not a usable file name"),
        ([output("a")] * 257, "257 entries, at most 256"),
    ],
)
def test_a_wrong_output_is_refused(outputs: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_request(request(*outputs))
