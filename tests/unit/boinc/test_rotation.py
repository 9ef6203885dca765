from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_server.boinc.application import code_keys, code_signatures, description, signed
from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.boinc.application.description import Application
from gridbot_server.boinc.application.rotation import KeyTurn, key_turn

PAIRS = [code_keys.generate() for _ in range(3)]
KEYS = [code_keys.public_text(pair.public_key()) for pair in PAIRS]
DATA = FileRef("data", hashlib.sha256(b"data").hexdigest(), 4)


def chain_of(count: int) -> Chain:
    chain = Chain((Link(KEYS[0]),))
    for old, new in pairwise(PAIRS[:count]):
        chain = code_signatures.append(chain, code_signatures.introduce(old, new.public_key()))
    return chain


def signed_by(private: RSAPrivateKey, *command: str) -> Application:
    manifest = Manifest("ann", command, inputs=(DATA,))

    def md5(_: FileRef) -> str:
        return code_signatures.md5_hex(b"data")

    made = signed.sign(manifest, md5, private)
    files = signed.check(manifest, made, md5, private.public_key())
    return description.describe(manifest, 1, files, str)


ONE, OTHER = signed_by(PAIRS[1], "one"), signed_by(PAIRS[1], "other")


@pytest.mark.parametrize("running", [(), (ONE,), (None,)])
def test_a_client_with_the_newest_key_goes_on_whatever_it_has(
    running: tuple[Application | None, ...],
) -> None:
    assert key_turn(chain_of(2), KEYS[1], running) == KeyTurn(None, takes_work=True)


def test_a_new_client_gets_the_newest_key_as_its_first() -> None:
    assert key_turn(chain_of(2), None, ()) == KeyTurn(Link(KEYS[1]), takes_work=True)


def test_a_client_without_jobs_takes_the_next_key_and_work_at_once() -> None:
    chain = chain_of(2)
    assert key_turn(chain, KEYS[0], ()) == KeyTurn(chain.links[1], takes_work=True)


def test_with_the_next_key_come_the_new_signatures_of_the_files_that_a_client_has() -> None:
    chain = chain_of(2)
    turn = key_turn(chain, KEYS[0], (ONE, OTHER))
    assert (turn.offer, turn.takes_work) == (chain.links[1], True)
    shared, scripts = ONE.files[1], (ONE.files[0], OTHER.files[0])
    assert {file.sha256 for file in turn.files} == {file.sha256 for file in (shared, *scripts)}
    assert len(turn.files) == 3
    public = PAIRS[1].public_key()
    assert all(code_signatures.is_signed(public, file.md5, file.signature) for file in turn.files)


def test_a_client_keeps_its_key_while_it_has_jobs_that_the_next_did_not_sign() -> None:
    assert key_turn(chain_of(2), KEYS[0], (ONE, None)) == KeyTurn(None, takes_work=False)


def test_a_client_with_jobs_that_slept_through_two_changes_finishes_them_first() -> None:
    chain = chain_of(3)
    assert key_turn(chain, KEYS[0], (ONE,)) == KeyTurn(None, takes_work=False)
    assert key_turn(chain, KEYS[0], ()) == KeyTurn(chain.links[1], takes_work=False)
    assert key_turn(chain, KEYS[1], ()) == KeyTurn(chain.links[2], takes_work=True)


def test_a_client_of_another_project_gets_neither_a_key_nor_work() -> None:
    foreign = code_keys.public_text(code_keys.generate().public_key())
    assert key_turn(chain_of(2), foreign, (ONE,)) == KeyTurn(None, takes_work=False)
