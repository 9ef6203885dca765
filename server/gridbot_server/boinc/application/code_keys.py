"""RSA key pairs in BOINC's text form, and the chain of keys that clients follow at a rotation.

BOINC fixes the key at 1024 bits and the digest at MD5: breakable by somebody rich, and all that
a stock client understands.  So these keys are used for nothing else; native clients never trust
them.  Making keys and signing are the library's: constant in time and blinded, as OpenSSL does it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPrivateNumbers,
    RSAPublicKey,
    RSAPublicNumbers,
    generate_private_key,
)

from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage.disk import write_new

T = TypeVar("T")

BITS = 1024
_EXPONENT = 65537  # a smaller one is weak where a program checks the padding carelessly
# A modulus with such a factor is damaged: both primes of a good one have 512 bits.
_SMALL_PRIMES = math.prod(n for n in range(2, 1000) if all(n % d for d in range(2, n)))
# Modulus, public and private exponent; both primes, both exponents of theirs, the coefficient.
_PUBLIC_WIDTHS = (128, 128)
_PRIVATE_WIDTHS = (128, 128, 128, 64, 64, 64, 64, 64)
_LINE_BYTES = 32
_MOST_CHARACTERS = 4096
_FORM = re.compile(r"([0-9]{1,5})\n([0-9a-f\n]+)\.")


def generate() -> RSAPrivateKey:
    """Make a new key pair."""
    return generate_private_key(_EXPONENT, BITS)


def create(path: Path) -> str:
    """Make a new private key at `path`, readable by its owner only; return its public half.

    Never overwrites a key.
    """
    key = generate()
    write_new(path, private_text(key).encode())
    return public_text(key.public_key())


def load_private(path: Path) -> RSAPrivateKey:
    """Read a private key, also one of BOINC's own tools; KeyFileError tells what is wrong."""
    return _load(path, parse_private)


def load_public(path: Path) -> RSAPublicKey:
    """Read a public key, also one of BOINC's own tools; KeyFileError tells what is wrong."""
    return _load(path, parse_public)


def load_pair(path: Path) -> tuple[RSAPublicKey, RSAPrivateKey | None]:
    """Read a key whichever half it is: its public half, and the private one if that is here."""
    if len(_load(path, _form)[1]) == 2 * sum(_PUBLIC_WIDTHS):
        return load_public(path), None
    private = load_private(path)
    return private.public_key(), private


def public_text(key: RSAPublicKey) -> str:
    """The public key as clients store and compare it: without white space at either end."""
    numbers = key.public_numbers()
    return _text((numbers.n, numbers.e), _PUBLIC_WIDTHS).strip()


def private_text(key: RSAPrivateKey) -> str:
    """The private key as BOINC's tools write it."""
    own, shared = key.private_numbers(), key.private_numbers().public_numbers
    fields = (shared.n, shared.e, own.d, own.p, own.q, own.dmp1, own.dmq1, own.iqmp)
    return _text(fields, _PRIVATE_WIDTHS)


def parse_public(text: str) -> RSAPublicKey:
    """Read a public key; raise KeyFileError for anything but a whole one of 1024 bits."""
    modulus, exponent = _numbers(text, _PUBLIC_WIDTHS, "public")
    try:
        return RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError:
        raise KeyFileError("its numbers make no RSA key") from None


def parse_private(text: str) -> RSAPrivateKey:
    """Read a private key; raise KeyFileError for one whose parts do not belong together."""
    n, e, d, p, q, dmp1, dmq1, iqmp = _numbers(text, _PRIVATE_WIDTHS, "private")
    try:
        return RSAPrivateNumbers(p, q, d, dmp1, dmq1, iqmp, RSAPublicNumbers(e, n)).private_key()
    except ValueError:
        raise KeyFileError("its numbers make no RSA key") from None


def hex_text(data: bytes) -> str:
    """Bytes as BOINC writes them: 64 lower-case digits a line, a dot at the end."""
    lines = [data[at : at + _LINE_BYTES].hex() for at in range(0, len(data), _LINE_BYTES)]
    return "\n".join([*lines, ".\n"])


