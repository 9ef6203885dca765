from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.fakes.project_server import with_proofs

from gridbot_client.protocol.fields import Scalar
from gridbot_client.protocol.manifest import CLOCK_ERROR_SECONDS, LATEST
from gridbot_client.protocol.messages import (
    Assignment,
    JobRange,
    Manifest,
    ProtocolError,
    ReplicaId,
    SignedManifest,
    manifest_id,
)
from gridbot_client.protocol.programs import HostProgram
from gridbot_client.protocol.signatures import (
    Introduction,
    Revocation,
    fingerprint,
    introduction,
    manifest_statement,
    reachable,
    revocation,
    verify,
)
from gridbot_client.work.manifests import JudgedManifest, Manifests
from gridbot_client.work.trust import Approval, Distrusted, Pins, Trust

NOW = 1_800_000_000
PROJECT, OWNER, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2, 3))


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def print_of(key: Ed25519PrivateKey) -> str:
    return fingerprint(public(key))


MANIFEST = Manifest(
    "bob", ("echo", "{x}"), {"x": "text"}, project=print_of(PROJECT), bot="0" * 31 + "7",
    owner_key=public(OWNER).hex(), not_before=NOW, expires=NOW + 1000,
)  # fmt: skip


def trust(*owners: Ed25519PrivateKey, now: float = NOW, **changes: Any) -> Trust:
    pins = Pins(print_of(PROJECT), print_of(PROJECT), frozenset(map(print_of, owners)))
    return Trust(replace(pins, **changes), lambda: now)


def by(
    project: Ed25519PrivateKey | None = None,
    owner: Ed25519PrivateKey | None = None,
    manifest: Manifest = MANIFEST,
    *links: Introduction,
) -> SignedManifest:
    statement = manifest_statement(manifest.text())
    return SignedManifest(
        manifest.text(),
        project.sign(statement) if project else None,
        owner.sign(statement) if owner else None,
        public(project) if project else b"",
        links,
    )


def introduced(old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Introduction:
    return Introduction(public(old), public(new), old.sign(introduction(public(old), public(new))))


def jobs(count: int, manifest: Manifest = MANIFEST) -> list[Assignment]:
    id = manifest_id(manifest.text())
    made = [Assignment(ReplicaId(9, n, 1), id, {"x": f"value {n}"}, 60.0) for n in range(count)]
    return with_proofs(made, OWNER)


@pytest.mark.parametrize(
    ("signed", "trusted", "expected"),
    [
        (by(PROJECT), (), Approval(by_owner=False, by_project=True)),
        (by(PROJECT, OWNER), (), Approval(by_owner=False, by_project=True)),
        (by(None, OWNER), (OWNER,), Approval(by_owner=True, by_project=False)),
        (by(PROJECT, OWNER), (OWNER,), Approval(by_owner=True, by_project=True)),
    ],
)
def test_a_bot_runs_for_the_keys_that_signed_it(
    signed: SignedManifest, trusted: tuple[Ed25519PrivateKey, ...], expected: Approval
) -> None:
    assert trust(*trusted).approval(signed, MANIFEST) == expected


@pytest.mark.parametrize(
    ("signed", "trusted", "why"),
    [
        (by(), (OWNER,), "nobody signed it"),
        (by(None, OWNER), (), "does not trust"),
        (by(None, OWNER), (EVE,), "does not trust"),
        (by(None, EVE), (OWNER,), "the owner's signature on it is not valid"),
        (by(EVE, OWNER), (OWNER,), "not the one pinned"),
        (replace(by(PROJECT), signature=bytes(64)), (OWNER,), "not by this project's key"),
        (replace(by(EVE), project_key=public(PROJECT)), (), "not by this project's key"),
    ],
)
def test_no_other_signature_will_do(
    signed: SignedManifest, trusted: tuple[Ed25519PrivateKey, ...], why: str
) -> None:
    with pytest.raises(Distrusted, match=why):
        trust(*trusted).approval(signed, MANIFEST)


@pytest.mark.parametrize(
    ("change", "now", "why"),
    [
        ({"project": "0" * 64}, NOW, "for another project"),
        ({"version": 1}, NOW, "does not cover its jobs"),
        (
            {"version": LATEST + 1},
            NOW,
            f"of version {LATEST + 1}, and this client knows {LATEST}; update the client",
        ),
        ({}, NOW + 1001 + CLOCK_ERROR_SECONDS, "has expired"),
        ({}, NOW - 1 - CLOCK_ERROR_SECONDS, "not valid yet"),
    ],
)
def test_a_signature_is_good_for_one_project_and_one_time(
    change: dict[str, Any], now: float, why: str
) -> None:
    manifest = replace(MANIFEST, **change)
    with pytest.raises(Distrusted, match=why):
        trust(now=now).approval(by(PROJECT, manifest=manifest), manifest)


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 130, 200])
def test_each_job_of_a_signed_table_is_proven_in_at_most_350_bytes(count: int) -> None:
    signed, checker = by(PROJECT), trust()
    for job in jobs(count):
        checker.check_job(signed, MANIFEST, job)
        assert len(job.proof) <= 258, "344 characters of base64"


