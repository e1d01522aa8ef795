"""Roster entries, grants, answers and requests for access: structs of the wire, and their form.

A *roster* is the signed list of an organization: its members, with their keys and rights, and the
keys of its datasets. This module defines what can be checked without a key: the bytes, their form,
and the digests that chain them. :mod:`encrypted_records.index.roster` decides what an entry
changes, and whether it counts (docs/SPEC.md, section 15).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from encrypted_records import runtime
from encrypted_records.errors import Malformed, Unsupported
from encrypted_records.model.records import U63, Digest, Uid
from encrypted_records.model.signatures import MAX_NAME as LONGEST_NAME
from encrypted_records.model.signatures import (
    MAX_OPENING_BYTES,
    PUBLIC_KEYS_BYTES,
    Salts,
    Withheld,
    commit_to,
    conceal_name,
    conceal_names,
    message,
    open_dataset,
    open_name,
    open_schema,
)

#: The formats of grants, answers and requests, and of entries.
FORMAT: Final = 1
ENTRY_FORMAT: Final = 2
MAX_NAME: Final = LONGEST_NAME
MAX_ENTRY_BYTES = 256 << 10
MAX_GRANT_BYTES = 1 << 20
MAX_REQUEST_BYTES = 256
#: Entries in one answer.
ENTRIES_AT_ONCE = 1000
#: Limits of an organization.
MAX_ENTRIES = 100_000
MAX_MEMBERS = 1_000
MAX_DATASETS = 500
MAX_SCHEMAS = 10_000
#: Limits of a dataset, a share or an entry.
MAX_EPOCHS = 1_024
MAX_SINGLE_SCHEMAS = 16
MAX_PLACES = 256
#: The digest before the first entry; and, in a grant, the id for all schemas of a dataset.
NO_DIGEST: Final = bytes(32)
WHOLE_DATASET: Final = bytes(16)

PERSON: Final = 1
SERVICE: Final = 2
OWNER: Final = 1
MEMBER: Final = 2
WRITER: Final = 1
READER: Final = 2

Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
PublicKeys = Annotated[bytes, Meta(min_length=PUBLIC_KEYS_BYTES, max_length=PUBLIC_KEYS_BYTES)]
#: Epochs of a dataset's keys count from 1.
Epoch = Annotated[int, Meta(ge=1, lt=2**32)]
Number = Annotated[int, Meta(ge=1, lt=2**32)]


class _Listed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


def _lengths(value: bytes, *allowed: int) -> None:
    if len(value) not in allowed:
        raise ValueError("of another length")


class Share(_Listed, frozen=True):
    """A member's right in one dataset: ``right`` 1 write and read, 2 read; in all of its schemas if
    ``schemas`` is empty, otherwise only in these.
    """

    dataset: Uid
    right: Literal[1, 2]
    schemas: Annotated[list[Uid], Meta(max_length=MAX_SINGLE_SCHEMAS)]


Shares = Annotated[list[Share], Meta(max_length=2 * MAX_DATASETS)]


#: A name in a content: the name itself, :class:`.signatures.Withheld` if it is not shown here, or,
#: in signed form, its commitment. :mod:`.signatures` defines lengths and letters of names.
_N = TypeVar("_N", str, bytes)


class FoundingEntry(_Listed, Generic[_N], frozen=True):
    """Entry 1 of an organization: the actor is its first owner, and these are the actor's keys."""

    keys: PublicKeys
    name: _N
    nonce: Digest


class Invite(_Listed, Generic[_N], frozen=True):
    """An invitation that a holder of the words may answer until ``expires``: only ``member``, or,
    if that is empty, only a person who was never in the roster. ``check`` proves to the invited
    person that the entries before it are the inviter's roster.
    """

    id: Uid
    member: Annotated[bytes, Meta(max_length=16)]
    name: _N
    expires: U63
    answer_key: Digest
    shares: Shares
    check: Digest

    def __post_init__(self) -> None:
        _lengths(self.member, 0, 16)


