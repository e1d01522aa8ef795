"""Parsers of what people share: rosters, grants, requests, answers, words, as the other side sends
them, and as if a hostile owner or member had signed or sealed them."""

from __future__ import annotations

from typing import Any

import msgspec

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.identity import Identity, MemberKeys
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import RootKey
from encrypted_records.errors import (
    GrantBroken,
    InvitationOver,
    InvitationWords,
    KeysRefused,
    Malformed,
    RosterBroken,
    Unsupported,
)
from encrypted_records.index.roster.access import check_answer, open_grant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import credentials
from encrypted_records.model import roster as form
from encrypted_records.model.roster import AccessRequest, Answer, Grant, RosterEntry
from encrypted_records.model.signatures import commit_to
from tests.fuzz.mutations import msgpack, raw
from tests.fuzz.target import Target
from tests.reference.loading import entry_of, vectors

IDENTITIES, ROSTERS, GRANTS, INVITATIONS, REQUESTS = (
    vectors(f"{name}.json")
    for name in ("identities", "rosters", "grants", "invitations", "requests")
)
ORGANIZATION = bytes.fromhex(ROSTERS["organization"])


def _identity(root: str, member: str) -> Identity:
    return RootKey(bytes.fromhex(root)).identity(ORGANIZATION, bytes.fromhex(member), 1)


def _entries(cases: list[dict[str, Any]]) -> list[RosterEntry]:
    return [RosterEntry(*entry_of(one)) for one in cases]


_ADA = _identity(IDENTITIES["members"][0]["root"], IDENTITIES["members"][0]["member"])
_ADA_ID = bytes.fromhex(IDENTITIES["members"][0]["member"])
_GRACE = _identity(GRANTS["root"], GRANTS["member"])
_GRACE_ID, _DATASET = bytes.fromhex(GRANTS["member"]), bytes.fromhex(GRANTS["dataset"])
_WHOLE = Roster(ORGANIZATION, _entries(ROSTERS["entries"]))
_ROSTER = Roster(ORGANIZATION, _entries(ROSTERS["entries"][:-1]))
_ASKING = Roster(ORGANIZATION, _entries(REQUESTS["entries"][: REQUESTS["requests"][0]["after"]]))
_INVITING = Roster(ORGANIZATION, _entries(INVITATIONS["entries"]))
_BODIES = [form.read_grant(Grant(bytes.fromhex(one["body"]), bytes(64))) for one in GRANTS["good"]]
_answers = msgspec.msgpack.Decoder(Answer)


def an_entry_that_an_owner_signs(data: bytes) -> None:
    """It breaks the roster, or is one entry more, after which there still is an owner."""
    roster = _ROSTER.copy()
    roster.append(RosterEntry(data, _ADA.sign("roster", data), []))
    assert roster.number == _ROSTER.number + 1
    assert roster.owners()
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(data)) == data


def an_opening_that_an_owner_signs(data: bytes) -> None:
    """It breaks the roster, or shows a name in the one spelling that it has."""
    roster = _ROSTER.copy()
    epoch = roster.epoch(_DATASET)
    assert epoch is not None
    names = [_DATASET, commit_to(data), epoch.epoch, epoch.commitment, []]
    head = [2, ORGANIZATION, roster.number + 1, roster.head.digest, 0, _ADA_ID, form.DATASET]
    body = msgspec.msgpack.encode([*head, names])
    assert roster.append(RosterEntry(body, _ADA.sign("roster", body), [data])) is None
    named = roster.dataset(_DATASET)
    assert named is not None and named.slug and named.name
    salt = msgspec.msgpack.decode(data)[0]
    assert msgspec.msgpack.encode([salt, named.slug, named.name]) == data


def a_grant_that_an_owner_signs(data: bytes) -> None:
    open_grant(_WHOLE, _GRACE, _GRACE_ID, _DATASET, Grant(data, _ADA.sign("grant", data)))