@pytest.mark.parametrize(
    "change",
    [
        {"args": {"x": "evil"}},
        {"args": {"x": "value 5", "y": 1}},
        {"id": ReplicaId(9, 6, 1)},
        {"id": ReplicaId(9, 69, 1)},
        {"id": ReplicaId(9, 0, 1)},
        {"proof": b""},
        {"proof": bytes(258)},
        {"proof": jobs(70)[5].proof[:-32]},
        {"proof": jobs(70)[5].proof + bytes(32)},
        {"proof": jobs(70)[5].proof[:-1]},
        {"proof": jobs(70)[6].proof},
        {"proof": with_proofs(jobs(70), EVE)[5].proof},
    ],
)
def test_no_other_job_passes_for_one_of_the_table(change: dict[str, Any]) -> None:
    job = replace(jobs(70)[5], **change)
    with pytest.raises(Distrusted, match=r"is not signed|does not belong to the signed BOT"):
        trust().check_job(by(PROJECT), MANIFEST, job)


def test_a_job_of_one_bot_does_not_run_under_the_signature_on_another() -> None:
    other = replace(MANIFEST, bot="f" * 32)
    with pytest.raises(Distrusted, match="does not belong"):
        trust().check_job(by(PROJECT, manifest=other), other, jobs(3)[1])


def test_any_flipped_bit_breaks_a_proof() -> None:
    good = jobs(64)[17]
    for bit in range(0, len(good.proof) * 8, 7):
        flipped = bytearray(good.proof)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Distrusted):
            trust().check_job(by(PROJECT), MANIFEST, replace(good, proof=bytes(flipped)))


def test_the_jobs_of_a_range_are_those_of_its_rule() -> None:
    manifest = replace(MANIFEST, range=JobRange(10, 5, 3))
    signed = by(PROJECT, manifest=manifest)
    for seq, value in enumerate((10, 15, 20)):
        job = Assignment(ReplicaId(1, seq, 1), "0" * 64, {"i": value}, 60.0)
        trust().check_job(signed, manifest, job)
    for seq, args in ((0, {"i": 15}), (3, {"i": 25}), (0, {"i": 10, "x": 1}), (0, {"i": True})):
        job = Assignment(ReplicaId(1, seq, 1), "0" * 64, args, 60.0)
        with pytest.raises(Distrusted, match="not in the signed range"):
            trust().check_job(signed, manifest, job)


def test_an_introduced_key_signs_like_the_one_that_introduced_it() -> None:
    second, third = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    manifest = replace(MANIFEST, owner_key=public(third).hex())
    links = introduced(second, third), introduced(OWNER, second)
    assert trust(OWNER).approval(by(None, third, manifest, *links), manifest).by_owner
    for broken in ((links[0],), (links[1],), (replace(links[0], signature=bytes(64)), links[1])):
        with pytest.raises(Distrusted, match="does not trust"):
            trust(OWNER).approval(by(None, third, manifest, *broken), manifest)


def test_the_projects_next_key_is_believed_if_the_pinned_one_introduced_it() -> None:
    later = Ed25519PrivateKey.generate()
    signed = by(later, None, MANIFEST, introduced(PROJECT, later))
    assert trust().approval(signed, MANIFEST).by_project
    with pytest.raises(Distrusted, match="not the one pinned"):
        trust().approval(by(later, None, MANIFEST, introduced(EVE, later)), MANIFEST)


