"""MPI programs: Open MPI starts their ranks in one pilot of a real Slurm, on all its nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.batch_systems import Slurm, need, open_folder, slurm
from tests.system.deployment import Deployment
from tests.system.overlays import Overlay, overlay

# Each rank adds its number to those of all others; Open MPI's library is called without a compiler.
RANKS = """
import ctypes

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
handle = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
world, rank, total = handle("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int()
assert mpi.MPI_Init(None, None) == 0
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Allreduce(
    ctypes.byref(rank), ctypes.byref(total), 1, handle("ompi_mpi_int"), handle("ompi_mpi_op_sum"),
    world,
)
print(f"{rank.value}: {total.value}")
mpi.MPI_Finalize()
"""


# Pilots of this cluster run as the user of the tests, which mpirun refuses if it is root.
AS_ANYBODY = [
    word
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    for word in ("--env", f"{name}=1")
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    need("mpirun", "openmpi-bin")
    with open_folder("slurm") as folder, slurm(folder, nodes=2, cpus=4) as made:
        yield made


@pytest.fixture
def pilots(running: Deployment, cluster: Slurm, tmp_path: Path) -> Iterator[Overlay]:
    with overlay(running, tmp_path.name) as made:
        yield made
        cluster.cancel_everything()


# The nodes of this cluster are one machine, on which two ranks would take one name for the memory
# that they share with the others of their node.  It has fewer cores than there are ranks, which
# therefore must not spin while they wait for each other.
ON_ONE_MACHINE = [
    word
    for setting in ("btl=tcp,self", "btl_tcp_if_include=lo", "mpi_yield_when_idle=1")
    for word in ("--env", f"OMPI_MCA_{setting}")
]


def add_wide(pilots: Overlay, cluster: Slurm) -> None:
    """Configure pilots of two nodes with four cores each; jobs see what Slurm's programs need."""
    shown = f"export GRIDBOT_ALLOW_READ={cluster.folder}"
    pilots.add_slurm("wide", cluster, "--nodes", "2", "--cpus", "4", "--setup", shown,
                     "--max-running", "1")  # fmt: skip


def outputs(running: Deployment, bot: int) -> list[str]:
    """What the jobs of a BOT printed, each in the order of its lines."""
    with running.session() as session:
        return [str(result.stdout) for result in session.bot(bot).results()]


def test_ranks_of_an_mpi_program_run_on_all_nodes_of_a_pilot(
    running: Deployment, cluster: Slurm, pilots: Overlay
) -> None:
    add_wide(pilots, cluster)
    program = running.folder / "ranks.py"
    ranks = RANKS.replace('print(f"', "print(os.environ['SLURMD_NODENAME'], f\"")
    program.write_text("import os\n" + ranks)
    bot = running.submit(
        "--cpus", "8", "--range", "0:2", "--input", str(program), *AS_ANYBODY, *ON_ONE_MACHINE,
        "--", "sh", "-c",
        'echo "$GRIDBOT_NODES" && cat "$GRIDBOT_MACHINEFILE" && mpirun --machinefile'
        ' "$GRIDBOT_MACHINEFILE" --bind-to none python3 ranks.py',
    )  # fmt: skip
    pilots.start()
    running.wait(bot)
    expected = [f"n{1 + rank // 4} {rank}: 28" for rank in range(8)]
    for said in outputs(running, bot):
        lines = said.splitlines()
        assert lines[:3] == ["n1,n2", "n1 slots=4", "n2 slots=4"]
        assert sorted(lines[3:]) == expected
    assert len(pilots.pilots("wide")) == 1


def test_many_jobs_run_at_once_on_all_nodes_of_one_pilot(
    running: Deployment, cluster: Slurm, pilots: Overlay
) -> None:
    add_wide(pilots, cluster)
    folder = running.folder / "rendezvous"
    folder.mkdir()
    job = (
        'test "$1" = 0 && exit; touch "$0/$1"; while [ "$(ls "$0" | wc -l)" -lt 4 ]; do'
        " sleep 0.05; done;"
        ' echo "$GRIDBOT_NODES"'
    )
    bot = running.submit(
        "--cpus", "2", "--range", "0:5", "--memory", "100MB", "--", "sh", "-c", job, str(folder),
        "{}",
    )  # fmt: skip
    pilots.start()
    running.wait(bot)
    # The first job of a pilot runs alone.
    assert sorted(outputs(running, bot)) == ["", *["n1\n"] * 2, *["n2\n"] * 2]
    [pilot] = pilots.pilots("wide")
    assert pilot.cpus == 8


def test_ranks_of_an_mpi_program_run_on_the_cores_of_a_pilot_that_has_a_node(
    running: Deployment, cluster: Slurm, pilots: Overlay
) -> None:
    pilots.add_slurm("whole", cluster, "--cpus", "4", "--directive=--exclusive")
    program = running.folder / "ranks.py"
    program.write_text(RANKS)
    bot = running.submit(
        "--cpus", "4", "--range", "0:2", "--input", str(program), *AS_ANYBODY, "--",
        "mpirun", "--host", "localhost:4", "--bind-to", "none", "python3", "ranks.py",
    )  # fmt: skip
    pilots.start()
    running.wait(bot)
    with running.session() as session:
        results = list(session.bot(bot).results())
    said = [sorted(str(result.stdout).splitlines()) for result in results]
    assert said == [[f"{rank}: 6" for rank in range(4)]] * 2
