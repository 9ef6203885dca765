"""Programs with floating-point output on a native and on a stock client: which validator agrees.

The C library computes `exp` and powers by other instructions where a processor has FMA.  The stock
client's jobs run as on one that has not, by glibc's own setting for that (`GLIBC_TUNABLES`).
GeodSolve is installed twice: as Debian's package, and built from the same source against libc++ and
musl (`other_build.sh`), which is ahead on the PATH of native clients alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import StockClient, needs_boinc, stock_client

from gridbot_client.protocol.messages import Output, Report

pytestmark = needs_boinc

OTHER_PROCESSOR = """case $PWD in
*/boinc-*) export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F ;;
esac
"""
WAVES = (
    OTHER_PROCESSOR
    + """exec awk 'BEGIN {
    for (i = 1; i <= 2000; i++) {
        x = i / 7
        printf "%d %.17g %.17g %.17g\\n", i, exp(x / 100), sin(x), x ^ 1.37
    }
}'
"""
)
TEST_DATA = Path("/usr/share/doc/autodock-vina/test-data")
DOCK = (
    OTHER_PROCESSOR
    + """exec vina --receptor protein.pdbqt --ligand ligand.pdbqt \\
    --center_x CX --center_y CY --center_z CZ --size_x 24 --size_y 24 --size_z 24 \\
    --cpu 1 --seed 42 --local_only --out docked.pdbqt
