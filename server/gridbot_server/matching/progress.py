"""How far a BOT is, and how things stand, in a sentence for people.  Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSoFar:
    """A BOT's jobs and its pace."""

    state: str
    total: int
    done: int
    failed: int
    seconds: float | None  # from its submission to its end
    jobs_per_second: float | None
    eta_seconds: float | None


def progress(bot: JobsSoFar) -> str:
    """Return how far a BOT is, such as `47 % done, about 1.6 min left at 3.2 jobs/s`."""
    failed = f", {bot.failed} failed" if bot.failed else ""
    if bot.state == "open":
        return f"open: {_counted(bot.total, 'job')} so far, its submission goes on"
    if bot.state == "done":
        took = f" in {span(bot.seconds)}" if bot.seconds is not None else ""
        return f"done: {_counted(bot.total, 'job')}{took}{failed}"
    done = f"{_share(bot.done, bot.total)} done{failed}"
    if bot.state in ("cancelled", "held"):
        return f"{bot.state} with {done}"
    if bot.done + bot.failed == bot.total:
        return f"{done}, waits for further jobs"
    if not bot.jobs_per_second and bot.eta_seconds is not None:
        return f"{done}, about {span(bot.eta_seconds)} left as the jobs say"
    if not bot.jobs_per_second:
        return f"{done}, no job has finished yet"
    if bot.eta_seconds is None:
        return f"{done}, and none of its jobs runs now"
    return f"{done}, about {span(bot.eta_seconds)} left at {pace(bot.jobs_per_second)}"


@dataclass(frozen=True, slots=True)
class LikelyEnd:
    """Seconds until a BOT ends, by simulations; None: it ends in none of them."""

    low: float
    median: float
    high: float


def outlook(end: LikelyEnd | None, why_not: str) -> str:
    """Return when a BOT is likely to end, such as `ends in 1.2 h to 1.9 h, likely in 1.5 h`.

    `why_not` says why it does not end.
    """
    if end is None:
        return f"does not end: {why_not}"
    return f"ends in {span(end.low)} to {span(end.high)}, likely in {span(end.median)}"


def outlook_instead(
    tried: LikelyEnd | None,
    why_not: str,
    now: LikelyEnd | None,
    sooner: tuple[int, int],
    replicas_percent: float | None,
) -> str:
    """Return when a BOT would end under another policy, and what that changes.

    `sooner` says in how many simulations it ends sooner, and how many there are.
    """
    if tried is None:
        return f"would not end: {why_not}"
    before = f"in {span(now.median)}" if now else "not at all"
    found = f"would end in {span(tried.low)} to {span(tried.high)} instead of {before}"
    found += f", sooner in {sooner[0]} of {_counted(sooner[1], 'simulation')}"
    if replicas_percent is None:
        return found
    return f"{found}; {replicas_difference(replicas_percent)}"


def replicas_difference(percent: float) -> str:
    """Return how many more replicas, such as `9 % more replicas`."""
    rounded = round(percent)
    if not rounded:
        return "as many replicas"
    return f"{abs(rounded)} % {'more' if rounded > 0 else 'fewer'} replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSoFar:
    """The nodes of a workflow's run."""

    state: str
    total: int
    done: int
    failed: int
    futile: int
    seconds: float  # since it began
    eta_seconds: float | None
    silent_seconds: float  # since it told how it is


def workflow_progress(run: NodesSoFar) -> str:
    """Return how far a workflow is, such as `47 % of 120 nodes done, about 5 min left`."""
    failed = f", {run.failed} failed" if run.failed else ""
    done = f"{_share(run.done, run.total)} of {_counted(run.total, 'node')} done{failed}"
    match run.state:
        case "done":
            return f"done: {_counted(run.total, 'node')} in {span(run.seconds)}{failed}"
        case "failed":
            futile = f", and {run.futile} cannot run" if run.futile else ""
            return f"failed with {done}{futile}"
        case "interrupted":
            return f"interrupted with {done}; the same command goes on with it"
        case "silent":
            return (
                f"not heard of for {span(run.silent_seconds)}, with {done};"
                " if it was interrupted, the same command goes on with it"
            )
        case _:
            left = f", about {span(run.eta_seconds)} left" if run.eta_seconds is not None else ""
            return f"{done}{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """All BOTs that somebody sees, and what an operator must look after."""

    running: int
    held: int
    failing: int  # running ones of which jobs failed
    silent: int  # running ones of which silent hosts have jobs
    trouble: str | None


def standing(all_bots: Standings) -> str:
    """Return in a sentence how things stand: trouble first."""
    found = [f"the server needs attention: {all_bots.trouble}"] if all_bots.trouble else []
    if all_bots.held:
        found.append(f"{_counted(all_bots.held, 'BOT')} held until you resume or retry")
    if all_bots.running:
        text = f"{_counted(all_bots.running, 'BOT')} running"
        notes = [f"{all_bots.failing} with failed jobs"] if all_bots.failing else []
        notes += [f"{all_bots.silent} with jobs at silent hosts"] if all_bots.silent else []
        found.append(f"{text}, {' and '.join(notes)}" if notes else text)
    return "; ".join(found) or "no BOT is running"


def span(seconds: float) -> str:
    """Return a time span in words, with two digits or three."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{1 if seconds < 10 * size else 0}f} {unit}"
    return f"{seconds:.0f} s"


def pace(jobs_per_second: float) -> str:
    """Return a rate in the unit that gives a number above 1, if there is one."""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if jobs_per_second * factor >= 1:
            return f"{jobs_per_second * factor:.3g} jobs/{unit}"
    return f"{jobs_per_second * 86_400:.2g} jobs/day"


def _share(part: int, whole: int) -> str:
    """Return a part in per cent; less than all is never 100 %."""
    per_cent = 100 * part / whole if whole else 0.0
    return f"{min(99, round(per_cent)) if part < whole else 100} %" if whole else "0 %"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
