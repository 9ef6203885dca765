"""Signatures as BOINC makes them: RSA over the 32 hex characters of an MD5, without DigestInfo."""

from __future__ import annotations

import hashlib
import hmac
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import NoDigestInfo

from gridbot_server.boinc.application import code_keys
from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.signing.keys import KeyFileError

SIGNATURE_BYTES = code_keys.BITS // 8


def md5_hex(data: bytes) -> str:
    """The MD5 that BOINC signs, in lower-case hex."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sign_md5(private: RSAPrivateKey, md5: str) -> str:
    """The `file_signature` of a file with this MD5 (lower-case hex)."""
    if len(md5) != 32 or not set(md5) <= set("0123456789abcdef"):
        raise ValueError(f"{md5!r} is not an MD5 in lower-case hex")
    return code_keys.hex_text(private.sign(md5.encode(), PKCS1v15(), NoDigestInfo()))


def is_signed(public: RSAPublicKey, md5: str, signature: str) -> bool:
    """Whether the signature's text is this key's over this MD5.

    How far a wrong one agrees cannot be told from the time this takes.
    """
    raw = _signature_bytes(signature)
    if raw is None:
        return False
    try:
        signed = public.recover_data_from_signature(raw, PKCS1v15(), NoDigestInfo())
    except InvalidSignature:
        return False
    return hmac.compare_digest(signed, md5.encode())


def introduce(old: RSAPrivateKey, new: RSAPublicKey) -> Link:
    """The next link of a chain whose newest key is the public half of `old`."""
    text = code_keys.public_text(new)
    return Link(text, sign_md5(old, md5_hex(text.encode())))


def append(chain: Chain, link: Link) -> Chain:
    """The chain after a rotation; raise KeyFileError for a link that does not belong there."""
    text = code_keys.public_text(code_keys.parse_public(link.key))
    if text in (known.key for known in chain.links):
        raise KeyFileError("has been in use before: clients would be led in a circle")
    if not is_signed(code_keys.parse_public(chain.newest), md5_hex(text.encode()), link.signature):
        raise KeyFileError("is not signed by the key in use, the only one that clients follow")
    return Chain((*chain.links, Link(text, link.signature)))


def check_chain(chain: Chain) -> None:
    """Raise KeyFileError unless each key but the first is signed by the one before it."""
    code_keys.parse_public(chain.links[0].key)
    for number, (before, link) in enumerate(pairwise(chain.links), 2):
        code_keys.parse_public(link.key)
        signer = code_keys.parse_public(before.key)
        if not is_signed(signer, md5_hex(link.key.encode()), link.signature):
            raise KeyFileError(f"key {number} of the chain is not signed by the one before it")


def _signature_bytes(text: str) -> bytes | None:
    """The signature that a text stands for; white space and the closing dot do not matter."""
    digits = "".join(text[: 8 * SIGNATURE_BYTES].split()).removesuffix(".")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    return raw if len(raw) == SIGNATURE_BYTES else None