class MemberStanding(_Listed, Generic[_N], frozen=True):
    """The complete state of a member, which replaces an earlier one. ``type`` 1 is a person, 2 a
    service; ``role`` 1 an owner, 2 a member. Empty keys, anchor and proof leave the earlier values.
    ``expires`` applies to services, in seconds since 1970; 0: never.
    """

    member: Uid
    type: Literal[1, 2]
    role: Literal[1, 2]
    name: _N
    keys: Annotated[bytes, Meta(max_length=PUBLIC_KEYS_BYTES)]
    anchor: Annotated[bytes, Meta(max_length=32)]
    proof: Annotated[bytes, Meta(max_length=64)]
    invitation: Annotated[bytes, Meta(max_length=16)]
    expires: U63
    shares: Shares

    def __post_init__(self) -> None:
        _lengths(self.keys, 0, PUBLIC_KEYS_BYTES)
        _lengths(self.anchor, 0, 32)
        _lengths(self.proof, 0, 64)
        _lengths(self.invitation, 0, 16)


class Remove(_Listed, frozen=True):
    """Removes a member or an invitation from this entry on."""

    id: Uid


class End(_Listed, frozen=True):
    """The end of a schema's log when an epoch begins: later versions belong to the new epoch."""

    schema: Uid
    version: U63
    digest: Digest


class DatasetName(_Listed, frozen=True):
    """A dataset's name, and the epoch of its keys: the present epoch, or one that begins here."""

    dataset: Uid
    slug: str
    name: str
    epoch: Epoch
    commitment: Digest
    ends: list[End]


class Placement(_Listed, frozen=True):
    """The dataset, name and definition of a schema. An empty slug and name free them; then there is
    no definition, and its digest is zero bytes.
    """

    schema: Uid
    dataset: Uid
    slug: str
    name: str
    definition: Digest


class Forget(_Listed, frozen=True):
    """Grants no longer contain keys of a dataset before epoch ``first``, because no
    data uses them.
    """

    dataset: Uid
    first: Epoch


class Listing(_Listed, frozen=True):
    """Whether a dataset is listed: members without access to it may request access."""

    dataset: Uid
    listed: Literal[0, 1]


Named: TypeAlias = FoundingEntry[_N] | Invite[_N] | MemberStanding[_N]
Content: TypeAlias = Named[str] | Remove | DatasetName | list[Placement] | Forget | Listing

FOUND, INVITE, STANDING, REMOVE, DATASET, PLACE = range(1, 7)
FORGET: Final = 8
LIST: Final = 9
#: Kind 7 is reserved for a signed head with a time, which this version does not know.
_KIND_OF: dict[type, int] = {
    FoundingEntry: FOUND,
    Invite: INVITE,
    MemberStanding: STANDING,
    Remove: REMOVE,
    DatasetName: DATASET,
    list: PLACE,
    Forget: FORGET,
    Listing: LIST,
}


class RosterEntry(_Listed, frozen=True):
    """Frame kind 10: the encoded :class:`EntryBody`, the actor's signature over it, and openings of
    its names: all, or those that its reader may see.
    """

    body: Annotated[bytes, Meta(max_length=MAX_ENTRY_BYTES)]
    signature: Signature
    openings: Annotated[
        list[Annotated[bytes, Meta(max_length=MAX_OPENING_BYTES)]], Meta(max_length=MAX_PLACES)
    ]


class Grant(_Listed, frozen=True):
    """Frame kind 11: the encoded :class:`GrantBody`, and the actor's signature over it."""

    body: Annotated[bytes, Meta(max_length=MAX_GRANT_BYTES)]
    signature: Signature


class Answer(_Listed, frozen=True):
    """Frame kind 12: the keys of a person who has the words of invitation ``id``."""

    format: Number
    organization: Uid
    id: Uid
    member: Uid
    keys: PublicKeys
    anchor: Digest
    proof: Signature
    signature: Signature


class AccessRequest(_Listed, frozen=True):
    """Frame kind 20: the encoded :class:`AccessRequestBody`, and the member's signature over it.

    ``declined`` is the time when an owner declined it, in seconds since 1970, and 0 before. The API
    states it; it is not signed.
    """

    body: Annotated[bytes, Meta(max_length=MAX_REQUEST_BYTES)]
    signature: Signature
    declined: U63


class AccessRequestBody(_Listed, frozen=True):
    """A member requests a right in all of a dataset: ``right`` 1 write and read, 2 read.

    ``number`` and ``digest`` are those of the newest roster entry that the member had read, and
    ``time`` is in seconds since 1970, by the member's clock.
    """

    format: Number
    organization: Uid
    dataset: Uid
    member: Uid
    right: Literal[1, 2]
    number: Number
    digest: Digest
    time: U63


