"""The command line of `scripts/paper`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from scripts.benchmarks.harness.installation import CHECKOUT

from . import pictures, ranks, table
from .experiments import ERAS, EXPERIMENTS, FIGURES, Era, Experiment
from .judging import verdicts
from .runs import Kept, Run, simulate


@click.group(context_settings={"show_default": True})
def paper() -> None:
    """Repeat the paper's evaluation."""


@paper.command()
@click.option("--figure", "figures", multiple=True, type=click.Choice(FIGURES), help="Else all.")
@click.option("--era", "eras", multiple=True, type=click.Choice([*ERAS]), help="Else all.")
@click.option("--seeds", type=click.IntRange(1), default=20, help="Runs of each experiment.")
@click.option("--scale", type=click.FloatRange(0.001, 1), help="Part of hosts and of jobs.")
@click.option("--full", is_flag=True, help="All at full scale.")
@click.option("--out", type=click.Path(path_type=Path), default=CHECKOUT / "demo-out" / "paper")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def figures(
    figures: Sequence[str],
    eras: Sequence[Era],
    seeds: int,
    scale: float | None,
    full: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Simulate Figures 5 to 10 and the comparison with Condor, and judge them.

    The folder --out keeps each run: begun again, it goes on where it was.
    """
    if full and scale is not None:
        raise click.UsageError("--full is a scale: give --scale or --full")
    chosen = [item for item in EXPERIMENTS if item.figure in (figures or FIGURES)]
    wanted_scale = 1.0 if full else scale
    runs = list(_runs(chosen, eras or tuple(ERAS), seeds, wanted_scale, Kept(out / "runs.jsonl")))
    judged = {era: verdicts(runs, era) for era in eras or ERAS}
    text = table.of_verdicts(judged) + "\n" + table.of_cpu(runs)
    (out / "table.md").write_text(text)
    for era in judged:
        for path in pictures.draw(out, runs, era):
            click.echo(path, err=True)
    if as_json:
        found = {era: [asdict(item) for item in items] for era, items in judged.items()}
        click.echo(json.dumps(found))
    else:
        click.echo(text, nl=False)
    sys.exit(any(item.passed is False for items in judged.values() for item in items))


def _runs(
    experiments: Iterable[Experiment],
    eras: Sequence[Era],
    seeds: int,
    scale: float | None,
    kept: Kept,
) -> Iterator[Run]:
    """Yield the runs; those that are kept are not simulated again."""
    experiments = list(experiments)
    for seed in range(1, seeds + 1):
        for item in experiments:
            size = item.usual_scale if scale is None else scale
            for era in item.eras_of(eras):
                run = kept.find(item, era, size, seed)
                if run is None:
                    name = f"Figure {item.figure}, {item.name}, {era}"
                    click.echo(f"{name}: seed {seed} of {seeds}", err=True)
                    run = simulate(item, era, size, seed)
                    kept.add(run)
                yield run


paper.add_command(ranks.ranks)
