"""When a BOT is likely to end, for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

from gridbot.api.documents import FigureRange, Prediction
from gridbot.api.units import duration
from gridbot.printing import counted, table
from gridbot_client.terminal import printable


def _time(seconds: float) -> str:
    return duration(timedelta(seconds=seconds))


def _number(count: float) -> str:
    return f"{count:,.0f}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h"


# Figures of a prediction: how each is called, and how it is written.
ROWS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "left_seconds": ("time left", _time),
    "tail_seconds": ("tail phase", _time),
    "replicas": ("replicas", _number),
    "speculative": ("speculative ones", _number),
    "failed": ("jobs that fail", _number),
    "cpu_hours": ("CPU time", _hours),
}


def what_if_page(found: Prediction, file: Path | None) -> str:
    """The likely end, the figures behind it, and the command that applies the policy of a file."""
    lines = [f"bot {found['bot']}: {headline(found)}", "", _figures(found), ""]
    lines += _warnings(found)
    lines.append(
        f"{counted(found['seeds'], 'simulation')} of {counted(found['jobs_left'], 'job')}"
        f" left on {counted(found['hosts'], 'host')}; median and 80 % range"
    )
    lines += [f"assumed: {printable(line)}" for line in found["assumes"]]
    lines += [f"not simulated: {printable(line)}" for line in found["left_out"]]
    if file is not None:
        apply = f"gridbot bot set {found['bot']} --policy {shlex.quote(str(file))}"
        lines += ["", f"nothing is changed; to apply it: {apply}"]
    return "\n".join(lines)


def headline(found: Prediction) -> str:
    """When it ends by the local clock, such as `ends 14:10-14:50 instead of 17:20`."""
    tried = found["tried"] or found["now"]
    end = tried["figures"]["left_seconds"]
    if end is None:
        return printable(found["verdict"])
    as_of = datetime.fromisoformat(found["as_of"]).astimezone()
    before = found["now"]["figures"]["left_seconds"]
    text = f"ends {_clock(as_of, end['low'])}-{_clock(as_of, end['high'])}"
    if found["tried"] is None:
        return text
    text += f" instead of {_clock(as_of, before['median'])}" if before else " instead of never"
    text += f", sooner in {found['sooner']} of {counted(found['seeds'], 'simulation')}"
    replicas = found["differences"] and found["differences"]["replicas"]
    if replicas is None or replicas["percent"] is None:
        return text
    percent = round(replicas["percent"])
    kind = "more" if percent > 0 else "fewer"
    return f"{text}; {abs(percent)} % {kind} replicas" if percent else f"{text}; as many replicas"


def _clock(as_of: datetime, seconds: float) -> str:
    """A time of today, or a date with a time."""
    then = as_of + timedelta(seconds=seconds)
    return f"{then:%H:%M}" if then.date() == as_of.date() else f"{then:%Y-%m-%d %H:%M}"


def _figures(found: Prediction) -> str:
    both = [found["now"], *([found["tried"]] if found["tried"] else [])]
    columns = [cast(Mapping[str, FigureRange | None], runs["figures"]) for runs in both]
    rows = [
        (title, *(_range(figures[name], written) for figures in columns))
        for name, (title, written) in ROWS.items()
    ]
    return table(("", "now", "tried")[: 1 + len(columns)], rows)


def _range(value: FigureRange | None, written: Callable[[float], str]) -> str:
    if value is None:
        return "-"
    return f"{written(value['median'])} ({written(value['low'])} - {written(value['high'])})"


def _warnings(found: Prediction) -> Iterator[str]:
    for name, predicted in (("now", found["now"]), ("tried", found["tried"])):
        runs = predicted["runs"] if predicted else []
        if open_ := [run for run in runs if not run["has_ended"]]:
            why = printable(str(open_[0]["why_not"]))
            yield f"{name}: {len(open_)} of {len(runs)} simulations did not end: {why}"
