"""What a run of the fuzzer showed, on the terminal and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .blocks import Finding, Outcome
from .classes import CLASSES


@dataclass(slots=True)
class Summary:
    """Everything that the blocks so far have shown."""

    cases: int = 0
    seconds: float = 0.0
    restarts: int = 0
    types: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def add(self, outcome: Outcome) -> None:
        """Count a block."""
        self.cases += outcome.cases
        self.restarts += outcome.restarts
        self.types += outcome.types
        for finding in outcome.findings:
            self.findings[finding.name].append(finding)

    @property
    def unexplained(self) -> list[Finding]:
        """All that no class explains, those of one kind together, the most frequent kind first."""
        kinds = sorted(self.findings.values(), key=len, reverse=True)
        return [finding for kind in kinds for finding in kind if not finding.explained]

    def smallest(self) -> list[Finding]:
        """Return the smallest of each unexplained kind, the most frequent kind first."""
        kinds = {finding.name: self.findings[finding.name] for finding in self.unexplained}
        return [min(kind, key=_size) for kind in kinds.values()]

    @property
    def disagreements(self) -> int:
        return sum(map(len, self.findings.values()))


@contextmanager
def progress(count: int) -> Iterator[Callable[[Summary], None]]:
    """Show how far the run is; call what this yields with the summary as it grows."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[disagreements]} disagree, {task.fields[unexplained]} unexplained"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        shown = bar.add_task("", total=count, rate=0.0, disagreements=0, unexplained=0)

        def tell(summary: Summary) -> None:
            bar.update(
                shown,
                completed=summary.cases,
                rate=bar.tasks[shown].speed or 0.0,
                disagreements=summary.disagreements,
                unexplained=len(summary.unexplained),
            )

        yield tell


def show(summary: Summary, limit: int, as_json: bool) -> None:
    """Print the classes with an example each, and up to `limit` unexplained disagreements."""
    if as_json:
        print(json.dumps(document(summary)))
        return
    console = Console()
    console.print(_classes(summary))
    kinds = summary.smallest()
    for finding in kinds[:limit]:
        console.print(_described(finding, len(summary.findings[finding.name])), soft_wrap=True)
    console.print(
        f"{summary.cases:,} expressions in {summary.seconds:.0f} s"
        f" ({summary.cases / summary.seconds:,.0f}/s), {summary.disagreements:,} disagreements,"
        f" {len(summary.unexplained):,} unexplained of {len(kinds)} kinds;"
        f" the library was restarted {summary.restarts} times"
    )


def document(summary: Summary) -> dict[str, Any]:
    """Return the summary as plain data."""
    return {
        "expressions": summary.cases,
        "seconds": round(summary.seconds, 1),
        "restarts": summary.restarts,
        "types": dict(summary.types.most_common()),
        "classes": {
            each.name: {
                "explanation": each.explanation,
                "count": len(summary.findings.get(each.name, ())),
                "example": next(map(plain, summary.findings.get(each.name, ())), None),
            }
            for each in CLASSES
        },
        "unexplained": [plain(finding) for finding in summary.unexplained],
    }


def plain(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data."""
    return dataclasses.asdict(finding)


def _size(finding: Finding) -> int:
    return sum(len(text or "") for text in finding.texts)


def _classes(summary: Summary) -> Table:
    table = Table("class", "count", "explanation", "example", title="explained disagreements")
    for each in CLASSES:
        found = summary.findings.get(each.name, [])
        if not found:
            continue
        example = min((finding.texts[2] for finding in found), key=len)
        table.add_row(each.name, f"{len(found):,}", each.explanation, escape(example[:200]))
    return table


def _described(finding: Finding, count: int) -> str:
    my, target, expression = finding.texts
    lines = [
        f"[bold]{escape(finding.name)}[/bold] ({count} times, {finding.seed} {finding.mode})",
        f"  {escape(expression)}",
        *(f"  MY     {escape(my)}" for my in (my,) if my is not None),
        *(f"  TARGET {escape(target)}" for target in (target,) if target is not None),
        f"  ours   {escape(json.dumps(finding.ours))}",
        f"  theirs {escape(json.dumps(finding.theirs))}",
    ]
    return "\n".join(lines)