def test_a_stolen_key_introduces_nobody_once_it_is_revoked() -> None:
    theirs = replace(MANIFEST, owner_key=public(EVE).hex())
    by_owner = by(None, EVE, theirs, introduced(OWNER, EVE))
    by_project = by(EVE, None, theirs, introduced(PROJECT, EVE))
    checker = trust(OWNER)
    assert checker.approval(by_owner, theirs).by_owner
    assert checker.approval(by_project, theirs).by_project
    checker.revocations = [revoked(print_of(OWNER), OWNER), revoked(print_of(PROJECT), PROJECT)]
    with pytest.raises(Distrusted, match="does not trust"):
        checker.approval(by_owner, theirs)
    with pytest.raises(Distrusted, match="not the one pinned"):
        checker.approval(by_project, theirs)


def test_circles_and_many_introductions_end() -> None:
    keys = [Ed25519PrivateKey.generate() for _ in range(20)]
    links = [introduced(old, new) for old, new in zip(keys, [*keys[1:], keys[0]], strict=True)]
    assert reachable([print_of(keys[3])], links) == set(map(print_of, keys))
    assert reachable([print_of(EVE)], links) == {print_of(EVE)}


def revoked(subject: str, signer: Ed25519PrivateKey) -> Revocation:
    return Revocation(subject, public(signer), signer.sign(revocation(subject)))


@pytest.mark.parametrize(
    ("item", "is_refused"),
    [
        (revoked(manifest_id(MANIFEST.text()), PROJECT), True),
        (revoked(manifest_id(MANIFEST.text()), OWNER), True),
        (revoked(print_of(OWNER), OWNER), True),
        (revoked(print_of(OWNER), PROJECT), True),
        (revoked(manifest_id(MANIFEST.text()), EVE), False),
        (revoked(print_of(OWNER), EVE), False),
    ],
)
def test_what_a_key_that_may_has_revoked_runs_no_more(item: Revocation, is_refused: bool) -> None:
    assert item.is_valid()
    checker = trust(OWNER)
    checker.revocations = [item]
    signed = by(None, OWNER)
    if is_refused:
        with pytest.raises(Distrusted):
            checker.approval(signed, MANIFEST)
    else:
        assert checker.approval(signed, MANIFEST).by_owner


def test_the_projects_word_for_a_bot_does_not_outlive_the_key_that_signs_its_jobs() -> None:
    checker = trust()
    checker.revocations = [revoked(print_of(OWNER), OWNER)]
    with pytest.raises(Distrusted, match="the key that signs its jobs was revoked"):
        checker.approval(by(PROJECT, OWNER), MANIFEST)


def test_a_server_cannot_make_a_client_forget_a_revocation_by_telling_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridbot_client.work.trust.MAX_REVOCATIONS", 3)
    checker = trust()
    noise = [revoked(f"{n:064x}", Ed25519PrivateKey.generate()) for n in range(5)]
    checker.revocations = checker.with_revocations(noise)
    assert list(checker.revocations) == noise[:3]
    genuine = revoked(print_of(OWNER), PROJECT)
    checker.revocations = checker.with_revocations([*noise[3:], genuine])
    assert list(checker.revocations) == [genuine, *noise[:2]]
    forged = replace(revoked("e" * 64, EVE), signer=public(PROJECT))
    assert checker.with_revocations([forged]) == checker.revocations


def test_a_rejected_manifest_may_come_again_with_a_signature_that_will_do() -> None:
    manifests, signed = Manifests(trust(OWNER)), by(None, OWNER)
    id = manifest_id(signed.text)
    manifests.take_in({id: by()})
    assert manifests.ids() == ()
    manifests.take_in({id: signed})
    assert manifests.ids() == (id,)
    manifests.take_in({id: by()})
    assert manifests.ids() == (id,), "what was approved stays"


def test_a_revocation_takes_effect_on_manifests_that_are_known() -> None:
    manifests, signed = Manifests(trust(OWNER)), by(None, OWNER)
    id = manifest_id(signed.text)
    manifests.take_in({id: signed})
    before = manifests.get(id)
    assert before and manifests.rejection(before, jobs(2)[1]) is None
    manifests.revoked([revoked(id, OWNER)])
    after = manifests.get(id)
    found = manifests.rejection(after, jobs(2)[1]) if after else None
    assert found and (found.reason, "was revoked" in found.detail) == ("unsigned", True)


