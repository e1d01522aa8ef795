"""Messages that an identity signs, its public keys, and commitments to names, as bytes.

This module has no keys and no cryptographic primitives, so both sides use it. Each message begins
with the kind of the signed object, so that a signature of one kind is never valid for another
(docs/SPEC.md, section 15.2).

Public keys are ``u8(1) || Ed25519 (32) || X25519 (32) || ML-KEM-768 (1184)`` (docs/SPEC.md, section
15.1). Unacceptable keys are refused by their bytes, without being loaded.

The signed bytes of an entry contain a *commitment* instead of a name, and its *opening*, the name
with a salt, is sent separately. An opening proves which name was signed; without it, the commitment
reveals nothing about the name. Therefore a reader can verify a signed entry without seeing the
names that do not concern the reader (docs/SPEC.md, section 15.4).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from encrypted_records.errors import BadInput, Malformed, RosterWithheld
from encrypted_records.model.records import Digest

PREFIX = b"ERS1"

#: Every kind that a key of an identity, or the answer key of an invitation, ever signs.
SignedKind = Literal["roster", "commit", "checkpoint", "grant", "keys", "answer", "request"]


def info(*parts: bytes) -> bytes:
    """``ERS1`` and the parts, each after its 16-bit length (docs/SPEC.md, section 2).

    The lengths make it injective: no two lists of parts give the same string.
    """
    return b"".join(struct.pack(">H", len(part)) + part for part in (PREFIX, *parts))


def message(kind: SignedKind, *parts: bytes) -> bytes:
    """The bytes to sign for a signature of ``kind`` over the joined ``parts``."""
    return info(b"signed", kind.encode("ascii")) + b"".join(parts)


KEYS_FORMAT = 1
SIGN_BYTES = 32
X25519_BYTES = 32
MLKEM_BYTES = 1184
PUBLIC_KEYS_BYTES = 1 + SIGN_BYTES + X25519_BYTES + MLKEM_BYTES

#: The prime of Curve25519.
_P = 2**255 - 19
#: The prime of ML-KEM, and the number of key bytes that encode coefficients.
_Q = 3329
_COEFFICIENT_BYTES = 1152
#: The y of every Ed25519 point whose order divides 8.
_SMALL_ORDER_Y = frozenset(
    {
        0,
        1,
        _P - 1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    }
)
#: The u of every X25519 point, of the curve and of its twist, whose order divides 8.
_SMALL_ORDER_U = frozenset(
    {
        0,
        1,
        _P - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    }
)


class KeyParts(NamedTuple):
    """The three public keys of one member."""

    sign: bytes
    x25519: bytes
    mlkem: bytes


def split_keys(keys: bytes) -> KeyParts | None:
    """The parts of ``keys``; None for another length or format."""
    if len(keys) != PUBLIC_KEYS_BYTES or keys[0] != KEYS_FORMAT:
        return None
    at = 1 + SIGN_BYTES
    return KeyParts(keys[1:at], keys[at : at + X25519_BYTES], keys[at + X25519_BYTES :])


def join_keys(parts: KeyParts) -> bytes:
    """Undo :func:`split_keys`."""
    return bytes((KEYS_FORMAT,)) + parts.sign + parts.x25519 + parts.mlkem


def signs_alone(point: bytes) -> bool:
    """Whether an encoded Ed25519 point can identify a single signer.

    With a point of small order, every signature with a fitting first half is valid, also in
    OpenSSL; likewise with an encoding that RFC 8032 does not allow, with a y of 2**255 - 19 or
    more. No member's key is such a point.
    """
    y = int.from_bytes(point, "little") & (2**255 - 1)
    return y < _P and y not in _SMALL_ORDER_Y


def agrees_alone(point: bytes) -> bool:
    """Whether only the holder of the private key can open what is sealed to an encoded X25519
    point.

    With a point of small order every exchange gives zeros, which everyone knows. RFC 7748 reduces
    an encoding modulo the prime, and ignores its highest bit.
    """
    u = (int.from_bytes(point, "little") & (2**255 - 1)) % _P
    return u not in _SMALL_ORDER_U


def are_refused(keys: bytes) -> bool:
    """Whether public keys are unacceptable: their length or format is wrong, anyone could sign with
    them, or nothing can be sealed to them.
    """
    parts = split_keys(keys)
    return parts is None or not (
        signs_alone(parts.sign) and agrees_alone(parts.x25519) and is_reduced(parts.mlkem)
    )


def is_reduced(key: bytes) -> bool:
    """Whether each of the 768 coefficients of an ML-KEM-768 key, of twelve bits, is below the
    prime: the modulus check of FIPS 203, section 7.2."""
    packed = key[:_COEFFICIENT_BYTES]
    return all(
        low | (middle & 15) << 8 < _Q and middle >> 4 | high << 4 < _Q
        for low, middle, high in zip(packed[::3], packed[1::3], packed[2::3], strict=True)
    )


MAX_NAME: Final = 254
MAX_SLUG: Final = 120
SALT_BYTES: Final = 16
MAX_OPENING_BYTES: Final = 2048

#: Returns the given number of random bytes.
Salts = Callable[[int], bytes]
_Salt = Annotated[bytes, Meta(min_length=SALT_BYTES, max_length=SALT_BYTES)]
_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00]*\Z")]
_Slug = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_-]{{1,{MAX_SLUG}}}\Z")]


class Withheld(str):
    """A placeholder for a name or slug without an opening. It is truthy, and equals no real name,
    because it begins with NUL. It contains the commitment, so that two placeholders of the same
    commitment are equal.
    """

    __slots__ = ()

    @classmethod
    def of(cls, commitment: bytes) -> Withheld:
        return cls("\0" + commitment.hex())


class _Opening(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    salt: _Salt


class _NameOpening(_Opening, frozen=True):
    name: _Name


class _DatasetOpening(_Opening, frozen=True):
    slug: _Slug
    name: _Name


class _SchemaOpening(_Opening, frozen=True):
    slug: _Slug
    name: _Name
    definition: Digest


@dataclass(frozen=True, slots=True)
class OpenedNames:
    """The names in an opening of a dataset or schema; ``definition`` is empty for a dataset."""

    slug: str
    name: str
    definition: bytes


_O = TypeVar("_O", bound=_Opening)
_encoder = msgspec.msgpack.Encoder()
_name_decoder = msgspec.msgpack.Decoder(_NameOpening)
_dataset_decoder = msgspec.msgpack.Decoder(_DatasetOpening)
_schema_decoder = msgspec.msgpack.Decoder(_SchemaOpening)


def commit_to(opening: bytes) -> bytes:
    """The 32-byte commitment that an entry has in place of the name that this opening reveals."""
    return hashlib.sha256(info(b"opening") + opening).digest()


def conceal_name(name: str, salts: Salts) -> bytes:
    """The opening of a member's name.

    Raises:
        BadInput: it is too long, empty, or contains NUL.
        RosterWithheld: it is a placeholder for a withheld name.
    """
    return _encode(_name_decoder, _NameOpening(salts(SALT_BYTES), _known(name)))


def conceal_names(slug: str, name: str, definition: bytes | None, salts: Salts) -> bytes | None:
    """The opening of a dataset's slug and name, or of a schema's with its definition; None where
    slug and name are empty, which frees them.

    Raises:
        BadInput: only one of the two is empty, or a form is wrong.
        RosterWithheld: as :func:`conceal_name`.
    """
    if bool(slug) != bool(name):
        raise BadInput("the organization's roster takes a slug and a name together, or neither")
    if not slug:
        return None
    salt, known = salts(SALT_BYTES), (_known(slug), _known(name))
    if definition is None:
        return _encode(_dataset_decoder, _DatasetOpening(salt, *known))
    return _encode(_schema_decoder, _SchemaOpening(salt, *known, definition))


def open_name(opening: bytes) -> str:
    """
    Raises:
        Malformed: it breaks the form, also by a non-canonical spelling.
    """
    return _decode(_name_decoder, opening).name


def open_dataset(opening: bytes) -> OpenedNames:
    """
    Raises:
        Malformed: as :func:`open_name`.
    """
    shown = _decode(_dataset_decoder, opening)
    return OpenedNames(shown.slug, shown.name, b"")


def open_schema(opening: bytes) -> OpenedNames:
    """
    Raises:
        Malformed: as :func:`open_name`.
    """
    shown = _decode(_schema_decoder, opening)
    return OpenedNames(shown.slug, shown.name, shown.definition)


def require_shown(*names: str) -> None:
    """Require that all names have openings, so that they can be shown and compared.

    Raises:
        RosterWithheld: a name has no opening.
    """
    for name in names:
        _known(name)


def _known(name: str) -> str:
    if isinstance(name, Withheld):
        raise RosterWithheld("the API keeps back a name in the organization's roster")
    return name


def _encode(decoder: msgspec.msgpack.Decoder[_O], shown: _O) -> bytes:
    opening = _encoder.encode(shown)
    try:
        _decode(decoder, opening)
    except Malformed:
        raise BadInput(
            f"a name has 1 to {MAX_NAME} characters, none of them NUL; a slug has up to {MAX_SLUG}"
            " letters, digits, - and _"
        ) from None
    return opening


def _decode(decoder: msgspec.msgpack.Decoder[_O], opening: bytes) -> _O:
    try:
        shown = decoder.decode(opening)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        # The library's message may quote the input, which can be anything.
        raise _malformed() from None
    if _encoder.encode(shown) != opening:
        raise _malformed()
    return shown


def _malformed() -> Malformed:
    return Malformed("an opening of a roster entry is not of its form", code="malformed_frame")
