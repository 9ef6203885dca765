from __future__ import annotations

import random
import secrets

from tests.system import crashes
from tests.system.deployment import Deployment, eventually


def test_whatever_is_killed_work_goes_on_and_no_acknowledged_report_is_lost(
    fresh: Deployment,
) -> None:
    seed = secrets.randbelow(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    fresh.configure(buffer_slots=256)
    fresh.start()
    fresh.client("real", "--cpus", "1")
    with crashes.loaded(fresh, seed) as load:
        rounds = [chance.sample(crashes.UNATTENDED, len(crashes.UNATTENDED)) for _ in range(2)]
        for victim in (*rounds[0], "supervisor", *rounds[1], "everything"):
            found = crashes.kill(fresh, victim, chance)
            print(f"{victim}: finished jobs again after {found.seconds:.1f} s")
            assert [str(item) for item in found.violations] == [], f"seed {seed}, {victim}"
        load.drain()
    assert crashes.wrong_outcomes(fresh, load) == []
    assert crashes.lost_reports(fresh, load) == []
    assert len(load.acknowledged) > len(load.submitted) * crashes.JOBS / 2
    assert answers_of(fresh, "real") > 20
    eventually(lambda: not crashes.violations(fresh, idle=True), 20, "the end of all cycles")


def answers_of(server: Deployment, host: str) -> int:
    query = (
        "SELECT count(*) FROM ended JOIN host ON host.id = ended.host"
        " WHERE valid AND identity LIKE '%%:' || %s"
    )
    return int(server.rows(query, host)[0][0])