def test_the_owner_of_the_machine_is_asked_about_what_arrived_not_what_the_server_made_of_it() -> (
    None
):
    seen: list[object] = []

    def obstacle(bot: object) -> str:
        seen.append(bot)
        return "BOT.Signed"

    manifests = Manifests(trust(OWNER), obstacle)
    signed = by(None, OWNER)
    manifests.take_in({manifest_id(signed.text): signed})
    judged = manifests.get(manifest_id(signed.text))
    found = manifests.rejection(judged, jobs(1)[0]) if judged else None
    assert seen == [{"Owner": "bob", "Signed": False}]
    assert found and found.reason == "owner_policy"


def test_a_manifest_under_another_name_is_the_servers_fault() -> None:
    manifests = Manifests(trust())
    with pytest.raises(ProtocolError, match="does not match this id"):
        manifests.take_in({"0" * 64: by(PROJECT)})
    assert manifests.ids() == ()


def test_a_manifest_that_is_no_manifest_fails_its_replicas() -> None:
    manifests = Manifests(trust())
    manifests.take_in({manifest_id("[]"): SignedManifest("[]")})
    judged = manifests.get(manifest_id("[]"))
    assert judged and judged.rejection and judged.rejection.reason == "bad_arguments"


@pytest.mark.parametrize("key", [b"", public(PROJECT)[:31], bytes(32)])
def test_a_broken_key_signs_nothing(key: bytes) -> None:
    assert not verify(key, b"text", PROJECT.sign(b"text"))


# ---------------------------------------------------------------------------------- programs

TABLE = replace(
    MANIFEST,
    platforms=("linux-x86_64",),
    programs=(
        HostProgram("linux-x86_64", ("echo", "{x}")),
        HostProgram("linux-x86_64 cpus=4", ("many", "{x}")),
        HostProgram("linux-x86_64 gpu=nvidia", ("cuda", "{x}")),
    ),
)
MACHINE: dict[str, Scalar] = {"Platform": "linux-x86_64", "NumCpus": 4, "NumNvidiaGpus": 1}


def judged(host: dict[str, Any], *owners: Ed25519PrivateKey) -> JudgedManifest:
    """What a client on such a machine makes of the table."""
    manifests = Manifests(trust(*owners), describe=lambda: host)
    signed = by(PROJECT, OWNER, TABLE)
    manifests.take_in({manifest_id(signed.text): signed})
    found = manifests.get(manifest_id(signed.text))
    assert found
    return found


def test_a_client_chooses_among_signed_programs_by_its_own_facts() -> None:
    found = judged({**MACHINE, "NumCpus": 2, "NumNvidiaGpus": 0}, OWNER)
    assert (found.manifest.command, found.manifest.resources.cpus) == (("echo", "{x}"), 1)
    found = judged({**MACHINE, "NumNvidiaGpus": 0}, OWNER)
    assert (found.manifest.command, found.manifest.resources.cpus) == (("many", "{x}"), 4)
    assert found.approval


def test_a_strangers_program_gets_no_gpu() -> None:
    assert judged(MACHINE).manifest.command == ("many", "{x}")
    assert judged({**MACHINE, "NumCpus": 2}).manifest.command == ("echo", "{x}")


def test_a_bot_without_a_program_for_the_machine_does_not_run() -> None:
    found = judged({**MACHINE, "Platform": "darwin-arm64"}, OWNER)
    assert found.approval is None
    assert found.rejection
    assert found.rejection.reason == "no_program"
    assert "linux-x86_64 gpu=nvidia" in found.rejection.detail


def test_a_table_that_the_server_changed_is_not_believed() -> None:
    manifests = Manifests(trust(OWNER), describe=lambda: MACHINE)
    changed = replace(TABLE, programs=(*TABLE.programs, HostProgram("linux-x86_64 cpus=2", ("x",))))
    forged = replace(by(PROJECT, OWNER, TABLE), text=changed.text())
    manifests.take_in({manifest_id(forged.text): forged})
    found = manifests.get(manifest_id(forged.text))
    assert found
    assert found.approval is None
