"""MPI programs: Open MPI starts their ranks on the cores of one pilot of a real Slurm."""

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
    with open_folder("slurm") as folder, slurm(folder, cpus=4) as made:
        yield made


@pytest.fixture
def pilots(running: Deployment, cluster: Slurm, tmp_path: Path) -> Iterator[Overlay]:
    with overlay(running, tmp_path.name) as made:
        yield made
        cluster.cancel_everything()


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
