"""Claims about what makes two jobs the same, so that one's outcome may be the other's."""

from __future__ import annotations

from dataclasses import replace

from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.programs import HostProgram
from gridbot_server.bots.derivation import derivation_of

PLAIN = Manifest("ann", ("./count",), platforms=("linux-x86_64",), outputs=("sum.txt",))
ROW = HostProgram("linux-x86_64", ("./count",))


def test_what_boinc_clients_run_themselves_and_each_table_of_programs_is_another() -> None:
    faster = (ROW, HostProgram("linux-x86_64 gpu=nvidia", ("./count", "--gpu")))
    others = [
        replace(PLAIN, boinc_api=True),
        *(replace(PLAIN, programs=p) for p in ((ROW,), faster)),
    ]
    found = {derivation_of(1, manifest) for manifest in (PLAIN, *others)}
    assert len(found) == 4
