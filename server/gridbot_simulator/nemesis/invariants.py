"""What must be true of the tables after each step, as `storage/sql/invariants.sql` says it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

from gridbot_server.storage.states import State
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.store.tables import Job, StoredBot, StoredEnd, StoredLease, Tables

Broken = Iterable[object]  # what breaks an invariant
Invariant = Callable[[Tables], Broken]

_Place = Mapping[Job, Mapping[int, object]]  # replicas by their jobs
_ALWAYS: dict[str, Invariant] = {}
_IDLE: dict[str, Invariant] = {}

_JOBS = "simulated jobs have no rows of their own"
_RETRY = "nobody retries, deletes, groups or grows simulated BOTs"
_STRANGERS = "all simulated hosts are trusted by the BOT's owner"
_FILES = "simulated jobs have no files"
_GANGS = "simulated jobs run alone"
NOT_CHECKED: Mapping[str, str] = MappingProxyType(
    {
        "a_replica_belongs_to_a_job_of_a_started_bot": _JOBS,
        "a_bot_has_the_jobs_it_says": _JOBS,
        "no_job_is_set_aside": "an error at a job ends the seed",
        "outcomes_of_groups_are_numbered_once": _RETRY,
        "runs_of_groups_follow_each_other": _RETRY,
        "bots_count_their_cancelled_jobs": _RETRY,
        "bots_count_what_they_reuse": _RETRY,
        "what_is_reused_was_never_sent": _RETRY,
        "only_a_running_bot_grows": _RETRY,
        "a_growing_bot_has_no_tail": _RETRY,
        "nothing_outlives_its_bot": _RETRY,
        "the_last_version_of_a_manifest_runs": _RETRY,
        "unfinished_jobs_are_within_the_quota": _RETRY,
        "parts_cover_the_job_table": _STRANGERS,
        "what_counts_against_a_width_is_not_judged": _STRANGERS,
        "a_provisional_outcome_is_not_final": _STRANGERS,
        "a_provisional_outcome_has_one_answer": _STRANGERS,
        "bots_count_what_is_provisional": _STRANGERS,
        "events_end_with_the_outcome": _STRANGERS,
        "who_was_caught_has_no_trust": _STRANGERS,
        "a_gang_that_runs_is_whole": _GANGS,
        "a_leased_member_has_its_gang": _GANGS,
        "a_gang_has_all_outcomes_or_none": _GANGS,
        "an_output_belongs_to_a_sent_replica": _FILES,
        "an_output_has_its_content": _FILES,
        "an_output_belongs_to_its_bots_owner": _FILES,
        "what_counts_as_published_is_in_the_storage_or_lost": _FILES,
        "no_comparison_is_due": _FILES,
        "the_history_equals_the_tables": "the history is for people, and is not kept here",
    }
)
"""Invariants of the database that have none here, with why."""


def check(tables: Tables, *, idle: bool = False) -> None:
    """Raise InvariantBroken for the first that does not hold; `idle`: nothing is left to do."""
    for name, invariant in _ALWAYS.items():
        for example in invariant(tables):
            raise InvariantBroken(name, example)
    for name, invariant in _IDLE.items() if idle else ():
        for example in invariant(tables):
            raise InvariantBroken(name, example)


def names() -> set[str]:
    """The names of all that are checked."""
    return {*_ALWAYS, *_IDLE}


def _always(invariant: Invariant) -> Invariant:
    _ALWAYS[invariant.__name__] = invariant
    return invariant


def _idle(invariant: Invariant) -> Invariant:
    _IDLE[invariant.__name__] = invariant
    return invariant


def _ends(tables: Tables) -> Iterator[StoredEnd]:
    for ends in tables.ended.values():
        yield from ends.values()


def _bots(tables: Tables) -> Iterable[StoredBot]:
    return tables.bots.values()


# --------------------------------------------------------------------------------- replicas


@_always
def a_replica_is_in_one_place(tables: Tables) -> Broken:
    """Leased, ended or queued."""
    places: list[_Place] = [tables.leases, tables.ended, tables.waiting]
    for number, one in enumerate(places):
        for other in places[number + 1 :]:
            for job in one.keys() & other.keys():
                yield from ((*job, replica) for replica in one[job].keys() & other[job].keys())


@_always
def copies_follow_a_first_replica(tables: Tables) -> Broken:
    """The first copy of a job was sent before all others."""
    for job in {*tables.leases, *tables.ended, *tables.waiting, *tables.outcomes}:
        if tables.find_lease(*job, 1) is None and tables.find_end(*job, 1) is None:
            yield job


@_always
def something_moves_every_unfinished_job(tables: Tables) -> Broken:
    """A job is unsent, running, queued, awaiting a decision, or finished."""
    pending = set(tables.pending)
    for bot in _bots(tables):
        for seq in range(bot.fed) if bot.state == "running" else ():
            job = bot.id, seq
            if job in pending or job in tables.outcomes:
                continue
            if job in tables.leases or job in tables.waiting:
                continue
            is_fed = any(
                number == bot.id and lo <= seq < found.hi
                for (number, lo), found in tables.ranges.items()
            )
            if job in tables.ended or not is_fed:
                yield job


@_always
def a_replica_names_its_client_and_host(tables: Tables) -> Broken:
    """It is the client's that has it, or had it."""
    for lease in [*_leases(tables), *(end.lease for end in _ends(tables))]:
        client = tables.clients.get(lease.client)
        if client is None or (client.host, client.owner) != (lease.host, lease.owner):
            yield lease