def what_an_owner_seals_in_a_grant(data: bytes) -> None:
    """Whatever opens has the roster's commitments."""
    body = _BODIES[0]
    info = fmt.info(
        fmt.GRANT,
        ORGANIZATION,
        _DATASET,
        body.epoch.to_bytes(4, "big"),
        _GRACE_ID,
        _GRACE.keys_digest,
        body.number.to_bytes(8, "big"),
        body.digest,
        body.actor,
    )
    sealed = MemberKeys(_GRACE.keys).seal(data, info)
    encoded = form.encode_grant_body(msgspec.structs.replace(body, sealed=sealed))
    grant = Grant(encoded, _ADA.sign("grant", encoded))
    opened = open_grant(_WHOLE, _GRACE, _GRACE_ID, _DATASET, grant)
    commitments = [epoch.commitment for epoch in _WHOLE.epochs(_DATASET)]
    assert all(key.fits(commitments[at - 1]) for at, key in opened.whole.items())


def a_request_that_a_member_signs(data: bytes) -> None:
    """Whatever stands has the one spelling that it has, and is the signer's own."""
    request = AccessRequest(data, _GRACE.sign("request", data), 0)
    body = form.read_request(request)
    assert form.encode_request_body(body) == data
    if _ASKING.judge_request(request, body, REQUESTS["requests"][0]["now"]) is None:
        assert (body.organization, body.member) == (ORGANIZATION, _GRACE_ID)


def an_answer_to_an_invitation(data: bytes) -> None:
    """Nothing but the right one is taken."""
    try:
        answer = _answers.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return
    check_answer(_INVITING, answer, INVITATIONS["now"])
    assert msgspec.msgpack.encode(answer) in _ANSWERS


def public_keys_of_a_member(data: bytes) -> None:
    assert MemberKeys(data).raw == data


def the_words_of_an_invitation(data: bytes) -> None:
    text = data.decode(errors="replace")
    InvitationSecret.from_words(text)


def a_service_string(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert credentials.parse_service_key(text).text == text


def _plain(secrets: list[object]) -> bytes:
    return msgspec.msgpack.encode(secrets)


_KEYS = [bytes.fromhex(key) for _, _, key in GRANTS["good"][0]["keys"]]
_ANSWERS = [
    msgspec.msgpack.encode(
        [invitation["answer"][0], *(bytes.fromhex(part) for part in invitation["answer"][1:])]
    )
    for invitation in INVITATIONS["invitations"]
]
#: the newest entry of the vectors, and every other one as if it came in its place
_NEXT = [
    form.encode_entry_body(
        form.EntryBody(
            ORGANIZATION,
            _ROSTER.number + 1,
            _ROSTER.head.digest,
            1_800_000_000,
            _ADA_ID,
            form.read_entry(entry).content,
        )
    )[0]
    for entry in reversed(_entries(ROSTERS["entries"]))
]
_OPENINGS = [
    opening
    for entry in _entries(ROSTERS["entries"])
    if isinstance(form.read_entry(entry).content, form.DatasetName)
    for opening in entry.openings
]

TARGETS = [
    Target(an_entry_that_an_owner_signs, (RosterBroken, Unsupported), _NEXT, msgpack),
    Target(an_opening_that_an_owner_signs, (RosterBroken,), _OPENINGS, msgpack),
    Target(
        a_grant_that_an_owner_signs,
        (GrantBroken, Unsupported),
        [bytes.fromhex(one["body"]) for one in GRANTS["good"]],
        msgpack,
    ),
    Target(
        what_an_owner_seals_in_a_grant,
        (GrantBroken, Unsupported),
        [_plain([[bytes(16), [], 1, _KEYS]]), _plain([[_DATASET, [], 2, _KEYS[1:]]])],
        msgpack,
    ),
    Target(
        a_request_that_a_member_signs,
        (Malformed, Unsupported),
        [bytes.fromhex(one["body"]) for one in REQUESTS["requests"] if "fault" in one],
        msgpack,
    ),
    Target(
        an_answer_to_an_invitation,
        (InvitationWords, InvitationOver, KeysRefused, Unsupported),
        _ANSWERS,
        msgpack,
    ),
    Target(public_keys_of_a_member, (KeysRefused,), [_ADA.keys, _GRACE.keys], raw),
    Target(
        the_words_of_an_invitation,
        (InvitationWords,),
        [invitation["words"].encode() for invitation in INVITATIONS["invitations"]],
        raw,
    ),
    Target(a_service_string, (Malformed,), [INVITATIONS["services"]["text"].encode()], raw),
]
