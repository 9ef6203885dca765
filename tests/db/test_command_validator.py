"""`--validator command:./compare`: a scientist's own program compares, behind walls."""

import io
import socket
from pathlib import Path

import pytest
from tests.db.dispatching import Dispatch
from tests.db.test_comparing import answer, outcome, told, verdicts
from tests.factories import make_bot

from gridbot_server.storage.db import Connection

COMPARE = r"""#!/bin/sh
# Equal if the first word is; looks for what it must not reach.
[ "$1" = --first-word ] || exit 9
one=$(cut -d' ' -f1 "$2/stdout") other=$(cut -d' ' -f1 "$3/stdout")
[ "$one" = "$other" ] && exit 0
echo "the first words are $one and $other"
exit 1
"""


def comparing_bot(
    dispatch: Dispatch, conn: Connection, owner: int, script: str, arguments: str = ""
) -> int:
    """A BOT with a program that compares."""
    content = script.encode()
    store = dispatch.store
    store.root.mkdir(exist_ok=True)
    store.uploads.mkdir(exist_ok=True)
    kept = store.put(len(content), io.BytesIO(content).read)
    validator = f"command:./compare {arguments}".strip()
    return make_bot(conn, owner, quorum=2, validator=validator, compare_with=kept.sha256)


def test_a_program_of_the_owner_decides_and_says_why(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = comparing_bot(dispatch, conn, alice, COMPARE, "--first-word")
    answer(dispatch, alice, "bad 1", "good 2")
    dispatch.settle()
    answer(dispatch, alice, "good 3")
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)
    assert verdicts(conn, bot) == {1: False, 2: True, 3: True}
    assert "the first words are " in told(conn, bot)[1]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho no such column >&2; exit 2\n", "exit code 2: no such column"),
        ("#!/bin/sh\nkill -SEGV $$\n", "exit code -11"),
        ("not a program", "Exec format error"),
        (
            '#!/bin/sh\nfor dir in "$1" "$2"; do\n'
            ' echo x > "$dir/stdout" && exit 0\n echo x > "$dir/new" && exit 0\ndone\nexit 3\n',
            "exit code 3",
        ),
        (f'#!/bin/sh\nls "{Path(__file__).parent}" && exit 0\nexit 4\n', "exit code 4"),
    ],
    ids=["fails", "crashes", "is-none", "writes-the-answers", "reads-the-machine"],
)
def test_a_program_that_gives_no_verdict_sets_the_job_aside(
    dispatch: Dispatch, conn: Connection, alice: int, script: str, said: str
) -> None:
    bot = comparing_bot(dispatch, conn, alice, script)
    answer(dispatch, alice, "1", "2")
    dispatch.settle()
    found = outcome(conn, bot)
    assert found is not None
    assert found[0] is None
    assert said in (found[1] or "")


def test_equal_bytes_ask_no_program(dispatch: Dispatch, conn: Connection, alice: int) -> None:
    bot = comparing_bot(dispatch, conn, alice, "#!/bin/sh\nexit 7\n")
    answer(dispatch, alice, "1", "1")
    dispatch.settle()
    assert outcome(conn, bot) == (1, None)


def test_a_program_reaches_no_network(dispatch: Dispatch, conn: Connection, alice: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"""#!/usr/bin/env python3
import socket, sys
try:
    socket.create_connection(("127.0.0.1", {port}))
except OSError:
    sys.exit(5)
"""
        bot = comparing_bot(dispatch, conn, alice, script)
        answer(dispatch, alice, "1", "2")
        dispatch.settle()
    found = outcome(conn, bot)
    assert found is not None
    assert "exit code 5" in (found[1] or "")
