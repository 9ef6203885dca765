from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gridbot_client.protocol.signatures import manifest_statement, verify
from gridbot_server.signing import keys


def test_what_the_project_signs_clients_verify(tmp_path: Path) -> None:
    path = tmp_path / "project.key"
    keys.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    public = keys.public_bytes(path)
    signature = keys.sign_manifest(keys.load_private(path), "text")
    assert verify(public, manifest_statement("text"), signature)
    assert not verify(public, manifest_statement("texT"), signature)


def test_a_project_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "project.key"
    keys.create(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        keys.create(path)
    assert path.read_bytes() == before


def test_a_file_that_holds_another_key_is_refused(tmp_path: Path) -> None:
    other = X25519PrivateKey.generate()
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    for content, detail in (
        (b"", "holds no private key in PEM form; restore it"),
        (b"garbage", "holds no private key in PEM form; restore it"),
        (other.private_bytes(*form), "holds a key that is not Ed25519"),
    ):
        path = tmp_path / "project.key"
        path.write_bytes(content)
        with pytest.raises(keys.KeyFileError, match=detail):
            keys.load_private(path)


def test_every_token_is_another_one() -> None:
    (one, hash_one), (two, hash_two) = keys.new_token("user"), keys.new_token("user")
    assert one.startswith("gb_user_")
    assert len(one) == 51
    assert one != two
    assert (keys.token_hash(one), keys.token_hash(two)) == (hash_one, hash_two)