class GrantBody(_Listed, frozen=True):
    """The keys of one dataset for one member, up to ``epoch``, sealed by an owner.

    ``number`` and ``digest`` are those of the newest roster entry that the owner had read.
    """

    format: Number
    organization: Uid
    dataset: Uid
    epoch: Epoch
    member: Uid
    number: Number
    digest: Digest
    actor: Uid
    sealed: Annotated[bytes, Meta(min_length=1, max_length=MAX_GRANT_BYTES)]


#: Empty if names are freed.
_MaybeCommitment = Annotated[bytes, Meta(max_length=32)]


class _SignedDataset(_Listed, frozen=True):
    dataset: Uid
    names: _MaybeCommitment
    epoch: Epoch
    commitment: Digest
    ends: list[End]

    def __post_init__(self) -> None:
        _lengths(self.names, 0, 32)


class _SignedPlacement(_Listed, frozen=True):
    schema: Uid
    dataset: Uid
    names: _MaybeCommitment

    def __post_init__(self) -> None:
        _lengths(self.names, 0, 32)


_SignedPlaces: TypeAlias = Annotated[
    list[_SignedPlacement], Meta(min_length=1, max_length=MAX_PLACES)
]
#: Contents in signed form: commitments in place of names.
_Signed: TypeAlias = (
    Named[Digest] | Remove | _SignedDataset | list[_SignedPlacement] | Forget | Listing
)


class _RawBody(_Listed, frozen=True):
    format: Number
    organization: Uid
    number: Number
    previous: Digest
    time: U63
    actor: Uid
    kind: Number
    content: msgspec.Raw


@dataclass(frozen=True, slots=True)
class EntryBody:
    """The body of a roster entry, as stated by its actor. ``time`` is in seconds since 1970; it is
    shown but not trusted, except where the rules say so. ``whole`` says whether all names in it are
    shown.
    """

    organization: bytes
    number: int
    previous: bytes
    time: int
    actor: bytes
    content: Content
    whole: bool = True

    @property
    def kind(self) -> int:
        return _KIND_OF[type(self.content)]


_encoder = msgspec.msgpack.Encoder()
_raw_decoder = msgspec.msgpack.Decoder(_RawBody)
_grant_decoder = msgspec.msgpack.Decoder(GrantBody)
_request_decoder = msgspec.msgpack.Decoder(AccessRequestBody)
_content_decoders: dict[int, msgspec.msgpack.Decoder[_Signed]] = {
    FOUND: msgspec.msgpack.Decoder(FoundingEntry[Digest]),
    INVITE: msgspec.msgpack.Decoder(Invite[Digest]),
    STANDING: msgspec.msgpack.Decoder(MemberStanding[Digest]),
    REMOVE: msgspec.msgpack.Decoder(Remove),
    DATASET: msgspec.msgpack.Decoder(_SignedDataset),
    PLACE: msgspec.msgpack.Decoder(_SignedPlaces),
    FORGET: msgspec.msgpack.Decoder(Forget),
    LIST: msgspec.msgpack.Decoder(Listing),
}
_list_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_number_decoder = msgspec.msgpack.Decoder(Number)
_UNDECODED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def encode_entry_body(
    body: EntryBody, salts: Salts = runtime.random_bytes
) -> tuple[bytes, list[bytes]]:
    """The bytes that the actor signs, and the openings of the names in them.

    Raises:
        BadInput: a dataset or schema has a slug without a name, or a name without a slug.
        RosterWithheld: it has a withheld name.
    """
    signed, shown = _conceal(body.content, salts)
    return _encode_body(body, signed), shown


def _encode_body(body: EntryBody, signed: _Signed) -> bytes:
    return _encoder.encode(
        _RawBody(
            ENTRY_FORMAT,
            body.organization,
            body.number,
            body.previous,
            body.time,
            body.actor,
            body.kind,
            msgspec.Raw(_encoder.encode(signed)),
        )
    )


