"""What running jobs print, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from gridbot.api.live import Printed
from gridbot_client.terminal import printable

_MOST_LINE_BYTES = 16 << 10  # without an end: shown in parts

Line = tuple[str, bool]  # and whether it is of stderr


def live_lines(printed: Iterable[Printed], *, is_one: bool) -> Iterator[Line]:
    """Whole lines, each behind its job's number unless there is one job."""
    parts = dict[tuple[int, int, str], bytes]()
    for piece in printed:
        key = piece[:3]
        *lines, parts[key] = (parts.get(key, b"") + piece.content).split(b"\n")
        if len(parts[key]) > _MOST_LINE_BYTES:
            lines.append(parts.pop(key))
        yield from (_line(key, line, is_one) for line in lines)
    yield from (_line(key, line, is_one) for key, line in parts.items() if line)


def live_documents(printed: Iterable[Printed]) -> Iterator[Line]:
    """A document of JSON for each piece."""
    for piece in printed:
        text = piece.content.decode(errors="replace")
        yield json.dumps({**piece._asdict(), "content": text}), False


def _line(key: tuple[int, int, str], line: bytes, is_one: bool) -> Line:
    text = printable(line.decode(errors="replace"), keep="\t")
    return (text if is_one else f"job {key[0]}: {text}"), key[2] == "stderr"
