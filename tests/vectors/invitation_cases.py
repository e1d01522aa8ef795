"""Words, what follows from them, answers to an invitation, and service strings."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import Refused
from tests.reference import identity as ids
from tests.reference import invitations as ref
from tests.vectors.roster_cases import FOUND, INVITE, SECRETS, Maker
from tests.vectors.sharing_people import (
    FIRST,
    MEMBERS,
    NOW,
    ORGANIZATION,
    SECOND,
    fixed,
    identity,
    root,
    uid,
)

LATE = NOW + 100


def begin() -> Maker:
    """An organization that has invited Grace, and Alan by his id."""
    maker = Maker()
    founded = [identity("ada").keys, "ada@example.org", fixed("nonce")]
    maker.put("an organization begins", "ada", FOUND, founded)
    maker.put("Grace is invited", "ada", INVITE, maker.invite(FIRST, "grace", [], LATE))
    content = maker.invite(SECOND, "alan", [], LATE)
    content[1] = MEMBERS["alan"]
    keys = ref.keys_of(SECRETS[SECOND], ORGANIZATION, SECOND)
    content[6] = ref.check(keys, maker.roster.digests[-1], content)
    maker.put("Alan is invited", "ada", INVITE, content)
    return maker


def invitations() -> dict[str, Any]:
    maker = begin()
    return {
        "organization": ORGANIZATION.hex(),
        "entries": maker.listed,
        "now": NOW,
        "invitations": [_invitation(maker, FIRST, "grace"), _invitation(maker, SECOND, "alan")],
        "bad_words": _bad_words(),
        "answer": [_plain(part) for part in _answer(maker, "grace", FIRST)],
        "bad_answers": [_bad(maker, *one) for one in _wrong(maker)],
        "services": _services(),
    }


def _plain(part: Any) -> Any:
    return part.hex() if isinstance(part, bytes) else part


def _invitation(maker: Maker, invitation: bytes, name: str) -> dict[str, Any]:
    secret = SECRETS[invitation]
    keys = ref.keys_of(secret, ORGANIZATION, invitation)
    return {
        "id": invitation.hex(),
        "secret": secret.hex(),
        "words": ref.words(secret),
        "P": keys.pair.hex(),
        "answer_seed": keys.answer_seed.hex(),
        "answer_key": keys.answer_key.hex(),
        "K_check": keys.check_key.hex(),
        "root": root(name).hex(),
        "member": MEMBERS[name].hex(),
        "kv": 1,
        "answer": [_plain(part) for part in _answer(maker, name, invitation)],
    }


def _bad_words() -> list[dict[str, str]]:
    right = ref.words(SECRETS[FIRST]).split()
    swapped = [right[1], right[0], *right[2:]]
    wrong = {
        "none": "",
        "eleven": " ".join(right[:11]),
        "thirteen": " ".join([*right, right[0]]),
        "two changed places": " ".join(swapped),
        "one is not in the list": " ".join([*right[:11], "xyzzy"]),
        "a recovery phrase": "abandon " * 23 + "art",
    }
    for text in wrong.values():
        try:
            ref.secret_of(text)
        except Refused as refused:
            assert refused.code == "invitation_words"
        else:
            raise AssertionError(text)
    return [{"why": why, "words": text, "error": "invitation_words"} for why, text in wrong.items()]


def _signed_parts(maker: Maker, name: str, kv: int = 1) -> list[bytes]:
    return [MEMBERS[name], *maker.shown(name, kv)]


def _answer(
    maker: Maker, name: str, invitation: bytes, parts: list[bytes] | None = None
) -> list[Any]:
    secret = SECRETS[invitation]
    keys = ref.keys_of(secret, ORGANIZATION, invitation)
    entry = maker.roster.states[-1].invitations[invitation]["digest"]
    return ref.answer(keys, entry, ORGANIZATION, invitation, parts or _signed_parts(maker, name))


def _wrong(maker: Maker) -> list[tuple[str, list[Any], int]]:
    right = _answer(maker, "grace", FIRST)
    grace, mallory = _signed_parts(maker, "grace"), _signed_parts(maker, "mallory")

    def changed(at: int, value: Any) -> list[Any]:
        return [*right[:at], value, *right[at + 1 :]]

    def answered(*parts: bytes) -> list[Any]:
        return _answer(maker, "grace", FIRST, list(parts))

    small = grace[1][:1] + b"\x01" + bytes(31) + grace[1][33:]
    ada = identity("ada").keys
    anchor = ids.anchor(identity("grace"), maker.found)
    of_ada = ids.sign(identity("ada").sign, "keys", maker.found + MEMBERS["grace"] + ada + anchor)
    return [
        ("late", right, LATE),
        ("of a later format", changed(0, 2), NOW),
        ("to another organization", changed(1, uid(97)), NOW),
        ("to no invitation", changed(2, uid(97)), NOW),
        ("with other words", changed(2, SECOND), NOW),
        ("by another member", changed(3, MEMBERS["mallory"]), NOW),
        ("keys swapped", changed(4, mallory[1]), NOW),
        ("an anchor swapped", changed(5, mallory[2]), NOW),
        ("a proof swapped", changed(6, mallory[3]), NOW),
        ("a signature altered", changed(7, bytes(64)), NOW),
        ("keys that are not the sender's", answered(grace[0], mallory[1], *grace[2:]), NOW),
        ("a proof for another member", answered(MEMBERS["mallory"], *grace[1:]), NOW),
        ("a key of small order", answered(grace[0], small, grace[2], b"\x01" + bytes(63)), NOW),
        ("keys of an owner", answered(grace[0], ada, anchor, of_ada), NOW),
        ("by an owner", answered(MEMBERS["ada"], *maker.shown("ada")), NOW),
        ("by somebody else than is meant", _answer(maker, "grace", SECOND), NOW),
    ]


def _bad(maker: Maker, why: str, answer: list[Any], now: int) -> dict[str, Any]:
    try:
        ref.check_answer(maker.roster, answer, now)
    except Refused as refused:
        parts = [_plain(part) for part in answer]
        return {"why": why, "now": now, "answer": parts, "error": refused.code}
    raise AssertionError(why)


def _services() -> dict[str, Any]:
    secret = root("nightly")
    member = ids.service_id(secret)
    text = ref.service_string(member, secret)
    token = ids.token(secret, member)
    return {
        "member": member.hex(),
        "root": secret.hex(),
        "text": text,
        "token": token.hex(),
        "authorization": "Service " + ref.base64url(token),
        "digest": hashlib.sha256(token).hexdigest(),
        "of_another": ref.service_string(MEMBERS["nightly"], secret),
        "bad": [
            "",
            text[:-1],
            text + "A",
            text.upper(),
            text.replace("ers1_", "ersd1_"),
            text[:-1] + "_" if not text.endswith("_") else text[:-1] + "-",
            text.replace("_", "-", 1),
            "ers1_" + "z" * 22 + text[27:],
        ],
    }
