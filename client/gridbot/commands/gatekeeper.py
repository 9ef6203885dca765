"""`gridbot gatekeeper`: lets stock clients of ARC submit here."""

from __future__ import annotations

import logging
import signal
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gridbot.api.errors import BadInput
from gridbot.commands.options import FILE, say
from gridbot.gatekeeper.files import JobFiles
from gridbot.gatekeeper.jobs import AcceptedJobs, JobsUnreadable
from gridbot.gatekeeper.owners import OwnerMap
from gridbot.gatekeeper.rest import ArcRest, GatekeeperLimits
from gridbot.gatekeeper.rounds import Rounds, RoundSettings
from gridbot.gatekeeper.serving import GatekeeperServer, TlsFiles, context_of
from gridbot_client.quantities import SIZE, TIME
from gridbot_client.storage import held

_USUAL = GatekeeperLimits()
_GRID_SECURITY = Path("/etc/grid-security")


@click.command()
@click.option(
    "--map",
    "owner_map",
    type=FILE,
    required=True,
    help='Owner map: lines of "SUBJECT" FILE, of a certificate and of its owner\'s key.',
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder that keeps jobs and their files.",
)
@click.option(
    "--bind",
    default="0.0.0.0:443",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Where clients connect.",
)
@click.option(
    "--certificate",
    type=FILE,
    default=_GRID_SECURITY / "hostcert.pem",
    show_default=True,
    help="The host's certificate.",
)
@click.option(
    "--certificate-key",
    type=FILE,
    default=_GRID_SECURITY / "hostkey.pem",
    show_default=True,
    help="Its key.",
)
@click.option(
    "--authorities",
    type=click.Path(exists=True, path_type=Path),
    default=_GRID_SECURITY / "certificates",
    show_default=True,
    help="Authorities of clients' certificates: a folder with hashed names, or a file.",
)
@click.option(
    "--server",
    metavar="URL",
    help="URL of the server.  [default: GRIDBOT_SERVER, or that of gridbot login]",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    default=_USUAL.jobs,
    show_default=True,
    help="Limit of jobs of one subject, which count until they are cleaned.",
)
@click.option(
    "--max-input",
    type=SIZE,
    default="2GB",
    show_default=True,
    metavar="SIZE",
    help="Limit of one input file.",
)
@click.option(
    "--keep",
    type=TIME,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Time after a job's end for which it and its files are kept, while this runs.",
)
def gatekeeper(
    owner_map: Path, data: Path, bind: str, certificate: Path, certificate_key: Path,
    authorities: Path, server: str | None, max_jobs: int, max_input: int, keep: float,
) -> None:  # fmt: skip
    """Serve ARC's REST interface: arcsub, arcstat, arcget, arckill and arcclean submit here.

    Each job is a BOT of the owner to whom the map leads its certificate. The gatekeeper signs it
    with the file signing.key beside that owner's key. It may be killed at any moment: each job that
    arcsub got an id for is submitted once.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    owners = OwnerMap(owner_map)
    owners.accounts()  # an error in it is told now
    with _locked(data):
        jobs = _jobs(data / "jobs.db")
        files = JobFiles(data / "files")
        files.sweep(jobs.ids(), {job.id for job in jobs.unended()})
        settings = RoundSettings(server, kept=keep)
        rounds = Rounds(jobs, files, owners.accounts, settings)
        rest = ArcRest(jobs, files, GatekeeperLimits(max_jobs, max_input << 20))
        context = context_of(TlsFiles(certificate, certificate_key, authorities))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with _listening(bind, context, owners, rest) as listening:
            threading.Thread(target=rounds.run, name="rounds", daemon=True).start()
            say(f"clients submit to https://{bind}/arex")
            listening.serve_forever()


def _jobs(path: Path) -> AcceptedJobs:
    """The jobs in a file.  Raises BadInput."""
    try:
        return AcceptedJobs(path, time.time, time.monotonic)
    except JobsUnreadable as error:
        raise BadInput(str(error)) from None


def _listening(
    bind: str, context: ssl.SSLContext, owners: OwnerMap, rest: ArcRest
) -> GatekeeperServer:
    """A server that listens.  Raises BadInput."""
    host, colon, port = bind.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise BadInput(f"--bind {bind!r}: expected ADDRESS:PORT")
    try:
        return GatekeeperServer((host.strip("[]"), int(port)), context, owners, rest.answer)
    except OSError as error:
        raise BadInput(f"--bind {bind}: {error.strerror}") from None


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Use a folder alone.  Raises BadInput if another process does."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    busy = BadInput(f"{data}: another gatekeeper uses this folder")
    with held(data / "lock", lambda: busy):
        yield
