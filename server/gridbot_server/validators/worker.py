"""The process that compares contents: an order a line, in JSON, and a finding a line.

It has no database and no keys, and its memory is limited: what a hostile file does to it is one
comparison that crashed.  It ends with the process that started it.
"""

from __future__ import annotations

import base64
import ctypes
import json
import resource
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from gridbot_server.validators import compare
from gridbot_server.validators.compare import Answer, AnswerFile
from gridbot_server.validators.spec import Validator, parse

MEMORY_BYTES = 2 << 30
_PR_SET_PDEATHSIG = 1


def encode_order(validator: str, one: Answer, other: Answer) -> bytes:
    """Return the order to compare two answers."""
    order = {"validator": validator, "one": _files(one), "other": _files(other)}
    return json.dumps(order).encode() + b"\n"


def _files(answer: Answer) -> dict[str, Any]:
    return {
        name: {
            "sha256": file.sha256,
            "path": file.path,
            "content": None if file.content is None else base64.b64encode(file.content).decode(),
        }
        for name, file in answer.items()
    }


def _answer(files: Mapping[str, Mapping[str, Any]]) -> Answer:
    return {
        name: AnswerFile(
            file["sha256"],
            file["path"],
            None if file["content"] is None else base64.b64decode(file["content"]),
        )
        for name, file in files.items()
    }


def _finding(order: Mapping[str, Any]) -> dict[str, Any]:
    validator: Validator = parse(order["validator"])
    found = compare.difference(validator, _answer(order["one"]), _answer(order["other"]))
    return {"difference": None if found is None else asdict(found)}


def serve(orders: Iterable[str]) -> None:
    """Carry out orders until there are no more; an error is a finding, too."""
    for line in orders:
        try:
            found = _finding(json.loads(line))
        except MemoryError:
            found = {"error": "it needs too much memory"}
        except OSError as error:
            found = {"error": f"{error.filename}: {error.strerror}"}
        print(json.dumps(found), flush=True)


def main() -> None:
    """Be such a process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin)


if __name__ == "__main__":
    main()
