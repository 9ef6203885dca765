"""Takes all results of a BOT through `import gridbot`, in a process whose memory is its own."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import click

import gridbot


def peak_mb() -> float:
    """The most memory this program ever held; what `getrusage` says is its parent's as well."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, "Linux names it"
    return int(found[1]) / 1024


@click.command()
@click.option("--url", required=True)
@click.option("--key-file", type=click.Path(path_type=Path), required=True)
@click.option("--bot", type=int, required=True)
@click.option("--to", type=click.Path(path_type=Path), required=True)
def main(url: str, key_file: Path, bot: int, to: Path) -> None:
    """Write every job's output to a file, a line each; print the figures."""
    memory = peak_mb()
    jobs = size = 0
    began, cpu = time.monotonic(), time.process_time()
    with gridbot.connect(url, key_file) as session, to.open("wb") as file:
        for result in session.bot(bot).results():
            content = result.outputs["stdout"].read()
            file.write(b"%d\t%b" % (result.seq, content))
            jobs, size = jobs + 1, size + len(content)
    figures = {
        "jobs": jobs,
        "bytes": size,
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mb": peak_mb(),
        "peak_growth_mb": peak_mb() - memory,
    }
    click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
