"""The process that predicts the end of a BOT: `python -m gridbot_simulator.what_if`.

It reads one order, as JSON, from its standard input: the `snapshot` of a BOT
(`gridbot_server.bots`), a `policy`, which may be null, and `seeds`.  It writes one answer, as JSON:
a prediction, or `why_not`.
The same order gives the same bytes.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import orjson

from gridbot_simulator.comparison import differences, ranges, told
from gridbot_simulator.world.live import LiveSimulation
from gridbot_simulator.world.present import ASSUMPTIONS, Present
from gridbot_simulator.world.simulation import Ran

CPU_SECONDS = 40
MEMORY_BYTES = 1 << 30
NICENESS = 10
MOST_RUN = 12_000  # jobs of all simulations together; what CPU_SECONDS suffice for
FIGURES = ("left_seconds", "tail_seconds", "replicas", "speculative", "failed", "cpu_hours")
_PR_SET_PDEATHSIG = 1
_HOUR = 3600.0


def predict(snapshot: Mapping[str, Any], policy: str | None, seeds: int) -> dict[str, Any]:
    """Predict the end of a BOT under the present policy, and under another one if it is given.

    There are fewer seeds than asked for if many jobs are left.
    """
    present = Present(snapshot)
    number, policies = present.bot["id"], 1 if policy is None else 2
    why = present.why_not()
    count = seeds_for(present.left, policies, seeds)
    if not why and not count:
        why = f"{present.left:,} jobs are left, which are too many to simulate"
        if present.left <= MOST_RUN:
            why += " under two policies; try it without another policy"
    if why:
        return {"why_not": f"the end of BOT {number} cannot be predicted: {why}"}
    now = _runs(present, present.bot["policy"], count)
    then = None if policy is None else _runs(present, policy, count)
    compared = None if then is None else differences(then, now, FIGURES)
    return {
        "bot": number,
        "as_of": present.now,
        "policy_version": present.bot["version"],
        "jobs_left": present.left,
        "hosts": len(present.fitting),
        "seeds": count,
        "now": _told(now),
        "tried": None if then is None else _told(then),
        "differences": None if compared is None else told(compared),
        "sooner": None if then is None else _sooner(then, now),
        "assumes": ASSUMPTIONS,
        "left_out": left_out(present),
    }


def seeds_for(jobs: int, policies: int, wanted: int) -> int:
    """How many simulations of so many jobs there are under each policy; 0 if one is too much."""
    return min(wanted, MOST_RUN // (max(1, jobs) * policies))


def left_out(present: Present) -> list[str]:
    """Say what of this BOT is not simulated."""
    bot = present.bot
    found = []
    if bot["is_assured"]:
        found.append("checks of strangers' answers: further replicas that assurance takes")
    if bot["signed"]:
        found.append("limits on what strangers' hosts may have in progress")
    if bot["validator"] != "exact":
        found.append("answers that differ: all are taken to agree")
    if present.stock_hosts:
        found.append(f"new work for {present.stock_hosts:,} stock BOINC clients")
    if present.manifest.checkpoint:
        found.append("checkpoints: what is lost is computed again from its beginning")
    return found


def _runs(present: Present, policy: str, seeds: int) -> list[dict[str, Any]]:
    """Simulate under each seed; only under the first if the BOT does not end, which takes long."""
    found = [_run(present, policy, 1)]
    if found[0]["has_ended"]:
        found += [_run(present, policy, seed) for seed in range(2, 1 + seeds)]
    return found


def _run(present: Present, policy: str, seed: int) -> dict[str, Any]:
    return _figures(present, seed, LiveSimulation(present, policy, seed).run())


def _figures(present: Present, seed: int, ran: Ran) -> dict[str, Any]:
    bot, before = ran.bot, present.bot
    has_ended = bot.ended_at is not None
    sent = sum(value for name, value in bot.counts.items() if name.startswith("sent_"))
    tail = None if bot.tail_since is None else ran.ended_at - max(bot.tail_since, present.now)
    return {
        "seed": seed,
        "has_ended": has_ended,
        "why_not": ran.why_not,
        "left_seconds": round(ran.ended_at - present.now, 1) if has_ended else None,
        "tail_seconds": None if tail is None else round(tail, 1),
        "replicas": sent - (before["size"] - present.fresh),
        "speculative": bot.counts["sent_tail"],
        "failed": bot.failed - before["failed"],
        "cpu_hours": round(ran.spent.total / _HOUR, 2),
        "decisions": ran.decisions,
    }


def _sooner(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> int:
    """Under how many seeds the former end sooner; to end at all is sooner than not to."""
    pairs = zip_longest(runs, others)  # of what does not end there is one alone
    return sum(_seconds(run) < _seconds(other) for run, other in pairs)


def _seconds(run: Mapping[str, Any] | None) -> float:
    return float(run["left_seconds"]) if run and run["has_ended"] else math.inf


def _told(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"figures": ranges(runs, FIGURES), "runs": runs}


def answer(order: bytes) -> bytes:
    """Carry out an order as far as the memory suffices."""
    try:
        return orjson.dumps(predict(**orjson.loads(order)))
    except MemoryError:
        memory = f"{MEMORY_BYTES >> 30} GB of memory"
        why = f"there is too much left to simulate it within {memory}: try later"
        return orjson.dumps({"why_not": why})


def main() -> None:
    """Carry out the order on the standard input, within the limits of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    sys.stdout.buffer.write(answer(sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
