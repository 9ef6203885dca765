import pytest
from tests.boinc_captures import captures
from tests.unit.boinc.test_request import GPUS, bare, with_host

from gridbot_policies.policy.ads import LIVE_ATTRIBUTES
from gridbot_server.boinc.protocol.request import parse
from gridbot_server.boinc.session.host_ad import host_ad


def test_the_ad_of_a_captured_client_is_whole() -> None:
    ad = host_ad(parse(captures()["run1_003_ok"]))
    features = ad.pop("CpuFeatures")
    assert "avx2" in str(features).split()
    assert ad == {
        "Name": "laptop",
        "NumCpus": 2,
        "Memory": 21_695,  # 90 % of it, when idle
        "Disk": 75_776,
        "OpSys": "LINUX",
        "Arch": "X86_64",
        "Platform": "linux-x86_64",
        "Platforms": "linux-x86_64",
        "IsPilot": False,
        "IsDedicated": False,
        "IsBoinc": True,
        "SandboxLevel": 0,
        "Sandbox": "no walls; limits on time, memory and the size of files, watched by its job",
        "ClientVersion": "7.20.5",
        "CpuModel": "AMD EPYC [Family 25 Model 1 Stepping 1]",
        "CpuVendor": "AuthenticAMD",
        "CpuCache": 512,
        "Flops": 1e9,
        "IntOps": 1e9,
        "DetectedCpus": 2,
        "DetectedMemory": 24_105,
        "TotalDisk": 257_024,
        "Swap": 0,
        "OpSysName": "Linux Debian",
        "OpSysVersion": "Debian GNU/Linux 12 (bookworm) [6.1.0-18-amd64|libc 2.36]",
        "HasWsl": False,
        "OnFraction": 1.0,
        "ActiveFraction": 1.0,
        "ConnectedFraction": 1.0,
        "GpuActiveFraction": 1.0,
        "Availability": 1.0,
        "BandwidthDown": 4e6,
        "ClockMin": 356,
        "ClockDay": 6,
        "Wants": "CPU",
    }


def test_requests_of_one_client_differ_in_live_attributes_only() -> None:
    first, last = (
        {name: value for name, value in host_ad(parse(captures()[run])).items()}
        for run in ("run3_019_trickle", "run3_032_trickle")
    )
    changed = {name for name in first | last if first.get(name) != last.get(name)}
    assert changed <= {*LIVE_ATTRIBUTES}


def test_what_a_client_does_not_say_is_undefined() -> None:
    assert host_ad(bare()) == {
        "NumCpus": 1,
        "DetectedCpus": 1,
        "IsPilot": False,
        "IsDedicated": False,
        "IsBoinc": True,
        "SandboxLevel": 0,
        "Sandbox": "no walls; limits on time, memory and the size of files, watched by its job",
        "HasWsl": False,
        "Swap": 0,
        "ClientVersion": "0.0.0",
    }


@pytest.mark.parametrize(("cpu_seconds", "wants"), [(10, "CPU NVIDIA"), (0, "NVIDIA")])
def test_a_client_says_for_which_processors_it_wants_work(cpu_seconds: int, wants: str) -> None:
    assert host_ad(bare(f"<cpu_req_secs>{cpu_seconds}</cpu_req_secs>{GPUS}"))["Wants"] == wants


@pytest.mark.parametrize(
    ("cpus", "percent", "usable"), [(8, 50, 4), (3, 50, 1), (1, 10, 1), (8, 0, 8), (8, 100, 8)]
)
def test_the_owner_bounds_the_processors(cpus: int, percent: float, usable: int) -> None:
    request = bare(
        f"<host_info><p_ncpus>{cpus}</p_ncpus></host_info><working_global_preferences>"
        f"<global_preferences><max_ncpus_pct>{percent}</max_ncpus_pct></global_preferences>"
        "</working_global_preferences>"
    )
    assert host_ad(request)["NumCpus"] == usable
    assert host_ad(request)["DetectedCpus"] == cpus


@pytest.mark.parametrize(
    ("preference", "disk_gb"),
    [
        ("", 50),
        ("<disk_max_used_gb>12</disk_max_used_gb>", 10),  # 2 GB are used
        ("<disk_max_used_pct>20</disk_max_used_pct>", 18),
        ("<disk_min_free_gb>30</disk_min_free_gb>", 20),
        ("<disk_min_free_gb>300</disk_min_free_gb>", 0),
    ],
)
def test_each_of_the_owners_limits_bounds_the_disk(preference: str, disk_gb: int) -> None:
    request = bare(
        f"<host_info><d_total>{100 << 30}</d_total><d_free>{50 << 30}</d_free></host_info>"
        f"<disk_usage><d_boinc_used_total>{2 << 30}</d_boinc_used_total></disk_usage>"
        f"<working_global_preferences><global_preferences>{preference}</global_preferences>"
        "</working_global_preferences>"
    )
    assert host_ad(request)["Disk"] == disk_gb * 1024


@pytest.mark.parametrize(
    ("os_name", "platform", "system", "arch"),
    [
        ("Microsoft Windows 11", "windows_x86_64", "WINDOWS", "AMD64"),
        ("Darwin", "arm64-apple-darwin", "DARWIN", "ARM64"),
        ("Linux Ubuntu", "aarch64-unknown-linux-gnu", "LINUX", "AARCH64"),
        ("Android", "aarch64-android-linux-gnu", "ANDROID", "AARCH64"),
    ],
)
def test_systems_have_the_names_that_native_clients_give_them(
    os_name: str, platform: str, system: str, arch: str
) -> None:
    ad = host_ad(
        bare(
            f"<platform_name>{platform}</platform_name>"
            f"<host_info><os_name>{os_name}</os_name></host_info>"
        )
    )
    assert (ad["OpSys"], ad["Arch"]) == (system, arch)
    assert ad["Platform"] == f"{system}-{arch}".lower()


def test_gpus_are_counted_and_the_fastest_described() -> None:
    ad = host_ad(bare(GPUS))
    assert ad["NumGpus"] == 4
    assert (ad["NumNvidiaGpus"], ad["NumIntelGpus"]) == (2, 1)
    assert ad["GpuModel"] == "GeForce GTX 1060 6GB"
    assert (ad["GpuMemory"], ad["GpuFlops"]) == (3974, 4.37376e12)
    assert (ad["CudaVersion"], ad["CudaCapability"]) == (10.2, 6.1)


def test_the_clock_is_the_clients_own() -> None:
    # Monday, 1 January 2024, 23:30 UTC; there it is Tuesday half past midnight.
    request = bare(
        "<time_stats><now>1704151800</now></time_stats>"
        "<host_info><timezone>3600</timezone></host_info>"
    )
    ad = host_ad(request)
    assert (ad["ClockMin"], ad["ClockDay"]) == (30, 2)


def test_an_unknown_share_of_time_is_undefined() -> None:
    request = bare("<time_stats><on_frac>0.5</on_frac><connected_frac>-1</connected_frac>")
    ad = host_ad(request)
    assert ad["OnFraction"] == 0.5
    assert "ConnectedFraction" not in ad
    assert "Availability" not in ad


def test_long_feature_lists_are_kept() -> None:
    features = " ".join(f"feature{number}" for number in range(150))
    assert host_ad(with_host(f"<p_features>{features}</p_features>"))["CpuFeatures"] == features
