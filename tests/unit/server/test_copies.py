import pytest

from gridbot_server.buffer.layout import BotSnapshot
from gridbot_server.feeder.copies import PER_BOT, lacking
from gridbot_server.feeder.running import RunningBot


def running(copies_unsent: int) -> RunningBot:
    state = BotSnapshot(
        1, version=1, owner=1, size=9000, fresh_unsent=0, copies_unsent=copies_unsent, running=0,
        done=0, failed=0, tail=False, created_at=0.0, mean_turnaround=None,
    )  # fmt: skip
    return RunningBot(state, fed=9000, threshold=None, sticky=True, manifest_id="m")


@pytest.mark.parametrize(
    ("unsent", "there", "taken", "count"),
    [
        (9000, 0, 0, PER_BOT),
        (9000, PER_BOT // 2, 0, 0),  # half of enough: the buffer is no queue of stale copies
        (9000, 0, 700, 1400),  # taken fast: enough until the next pass
        (9000, 400, 700, 1000),
        (70, 40, 0, 30),  # a few new ones do not wait for those that nobody takes
        (3, 3, 0, 0),
    ],
)
def test_a_bot_gets_copies_as_they_are_taken(
    unsent: int, there: int, taken: int, count: int
) -> None:
    assert lacking(running(unsent), there, taken) == count