"""
)
# Debian's minimal images leave the example out, which is documentation.
needs_vina = pytest.mark.skipif(
    not TEST_DATA.exists() or (shutil.which("vina") is None and "CI" not in os.environ),
    reason="no AutoDock Vina with its example here: apt-get install autodock-vina",
)


OTHER_BUILD = Path(os.environ.get("GRIDBOT_TEST_GEODSOLVE", "/nonexistent"))
needs_two_builds = pytest.mark.skipif(
    not OTHER_BUILD.exists() or shutil.which("GeodSolve") is None,
    reason="apt-get install geographiclib-tools; for the other build see other_build.sh",
)
# Pairs of places on the Earth: latitude and longitude of each.
PLACES = "".join(f"{seq % 80}.{seq} 0 -{seq * 7 % 60}.1 {seq % 179}.3\n" for seq in range(1, 501))
GEODESICS = ("GeodSolve", "-i", "-p", "9", "--input-file", "places.txt")


@pytest.fixture(scope="module")
def lab() -> Iterator[Deployment]:
    """A server on which everything that is submitted is signed."""
    with deployment() as made:
        made.configure(boinc_accounts=True)
        made.start("--sign-on-submit")
        yield made


@pytest.fixture(scope="module", autouse=True)
def volunteer(lab: Deployment) -> Iterator[StockClient]:
    """The stock client of a volunteer."""
    with stock_client(lab, key_of(lab, "ann"), cpus=1) as client:
        yield client


def key_of(server: Deployment, name: str) -> str:
    """A key that joins hosts of a new owner."""
    server.run("user", "add", name)
    made = server.run("token", "create", name, "--scope", "join", "--json")
    return str(json.loads(made)["token"])


@pytest.fixture
def liar(lab: Deployment) -> Iterator[BareClient]:
    name = f"liar-{uuid.uuid4().hex[:8]}"
    yield BareClient.join(lab.url, key_of(lab, name), name)
    lab.kill_clients()


def forged(liar: BareClient, output: str, content: bytes) -> None:
    """Let the liar take a replica, and return a result that it made up."""
    (item,) = eventually(lambda: liar.ask().assignments, what="the liar's replica")
    sha256 = hashlib.sha256(content).hexdigest()
    outputs = (Output(output, sha256, len(content), content),)
    liar.ask(0, (Report(item.id, "success", exit_code=0, outputs=outputs),))


def test_exact_disagrees_on_the_last_digit_where_numbers_agree_and_a_forger_loses(
    lab: Deployment, liar: BareClient
) -> None:
    script = lab.file("waves.sh", WAVES)
    common = ("--quorum", "2", "--range", "0:1", "--time", "10m", "--input", str(script))
    exact = lab.submit(*common, "--", "sh", "waves.sh")
    lab.client("native", "--cpus", "1")
    eventually(lambda: len(answers(lab, exact)) == 2, 120, what="an answer of each kind of client")
    assert len({digest for digest, _ in answers(lab, exact)}) == 2
    assert lab.outcomes(exact) == {}
    lab.run("bot", "cancel", str(exact))
    lab.kill_clients()

    near = lab.submit(*common, "--validator", "numbers:rel=1e-12", "--", "sh", "waves.sh")
    forged(liar, "stdout", b"1 1.0014295 0.14237173 0.0695\n")
    lab.client("native", "--cpus", "1")
    lab.wait(near, 120)
    assert sorted(valid for _, valid in answers(lab, near)) == ["false", "true", "true"]
    told = lab.run("bot", "logs", str(near))
    assert "lost: stdout, line 1: 1.0014295, and 1.00142959" in told
    assert "(not near: rel=1e-12, abs=0)" in told


@needs_two_builds
def test_two_builds_of_a_program_agree_by_its_numbers_alone_and_a_forged_distance_loses(
    lab: Deployment, volunteer: StockClient, liar: BareClient
) -> None:
    places = lab.file("places.txt", PLACES)
    common = ("--quorum", "2", "--range", "0:1", "--time", "10m", "--input", str(places))
    exact = lab.submit(*common, "--", *GEODESICS)
    volunteer.update()
    start_with_other_build(lab)
    eventually(lambda: len(answers(lab, exact)) == 2, 120, what="an answer of each build")
    assert len({digest for digest, _ in answers(lab, exact)}) == 2
    assert lab.outcomes(exact) == {}
    lab.run("bot", "cancel", str(exact))
    lab.kill_clients()

    near = lab.submit(*common, "--validator", "numbers:rel=1e-12,abs=1e-8", "--", *GEODESICS)
    forged(liar, "stdout", b"170.9 170.9 900000\n")
    volunteer.update()
    start_with_other_build(lab)
    lab.wait(near, 120)
    assert sorted(valid for _, valid in answers(lab, near)) == ["false", "true", "true"]
    told = lab.run("bot", "logs", str(near))
    assert "lost: stdout, line 1: 170.9, and 17" in told
    assert "(not near: rel=1e-12, abs=1e-08)" in told


def start_with_other_build(server: Deployment) -> None:
    """Start a native client on whose PATH the other build is the first GeodSolve."""
    folder = str(OTHER_BUILD.parent)
    path = os.pathsep.join((folder, os.environ["PATH"]))
    server.client("native", "--cpus", "1", "--allow-read", folder, env={**server.env, "PATH": path})


@needs_vina
def test_a_docking_agrees_by_its_numbers_and_a_forged_energy_loses(
    lab: Deployment, liar: BareClient
) -> None:
    ligand = (TEST_DATA / "ligand.pdbqt").read_bytes()
    protein = gzip.decompress((TEST_DATA / "protein.pdbqt.gz").read_bytes())
    script = DOCK
    for name, value in zip(("CX", "CY", "CZ"), middle(ligand), strict=True):
        script = script.replace(name, f"{value:.1f}")
    files = [
        lab.file("dock.sh", script), lab.file("ligand.pdbqt", ligand),
        lab.file("protein.pdbqt", protein),
    ]  # fmt: skip
    inputs = [part for file in files for part in ("--input", str(file))]
    bot = lab.submit(
        "--quorum", "2", "--range", "0:1", "--time", "10m", "--memory", "2000", *inputs,
        "--validator", "numbers:rel=1e-3,abs=2e-3", "--", "sh", "dock.sh",
    )  # fmt: skip
    forged(liar, "stdout", b"Estimated Free Energy of Binding   : -99.000 (kcal/mol)\n")
    lab.client("native", "--cpus", "1")
    lab.wait(bot, 200)
    assert sorted(valid for _, valid in answers(lab, bot)) == ["false", "true", "true"]
    assert "lost: stdout, line 1: " in lab.run("bot", "logs", str(bot))


def answers(server: Deployment, bot: int) -> list[tuple[str, str]]:
    """Digests and verdicts of the BOT's answers."""
    query = (
        "SELECT encode(digest, 'hex'), coalesce(valid::text, 'open')"
        "  FROM ended WHERE bot = %s AND how = 'success'"
    )
    return [(row[0], row[1]) for row in server.rows(query, bot)]


def middle(ligand: bytes) -> list[float]:
    """Middle of a molecule in PDBQT."""
    atoms = [line for line in ligand.decode().splitlines() if line.startswith(("ATOM", "HETATM"))]
    places = [[float(line[at : at + 8]) for line in atoms] for at in (30, 38, 46)]
    return [sum(values) / len(values) for values in places]
