"""Grants to Grace behind the roster of the vectors, and what is no grant of hers."""

from __future__ import annotations

from typing import Any

from tests.reference import Refused, hpke
from tests.reference import grants as ref
from tests.reference.identity import schema, sign
from tests.reference.msgpack import pack
from tests.vectors.roster_cases import FORGET, Maker, dataset_key, make
from tests.vectors.sharing_people import (
    ADULTS,
    BILLS,
    MEMBERS,
    ORGANIZATION,
    PEOPLE,
    encapsulation,
    fixed,
    identity,
    root,
    uid,
)

EPHEMERAL = fixed("ephemeral of a grant")
WHOLE = bytes(16)
#: The entry that began the second epoch, and one before it at which Grace was a member.
SECOND_EPOCH, EARLIER = "the second epoch", "Alan is removed"


def number_of(maker: Maker, why: str) -> int:
    return 1 + [one["why"] for one in maker.listed].index(why)


def body(maker: Maker, number: int, **parts: Any) -> list[Any]:
    found: list[Any] = [
        1,
        ORGANIZATION,
        PEOPLE,
        2,
        MEMBERS["grace"],
        number,
        maker.roster.digests[number] if number < len(maker.roster.digests) else bytes(32),
        MEMBERS["ada"],
        b"",
    ]
    names = "format organization dataset epoch member number digest actor".split()
    for name, value in parts.items():
        found[names.index(name)] = value
    return found


def seal(parts: list[Any], secrets: Any, signer: str = "ada", kv: int = 1) -> tuple[bytes, bytes]:
    return ref.seal(
        parts,
        secrets if isinstance(secrets, bytes) else pack(secrets),
        receiver=identity("grace", kv).keys,
        signer=identity(signer),
        mlkem=encapsulation(kv),
        ephemeral=EPHEMERAL,
    )


def both() -> list[bytes]:
    return [dataset_key(1), dataset_key(2)]


def grants() -> dict[str, Any]:
    maker = make()
    return {
        "organization": ORGANIZATION.hex(),
        "entries": "those of rosters.json",
        "root": root("grace").hex(),
        "kv": 1,
        "member": MEMBERS["grace"].hex(),
        "dataset": PEOPLE.hex(),
        "good": _good(maker),
        "bad": [_bad(maker, *one) for one in _wrong(maker)],
        "forgotten": _forgotten(),
    }


def _forgotten() -> dict[str, Any]:
    """The same behind one more entry, by which the first epoch is forgotten."""
    maker = make()
    before = len(maker.roster.digests) - 1
    maker.put("the first epoch is forgotten", "ada", FORGET, [PEOPLE, 2])
    here = before + 1
    single = schema(both()[1], ORGANIZATION, ADULTS, 2).key
    whole = [[WHOLE, [], 2, both()[1:]]]
    good = [
        ("the second epoch alone", body(maker, here), whole),
        ("one schema in it", body(maker, here), [[ADULTS, [], 2, [single]]]),
    ]
    bad = [
        ("both epochs", body(maker, here), [[WHOLE, [], 1, both()]]),
        ("both epochs, sealed before", body(maker, before), [[WHOLE, [], 1, both()]]),
        ("the second epoch, sealed before", body(maker, before), whole),
    ]
    # Grace has other keys by then, and a grant is for those that she has.
    return {
        "entry": maker.listed[-1],
        "kv": 2,
        "root": root("grace", 2).hex(),
        "good": [
            _shown(maker, why, seal(parts, secrets, kv=2), kv=2) for why, parts, secrets in good
        ],
        "bad": [_bad(maker, why, seal(parts, secrets, kv=2), kv=2) for why, parts, secrets in bad],
    }


def _good(maker: Maker) -> list[dict[str, Any]]:
    number, before = number_of(maker, SECOND_EPOCH), number_of(maker, EARLIER)
    single = [schema(key, ORGANIZATION, ADULTS, at).key for at, key in enumerate(both(), 1)]
    made = [
        ("two epochs", body(maker, number), [[WHOLE, [], 1, both()]]),
        ("the first epoch", body(maker, before, epoch=1), [[WHOLE, [], 1, both()[:1]]]),
        ("one schema", body(maker, number), [[ADULTS, [], 1, single]]),
        ("signed later", body(maker, number + 1), [[WHOLE, [], 1, both()]]),
    ]
    found = []
    for why, parts, secrets in made:
        found.append(_shown(maker, why, seal(parts, secrets)))
    return found


