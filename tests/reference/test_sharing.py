"""What people share: the package meets the vectors, and opens what the reference has sealed."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.crypto.identity import Identity, MemberKeys
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import AnchorKey, DatasetKey, MetaKey, RootKey
from encrypted_records.errors import (
    DoesNotOpen,
    ErsError,
    InvitationWords,
    KeysRefused,
    Malformed,
    NotAuthenticated,
)
from encrypted_records.index.roster.access import (
    OpenedGrant,
    answer_invitation,
    check_answer,
    open_grant,
    seal_grant,
)
from encrypted_records.index.roster.belief import head_words
from encrypted_records.index.roster.roster import Roster, due_datasets
from encrypted_records.model import credentials, signatures
from encrypted_records.model.roster import (
    AccessRequest,
    Answer,
    Grant,
    RosterEntry,
    cut_entry,
    read_request,
)
from encrypted_records.model.signatures import SignedKind, Withheld, message
from encrypted_records.proxy.auth import RequestCredentials
from tests.reference import Refused
from tests.reference import grants as naive_grants
from tests.reference import hpke as naive_hpke
from tests.reference import identity as naive
from tests.reference import invitations as naive_invitations
from tests.reference import roster as naive_roster
from tests.reference.keys import mac
from tests.reference.loading import entry_of as loaded
from tests.reference.loading import vectors
from tests.vectors import grant_cases, roster_cases

IDENTITIES, ROSTERS, GRANTS, INVITATIONS, REQUESTS = (
    vectors(f"{name}.json")
    for name in ("identities", "rosters", "grants", "invitations", "requests")
)
FORGOTTEN = GRANTS["forgotten"]
ORGANIZATION = bytes.fromhex(ROSTERS["organization"])
KINDS: list[SignedKind] = ["roster", "commit", "checkpoint", "grant", "keys", "answer", "request"]

Case = dict[str, Any]


def raw(case: Case, name: str) -> bytes:
    return bytes.fromhex(case[name])


def why(case: Case) -> str:
    return str(case.get("why", ""))


def identity_of(case: Case) -> Identity:
    return RootKey(raw(case, "root")).identity(ORGANIZATION, raw(case, "member"), case["kv"])


def anchor_of(case: Case) -> AnchorKey:
    return RootKey(raw(case, "root")).anchor(ORGANIZATION, raw(case, "member"), case["kv"])


def entry_of(case: Case) -> RosterEntry:
    return RosterEntry(*loaded(case))


def roster_of(cases: list[Case]) -> Roster:
    return Roster(ORGANIZATION, map(entry_of, cases))


@pytest.fixture(scope="module")
def roster() -> Roster:
    return roster_of(ROSTERS["entries"])


@pytest.mark.parametrize("case", IDENTITIES["members"])
def test_an_identity_follows_from_the_root_key(case: Case) -> None:
    identity, found = identity_of(case), raw(IDENTITIES, "found")
    assert identity.keys == raw(case, "keys")
    assert not signatures.are_refused(identity.keys)
    assert anchor_of(case).anchor(found) == raw(case, "anchor")
    assert anchor_of(case).holds(raw(case, "anchor"), found)
    assert not anchor_of(case).holds(raw(case, "anchor"), bytes(32))
    assert RootKey(raw(case, "root")).token(raw(case, "member")) == raw(case, "token")
    signed = raw(IDENTITIES, "message")
    verifier = MemberKeys(identity.keys).verifier
    for kind in KINDS:
        signature = raw(case["signatures"], kind)
        assert identity.sign(kind, signed) == signature
        assert [kind for kind in KINDS if verifier.verify(signature, message(kind, signed))] == [
            kind
        ]


@pytest.mark.parametrize("case", IDENTITIES["bad_signatures"], ids=why)
def test_a_wrong_signature_is_refused(case: Case) -> None:
    signer = IDENTITIES["members"][0]
    signed = message("commit", raw(IDENTITIES, "message"))
    verifier = MemberKeys(identity_of(signer).keys).verifier
    assert verifier.verify(raw(signer["signatures"], "commit"), signed)
    assert not verifier.verify(raw(case, "signature"), signed)


@pytest.mark.parametrize("case", IDENTITIES["refused"], ids=why)
def test_keys_that_nobody_may_have_are_refused(case: Case) -> None:
    with pytest.raises(KeysRefused) as caught:
        MemberKeys(raw(case, "keys"))
    assert signatures.are_refused(raw(case, "keys"))
    assert caught.value.reason == case["error"]
    with pytest.raises(Refused) as refused:
        naive.check_keys(raw(case, "keys"))
    assert refused.value.code == case["error"]


def test_what_the_reference_seals_opens_and_the_other_way_round() -> None:
    case = IDENTITIES["sealed"]
    identity, info, plain = identity_of(case), raw(case, "info"), raw(case, "plain")
    assert identity.open(raw(case, "sealed"), info) == plain
    own = naive.identity(raw(case, "root"), ORGANIZATION, raw(case, "member"), case["kv"])
    sealed = MemberKeys(identity.keys).seal(plain, info)
    assert len(sealed) == len(plain) + 1136
    assert naive_hpke.open_sealed(sealed, info, mlkem=own.mlkem, x25519=own.x25519) == plain
    with pytest.raises(DoesNotOpen):
        identity.open(sealed, info + b"\x00")


@pytest.mark.parametrize("case", IDENTITIES["sealed"]["bad"], ids=why)
def test_what_was_altered_does_not_open(case: Case) -> None:
    good = IDENTITIES["sealed"]
    with pytest.raises(DoesNotOpen) as caught:
        identity_of(good).open(raw(case, "sealed"), raw(good, "info"))
    assert caught.value.reason == case["error"]
    own = naive.identity(raw(good, "root"), ORGANIZATION, raw(good, "member"), good["kv"])
    with pytest.raises(Refused):
        naive_hpke.open_sealed(
            raw(case, "sealed"), raw(good, "info"), mlkem=own.mlkem, x25519=own.x25519
        )


@pytest.mark.parametrize("case", IDENTITIES["datasets"])
def test_keys_of_schemas_follow_from_those_of_their_dataset(case: Case) -> None:
    key = DatasetKey(
        raw(case, "D"), organization=ORGANIZATION, dataset=raw(case, "dataset"), epoch=case["epoch"]
    )
    assert key.commitment == raw(case, "commitment") and key.fits(raw(case, "commitment"))
    schema = key.schema(raw(case, "schema"))
    assert schema.hand_over() == raw(case, "K_schema")
    assert (schema.id, schema.version) == (raw(case, "key_id"), case["epoch"])
    other = naive.schema(key.export(), ORGANIZATION, raw(case, "schema"), case["epoch"])
    segment = raw(case, "segment")
    assert other.meta(segment) == raw(case, "K_meta")
    assert schema.log.compute(b"x") == mac(raw(case, "K_log"), b"x")
    sealed = schema.meta(segment).encrypt(bytes(12), b"a header", b"")
    assert MetaKey(raw(case, "K_meta")).decrypt(bytes(12), sealed, b"") == b"a header"


def test_a_roster_is_read_as_specified() -> None:
    roster, other = Roster(ORGANIZATION), naive_roster.Roster(ORGANIZATION)
    for case, due in zip(ROSTERS["entries"], ROSTERS["due_at"], strict=True):
        assert roster.append(entry_of(case)) == case["void"], case["why"]
        assert sorted(dataset.dataset.hex() for dataset in due_datasets(roster)) == due, case["why"]
        assert other.append(loaded(case)) == case["void"]
        assert roster.head.digest == raw(case, "digest") == other.digests[-1]


def test_a_roster_adds_up_to_what_is_specified(roster: Roster) -> None:
    for member, expected in ROSTERS["members"].items():
        standing = roster.member(bytes.fromhex(member))
        assert standing is not None
        assert {
            "present": standing.present,
            "type": standing.type,
            "role": standing.role,
            "name": standing.name,
            "keys": standing.keys.hex(),
        } == expected
    for case in ROSTERS["rights"]:
        asked = (raw(case, "member"), raw(case, "schema"), case["entry"])
        assert roster.may_read(*asked) == case["reads"]
        assert roster.may_write(*asked) == case["writes"]
    epochs = {
        dataset.dataset.hex(): len(roster.epochs(dataset.dataset)) for dataset in roster.datasets()
    }
    assert epochs == ROSTERS["epochs"]
    assert {
        epoch: roster.first(bytes.fromhex(epoch)) for epoch in epochs if epoch in ROSTERS["oldest"]
    } == (ROSTERS["oldest"])
    for dataset, listed in ROSTERS["listed"].items():
        assert roster.listed_at(bytes.fromhex(dataset)) == listed
    for schema, slug in ROSTERS["slugs"].items():
        placed = roster.schema(bytes.fromhex(schema))
        assert placed is not None and placed.slug == slug
    assert [dataset.dataset.hex() for dataset in due_datasets(roster)] == ROSTERS["due"]
    assert head_words(roster) == ROSTERS["head_words"]


@pytest.mark.parametrize("case", ROSTERS["cut"], ids=lambda case: case["dataset"][-4:])
def test_a_roster_that_is_cut_to_a_dataset_adds_up_to_the_same(case: Case, roster: Roster) -> None:
    dataset = raw(case, "dataset")
    entries = [cut_entry(entry_of(entry), {dataset}) for entry in ROSTERS["entries"]]
    assert [[opening.hex() for opening in entry.openings] for entry in entries] == case["openings"]
    shown, other = Roster(ORGANIZATION, entries), naive_roster.Roster(ORGANIZATION)
    other.extend((entry.body, entry.signature, entry.openings) for entry in entries)
    assert shown.voids == roster.voids
    assert shown.head == roster.head and other.digests[-1] == shown.head.digest
    for right in ROSTERS["rights"]:
        asked = (raw(right, "member"), raw(right, "schema"), right["entry"])
        assert shown.may_read(*asked) == right["reads"]
        assert shown.may_write(*asked) == right["writes"]
    assert [dataset.dataset.hex() for dataset in due_datasets(shown)] == ROSTERS["due"]
    names = {dataset.dataset: dataset.name for dataset in shown.datasets()}
    for whole in roster.datasets():
        hidden = isinstance(names[whole.dataset], Withheld)
        assert hidden == (whole.dataset != dataset) and (hidden or names[dataset] == whole.name)


@pytest.mark.parametrize("case", ROSTERS["broken"], ids=why)
def test_an_entry_that_cannot_follow_breaks_the_roster(case: Case) -> None:
    before = roster_of(ROSTERS["entries"][: case["after"]])
    head = before.head
    with pytest.raises(ErsError) as caught:
        before.append(entry_of(case))
    assert caught.value.reason == case["error"]
    assert before.head == head


def open_one(roster: Roster, case: Case) -> OpenedGrant:
    grant = Grant(raw(case, "body"), raw(case, "signature"))
    member, dataset = raw(GRANTS, "member"), raw(GRANTS, "dataset")
    return open_grant(roster, identity_of(GRANTS), member, dataset, grant)


@pytest.mark.parametrize("case", GRANTS["good"], ids=why)
def test_a_grant_opens_as_specified(case: Case, roster: Roster) -> None:
    opened = open_one(roster, case)
    held = {(bytes(16), epoch): key.export() for epoch, key in opened.whole.items()}
    held |= {at: key.hand_over() for at, key in opened.single.items()}
    expected = {(bytes.fromhex(of), at): bytes.fromhex(key) for of, at, key in case["keys"]}
    assert held == expected


@pytest.mark.parametrize("case", GRANTS["bad"], ids=why)
def test_what_is_no_grant_of_hers_is_refused(case: Case, roster: Roster) -> None:
    with pytest.raises(ErsError) as caught:
        open_one(roster, case)
    assert caught.value.reason == case["error"]


def behind(entry: Case) -> Roster:
    """The roster with one more entry."""
    roster = roster_of(ROSTERS["entries"])
    assert roster.append(entry_of(entry)) is None
    return roster


@pytest.mark.parametrize("case", FORGOTTEN["good"] + FORGOTTEN["bad"], ids=why)
def test_a_grant_lacks_what_was_forgotten_as_specified(case: Case) -> None:
    grant = Grant(raw(case, "body"), raw(case, "signature"))
    member, dataset = raw(GRANTS, "member"), raw(GRANTS, "dataset")
    rotated = {**GRANTS, "kv": FORGOTTEN["kv"], "root": FORGOTTEN["root"]}
    own, roster = identity_of(rotated), behind(FORGOTTEN["entry"])
    if "error" in case:
        with pytest.raises(ErsError) as caught:
            open_grant(roster, own, member, dataset, grant)
        assert caught.value.reason == case["error"]
        return
    opened = open_grant(roster, own, member, dataset, grant)
    held = {(bytes(16), epoch): key.export() for epoch, key in opened.whole.items()}
    held |= {at: key.hand_over() for at, key in opened.single.items()}
    assert held == {(bytes.fromhex(of), at): bytes.fromhex(key) for of, at, key in case["keys"]}
    assert {epoch for _, epoch in held} == {2}


def test_the_reference_opens_what_the_package_grants(roster: Roster) -> None:
    ada, grace = IDENTITIES["members"][0], raw(GRANTS, "member")
    rotated = roster.member(grace)
    assert rotated is not None
    entries = [entry for entry in ROSTERS["entries"] if entry["why"] != "Grace has other keys"]
    before = roster_of(entries)
    dataset = raw(GRANTS, "dataset")
    keys = {
        epoch: DatasetKey(
            roster_cases.dataset_key(epoch), organization=ORGANIZATION, dataset=dataset, epoch=epoch
        )
        for epoch in (1, 2)
    }
    grant = seal_grant(
        before, identity_of(ada), raw(ada, "member"), member=grace, dataset=dataset, keys=keys
    )
    own = naive.identity(raw(GRANTS, "root"), ORGANIZATION, grace, 1)
    other = naive_roster.Roster(ORGANIZATION)
    other.extend(map(loaded, entries))
    opened = naive_grants.open_grant(other, own, grace, dataset, (grant.body, grant.signature))
    assert opened == {(grant_cases.WHOLE, epoch): key.export() for epoch, key in keys.items()}


@pytest.mark.parametrize("case", REQUESTS["requests"], ids=why)
def test_a_request_for_access_stands_as_specified(case: Case) -> None:
    roster = roster_of(REQUESTS["entries"][: case["after"]])
    request = AccessRequest(raw(case, "body"), raw(case, "signature"), 0)
    if "error" in case:
        with pytest.raises(ErsError) as caught:
            read_request(request)
        assert caught.value.reason == case["error"]
        return
    assert roster.judge_request(request, read_request(request), case["now"]) == case["fault"]


@pytest.fixture(scope="module")
def inviting() -> Roster:
    return roster_of(INVITATIONS["entries"])


def answer_of(parts: list[Any]) -> Answer:
    return Answer(parts[0], *(bytes.fromhex(part) for part in parts[1:]))


@pytest.mark.parametrize("case", INVITATIONS["invitations"])
def test_words_and_answers_are_as_specified(case: Case, inviting: Roster) -> None:
    secret = InvitationSecret.from_words(case["words"])
    assert secret.words == case["words"]
    assert naive_invitations.secret_of(case["words"]) == raw(case, "secret")
    assert secret.keys(ORGANIZATION, raw(case, "id")).answer_key == raw(case, "answer_key")
    answer = answer_invitation(
        inviting,
        secret,
        invitation=raw(case, "id"),
        member=raw(case, "member"),
        identity=identity_of(case),
        anchor=anchor_of(case),
        now=INVITATIONS["now"],
    )
    assert answer == answer_of(case["answer"])
    assert check_answer(inviting, answer, INVITATIONS["now"]).content.id == raw(case, "id")


@pytest.mark.parametrize("case", INVITATIONS["bad_words"], ids=why)
def test_words_with_a_mistake_are_refused(case: Case) -> None:
    with pytest.raises(InvitationWords) as caught:
        InvitationSecret.from_words(case["words"])
    assert caught.value.reason == case["error"]


@pytest.mark.parametrize("case", INVITATIONS["bad_answers"], ids=why)
def test_an_answer_that_owners_do_not_take_is_refused(case: Case, inviting: Roster) -> None:
    with pytest.raises(ErsError) as caught:
        check_answer(inviting, answer_of(case["answer"]), case["now"])
    assert caught.value.reason == case["error"]


def test_a_service_string_is_as_specified() -> None:
    case = INVITATIONS["services"]
    key = credentials.parse_service_key(case["text"])
    assert (key.id, key.secret) == (raw(case, "member"), raw(case, "root"))
    assert key.text == case["text"] and case["text"] not in repr(key)
    assert RootKey(key.secret).service_id == key.id
    token = RootKey(key.secret).token(key.id)
    assert credentials.authorization(token) == case["authorization"]
    assert credentials.service_token_of(case["authorization"]) == raw(case, "token")
    assert credentials.looks_like_service_key(case["text"])
    assert not credentials.looks_like_service_key(case["authorization"])


def test_a_service_string_with_the_id_of_another_is_refused() -> None:
    with pytest.raises(NotAuthenticated) as caught:
        _ = RequestCredentials("bearer", INVITATIONS["services"]["of_another"]).service
    assert caught.value.reason == "bad_token"


@pytest.mark.parametrize("text", INVITATIONS["services"]["bad"])
def test_another_string_is_no_service_string(text: str) -> None:
    with pytest.raises(Malformed):
        credentials.parse_service_key(text)
    assert credentials.service_token_of(text) is None
