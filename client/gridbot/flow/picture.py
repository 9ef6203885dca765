"""Pictures of a flow: lines for terminals, a graph for Graphviz."""

from __future__ import annotations

import html as markup
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gridbot.dag.engine.table import NodeStatus
from gridbot.flow.steps import Step

_BAR = 20
_NUMBER = re.compile(r"-\d+$|(?<=\.)\d+(?=/)")  # of a name: steps that differ in it are alike
_COLORS = {"failed": "#f4c7c3", "done": "#cfe8cf", "running": "#fdeeb5"}


@dataclass(frozen=True)
class StepGroup:
    """Steps that are alike, such as calls of one function."""

    name: str
    steps: tuple[Step, ...]
    sources: tuple[str, ...]  # names of groups

    @property
    def jobs(self) -> int:
        """How many jobs there are until now."""
        return sum(max(step.jobs, len(step.rows)) for step in self.steps)

    @property
    def done(self) -> int:
        """How many of them are done."""
        return sum(len(step.known) for step in self.steps)

    @property
    def failed(self) -> int:
        """How many have failed."""
        return sum(len(step.failed) for step in self.steps)

    @property
    def state(self) -> str:
        """In one word."""
        statuses = Counter(step.status for step in self.steps)
        if statuses[NodeStatus.ERROR]:
            return "failed"
        if statuses[NodeStatus.DONE] == len(self.steps):
            return "done"
        if statuses[NodeStatus.FUTILE]:
            return "lost"
        return "running" if self.jobs and statuses[NodeStatus.SUBMITTED] else "waiting"

    @property
    def why(self) -> str:
        """Why it waits, or has failed."""
        failed = [step.details for step in self.steps if step.details]
        if failed:
            return failed[0]
        waits = {one.name for step in self.steps for one in step.sources if not one.has_ended}
        if self.state != "waiting" or not waits:
            return ""
        return f"waits for {', '.join(sorted(map(_alike, waits))[:3])}"


def groups(steps: Iterable[Step]) -> list[StepGroup]:
    """Steps in groups, in the order in which they were declared."""
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(_alike(step.name), []).append(step)
    return [
        StepGroup(
            name,
            tuple(some),
            tuple(dict.fromkeys(_alike(one.name) for step in some for one in step.sources)),
        )
        for name, some in found.items()
    ]


def _alike(name: str) -> str:
    return _NUMBER.sub("", name)


def text(steps: Iterable[Step]) -> str:
    """A line for each group: where it stands in the graph, a bar, counts, why it waits."""
    found = groups(steps)
    depths: dict[str, int] = {}
    for group in found:
        above = [depths[name] for name in group.sources if name in depths]
        depths[group.name] = 1 + max(above) if above else 0
    labels = {group.name: _label(group, depths[group.name]) for group in found}
    width = max(map(len, labels.values()), default=0)
    return "\n".join(
        f"{labels[group.name]:{width}}  {_progress(group)}".rstrip() for group in found
    )


def _label(group: StepGroup, depth: int) -> str:
    many = f" x{len(group.steps)}" if len(group.steps) > 1 else ""
    return f"{'   ' * (depth - 1)}{'└─ ' if depth else ''}{group.name}{many}"


def _progress(group: StepGroup) -> str:
    filled = _BAR * group.done // group.jobs if group.jobs else 0
    failed = f", {group.failed} failed" if group.failed else ""
    why = f"  {group.why}" if group.why else ""
    bar = "█" * filled + "░" * (_BAR - filled)
    return f"{bar}  {group.done}/{group.jobs or '?'}{failed}  {group.state}{why}"


def dot(name: str, steps: Iterable[Step]) -> str:
    """The graph for Graphviz."""
    found = groups(steps)
    lines = [f"digraph {_quoted(name)} {{", "    node [shape=box style=filled fillcolor=white];"]
    for group in found:
        label = f"{group.name}\\n{group.done}/{group.jobs or '?'} {group.state}"
        color = _COLORS.get(group.state, "white")
        lines.append(
            f"    {_quoted(group.name)} [label={_quoted(label)} fillcolor={_quoted(color)}];"
        )
    lines += (
        f"    {_quoted(source)} -> {_quoted(group.name)};"
        for group in found
        for source in group.sources
        if source != group.name
    )
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def html(steps: Iterable[Step]) -> str:
    """For notebooks."""
    return f"<pre>{markup.escape(text(steps))}</pre>"


@contextmanager
def shown(flow: object, shows: bool) -> Iterator[None]:
    """Show a flow on the terminal while it runs, and what is left of it at the end."""
    if not shows:
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stderr)
    with Live(get_renderable=lambda: Text(str(flow)), console=console, refresh_per_second=4):
        yield
