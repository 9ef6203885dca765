"""Speaks GRAM through the Globus Toolkit's own client library, in a process of its own.

Run as a program, it reads a JSON list of operations from stdin and prints a JSON list of answers.
The library starts threads and loads OpenSSL its way, which nothing else shall have to live with.
No program of the toolkit can be used instead: globusrun commits a submission by itself, before
anybody could write down where the job is.

https://gridcf.org/gct-docs/latest/gram5/developer/index.html
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WAITS_FOR_COMMIT = 110
SIGNALS = {"commit": 5, "end": 10}


class Library:
    """The client library, activated."""

    def __init__(self) -> None:
        self._common = ctypes.CDLL("libglobus_common.so.0", mode=ctypes.RTLD_GLOBAL)
        self._gram = ctypes.CDLL("libglobus_gram_client.so.3", mode=ctypes.RTLD_GLOBAL)
        self._gram.globus_gram_client_error_string.restype = ctypes.c_char_p
        module = ctypes.c_char.in_dll(self._gram, "globus_gram_client_module")
        if error := self._common.globus_module_activate(ctypes.byref(module)):
            raise OSError(f"the GRAM client library cannot be activated: error {error}")

    def request(self, service: str, rsl: str) -> dict[str, Any]:
        """Ask a gatekeeper for a job."""
        contact = ctypes.c_char_p()
        error = self._gram.globus_gram_client_job_request(
            service.encode(), rsl.encode(), 0, None, ctypes.byref(contact)
        )
        return self._answer(error, contact=(contact.value or b"").decode(errors="replace"))

    def signal(self, contact: str, name: str) -> dict[str, Any]:
        """Commit a request, or the end of a job."""
        state, failure = ctypes.c_int(), ctypes.c_int()
        error = self._gram.globus_gram_client_job_signal(
            contact.encode(), SIGNALS[name], b"", ctypes.byref(state), ctypes.byref(failure)
        )
        return self._answer(error)

    def status(self, contact: str) -> dict[str, Any]:
        """Ask a job manager how its job is."""
        state, failure = ctypes.c_int(), ctypes.c_int()
        error = self._gram.globus_gram_client_job_status(
            contact.encode(), ctypes.byref(state), ctypes.byref(failure)
        )
        reason = self._words(failure.value) if failure.value and not error else ""
        return self._answer(error, state=state.value, failure=failure.value, reason=reason)

    def cancel(self, contact: str) -> dict[str, Any]:
        """Cancel a job."""
        return self._answer(self._gram.globus_gram_client_job_cancel(contact.encode()))

    def ping(self, service: str) -> dict[str, Any]:
        """Authenticate to a gatekeeper, and do nothing."""
        return self._answer(self._gram.globus_gram_client_ping(service.encode()))

    def _answer(self, error: int, **more: Any) -> dict[str, Any]:
        return {"error": error, "words": self._words(error) if error else "", **more}

    def _words(self, error: int) -> str:
        text: bytes | None = self._gram.globus_gram_client_error_string(error)
        return (text or b"").decode(errors="replace").strip()


def answers(library: Library, operations: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """Do all operations, up to the first request that is refused: the next would be, too."""
    for operation in operations:
        arguments = dict(operation)
        do = arguments.pop("do")
        answer: dict[str, Any] = getattr(library, do)(**arguments)
        yield answer
        if do == "request" and not answer["contact"]:
            return


def main() -> None:
    """Answer what stdin asks."""
    operations = json.load(sys.stdin)
    try:
        library = Library()
    except (OSError, AttributeError) as error:
        sys.exit(f"{error}; the Globus Toolkit's GRAM client library is needed")
    json.dump(list(answers(library, operations)), sys.stdout)


if __name__ == "__main__":
    main()
