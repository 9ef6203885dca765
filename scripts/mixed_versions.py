"""The command behind scripts/mixed-versions: an older commit's clients at this server, and back."""

from __future__ import annotations

import json
import sys
import time

import click

from scripts.benchmarks.compare import base_python
from scripts.benchmarks.harness.installation import (
    CHECKOUT,
    BenchFailed,
    Installation,
    installation,
)

# There is no release yet.  The newest commit whose clients know one version of manifests less.
BASE = "b5bb3b9"
JOBS = 5
PATIENCE_SECONDS = 120.0


@click.command()
@click.argument("base", default=BASE)
@click.option("--json", "as_json", is_flag=True, help="Print one document.")
def command(base: str, as_json: bool) -> None:
    """Let clients of the commit BASE work for this checkout's server, and ours for BASE's.

    Submission and execution are both of the client's version.  BASE is b5bb3b9 if none is given,
    and is installed once, in `demo-out/compare`.  Exit code 1 if jobs stay undone.
    """
    pythons = {base: base_python(CHECKOUT, base), "this": sys.executable}
    found = []
    for server, client in ((base, "this"), ("this", base)):
        done, said = work(pythons[server], pythons[client])
        found.append({"server": server, "client": client, "jobs_done": done, "said": said})
        if not as_json:
            click.echo(f"server {server}, client {client}: {done} of {JOBS} jobs done; {said}")
    if as_json:
        click.echo(json.dumps(found))
    sys.exit(any(item["jobs_done"] != JOBS for item in found))


def work(server: str, client: str) -> tuple[int, str]:
    """Run a BOT; return how many jobs were done, and what was said last of what failed.

    Both are the Python of an environment with a GridBot of some version.
    """
    with installation(python=server) as made:
        other = Installation(made.folder, client)
        other.url = made.url
        try:
            other.start_client("worker", "--cpus", "1")
            return _done(other, other.submit("--range", f"0:{JOBS}", "--", "echo", "{}")), ""
        except BenchFailed as error:
            return 0, str(error)
        finally:
            other.stop()


def _done(where: Installation, bot: int) -> int:
    """Wait until a BOT is done, or for too long; return how many jobs are."""
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        where.check_clients()
        done = int(json.loads(where.gridbot("bot", "show", str(bot), "--json"))["jobs_done"])
        if done == JOBS or time.monotonic() > gives_up_at:
            return done
        time.sleep(1.0)
