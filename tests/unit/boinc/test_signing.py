import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from gridbot_server.boinc.application import code_keys, code_signatures
from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.signing.keys import KeyFileError

PRIVATE = code_keys.generate()
PUBLIC = PRIVATE.public_key()
OTHER = code_keys.generate()
MD5 = hashlib.md5(b"the program").hexdigest()

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")

# A project's key, a file's MD5 and signature, recorded where the stock client took them.
RECORDED_KEY = """\
1024
af789d14a8cd9d7f812756e2bef5c90a3876c09f973aaa2c7de28bbe765ea9d6
7e934c520ebe7da320c0e39391ddbe259df2eae9e494514760adcc0898d5907f
841a123bdbd8f442b9637053342825497d4003f98bd4f07eef8cd4cfbac24f1a
46fd9618ec637488efc086246374abd57f2cedef649a5abc737772850a78b69d
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000010001
."""
RECORDED_MD5 = "2b37b3b54e2c837f0c54ebc97d25974c"
RECORDED_SIGNATURE = """
624db6e4653cbdcbc8826aa4aa8c31cd4ac8264a43238cfb1f4940c4c436c912
82e0c8509bcc3880af7fd171c158737b7d4497475d2d99037343f89a1de91bcf
8fe33a0ea4552d2d6409dd479fe16d137514bf4d8717509b41f266f09867e54f
8b5b0b0cff7e12c369f6a508fbdc30c0cecd7e0911646abfb0800d55d093399c
.
"""


# BOINC's own signatures, from the library that comes with the stock client.  It runs in a process
# of its own: built for fast mathematics, it would make this one round tiny numbers to zero.
BOINC = """
import ctypes, sys
boinc = ctypes.CDLL("libboinc_crypt.so.7")
verb, *texts = [text.encode() for text in sys.argv[1:]]
if verb == b"load":
    print("here")
elif verb == b"verify":
    verdict = ctypes.c_bool(False)
    failed = boinc._Z21check_file_signature2PKcS0_S0_Rb(*texts, ctypes.byref(verdict))
    print(failed == 0 and verdict.value)
else:
    key, made = ctypes.create_string_buffer(2 + 704), ctypes.create_string_buffer(1024)
    assert boinc._Z13sscan_key_hexPKcP3KEYi(texts[0], key, len(key)) == 0
    assert boinc._Z18generate_signaturePcS_R17R_RSA_PRIVATE_KEY(texts[1], made, key) == 0
    print(made.value.decode(), end="")
"""


