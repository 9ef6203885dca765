"""GPUs from end to end: found or given, told to the server, and one job on each at a time."""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.made_up_gpus import lay_amd_gpus
from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import NO_COPIES, Deployment, eventually
from tests.system.overlays import Overlay, overlay

MODULES = Path(__file__).parent.parent / "fakes" / "modules"
JOBS = 4
# Others on this machine may run the same test.
UUIDS = tuple(f"GPU-{uuid.uuid4()}" for _ in range(2))
# $0 is a folder, in which each job makes one of its GPU's name: that fails if another job has it.
# All but the first job wait there at a gate.
ALONE = """
mkdir "$0/$GRIDBOT_GPUS" || exit 1
test "$1" = 0 || while test -e "$0/gate"; do sleep 0.05; done
rmdir "$0/$GRIDBOT_GPUS" && printenv VARIABLE
"""


def start_client(server: Deployment, name: str, *options: str) -> None:
    """Start a client on a machine with two GPUs of NVIDIA."""
    env = {**server.env, "PYTHONPATH": str(MODULES), "FAKE_GPUS": ",".join(UUIDS)}
    server.client(name, *options, env=env)


def run_alone(server: Deployment, gpus: Sequence[str], variable: str) -> None:
    """Run jobs of one GPU each; all GPUs are used at once, and none by two jobs."""
    folder = server.folder / f"gpus-{uuid.uuid4().hex}"
    folder.mkdir()
    gate = folder / "gate"
    gate.touch()
    job = ["sh", "-c", ALONE.replace("VARIABLE", variable), str(folder), "{}"]
    needs = ("--gpus", "1", "--memory", "100MB")
    bot = server.submit(*needs, "--range", f"0:{JOBS}", "--", *job, policy=NO_COPIES)
    busy = {*gpus, gate.name}
    eventually(lambda: {path.name for path in folder.iterdir()} == busy, what="busy GPUs")
    gate.unlink()
    server.wait(bot)
    with server.session() as session:
        seen = [str(result.stdout).strip() for result in session.bot(bot).results()]
    assert len(seen) == JOBS
    assert set(seen) == set(gpus)
    ends = server.rows("SELECT how, count(*) FROM ended WHERE bot = %s GROUP BY how", bot)
    assert ends == [("success", JOBS)]


def test_a_clients_gpus_run_one_job_each(running: Deployment) -> None:
    start_client(running, "gpus", "--cpus", "4")
    run_alone(running, UUIDS, "CUDA_VISIBLE_DEVICES")
    [(ad,)] = running.rows("SELECT ad FROM host WHERE ad ? 'NumGpus'")
    assert (ad["NumGpus"], ad["NumNvidiaGpus"], ad["GpuModel"]) == (2, 2, "Imagined 200")
    assert (ad["GpuMemory"], ad["GpuDriver"]) == (32_768, "550.54.15")
    assert (ad["GpuVendor"], ad["CudaVersion"]) == ("NVIDIA", 12.4)
    assert "FreeGpus" not in ad


def test_a_job_that_asks_for_no_gpu_sees_none(running: Deployment) -> None:
    start_client(running, "gpus")
    bot = running.submit("--range", "0:1", "--", "sh", "-c", "env | grep -E '^(CUDA|GRIDBOT_GPU)'")
    running.wait(bot)
    with running.session() as session:
        [result] = session.bot(bot).results()
    assert result.stdout == "CUDA_VISIBLE_DEVICES=\n"


def test_a_client_that_shall_use_more_gpus_than_there_are_says_so(running: Deployment) -> None:
    start_client(running, "greedy", "--gpus", "3")
    assert running.client_ends("greedy") == 2
    said = (running.folder / "greedy.log").read_text()
    assert "--gpus 3: this machine has 2 to give" in said


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """One node with two GPUs."""
    with open_folder("slurm") as folder, slurm(folder, nodes=1, cpus=4, gpus=2) as made:
        yield made


@pytest.fixture
def pilots(running: Deployment, cluster: Slurm, tmp_path: Path) -> Iterator[Overlay]:
    with overlay(running, tmp_path.name) as made:
        yield made
        cluster.cancel_everything()


def add_grid(pilots: Overlay, cluster: Slurm, *options: str) -> None:
    """Configure pilots of two cores on the cluster, whose node's kernel shows two GPUs."""
    root = lay_amd_gpus(pilots.folder / "root")
    shown = ("--setup", f"export GRIDBOT_SYSTEM_ROOT={root}")
    shape = ("--cpus", "2", "--walltime", "10m", "--max-queued", "2")
    pilots.add_slurm("s", cluster, *shape, *shown, *options)


@pytest.mark.parametrize("each", [1, 2])
def test_pilots_ask_slurm_for_gpus_and_give_each_to_one_job_at_a_time(
    running: Deployment, pilots: Overlay, cluster: Slurm, each: int
) -> None:
    add_grid(pilots, cluster, "--gpus", str(each), "--max-running", str(2 // each))
    pilots.start()
    run_alone(running, ["0", "1"], "ROCR_VISIBLE_DEVICES")
    [ad, *_] = [ad for (ad,) in running.rows("SELECT ad FROM host WHERE ad ? 'NumAmdGpus'")]
    assert (ad["NumGpus"], ad["GpuDriver"]) == (each, "6.7.0")


def test_a_grid_whose_pilots_have_no_gpus_refuses_a_bot_that_asks_for_one(
    running: Deployment, pilots: Overlay, cluster: Slurm
) -> None:
    add_grid(pilots, cluster)
    running.submit("--gpus", "1", "--range", "0:1", "--", "true")
    pilots.start()
    words = "a replica needs 1 GPU, 1 CPUs and 512 MB, a pilot has 0, 2 and 900"
    eventually(lambda: words in pilots.status("s")["why"], what="the refusal")
    assert pilots.pilots("s") == []