def _leases(tables: Tables) -> Iterator[StoredLease]:
    return (lease for found in tables.leases.values() for lease in found.values())


@_always
def a_lease_has_a_time_to_run(tables: Tables) -> Broken:
    """Its deadline is not before it was sent."""
    return [lease for lease in _leases(tables) if lease.deadline < lease.sent_at]


# ---------------------------------------------------------------------------------- feeding


@_always
def only_fed_jobs_were_sent(tables: Tables) -> Broken:
    """Feeders count on."""
    for bot, seq in {*tables.leases, *tables.ended}:
        if seq >= tables.bots[bot].fed:
            yield bot, seq


@_always
def feed_ranges_lie_within_what_was_fed(tables: Tables) -> Broken:
    """So that no job is fed twice."""
    for (bot, lo), found in tables.ranges.items():
        if (
            lo < 0
            or found.hi > tables.bots[bot].fed
            or tables.bots[bot].fed > tables.bots[bot].size
        ):
            yield bot, lo, found


@_always
def feed_ranges_do_not_overlap(tables: Tables) -> Broken:
    """A job is in one feeder's range."""
    listed = sorted((bot, lo, found.hi) for (bot, lo), found in tables.ranges.items())
    for one, other in pairwise(listed):
        if one[0] == other[0] and other[1] < one[2]:
            yield one, other


@_always
def a_claimed_copy_has_a_claimant(tables: Tables) -> Broken:
    """Both are there or neither."""
    for queue in tables.queues.values():
        for copy in queue.values():
            if (copy.machine is None) != (copy.claimed_until == 0.0):
                yield copy


# --------------------------------------------------------------------------------- outcomes


@_always
def a_finished_job_has_nothing_in_progress(tables: Tables) -> Broken:
    """Neither leased nor queued."""
    return (job for job in tables.outcomes if job in tables.leases or job in tables.waiting)


@_always
def a_canonical_replica_is_a_valid_success(tables: Tables) -> Broken:
    """The answer of a job is an answer."""
    for job, outcome in tables.outcomes.items():
        if outcome.canonical is not None:
            end = tables.find_end(*job, outcome.canonical)
            if end is None or end.how != State.SUCCESS or not end.valid:
                yield job, outcome


@_always
def a_canonical_replica_has_its_quorum(tables: Tables) -> Broken:
    """From different hosts."""
    for job, outcome in tables.outcomes.items():
        if outcome.canonical is not None:
            hosts = {
                end.lease.host
                for end in tables.ends(*job)
                if end.how == State.SUCCESS and end.valid
            }
            if len(hosts) < tables.bots[job[0]].quorum:
                yield job, hosts


@_always
def a_valid_replica_has_an_outcome(tables: Tables) -> Broken:
    """What is valid agrees with an answer."""
    for job, ends in tables.ended.items():
        outcome = tables.outcomes.get(job)
        if (outcome is None or outcome.canonical is None) and any(
            end.valid for end in ends.values()
        ):
            yield job


@_always
def outcomes_are_numbered_without_gaps(tables: Tables) -> Broken:
    """From one to their number."""
    found = defaultdict[int, list[int]](list)
    for (number, _), outcome in tables.outcomes.items():
        found[number].append(outcome.n)
    for bot in _bots(tables):
        if sorted(found[bot.id]) != list(range(1, bot.outcomes + 1)):
            yield bot.id, bot.outcomes, sorted(found[bot.id])


@_always
def done_and_failed_count_the_outcomes(tables: Tables) -> Broken:
    """As the BOT says."""
    done = Counter(bot for (bot, _), item in tables.outcomes.items() if item.canonical is not None)
    failed = Counter(bot for (bot, _), item in tables.outcomes.items() if item.canonical is None)
    for bot in _bots(tables):
        if (bot.done, bot.failed) != (done[bot.id], failed[bot.id]):
            yield bot.id, (bot.done, bot.failed), (done[bot.id], failed[bot.id])


@_always
def a_bot_is_done_when_all_its_jobs_are(tables: Tables) -> Broken:
    """And not before."""
    for bot in _bots(tables):
        is_whole = bot.done + bot.failed >= bot.size
        if (bot.state == "running" and is_whole) or (bot.state == "done" and not is_whole):
            yield bot.id, bot.state, bot.done, bot.failed
        if (bot.ended_at is not None) != (bot.state in ("done", "cancelled")):
            yield bot.id, bot.state, bot.ended_at


@_always
def turnarounds_count_the_valid_replicas(tables: Tables) -> Broken:
    """Each once."""
    valid = Counter(end.lease.bot for end in _ends(tables) if end.valid)
    return (bot.id for bot in _bots(tables) if bot.turnaround_n != valid[bot.id])