def boinc(*arguments: str) -> str:
    command = [sys.executable, "-c", BOINC, *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


@pytest.fixture(scope="module")
def needs_boinc() -> None:
    try:
        boinc("load")
    except subprocess.CalledProcessError:
        if "CI" in os.environ:
            raise
        pytest.skip("BOINC's library is not here: apt-get install boinc-client")


def boinc_verifies(md5: str, signature: str, key: str) -> bool:
    return boinc("verify", md5, signature, key).strip() == "True"


@pytest.mark.usefixtures("needs_boinc")
def test_point_10_boincs_own_code_verifies_what_we_sign() -> None:
    signature, key = code_signatures.sign_md5(PRIVATE, MD5), code_keys.public_text(PUBLIC)
    assert boinc_verifies(MD5, signature, key)
    assert not boinc_verifies(RECORDED_MD5, signature, key)
    assert not boinc_verifies(MD5, code_signatures.sign_md5(OTHER, MD5), key)


@pytest.mark.usefixtures("needs_boinc")
def test_point_10_boincs_own_code_signs_as_we_do_with_a_key_of_ours() -> None:
    text = "<name>out</name><max_nbytes>5</max_nbytes>"
    made = boinc("sign", code_keys.private_text(PRIVATE), text)
    assert made == code_signatures.sign_md5(PRIVATE, code_signatures.md5_hex(text.encode()))


def openssl(*arguments: str, content: bytes = b"") -> bytes:
    ended = subprocess.run(["openssl", *arguments], input=content, capture_output=True, check=True)
    return ended.stdout


def raw(signature: str) -> bytes:
    return bytes.fromhex("".join(signature.split()).removesuffix("."))


@needs_openssl
def test_point_10_the_payload_is_the_md5s_hex_digits_alone(tmp_path: Path) -> None:
    public = tmp_path / "public.pem"
    public.write_bytes(PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "signature").write_bytes(raw(code_signatures.sign_md5(PRIVATE, MD5)))
    block = openssl(
        *("pkeyutl", "-verifyrecover", "-pubin", "-inkey", str(public)),
        *("-pkeyopt", "rsa_padding_mode:none", "-in", str(tmp_path / "signature")),
    )
    assert block == b"\x00\x01" + b"\xff" * (128 - 3 - 32) + b"\x00" + MD5.encode()


@needs_openssl
def test_point_10_what_openssl_signs_without_digest_info_is_verified(tmp_path: Path) -> None:
    private = tmp_path / "private.pem"
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    private.write_bytes(PRIVATE.private_bytes(*form))
    made = openssl("pkeyutl", "-sign", "-inkey", str(private), content=MD5.encode())
    assert code_signatures.is_signed(PUBLIC, MD5, code_keys.hex_text(made))
    assert code_keys.hex_text(made) == code_signatures.sign_md5(PRIVATE, MD5)


@needs_openssl
def test_point_10_an_ordinary_rsa_md5_signature_is_refused(tmp_path: Path) -> None:
    private = tmp_path / "private.pem"
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    private.write_bytes(PRIVATE.private_bytes(*form))
    made = openssl("dgst", "-md5", "-sign", str(private), content=b"the program")
    assert not code_signatures.is_signed(PUBLIC, MD5, code_keys.hex_text(made))


def test_point_10_a_signature_that_the_stock_client_took_is_verified() -> None:
    public = code_keys.parse_public(RECORDED_KEY)
    assert code_signatures.is_signed(public, RECORDED_MD5, RECORDED_SIGNATURE)
    assert not code_signatures.is_signed(public, MD5, RECORDED_SIGNATURE)
    assert not code_signatures.is_signed(PUBLIC, RECORDED_MD5, RECORDED_SIGNATURE)


def test_point_9_a_signature_is_four_lines_of_hex_and_a_dot() -> None:
    lines = code_signatures.sign_md5(PRIVATE, MD5).split("\n")
    assert [len(line) for line in lines] == [64, 64, 64, 64, 1, 0]
    assert lines[4] == "."


def test_white_space_and_the_dot_do_not_matter_to_a_signature() -> None:
    signature = code_signatures.sign_md5(PRIVATE, MD5)
    for text in (f"\n{signature}\n", signature.strip(".\n"), signature.replace("\n", "\r\n ")):
        assert code_signatures.is_signed(PUBLIC, MD5, text)


@pytest.mark.parametrize(
    "signature",
    ["", ".", "zz", "00" * 127, "00" * 128, "00" * 129, "ff" * 128, "é" * 256, "0" * 1_000_000],
)
def test_what_is_no_signature_verifies_nothing(signature: str) -> None:
    assert not code_signatures.is_signed(PUBLIC, MD5, signature)


def test_any_changed_digit_breaks_a_signature() -> None:
    signature = code_signatures.sign_md5(PRIVATE, MD5)
    for place in range(0, 256, 17):
        at = place + place // 64
        changed = "0" if signature[at] != "0" else "1"
        assert not code_signatures.is_signed(
            PUBLIC, MD5, signature[:at] + changed + signature[at + 1 :]
        )


@pytest.mark.parametrize("md5", ["", MD5.upper(), MD5[:-1], MD5 + "0", "g" * 32])
def test_only_an_md5_in_lower_case_hex_is_signed(md5: str) -> None:
    with pytest.raises(ValueError, match="is not an MD5 in lower-case hex"):
        code_signatures.sign_md5(PRIVATE, md5)


def first_link() -> Chain:
    return Chain((Link(code_keys.public_text(PUBLIC)),))


def rotated() -> Chain:
    return code_signatures.append(
        first_link(), code_signatures.introduce(PRIVATE, OTHER.public_key())
    )


def test_at_a_rotation_the_old_key_signs_the_new_ones_text() -> None:
    chain = rotated()
    new = code_keys.public_text(OTHER.public_key())
    assert chain.links[-1].key == chain.newest == new
    md5 = hashlib.md5(new.encode()).hexdigest()
    assert code_signatures.is_signed(PUBLIC, md5, chain.links[-1].signature)
    code_signatures.check_chain(chain)


def test_only_the_key_in_use_introduces_the_next() -> None:
    with pytest.raises(KeyFileError, match="is not signed by the key in use"):
        code_signatures.append(first_link(), code_signatures.introduce(OTHER, OTHER.public_key()))


def test_a_weak_key_does_not_follow_even_if_it_is_signed() -> None:
    weak = RSAPublicNumbers(3, PUBLIC.public_numbers().n).public_key()
    with pytest.raises(KeyFileError, match="has the exponent 3: an odd one from 65537 on"):
        code_signatures.append(first_link(), code_signatures.introduce(PRIVATE, weak))


def test_a_key_is_kept_as_clients_compare_it() -> None:
    link = code_signatures.introduce(PRIVATE, OTHER.public_key())
    spaced = link._replace(key=f"\n{link.key}\n".replace("\n", "\r\n"))
    assert code_signatures.append(first_link(), spaced) == rotated()


def test_a_key_does_not_come_back() -> None:
    chain = rotated()
    with pytest.raises(KeyFileError, match="has been in use before"):
        code_signatures.append(chain, code_signatures.introduce(OTHER, PUBLIC))


def test_a_chain_with_a_wrong_signature_is_refused() -> None:
    chain = rotated()
    third = code_keys.public_text(code_keys.generate().public_key())
    for links in (
        (*chain.links, Link(third, chain.links[1].signature)),
        (*chain.links, Link(third)),
        (chain.links[1], chain.links[0]),
    ):
        with pytest.raises(KeyFileError, match="is not signed by the one before it"):
            code_signatures.check_chain(Chain(links))


def test_a_chain_of_what_are_no_keys_is_refused() -> None:
    with pytest.raises(KeyFileError, match="is not a key in BOINC's form"):
        code_signatures.check_chain(Chain((Link("key"),)))
