"""A claim about many clients whose server is restored from an old backup while they work."""

from __future__ import annotations

from tests.system.crashes import Load
from tests.system.deployment import Deployment, eventually
from tests.system.restore_rounds import Crowd, restore_under_load


def test_all_clients_come_back_to_an_old_backup_and_no_answer_is_taken_for_another_bots(
    fresh: Deployment,
) -> None:
    fresh.configure(buffer_slots=256)
    fresh.start()

    def until_a_later_bot_has_outcomes(load: Load) -> None:
        bots = set(load.submitted)
        newer = "SELECT count(*) FROM bot WHERE outcomes > 0 AND id > %s"
        eventually(lambda: fresh.rows(newer, max(bots)) != [(0,)], what="work on a later BOT")

    crowd = Crowd(fresh, bare=8, processes=2)
    found = restore_under_load(crowd, 1, (0.01, 0.05), until_a_later_bot_has_outcomes)
    assert found["is_new_epoch"]
    assert found["joined"] == found["clients"] == 10
    assert found["bots_lost"] > 0  # there was something that could be taken for another's
    assert found["numbers_used_again"] == found["bots_missing"] == []
    assert found["jobs_without_one_right_outcome"] == []
    assert found["reports_acknowledged"] > 0
    assert found["reports_lost"] == []
    assert found["violations"] == []