def read_entry(entry: RosterEntry) -> EntryBody:
    """The content of an entry, with the names that its openings reveal. The caller checks the
    actor's signature.

    Raises:
        Malformed: it breaks the form, also by a non-canonical spelling; or an opening matches no
            commitment in it.
        Unsupported: its format or kind is unknown to this version.
    """
    raw, signed = _read_signed(entry)
    shown = {commit_to(opening): opening for opening in entry.openings}
    stated = set(_commitments(signed))
    if len(shown) < len(entry.openings) or not shown.keys() <= stated:
        raise Malformed(
            "an opening beside a roster entry is of nothing in it", code="malformed_frame"
        )
    content = _reveal(signed, shown)
    is_complete = stated <= shown.keys()
    body = EntryBody(
        raw.organization, raw.number, raw.previous, raw.time, raw.actor, content, is_complete
    )
    if _encode_body(body, signed) != entry.body:
        raise _malformed("a roster entry")
    return body


def cut_entry(entry: RosterEntry, datasets: Set[bytes]) -> RosterEntry:
    """An entry with only the openings that concern some datasets: their names, their schemas'
    names, and the names of members with rights in them, including owners.

    Args:
        datasets: 16-byte identifiers.

    Raises:
        Malformed, Unsupported: as :func:`read_entry`.
    """
    _, signed = _read_signed(entry)
    kept = set(_commitments(signed, datasets))
    return RosterEntry(
        entry.body,
        entry.signature,
        [opening for opening in entry.openings if commit_to(opening) in kept],
    )


def _read_signed(entry: RosterEntry) -> tuple[_RawBody, _Signed]:
    raw = _decode(_raw_decoder, entry.body, "a roster entry", ENTRY_FORMAT)
    decoder = _content_decoders.get(raw.kind)
    if decoder is None:
        raise _unknown("a roster entry")
    try:
        return raw, decoder.decode(raw.content)
    except _UNDECODED:
        raise _malformed("a roster entry") from None


def _commitments(signed: _Signed, datasets: Set[bytes] | None = None) -> Iterator[bytes]:
    """Commitments in a content: all, or those that concern some datasets."""

    def concerns(*named: bytes) -> bool:
        return datasets is None or not datasets.isdisjoint(named)

    match signed:
        case FoundingEntry():
            yield signed.name
        case MemberStanding():
            if signed.role == OWNER or concerns(*(share.dataset for share in signed.shares)):
                yield signed.name
        case Invite():
            if concerns(*(share.dataset for share in signed.shares)):
                yield signed.name
        case _SignedDataset():
            if signed.names and concerns(signed.dataset):
                yield signed.names
        case list():
            yield from (
                placement.names
                for placement in signed
                if placement.names and concerns(placement.dataset)
            )


def _conceal(content: Content, salts: Salts) -> tuple[_Signed, list[bytes]]:
    """A content in signed form, and the openings of its hidden names."""
    match content:
        case FoundingEntry() | Invite() | MemberStanding():
            opening = conceal_name(content.name, salts)
            return _with_name(content, commit_to(opening)), [opening]
        case DatasetName():
            names = conceal_names(content.slug, content.name, None, salts)
            return _SignedDataset(
                content.dataset,
                b"" if names is None else commit_to(names),
                content.epoch,
                content.commitment,
                content.ends,
            ), [] if names is None else [names]
        case list():
            found = [
                conceal_names(schema.slug, schema.name, schema.definition, salts)
                for schema in content
            ]
            placed = [
                _SignedPlacement(
                    placement.schema, placement.dataset, b"" if names is None else commit_to(names)
                )
                for placement, names in zip(content, found, strict=True)
            ]
            return placed, [names for names in found if names is not None]
        case _:
            return content, []


def _reveal(signed: _Signed, shown: Mapping[bytes, bytes]) -> Content:
    """A content with the names from the openings, which are given by commitment.

    Raises:
        Malformed: an opening breaks the form.
    """
    match signed:
        case FoundingEntry() | Invite() | MemberStanding():
            return _with_name(signed, _name(signed.name, shown))
        case _SignedDataset():
            opening = shown.get(signed.names)
            slug = name = Withheld.of(signed.names) if signed.names else ""
            if opening is not None:
                names = open_dataset(opening)
                slug, name = names.slug, names.name
            return DatasetName(
                signed.dataset, slug, name, signed.epoch, signed.commitment, signed.ends
            )
        case list():
            return [_placement(placement, shown.get(placement.names)) for placement in signed]
        case _:
            return signed


def _with_name(content: Named[Any], name: _N) -> Named[_N]:
    """A content with another name in place of its name or commitment."""
    return msgspec.structs.replace(content, name=name)


def _name(commitment: bytes, shown: Mapping[bytes, bytes]) -> str:
    opening = shown.get(commitment)
    return Withheld.of(commitment) if opening is None else open_name(opening)


