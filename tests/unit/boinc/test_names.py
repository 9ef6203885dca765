import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.protocol.messages import MAX_BIGINT, MAX_OUTPUTS, ReplicaId
from gridbot_server.boinc.protocol import names
from gridbot_server.boinc.protocol.names import Lease, Names, OutputName
from gridbot_server.boinc.protocol.tags import BoincError

NAMES = Names(b"secret")
LEASE = Lease(ReplicaId(12, 345, 1), 67)
SHA256 = "0123456789abcdef" * 4

numbers = st.integers(0, MAX_BIGINT)
leases = st.builds(
    Lease, st.builds(ReplicaId, numbers, numbers, st.integers(0, 2**31 - 1)), numbers
)


@given(leases, st.integers(0, MAX_OUTPUTS - 1))
def test_names_can_be_read_back(lease: Lease, number: int) -> None:
    output = OutputName(lease, number)
    assert NAMES.read_replica(NAMES.replica(lease)) == lease
    assert NAMES.read_output(NAMES.output(output)) == output


@given(st.text())
def test_any_text_is_a_name_or_is_not(text: str) -> None:
    assert NAMES.read_replica(text) is None
    assert NAMES.read_output(text) is None
    assert NAMES.read_file(text) is None


@given(leases)
def test_names_stay_within_what_boinc_and_all_file_systems_take(lease: Lease) -> None:
    name = NAMES.output(OutputName(lease, MAX_OUTPUTS - 1))
    assert len(name) <= 128
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


def test_files_are_named_by_their_content() -> None:
    name = NAMES.file(SHA256)
    assert NAMES.read_file(name) == SHA256
    assert len(name) < 128


def test_another_servers_names_are_not_ours() -> None:
    other = Names(b"another secret")
    assert NAMES.read_replica(other.replica(LEASE)) is None
    assert NAMES.read_file(other.file(SHA256)) is None


@pytest.mark.parametrize("other", ["gb_13_345_1_67", "gb_12_345_2_67", "gb_012_345_1_67"])
def test_a_tag_belongs_to_one_name_only(other: str) -> None:
    tag = NAMES.replica(LEASE).rpartition("_")[2]
    assert NAMES.read_replica(f"{other}_{tag}") is None


@pytest.mark.parametrize("ending", ["", "_", "_x", "_256", "_00", "_1_1"])
def test_an_output_has_one_small_number(ending: str) -> None:
    assert NAMES.read_output(NAMES.replica(LEASE) + ending) is None


def test_an_output_is_no_replica() -> None:
    assert NAMES.read_replica(NAMES.output(OutputName(LEASE, 0))) is None


def test_an_upload_certificate_holds_for_its_name_and_limit_only() -> None:
    text = NAMES.certificate("gb_1_0_0_0", 100_000)
    assert NAMES.is_certificate("gb_1_0_0_0", 100_000, f"\n{text}\n")
    assert not NAMES.is_certificate("gb_1_0_0_0", 100_001, text)
    assert not NAMES.is_certificate("gb_1_0_0_1", 100_000, text)
    assert not Names(b"another").is_certificate("gb_1_0_0_0", 100_000, text)
    assert not NAMES.is_certificate("gb_1_0_0_0", 100_000, "")
    assert not NAMES.is_certificate("gb_1_0_0_0", 100_000, "\ud800")


def test_a_name_cannot_pass_for_another_certificates_limit() -> None:
    text = NAMES.certificate("a", 90)
    assert not NAMES.is_certificate("a 9", 0, text)
    assert not NAMES.is_certificate("a 90", 90, text)


@pytest.mark.parametrize("name", names.PLATFORMS)
def test_platforms_translate_both_ways(name: str) -> None:
    assert names.boinc_platform(names.platform(name)) == name


def test_a_platform_without_a_word_of_ours_keeps_boincs() -> None:
    assert names.platform("sparc-sun-solaris") == "sparc-sun-solaris"


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://127.0.0.1:8099/x", "http://127.0.0.1:8099/x/"),
        ("https://grid.example.org", "https://grid.example.org/"),
        ("https://grid.example.org//a//b//", "https://grid.example.org/a/b/"),
    ],
)
def test_a_master_url_gets_its_canonical_form(url: str, canonical: str) -> None:
    assert names.canonical_url(url) == canonical
    assert names.canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    "url", ["http://localhost:8099/", "ftp://a.b/", "grid.example.org", "http://.b/", "http://a./"]
)
def test_point_1_the_host_of_a_master_url_must_contain_a_dot(url: str) -> None:
    with pytest.raises(BoincError, match=r"write 127\.0\.0\.1 for localhost"):
        names.canonical_url(url)
