"""`--validator command:./compare`: a scientist's own program compares, behind walls."""

import io
import socket
import time
from pathlib import Path

import pytest
from tests.db.dispatching import Dispatch
from tests.db.test_comparing import answer, outcome, told, verdicts
from tests.db.test_known_answers import know
from tests.factories import make_bot

from gridbot_server.cycles import confined
from gridbot_server.storage.db import PostgresConnection

COMPARE = r"""#!/bin/sh
# Equal if the first word is; looks for what it must not reach.
[ "$1" = --first-word ] || exit 9
one=$(cut -d' ' -f1 "$2/stdout") other=$(cut -d' ' -f1 "$3/stdout")
[ "$one" = "$other" ] && exit 0
echo "the first words are $one and $other"
exit 1
"""


def comparing_bot(
    dispatch: Dispatch, conn: PostgresConnection, owner: int, script: str, arguments: str = ""
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
    dispatch: Dispatch, conn: PostgresConnection, alice: int
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
    dispatch: Dispatch, conn: PostgresConnection, alice: int, script: str, said: str
) -> None:
    bot = comparing_bot(dispatch, conn, alice, script)
    answer(dispatch, alice, "1", "2")
    dispatch.settle()
    found = outcome(conn, bot)
    assert found is not None
    assert found[0] is None
    assert said in (found[1] or "")


POISONED = """#!/bin/sh
grep -q poison "$1/stdout" "$2/stdout" && kill -SEGV $$
cmp -s "$1/stdout" "$2/stdout" || [ "$(cut -c1 "$1/stdout")" = "$(cut -c1 "$2/stdout")" ]
"""


def test_an_answer_that_crashes_the_program_alone_loses_and_its_job_goes_on(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = comparing_bot(dispatch, conn, alice, POISONED)
    answer(dispatch, alice, "poison", "1 a")
    dispatch.settle()
    assert outcome(conn, bot) is None
    answer(dispatch, alice, "1 b")
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)
    assert verdicts(conn, bot) == {1: False, 2: True, 3: True}


def test_a_known_answer_that_the_program_bears_makes_one_that_crashes_it_lose(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = comparing_bot(dispatch, conn, alice, POISONED)
    know(conn, bot, 0, text="1 known")
    answer(dispatch, alice, "poison")
    dispatch.settle()
    assert verdicts(conn, bot) == {1: False}
    answer(dispatch, alice, "1 b")
    dispatch.settle()
    assert outcome(conn, bot) == (2, None)


def test_a_program_that_crashes_on_the_known_answer_itself_is_nobodys_fault(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = comparing_bot(dispatch, conn, alice, "#!/bin/sh\nexit 2\n")
    know(conn, bot, 0, text="1 known")
    answer(dispatch, alice, "1 b")
    dispatch.settle()
    found = outcome(conn, bot)
    assert found is not None
    assert "set aside for review" in (found[1] or "")


@pytest.mark.parametrize(
    ("limit", "value", "script", "said"),
    [
        ("SECONDS", 1.0, "sleep 600", "more than 1 s"),
        (
            "MEMORY_BYTES",
            50 << 20,
            "exec python3 -c 'import time; x = bytearray(200 << 20); time.sleep(600)'",
            "more than 50 MiB of memory",
        ),
        (
            "DISK_BYTES",
            5 << 20,
            'head -c 30000000 /dev/zero > "$HOME/large"; sleep 600',
            "more than 5 MiB of disk",
        ),
    ],
    ids=["time", "memory", "disk"],
)
def test_a_program_beyond_a_limit_is_ended(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, monkeypatch: pytest.MonkeyPatch,
    limit: str, value: float, script: str, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(confined, limit, value)
    bot = comparing_bot(dispatch, conn, alice, f"#!/bin/sh\n{script}\n")
    answer(dispatch, alice, "1", "2")
    end = time.monotonic() + 120
    while outcome(conn, bot) is None and time.monotonic() < end:
        dispatch.settle()
    found = outcome(conn, bot)
    assert found is not None
    assert said in (found[1] or "")


def test_equal_bytes_ask_no_program(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = comparing_bot(dispatch, conn, alice, "#!/bin/sh\nexit 7\n")
    answer(dispatch, alice, "1", "1")
    dispatch.settle()
    assert outcome(conn, bot) == (1, None)


def test_a_program_reaches_no_network(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
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
