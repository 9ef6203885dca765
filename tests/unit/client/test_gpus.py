"""Claims about the GPUs of a client: which are its own, and what it tells of them."""

import uuid
from pathlib import Path

import pytest
from tests.made_up_gpus import lay_amd_gpus

from gridbot_client.host.gpus import (
    AMD,
    NVIDIA,
    Gpu,
    GpuClaims,
    attributes,
    named,
    usable,
    variables,
)

CARDS = (Gpu("GPU-1111", NVIDIA, "Small", 8_000, "550"), Gpu("GPU-2222", NVIDIA, "Large", 80_000))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,2"}, ["0", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "3"}, ["0"]),
        ({"SLURM_JOB_GPUS": "3"}, ["3"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-abcdef01"}, ["GPU-abcdef01"]),
        ({"_CONDOR_AssignedGPUs": "CUDA0, CUDA1"}, ["0", "1"]),
        ({"SGE_HGR_gpu": "0 1"}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "0,$(reboot)"}, ["0"]),
    ],
)
def test_a_batch_system_names_the_gpus_that_it_gave(
    environ: dict[str, str], expected: list[str] | None
) -> None:
    assert named(environ) == expected


def test_torque_names_them_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text("node7-gpu1\nnode7-gpu3\n")
    assert named({"PBS_GPUFILE": str(tmp_path / "gpus")}) == ["1", "3"]


def test_gpus_of_amd_are_described_by_the_kernel(tmp_path: Path) -> None:
    found = usable(None, {"CUDA_VISIBLE_DEVICES": "1,0"}, GpuClaims(), lay_amd_gpus(tmp_path))
    assert found == (
        Gpu("1", AMD, "Imagined MI65536", 65_536, "6.7.0"),
        Gpu("0", AMD, "Imagined MI16384", 16_384, "6.7.0"),
    )
    assert attributes(found) == {
        "NumGpus": 2,
        "NumAmdGpus": 2,
        "GpuVendor": "AMD",
        "GpuModel": "Imagined MI65536",
        "GpuMemory": 65_536,
        "GpuDriver": "6.7.0",
    }


def test_a_gpu_that_nobody_describes_counts_all_the_same(tmp_path: Path) -> None:
    found = usable(None, {"CUDA_VISIBLE_DEVICES": "5"}, GpuClaims(), tmp_path)
    assert found == (Gpu("5"),)
    assert attributes(found) == {"NumGpus": 1}


def test_two_clients_of_a_machine_never_have_the_same_gpu() -> None:
    cards = tuple(Gpu(str(uuid.uuid4())) for _ in range(2))
    with GpuClaims() as first, GpuClaims() as second, GpuClaims() as third:
        assert first.take(cards, 1) == cards[:1]
        assert second.take(cards, 2) == cards[1:]
        assert third.take(cards, 2) == ()
    with GpuClaims() as later:
        assert later.take(cards, 2) == cards


def test_a_client_that_shall_use_none_has_none(tmp_path: Path) -> None:
    assert usable(0, {"CUDA_VISIBLE_DEVICES": "0"}, GpuClaims(), lay_amd_gpus(tmp_path)) == ()


def test_a_job_sees_the_gpus_that_it_got_and_no_others() -> None:
    assert variables(CARDS[1:], CARDS) == {
        "CUDA_VISIBLE_DEVICES": "GPU-2222",
        "GRIDBOT_GPUS": "GPU-2222",
    }
    assert variables((), CARDS) == {"CUDA_VISIBLE_DEVICES": ""}
    assert variables((), ()) == {}
    card = Gpu("0", AMD)
    assert variables((card,), (card,)) == {"ROCR_VISIBLE_DEVICES": "0", "GRIDBOT_GPUS": "0"}