class Link(NamedTuple):
    """One code signing key and the signature over it by the key before it; the first has none."""

    key: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """The code signing keys of a project, oldest first.

    A client trusts the first key that it sees and takes another only when the key it holds
    signed that one.  So a client that slept through two rotations is led along the chain.
    """

    links: tuple[Link, ...]

    @property
    def newest(self) -> str:
        """The key that signs applications now."""
        return self.links[-1].key

    def offer(self, held: str | None) -> Link | None:
        """What to send to a client that holds a key; None when there is nothing to send.

        A repeat of the key that a client holds makes it log an error, so it is never sent.
        """
        if held is None:
            return Link(self.newest)
        keys = [link.key for link in self.links]
        if not self.is_behind(held):
            return None
        return self.links[keys.index(held.strip()) + 1]

    def is_behind(self, held: str | None) -> bool:
        """Whether a client holds a key of ours that has a successor."""
        return (held or "").strip() in (link.key for link in self.links[:-1])

    def is_foreign(self, held: str | None) -> bool:
        """Whether a client holds a key that was never ours, which nothing will change."""
        return bool(held) and (held or "").strip() not in (link.key for link in self.links)

    def is_current(self, held: str | None) -> bool:
        """Whether a client that holds a key takes work signed by the newest, after our offer.

        It does not while it lags by two keys or more, nor with a key that was never ours.
        """
        offer = self.offer(held)
        last = offer.key if offer else (held or "").strip()
        return last == self.newest

    def text(self) -> str:
        """The chain as it is kept."""
        return json.dumps([link._asdict() for link in self.links], indent=1)

    @classmethod
    def from_text(cls, text: str) -> Chain:
        """Read what `text` gave; signatures are checked by `code_signatures.check_chain`."""
        try:
            links = tuple(Link(raw["key"].strip(), raw["signature"]) for raw in json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise KeyFileError("holds no chain of keys; restore it") from None
        if not links:
            raise KeyFileError("the chain has no key; restore it")
        return cls(links)


def _text(fields: Sequence[int], widths: Sequence[int]) -> str:
    parts = zip(fields, widths, strict=True)
    return f"{BITS}\n" + hex_text(b"".join(number.to_bytes(width) for number, width in parts))


def _load(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="ascii"))
    except (UnicodeDecodeError, KeyFileError) as error:
        detail = "is not text" if isinstance(error, UnicodeDecodeError) else error
        raise KeyFileError(f"{path}: {detail}; restore the key or name another file") from None


def _form(text: str) -> tuple[int, str]:
    """The number of bits that a key's text tells, and its hex digits."""
    found = _FORM.fullmatch(text[:_MOST_CHARACTERS].strip().replace("\r\n", "\n"))
    if found is None:
        raise KeyFileError("is not a key in BOINC's form (bits, lines of hex, a dot)")
    return int(found[1]), found[2].replace("\n", "")


def _numbers(text: str, widths: Sequence[int], kind: str) -> list[int]:
    """The numbers of a key's text; each has its place and width, padded with zeros in front."""
    bits, digits = _form(text)
    if len(digits) != 2 * sum(widths):
        raise KeyFileError(
            f"has {len(digits)} hex digits, a {kind} key of BOINC has {2 * sum(widths)}"
        )
    numbers, at = [], 0
    for width in widths:
        numbers.append(int(digits[2 * at : 2 * (at + width)], 16))
        at += width
    _check_strength(bits, modulus=numbers[0], exponent=numbers[1])
    return numbers


def _check_strength(bits: int, modulus: int, exponent: int) -> None:
    if bits != BITS or modulus.bit_length() != BITS:
        raise KeyFileError(
            f"is a key of {modulus.bit_length()} bits that says {bits}, not of {BITS}:"
            " shorter ones are too weak, longer ones no client reads"
        )
    if exponent < _EXPONENT or exponent % 2 == 0:
        raise KeyFileError(f"has the exponent {exponent}: an odd one from {_EXPONENT} on is needed")
    if math.gcd(modulus, _SMALL_PRIMES) != 1:
        raise KeyFileError("has a modulus with a small factor: anybody can forge its signatures")