def _placement(signed: _SignedPlacement, opening: bytes | None) -> Placement:
    if opening is not None:
        names = open_schema(opening)
        return Placement(signed.schema, signed.dataset, names.slug, names.name, names.definition)
    if not signed.names:
        return Placement(signed.schema, signed.dataset, "", "", NO_DIGEST)
    hidden = Withheld.of(signed.names)
    # No definition has this digest.
    return Placement(signed.schema, signed.dataset, hidden, hidden, signed.names)


def encode_grant_body(body: GrantBody) -> bytes:
    """The bytes that the actor signs."""
    return _encoder.encode(body)


def read_grant(grant: Grant) -> GrantBody:
    """Statements of a grant about itself. The reader has to check its signature and content.

    Raises:
        Malformed: it breaks the form, also by a non-canonical spelling.
        Unsupported: its format is unknown to this version.
    """
    body = _decode(_grant_decoder, grant.body, "a grant", FORMAT)
    if _encoder.encode(body) != grant.body:
        raise _malformed("a grant")
    return body


def encode_request_body(body: AccessRequestBody) -> bytes:
    """The bytes that the member signs."""
    return _encoder.encode(body)


def read_request(request: AccessRequest) -> AccessRequestBody:
    """Statements of a request about itself. The reader has to check whether it is valid
    (:func:`encrypted_records.rules.roster_judging.judge_request`).

    Raises:
        Malformed: it breaks the form, also by a non-canonical spelling.
        Unsupported: its format is unknown to this version.
    """
    body = _decode(_request_decoder, request.body, "a request for access", FORMAT)
    if _encoder.encode(body) != request.body:
        raise _malformed("a request for access")
    return body


_Body = TypeVar("_Body", _RawBody, GrantBody, AccessRequestBody)


def _decode(decoder: msgspec.msgpack.Decoder[_Body], data: bytes, name: str, known: int) -> _Body:
    try:
        body = decoder.decode(data)
    except _UNDECODED:
        # The library's message may quote the input, which can be anything.
        found = _format_of(data)
        if found is None or found == known:
            raise _malformed(name) from None
        raise _unknown(name, older=found < known) from None
    if body.format != known:
        raise _unknown(name, older=body.format < known)
    return body


def _format_of(data: bytes) -> int | None:
    try:
        parts = _list_decoder.decode(data)
        return _number_decoder.decode(parts[0]) if parts else None
    except _UNDECODED:
        return None


def _malformed(name: str) -> Malformed:
    return Malformed(f"{name} is not of its form", code="malformed_frame")


def _unknown(name: str, *, older: bool = False) -> Unsupported:
    if older:
        return Unsupported(
            f"{name} is of a format that this version no longer reads",
            hint="export the records with the version that made it, and store them in a new"
            " organization",
        )
    return Unsupported(
        f"{name} is of a format or kind that this version does not know",
        hint="use the newest version of encrypted-records",
    )


def entry_digest(entry: RosterEntry) -> bytes:
    """32 bytes that identify an entry and, through its ``previous``, all entries before it."""
    return hashlib.sha256(entry.body + entry.signature).digest()


def entry_message(body: bytes) -> bytes:
    """The message that the actor of an entry signs."""
    return message("roster", body)


def grant_message(body: bytes) -> bytes:
    """The message that the actor of a grant signs."""
    return message("grant", body)


def request_message(body: bytes) -> bytes:
    """The message that a member who requests access signs."""
    return message("request", body)


def proof_message(found: bytes, member: bytes, keys: bytes, anchor: bytes) -> bytes:
    """The message that a member signs with the stated keys; ``found`` is the digest of entry 1."""
    return message("keys", found, member, keys, anchor)


def answer_message(invite: bytes, member: bytes, keys: bytes, anchor: bytes, proof: bytes) -> bytes:
    """The message that the answer key of an invitation signs. ``invite`` is the digest of its
    entry.
    """
    return message("answer", invite, member, keys, anchor, proof)


def checked_by_words(previous: bytes, invite: Invite[str]) -> bytes:
    """The message authenticated by ``check`` of an invitation: all entries before it, and the rest
    of the invitation.
    """
    content = (
        invite.id,
        invite.member,
        invite.name,
        invite.expires,
        invite.answer_key,
        invite.shares,
    )
    return previous + _encoder.encode(content)
