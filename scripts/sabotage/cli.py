"""The command line of `scripts/liars`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import click
from click.core import ParameterSource

from scripts.benchmarks.harness.installation import BenchFailed
from scripts.sabotage.live import JOBS, play
from scripts.sabotage.model import Model
from scripts.sabotage.state import Setting, Tally
from scripts.sabotage.strategies import STRATEGIES

# As in the model: `assured` is the server's Assurance, q2p its quorum among strangers, q1 to q3
# fixed quorums of equal answers, `adaptive` BOINC's published rule.
RULES = ("assured", "q2p", "q1", "q2", "q3", "adaptive")
LIVE = ("always", "colluding", "greedy")
_COLUMNS = (
    "strategy", "rule", "wrong_percent", "most_wrong_percent", "replicas_per_job",
    "replicas_after_start", "punished_percent", "ramp_minutes", "delay_minutes",
    "late_delay_minutes", "undone",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One strategy against one rule, over all seeds."""

    strategy: str
    rule: str
    seeds: int
    jobs: int
    wrong_percent: float
    most_wrong_percent: float  # of one seed
    replicas_per_job: float
    replicas_after_start: float  # of jobs whose first host had answered so many before
    punished_percent: float  # honest hosts that lost trust through a right answer
    ramp_minutes: float  # until the median newcomer is as wide as its cores need
    delay_minutes: float  # from provisional to confirmed, median
    late_delay_minutes: float  # the same, 99 %
    undone: int


@click.command(context_settings={"show_default": True})
@click.option("--jobs", type=click.IntRange(100), default=100_000, help="Of each run; live: 1200.")
@click.option("--seeds", type=click.IntRange(1), default=20, help="Runs of each line.")
@click.option("--first-seed", type=int, default=1000)
@click.option("--strategy", "strategies", multiple=True, type=click.Choice([*STRATEGIES]))
@click.option("--rule", "rules", multiple=True, type=click.Choice(RULES))
@click.option("--slips", type=float, default=0.0, help="Share of honest answers that are wrong.")
@click.option("--machines", type=click.IntRange(1), default=1, help="Of each honest owner.")
@click.option("--live", is_flag=True, help="Over HTTP, against a server of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.pass_context
def liars(
    context: click.Context, jobs: int, seeds: int, first_seed: int, strategies: Sequence[str],
    rules: Sequence[str], slips: float, machines: int, live: bool, as_json: bool,
) -> None:  # fmt: skip
    """Let 20 liars among 200 hosts work on a BOT; say how many wrong results were accepted.

    By default under a clock of its own, with the server's decisions.  Honest hosts fail at 1 % of
    their replicas, and leave after 2,000 on average.
    """
    if live:
        try:
            if context.get_parameter_source("jobs") is ParameterSource.DEFAULT:
                jobs = JOBS
            for played in play(strategies or LIVE, jobs):
                click.echo(json.dumps(asdict(played)))
        except BenchFailed as error:
            sys.exit(str(error))
        return
    setting = Setting("", "", jobs=jobs, slips=slips, machines=machines)
    if not as_json:
        click.echo("  ".join(_COLUMNS))
    for line in _lines(range(first_seed, first_seed + seeds), strategies, rules, setting):
        told = asdict(line)
        if as_json:
            click.echo(json.dumps(told))
        else:
            click.echo("  ".join(_cell(told[name]) for name in _COLUMNS))


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _lines(
    seeds: Sequence[int], strategies: Sequence[str], rules: Sequence[str], common: Setting
) -> Iterator[Line]:
    for strategy in strategies or STRATEGIES:
        for rule in rules or RULES:
            setting = replace(common, strategy=strategy, rule=rule)
            yield _line(setting, [Model(setting, seed).run() for seed in seeds])


def _line(setting: Setting, tallies: Sequence[Tally]) -> Line:
    shares = [100 * tally.wrong / max(1, tally.accepted) for tally in tallies]
    late = sum(tally.late_jobs for tally in tallies)
    return Line(
        strategy=setting.strategy,
        rule=setting.rule,
        seeds=len(tallies),
        jobs=setting.jobs,
        wrong_percent=sum(shares) / len(shares),
        most_wrong_percent=max(shares),
        replicas_per_job=sum(tally.replicas for tally in tallies) / len(tallies) / setting.jobs,
        replicas_after_start=sum(tally.late_replicas for tally in tallies) / max(1, late),
        punished_percent=100
        * sum(tally.punished for tally in tallies)
        / max(1, sum(tally.honest for tally in tallies)),
        ramp_minutes=_part([ramp for tally in tallies for ramp in tally.ramps], 0.5) / 60,
        delay_minutes=_part([delay for tally in tallies for delay in tally.delays], 0.5) / 60,
        late_delay_minutes=_part([delay for tally in tallies for delay in tally.delays], 0.99) / 60,
        undone=sum(tally.undone for tally in tallies),
    )


def _part(values: list[float], part: float) -> float:
    values.sort()
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0
