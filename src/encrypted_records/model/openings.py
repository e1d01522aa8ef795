"""Openings: names that an entry of a roster signs without showing them, and their proofs.

The signed bytes contain a *commitment* instead of the name, and its *opening*, the name with a
salt, is sent separately. An opening proves which name was signed; without it, the commitment
reveals nothing about the name. Therefore a reader can verify a signed entry without seeing the
names that do not concern the reader (docs/SPEC.md, section 15.4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from encrypted_records.errors import BadInput, Malformed, RosterWithheld
from encrypted_records.model.records import Digest
from encrypted_records.model.signed import info

MAX_NAME: Final = 254
MAX_SLUG: Final = 120
SALT_BYTES: Final = 16
MAX_OPENING_BYTES: Final = 2048

#: Gives so many random bytes.
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
    """The names in an opening of a dataset or schema; ``definition`` is empty of a dataset."""

    slug: str
    name: str
    definition: bytes


_O = TypeVar("_O", bound=_Opening)
_encoder = msgspec.msgpack.Encoder()
_name_decoder = msgspec.msgpack.Decoder(_NameOpening)
_dataset_decoder = msgspec.msgpack.Decoder(_DatasetOpening)
_schema_decoder = msgspec.msgpack.Decoder(_SchemaOpening)


def commit_to(opening: bytes) -> bytes:
    """The 32 bytes that an entry has in place of what this opens."""
    return hashlib.sha256(info(b"opening") + opening).digest()


def conceal_name(name: str, salts: Salts) -> bytes:
    """The opening of a member's name.

    Raises:
        BadInput: it is too long, empty, or holds NUL.
        RosterWithheld: it stands for a name that is not known here.
    """
    return _encode(_name_decoder, _NameOpening(salts(SALT_BYTES), _known(name)))


def conceal_names(slug: str, name: str, definition: bytes | None, salts: Salts) -> bytes | None:
    """The opening of a dataset's slug and name, or of a schema's with its definition; None where
    slug and name are empty, which frees them.

    Raises:
        BadInput: one of the two alone is empty, or they are not of their form.
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
        Malformed: it breaks the form, also by another spelling.
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
