from itertools import pairwise
from pathlib import Path

import pytest

from gridbot_server.boinc.application import code_keys, code_signatures
from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.signing.keys import KeyFileError


@pytest.fixture(scope="module")
def private() -> str:
    return code_keys.private_text(code_keys.generate())


def test_a_key_pair_is_kept_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "code_sign_private"
    code_keys.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert code_keys.private_text(code_keys.load_private(path)) == path.read_text()


def test_a_private_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "code_sign_private"
    code_keys.create(path)
    before = path.read_text()
    with pytest.raises(FileExistsError):
        code_keys.create(path)
    assert path.read_text() == before


def test_point_10_key_fields_have_1024_bits_and_their_places(private: str) -> None:
    lines = private.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("1024", ".", 1 + 22 + 1)
    assert {len(line) for line in lines[1:-1]} == {64}
    key = code_keys.parse_private(private)
    public = code_keys.public_text(key.public_key()).splitlines()
    assert (public[0], public[-1], len(public)) == ("1024", ".", 1 + 8 + 1)
    assert public[1:9] == lines[1:9]
    numbers = key.private_numbers()
    assert int("".join(lines[1:5]), 16) == numbers.public_numbers.n
    assert int("".join(lines[5:9]), 16) == numbers.public_numbers.e == 65537
    assert int("".join(lines[13:15]), 16) == numbers.p


def test_a_public_key_is_sent_without_white_space_at_its_ends(private: str) -> None:
    text = code_keys.public_text(code_keys.parse_private(private).public_key())
    assert text == text.strip()
    assert code_keys.public_text(code_keys.parse_public(f"\n{text}\n\n")) == text


def test_a_key_file_with_dos_line_ends_is_read(private: str) -> None:
    assert code_keys.private_text(code_keys.parse_private(private.replace("\n", "\r\n"))) == private


def test_a_key_of_another_kind_is_refused_with_its_size(private: str) -> None:
    public = code_keys.public_text(code_keys.parse_private(private).public_key())
    with pytest.raises(KeyFileError, match="has 512 hex digits, a private key of BOINC has 1408"):
        code_keys.parse_private(public)
    with pytest.raises(KeyFileError, match="has 1408 hex digits, a public key of BOINC has 512"):
        code_keys.parse_public(private)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "1024\n.",
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "1024\nxyz\n.",
        "a\n00\n.",
        "1024 00 .",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(KeyFileError, match="is not a key in BOINC's form"):
        code_keys.parse_private(text)


def test_a_key_that_lost_its_last_dot_is_refused(private: str) -> None:
    with pytest.raises(KeyFileError, match="is not a key in BOINC's form"):
        code_keys.parse_private(private.rstrip(".\n"))


def test_a_key_with_a_changed_digit_is_refused(private: str) -> None:
    lines = private.splitlines()
    lines[10] = ("1" if lines[10][0] == "0" else "0") + lines[10][1:]
    with pytest.raises(KeyFileError, match="its numbers make no RSA key"):
        code_keys.parse_private("\n".join(lines))


def test_a_short_key_is_refused_as_too_weak() -> None:
    half = "1024\n" + "\n".join(["0" * 64, "0" * 64, "f" * 64, "f" * 64, *["0" * 64] * 3])
    with pytest.raises(KeyFileError, match="a key of 512 bits that says 1024, not of 1024"):
        code_keys.parse_public(half + "\n" + "0" * 59 + "10001\n.")


def public_of(modulus: int, exponent: int = 65537) -> str:
    fields = modulus.to_bytes(128) + exponent.to_bytes(128)
    return "1024\n" + code_keys.hex_text(fields)


def modulus_of(private: str) -> int:
    return code_keys.parse_private(private).public_key().public_numbers().n


@pytest.mark.parametrize("exponent", [0, 1, 3, 17, 65535, 65538])
def test_a_weak_exponent_is_refused(private: str, exponent: int) -> None:
    with pytest.raises(KeyFileError, match=f"has the exponent {exponent}: an odd one from 65537"):
        code_keys.parse_public(public_of(modulus_of(private), exponent))


def test_a_larger_exponent_is_taken(private: str) -> None:
    key = code_keys.parse_public(public_of(modulus_of(private), 65539))
    assert key.public_numbers().e == 65539


@pytest.mark.parametrize("factor", [2, 3, 997])
def test_a_modulus_that_anybody_can_take_apart_is_refused(factor: int) -> None:
    damaged = (1 << 1024) - 1
    damaged -= damaged % factor
    with pytest.raises(KeyFileError, match="has a modulus with a small factor"):
        code_keys.parse_public(public_of(damaged))


def test_either_half_of_a_key_is_read_from_its_file(private: str, tmp_path: Path) -> None:
    pair = code_keys.parse_private(private)
    public = code_keys.public_text(pair.public_key())
    for name, text, is_private in (("a.key", private, True), ("a.pub", public, False)):
        path = tmp_path / name
        path.write_text(text)
        found, secret = code_keys.load_pair(path)
        assert code_keys.public_text(found) == public
        assert (secret is not None) == is_private
    assert code_keys.public_text(code_keys.load_public(tmp_path / "a.pub")) == public
    with pytest.raises(KeyFileError, match=r"a\.key: has 1408 hex digits, a public key"):
        code_keys.load_public(tmp_path / "a.key")


def test_the_file_of_a_weak_key_is_named(private: str, tmp_path: Path) -> None:
    path = tmp_path / "weak.pub"
    path.write_text(public_of(modulus_of(private), 3))
    with pytest.raises(KeyFileError, match=r"weak\.pub: has the exponent 3"):
        code_keys.load_pair(path)


def test_the_file_that_holds_no_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "upload_private"
    for content in (b"\xff\xfe", b"nothing"):
        path.write_bytes(content)
        with pytest.raises(KeyFileError, match=r"upload_private: .*; restore the key"):
            code_keys.load_private(path)


def chain_of(count: int) -> Chain:
    pairs = [code_keys.generate() for _ in range(count)]
    chain = Chain((Link(code_keys.public_text(pairs[0].public_key())),))
    for old, new in pairwise(pairs):
        chain = code_signatures.append(chain, code_signatures.introduce(old, new.public_key()))
    return chain


def test_a_client_without_a_key_gets_the_newest() -> None:
    chain = chain_of(2)
    assert chain.offer(None) == Link(chain.newest)
    assert chain.is_current(None)


def test_a_client_that_holds_the_newest_key_is_sent_none() -> None:
    chain = chain_of(2)
    assert chain.offer(chain.newest + "\n") is None
    assert chain.is_current(chain.newest)


def test_a_client_that_slept_through_rotations_is_led_along_the_chain() -> None:
    chain = chain_of(3)
    held, first = chain.links[0].key, chain.links[1]
    assert chain.offer(held) == first
    assert not chain.is_current(held)
    assert chain.offer(first.key) == chain.links[2]
    assert chain.is_current(first.key)


def test_a_client_with_a_foreign_key_is_offered_nothing_and_gets_no_work() -> None:
    chain, foreign = chain_of(2), code_keys.public_text(code_keys.generate().public_key())
    assert chain.offer(foreign) is None
    assert not chain.is_current(foreign)


def test_a_chain_is_kept_and_read_back() -> None:
    chain = chain_of(2)
    assert Chain.from_text(chain.text()) == chain


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"key": 1, "signature": ""}]', '[{"key": ""}]']
)
def test_what_is_no_chain_is_refused(text: str) -> None:
    with pytest.raises(KeyFileError, match="chain"):
        Chain.from_text(text)
