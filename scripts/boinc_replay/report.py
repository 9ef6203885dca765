"""What a replay showed, on the terminal and as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .run import Sent

# What the server's programs write when something went wrong that nobody had foreseen.
_EXCEPTION = re.compile(
    r"Traceback \(most recent call last\)|\b(?:ERROR|CRITICAL|FATAL|PANIC)\b|Exception in thread"
)
# The web processes say nothing by themselves but warnings and errors, without their level.
_WEB_LOG, _WEB_CHATTER = "gunicorn.log", "[INFO]"


@dataclass(slots=True)
class Summary:
    """Everything that the requests so far have shown."""

    captured: int = 0
    requests: int = 0
    answers: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # path, way, status
    slowest: list[tuple[float, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, sent: list[Sent]) -> None:
        """Count what became of one captured request."""
        self.captured += 1
        self.requests += len(sent)
        for item in sent:
            status = item.answer.status if item.answer else 0
            self.answers[_page(item.path), item.way, status] += 1
            if item.fault:
                self.faults.append(f"{item.name}, {item.way}: {item.fault}")
        answered = [
            (item.answer.seconds, f"{item.name}, {item.way}") for item in sent if item.answer
        ]
        self.slowest = sorted([*self.slowest, *answered], reverse=True)[:3]

    @property
    def is_good(self) -> bool:
        """Whether every request was answered, and the server's log is clean."""
        return not (self.faults or self.log)


def sizes(folder: Path) -> dict[str, int]:
    """How long the logs in a folder are: what a start says of its own is not looked at."""
    return {path.name: path.stat().st_size for path in folder.glob("*.log")}


def exceptions(folder: Path, since: Mapping[str, int]) -> list[str]:
    """The lines of the logs since they had these sizes that tell of an exception or an error."""
    return [
        f"{path.name}: {line}"
        for path in sorted(folder.glob("*.log"))
        for line in path.read_bytes()[since.get(path.name, 0) :]
        .decode(errors="replace")
        .splitlines()
        if _EXCEPTION.search(line) or (path.name == _WEB_LOG and _WEB_CHATTER not in line)
    ]


@contextmanager
def progress(count: int) -> Iterator[Callable[[Summary], None]]:
    """Show how far the replay is; call what this yields with the summary as it grows."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[found]} faults"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=count, found=0)
        yield lambda summary: bar.update(
            task, completed=summary.requests, found=len(summary.faults)
        )


def show(summary: Summary, most: int, as_json: bool) -> None:
    """Print the figures, and the first `most` faults and lines of the log."""
    if as_json:
        print(json.dumps(_document(summary, most), indent=2))
        return
    print(
        f"{summary.captured} captured requests, {summary.requests} sent in {summary.seconds:.0f} s"
    )
    for (path, way, status), count in sorted(summary.answers.items()):
        told = status or "no answer"
        print(f"  {path:<22} {way:<11} {told:<9} {count:>8}")
    for seconds, name in summary.slowest:
        print(f"slowest: {1000 * seconds:.0f} ms, {name}")
    for kind, lines in (("fault", summary.faults), ("in the log", summary.log)):
        print(f"{kind}: {len(lines)}")
        for line in lines[:most]:
            print(f"  {line}")


def _document(summary: Summary, most: int) -> dict[str, Any]:
    return {
        "captured": summary.captured,
        "requests": summary.requests,
        "seconds": round(summary.seconds, 1),
        "answers": [
            {"path": path, "way": way, "status": status or None, "count": count}
            for (path, way, status), count in sorted(summary.answers.items())
        ],
        "slowest_ms": round(1000 * summary.slowest[0][0], 1) if summary.slowest else None,
        "faults": len(summary.faults),
        "log_lines": len(summary.log),
        "examples": [*summary.faults[:most], *summary.log[:most]],
    }


def _page(path: str) -> str:
    """Which page a path belongs to: files and arguments left out."""
    page = path.partition("?")[0]
    return "download" if page.startswith("download/") else page or "(master page)"