def _shown(maker: Maker, why: str, grant: tuple[bytes, bytes], kv: int = 1) -> dict[str, Any]:
    return {
        "why": why,
        "body": grant[0].hex(),
        "signature": grant[1].hex(),
        "keys": [[of.hex(), at, key.hex()] for (of, at), key in _open(maker, grant, kv).items()],
    }


def _open(maker: Maker, grant: tuple[bytes, bytes], kv: int = 1) -> dict[tuple[bytes, int], bytes]:
    return ref.open_grant(maker.roster, identity("grace", kv), MEMBERS["grace"], PEOPLE, grant)


def _wrong(maker: Maker) -> list[tuple[str, tuple[bytes, bytes]]]:
    number, before = number_of(maker, SECOND_EPOCH), number_of(maker, EARLIER)
    right, parts = [[WHOLE, [], 1, both()]], body(maker, number)
    good = seal(parts, right)

    def held(why: str, secrets: Any) -> tuple[str, tuple[bytes, bytes]]:
        return why, seal(parts, secrets)

    def stated(why: str, at: int = number, **changes: Any) -> tuple[str, tuple[bytes, bytes]]:
        return why, seal(body(maker, at, **changes), right)

    moved = body(maker, number)
    moved[8] = hpke.seal(
        pack(right),
        ref.context(body(maker, number + 1), identity("grace").keys),
        mlkem=encapsulation(),
        ephemeral=EPHEMERAL,
        x25519=identity("grace").keys[33:65],
    )
    return [
        ("empty", (b"", good[1])),
        ("a body altered", (good[0][:-1] + bytes((good[0][-1] ^ 1,)), good[1])),
        ("a signature altered", (good[0], bytes(64))),
        ("signed as an entry", (good[0], sign(identity("ada").sign, "roster", good[0]))),
        ("signed by another", seal(parts, right, signer="grace")),
        ("a body with a part more", _signed(pack([*parts[:8], b"x", 0]))),
        stated("of a later format", format=2),
        stated("of another organization", organization=uid(97)),
        stated("of another dataset", dataset=BILLS),
        stated("for another member", member=MEMBERS["alan"]),
        stated("of an epoch that is not there", epoch=3),
        stated("of epoch 0", epoch=0),
        stated("of an epoch that came later", before),
        stated("behind an entry that is not there", 9999),
        stated("behind another roster", digest=fixed("another roster")),
        ("by a reader", seal(body(maker, number, actor=MEMBERS["grace"]), right, signer="grace")),
        ("by a stranger", seal(body(maker, number, actor=MEMBERS["mallory"]), right, "mallory")),
        ("sealed for another entry", _signed(pack(moved))),
        held("another key", [[WHOLE, [], 1, [fixed("x"), dataset_key(2)]]]),
        held("keys in another order", [[WHOLE, [], 1, both()[::-1]]]),
        held("an epoch too few", [[WHOLE, [], 1, both()[:1]]]),
        held("an epoch too many", [[WHOLE, [], 1, [*both(), fixed("x")]]]),
        held("the first is left out, and was not forgotten", [[WHOLE, [], 2, both()[1:]]]),
        held("no keys", [[WHOLE, [], 3, []]]),
        held("nothing", []),
        held("a schema twice", [*right, *right]),
        held("a key that is too short", [[WHOLE, [], 2, [both()[1][:31]]]]),
        held("single fields", [[ADULTS, [b"age"], 2, [fixed("x")]]]),
        held("a byte too much", pack(right) + b"\x00"),
        held("a longer spelling", pack(right).replace(b"\x91\x94", b"\xdc\x00\x01\x94", 1)),
    ]


def _signed(encoded: bytes) -> tuple[bytes, bytes]:
    return encoded, sign(identity("ada").sign, "grant", encoded)


def _bad(maker: Maker, why: str, grant: tuple[bytes, bytes], kv: int = 1) -> dict[str, Any]:
    try:
        _open(maker, grant, kv)
    except Refused as refused:
        return {
            "why": why,
            "body": grant[0].hex(),
            "signature": grant[1].hex(),
            "error": refused.code,
        }
    raise AssertionError(why)
