"""Keeps what hosts have proven and which outcomes are provisional, as decisions change it.

`matching/assurance.py` and `matching/track_record.py` decide; `credences.py` reads what they need,
and this writes what follows.  A change of a host's record wakes the outcomes that rely on it, so
that check, verdict and recall are decisions like all others: a crash between two of them leaves
rows of `pending`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gridbot_server.cycles import provisional, track_records
from gridbot_server.cycles.credences import Believed
from gridbot_server.cycles.job import Decision, Job, Rules
from gridbot_server.storage.counters import Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId


def follow(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    rules: Mapping[int, Rules],
    believed: Believed,
    counters: Counters,
) -> Counter[int]:
    """Write what follows from decisions about strangers' answers, but for the hosts' widths.

    Return how many answers of each host others agree with, by which it is to grow.
    """
    assured = {name: item for name, item in decisions.items() if rules[name.bot].terms}
    if not assured:
        return Counter()
    rights = track_records.rights_of(conn, assured, believed)
    track_records.learn(conn, assured, rights, rules, believed)
    provisional.keep(conn, jobs, assured, believed, counters)
    track_records.pass_checks(conn, assured, believed)
    standings = (believed.answers[item].standing for item in rights)
    return Counter(who.host for who in standings if not who.is_full)


def close(
    conn: Connection,
    decisions: Mapping[JobId, Decision],
    rules: Mapping[int, Rules],
    believed: Believed,
) -> None:
    """Have open answers settled where nothing else would be learnt, once widths have followed."""
    assured = {name: item for name, item in decisions.items() if rules[name.bot].terms}
    if assured:
        asked = {name.bot: terms.assurance for name in assured if (terms := rules[name.bot].terms)}
        provisional.close(conn, asked, provisional.lone_hosts(assured, believed))