@_always
def counters_tell_the_replicas(tables: Tables) -> Broken:
    """Sent first copies, sent replicas, those in progress, those queued."""
    leased, ended, queued, first = (Counter[int]() for _ in range(4))
    for (of, _), found in tables.leases.items():
        leased[of] += len(found)
        first[of] += sum(lease.why == "first" for lease in found.values())
    for (of, _), ends in tables.ended.items():
        ended[of] += len(ends)
        first[of] += sum(end.lease.why == "first" for end in ends.values())
    for (of, _), copies in tables.waiting.items():
        queued[of] += len(copies)
    for bot in _bots(tables):
        counts, number = bot.counts, bot.id
        sent = sum(count for name, count in counts.items() if name.startswith("sent_"))
        counted = (
            counts["sent_first"], sent, sent - counts["back"],
            counts["queued"] - counts["unqueued"],
        )  # fmt: skip
        there = (first[number], leased[number] + ended[number], leased[number], queued[number])
        if counted != there:
            yield number, counted, there


@_always
def a_client_holds_one_replica_of_a_job(tables: Tables) -> Broken:
    """A second one would tell nothing."""
    for job, found in tables.leases.items():
        if len({lease.client for lease in found.values()}) < len(found):
            yield job, found


@_always
def attempts_are_bounded(tables: Tables) -> Broken:
    """Errors beyond the last attempt come only from what was in progress then."""
    for job, ends in tables.ended.items():
        bot = tables.bots[job[0]]
        errors = sum(end.how == State.ERROR for end in ends.values())
        if errors >= bot.max_attempts + bot.max_replicas + bot.quorum:
            yield job, errors


@_always
def replicas_are_bounded(tables: Tables) -> Broken:
    """Errors, expiries, answers, and what is in progress."""
    counts = Counter[tuple[int, int]]()
    for table in (tables.leases, tables.ended, tables.waiting):
        counts.update({job: len(found) for job, found in table.items()})
    for job, count in counts.items():
        bot = tables.bots[job[0]]
        if count > 12 * bot.max_attempts + 2 * (bot.max_replicas + bot.quorum):
            yield job, count


@_always
def replicas_in_progress_are_bounded(tables: Tables) -> Broken:
    """By what the BOT says."""
    for job in {*tables.leases, *tables.waiting}:
        bot = tables.bots[job[0]]
        count = sum(len(table[job]) for table in (tables.leases, tables.waiting) if job in table)
        if count > max(bot.max_replicas, bot.quorum):
            yield job, count


# ----------------------------------------------------------------------------------- credit


@_always
def hosts_have_the_credit_of_their_valid_replicas(tables: Tables) -> Broken:
    """Each replica once."""
    earned = defaultdict[int, float](float)
    for end in _ends(tables):
        outcome = tables.outcomes.get((end.lease.bot, end.lease.seq))
        if end.valid and outcome is not None:
            earned[end.lease.host] += outcome.credit
    for host in {*earned, *tables.credit}:
        if not math.isclose(earned[host], tables.credit.get(host, 0.0), rel_tol=1e-6):
            yield host, earned[host], tables.credit.get(host)


@_always
def owners_have_the_credit_of_their_hosts(tables: Tables) -> Broken:
    """Of all of them."""
    earned = defaultdict[int, float](float)
    for host, credit in tables.credit.items():
        earned[tables.hosts[host].owner] += credit
    for owner in {*earned, *tables.owners_credit}:
        if not math.isclose(earned[owner], tables.owners_credit.get(owner, 0.0), rel_tol=1e-6):
            yield owner, earned[owner], tables.owners_credit.get(owner)


# ------------------------------------------------------------------------------------- idle


@_idle
def no_decision_is_due(tables: Tables) -> Broken:
    """Nobody waits to be woken."""
    return list(tables.pending)


@_idle
def every_replica_of_a_finished_job_is_judged(tables: Tables) -> Broken:
    """But those that nobody wanted."""
    for end in _ends(tables):
        bot, job = tables.bots[end.lease.bot], (end.lease.bot, end.lease.seq)
        if bot.state != "done" or job not in tables.outcomes:
            continue
        if end.valid is None and end.how != State.CANCELLED:
            yield end


@_idle
def a_cancelled_bot_has_nothing_in_progress(tables: Tables) -> Broken:
    """Neither leased nor queued."""
    return [
        job
        for table in (tables.leases, tables.waiting)
        for job in table
        if tables.bots[job[0]].state == "cancelled"
    ]


@_idle
def an_ended_bot_has_no_feed_range(tables: Tables) -> Broken:
    """Feeders give them up."""
    return [key for key in tables.ranges if tables.bots[key[0]].state != "running"]


@_idle
def no_lease_outlives_its_deadline(tables: Tables) -> Broken:
    """The deadline cycle ends it."""
    return [lease for lease in _leases(tables) if lease.deadline < tables.now - 30]


@_idle
def every_bot_has_ended(tables: Tables) -> Broken:
    """With all its jobs, or cancelled: nothing is left for which to wait."""
    return [bot.id for bot in _bots(tables) if bot.state == "running"]
