"""Identities, signatures, sealing, keys of datasets; and keys that are refused."""

from __future__ import annotations

from typing import Any

from tests.reference import Refused, hpke
from tests.reference import identity as ref
from tests.vectors.sharing_people import (
    ADULTS,
    MEMBERS,
    ORGANIZATION,
    PEOPLE,
    encapsulation,
    fixed,
    identity,
    root,
)

KINDS = ("roster", "commit", "checkpoint", "grant", "keys", "answer", "request")
FOUND, MESSAGE = fixed("found"), b"what is signed"
INFO, PLAIN = b"what it is for", b"what is sealed"
SEGMENT = bytes.fromhex("ffeeddccbbaa99887766554433221100")


def identities() -> dict[str, Any]:
    return {
        "organization": ORGANIZATION.hex(),
        "found": FOUND.hex(),
        "message": MESSAGE.hex(),
        "members": [_member("ada", 1), _member("ada", 2), _member("grace", 1)],
        "bad_signatures": _bad_signatures(),
        "refused": [
            {"why": why, "keys": keys.hex(), "error": _error(keys)} for why, keys in _refused()
        ],
        "sealed": _sealed(),
        "datasets": [_dataset(1), _dataset(2), _dataset(4_000_000_000)],
    }


def _member(name: str, kv: int) -> dict[str, Any]:
    own = identity(name, kv)
    return {
        "root": root(name, kv).hex(),
        "member": MEMBERS[name].hex(),
        "kv": kv,
        "sign": own.sign.hex(),
        "x25519": own.x25519.hex(),
        "mlkem": own.mlkem.hex(),
        "keys": own.keys.hex(),
        "K_anchor": own.anchor.hex(),
        "anchor": ref.anchor(own, FOUND).hex(),
        "token": ref.token(root(name, kv), MEMBERS[name]).hex(),
        "signatures": {kind: ref.sign(own.sign, kind, MESSAGE).hex() for kind in KINDS},
    }


def _bad_signatures() -> list[dict[str, Any]]:
    """Of Ada's, over the message as a commit."""
    own = identity("ada")
    right = ref.sign(own.sign, "commit", MESSAGE)
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(right[32:], "little") + order
    wrong = {
        "of another kind": ref.sign(own.sign, "grant", MESSAGE),
        "over something else": ref.sign(own.sign, "commit", MESSAGE + b"\x00"),
        "of another member": ref.sign(identity("grace").sign, "commit", MESSAGE),
        "of another version of the keyring": ref.sign(identity("ada", 2).sign, "commit", MESSAGE),
        "an S that is not below the order": right[:32] + s.to_bytes(32, "little"),
        "a bit altered": right[:10] + bytes((right[10] ^ 1,)) + right[11:],
        "zero": bytes(64),
    }
    assert not any(ref.is_signed(own.keys[1:33], "commit", MESSAGE, one) for one in wrong.values())
    return [{"why": why, "signature": one.hex()} for why, one in wrong.items()]


#: As docs/SPEC.md, 15.1, has them; the second implementation refuses them by an exchange.
_SMALL_U = (
    0,
    1,
    ref.P - 1,
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
)


def _refused() -> list[tuple[str, bytes]]:
    keys = identity("ada").keys
    found = [
        ("empty", b""),
        ("cut short", keys[:-1]),
        ("too long", keys + b"\x00"),
        ("of a later format", b"\x02" + keys[1:]),
        ("an ML-KEM key that is not reduced", keys[:65] + b"\xff" * 1152 + keys[-32:]),
        ("one coefficient of the ML-KEM key is q", keys[:65] + b"\x01\x0d" + keys[67:]),
    ]
    for u in (*_SMALL_U, ref.P, ref.P + 1):
        for highest in (0, 1):
            point = (u + highest * 2**255).to_bytes(32, "little")
            found.append(
                (f"an X25519 key of small order: {point.hex()}", keys[:33] + point + keys[65:])
            )
    for y in sorted(ref.small_orders()):
        for sign in (0, 1):
            point = (y + sign * 2**255).to_bytes(32, "little")
            found.append(
                (f"an Ed25519 key of small order: {point.hex()}", keys[:1] + point + keys[33:])
            )
    for y in (ref.P, ref.P + 1, 2**255 - 1):
        point = y.to_bytes(32, "little")
        found.append(
            (f"an Ed25519 key in another spelling: {point.hex()}", keys[:1] + point + keys[33:])
        )
    return found


def _error(keys: bytes) -> str:
    try:
        ref.check_keys(keys)
    except Refused as refused:
        return refused.code
    raise AssertionError("these keys are good")


def _sealed() -> dict[str, Any]:
    own = identity("grace")
    sealed = hpke.seal(
        PLAIN, INFO, mlkem=encapsulation(), ephemeral=fixed("ephemeral"), x25519=own.keys[33:65]
    )
    places = (0, 500, 1087, 1088, 1119, 1120, len(sealed) - 1)
    flipped = [sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :] for at in places]
    bad = [
        {"why": f"byte {at} altered", "sealed": one.hex()}
        for at, one in zip(places, flipped, strict=True)
    ]
    bad += [
        {"why": "cut short", "sealed": sealed[:-1].hex()},
        {"why": "shorter than a tag", "sealed": sealed[:1130].hex()},
        {"why": "empty", "sealed": ""},
        {"why": "a share of zero", "sealed": (sealed[:1088] + bytes(32) + sealed[1120:]).hex()},
    ]
    return {
        "root": root("grace").hex(),
        "member": MEMBERS["grace"].hex(),
        "kv": 1,
        "info": INFO.hex(),
        "plain": PLAIN.hex(),
        "sealed": sealed.hex(),
        "bad": [{**one, "error": "does_not_open"} for one in bad],
    }


def _dataset(epoch: int) -> dict[str, Any]:
    key = fixed(f"D {epoch}")
    schema = ref.schema(key, ORGANIZATION, ADULTS, epoch)
    return {
        "D": key.hex(),
        "dataset": PEOPLE.hex(),
        "epoch": epoch,
        "commitment": ref.commitment(key, ORGANIZATION, PEOPLE, epoch).hex(),
        "schema": ADULTS.hex(),
        "K_schema": schema.key.hex(),
        "key_id": schema.key_id.hex(),
        "K_log": schema.log.hex(),
        "segment": SEGMENT.hex(),
        "K_meta": schema.meta(SEGMENT).hex(),
    }
