"""The command line of `scripts/bench`: one verb per measurement."""

from __future__ import annotations

import click

from . import (
    boinc,
    bots,
    compare,
    consoles,
    dag,
    deletion,
    dispatch,
    drips,
    floor,
    history,
    hostile,
    hosts,
    idle,
    instructions,
    latency,
    layers,
    losses,
    overload,
    pages,
    peers,
    pilots,
    policies,
    queue,
    results,
    storm,
    submit,
    transitioner,
    validate,
    walls,
    workflow,
)

MEASUREMENTS = (
    submit.submit,
    results.results,
    policies.policies,
    hostile.hostile,
    dispatch.dispatch,
    latency.latency,
    idle.idle,
    compare.compare,
    instructions.instructions,
    boinc.boinc,
    layers.layers,
    floor.floor,
    queue.queue,
    bots.bots,
    hosts.hosts,
    history.history,
    pages.pages,
    consoles.consoles,
    validate.validate,
    transitioner.transitions,
    storm.storm,
    overload.overload,
    peers.peers,
    pilots.pilots,
    losses.losses,
    walls.walls,
    drips.drips,
    dag.dag,
    workflow.workflow,
    deletion.deletion,
)


@click.group(commands=MEASUREMENTS)
def bench() -> None:
    """Measure this GridBot on a server of its own, on the loopback address."""


if __name__ == "__main__":
    bench()
