"""Resources of the API: the structures that it answers with, and that proxies and clients parse.

The API's OpenAPI document is made from them (:mod:`encrypted_records.http.openapi`). References are
paths. A member that is added to a structure needs a default, as long as older APIs are supported.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from encrypted_records.model import ids, strict_json, wire
from encrypted_records.model.definition_parser import MAX_SET_FIELDS, MAX_SETS
from encrypted_records.model.field_types import FORMATS, PLAIN
from encrypted_records.model.records import U32, U63

_NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}

#: A JSON Schema for the supported keywords; others are kept as annotations.
DEFINITION: dict[str, Any] = {
    "type": "object",
    "description": "A JSON Schema (docs/http-api.md, Definitions)",
    "example": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
        },
        "required": ["name"],
    },
    "required": ["type", "properties"],
    "properties": {
        "type": {"type": "string", "enum": ["object"]},
        "properties": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"type": "string", "enum": list(PLAIN)},
                    "format": {
                        "description": (
                            "With enforced formats, each of these is a type of its own:"
                            f" {', '.join(FORMATS)}"
                        ),
                    },
                    "x-index": {
                        "type": "array",
                        "items": {"type": "string", "enum": ["words"]},
                        "description": "For texts: an index of their words",
                    },
                },
                "additionalProperties": True,
            },
        },
        "required": _NAMES,
        "formats": {"type": "string", "enum": ["enforced"]},
        "rounding": {
            "type": "string",
            "enum": ["half-even", "refuse"],
            "description": "Handling of numbers with more decimals than their field keeps",
        },
        "unique": {
            "type": "array",
            "maxItems": MAX_SETS,
            "items": _NAMES | {"minItems": 1, "maxItems": MAX_SET_FIELDS},
            "description": (
                "Sets of fields; no two records have the same values in all fields of a set"
            ),
        },
    },
    "additionalProperties": True,
}

T = TypeVar("T")


def _form(pattern: str) -> Meta:
    return Meta(pattern=rf"^{pattern}\Z")


def _path_in(collection: str) -> Meta:
    return _form(f"/api/{collection}/{ids.PATTERN}/")


#: Types of members, with what the OpenAPI documents say of them.
Count = Annotated[int, Meta(ge=0)]
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
Link = Annotated[str, Meta(extra_json_schema={"format": "uri-reference"})]
Time = Annotated[datetime, Meta(tz=True)]
Id = Annotated[str, _form(ids.PATTERN)]
Slug = Annotated[str, _form(ids.SLUG)]
#: A token for the header Authorization (RFC 6750, section 2.1).
Token = Annotated[str, _form("[A-Za-z0-9._~+/-]+=*")]
Address = Annotated[str, Meta(extra_json_schema={"format": "email"})]
OrganizationPath = Annotated[str, _path_in("organizations")]
DatasetPath = Annotated[str, _path_in("datasets")]
SchemaPath = Annotated[str, _path_in("schemas")]
UserPath = Annotated[str, _path_in("users")]
RecordPath = Annotated[str, _path_in("records")]


class ListPage(Struct, Generic[T], frozen=True):
    """A page of a list; ``next`` and ``previous`` are the paths of its neighbours."""

    count: Count
    next: Link | None
    previous: Link | None
    results: list[T]


class OrganizationResource(Struct, frozen=True, kw_only=True):
    """An organization."""

    id: Id
    url: OrganizationPath
    name: str
    slug: Slug
    created: Time
    modified: Time


class DatasetResource(Struct, frozen=True, kw_only=True):
    """A dataset, which groups schemas."""

    id: Id
    url: DatasetPath
    name: str
    slug: Slug
    description: str
    organization: OrganizationPath
    created: Time
    modified: Time


class SchemaResource(Struct, frozen=True, kw_only=True, dict=True):
    """A schema.

    Attributes:
        key_id: the id of the key that seals new records, in hex; None until the first were stored.
        key_version: the version of this key; None until the first records were stored.
        first_key_version: the key version of the first records; None until these were stored.
    """

    id: Id
    url: SchemaPath
    name: str
    slug: Slug
    description: str
    dataset: DatasetPath
    schema: Annotated[Raw, Meta(extra_json_schema=DEFINITION)]
    organization: OrganizationPath
    key_id: str | None
    key_version: U32 | None
    first_key_version: U32 | None
    created: Time
    modified: Time

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The definition with exact numbers, whose JSON is ``schema``."""
        definition: dict[str, Any] = strict_json.loads(bytes(self.schema))
        return definition


Role = Literal["owner", "member"]


class MemberResource(Struct, frozen=True, kw_only=True):
    """A member of an organization."""

    url: str
    organization: OrganizationPath
    user: UserPath
    email: Address
    first_name: str
    last_name: str
    role: Role
    created: Time


class InvitationResource(Struct, frozen=True, kw_only=True):
    """An invitation to an organization; ``invited_by`` is an address."""

    id: Id
    organization: OrganizationPath
    organization_name: str
    email: Address
    role: Role
    invited_by: Address
    created: Time
    expires: Time


class ServiceResource(Struct, frozen=True, kw_only=True):
    """A program with a standing of its own, as owners see it."""

    id: Id
    name: str
    expires: Time | None
    created: Time
    last_used: Time | None


class AuditEntryResource(Struct, frozen=True, kw_only=True):
    """An action in an organization.

    Attributes:
        email: the address of the user; None if the account was deleted.
        subject: the path of the object, which may be deleted.
    """

    id: Id
    created: Time
    user: UserPath | None
    email: Address | None
    action: str
    subject: str
    source: str
    request_id: str


class UserResource(Struct, frozen=True, kw_only=True):
    """The account of the caller; ``organizations`` are paths.

    Attributes:
        date_joined: None at a mirror, which knows no accounts.
    """

    id: Id
    url: UserPath
    email: Address
    first_name: str
    last_name: str
    organizations: list[OrganizationPath]
    date_joined: Time | None


#: Effect of the deletion of an account on an organization: the user leaves it, or it is deleted as
#: well, or it prevents the deletion.
Outcome = Literal["leave", "delete", "last_owner", "has_datasets"]


class AffectedOrganization(Struct, frozen=True):
    """An organization of an account that is to be deleted.

    Attributes:
        outcome: leave, or delete if nothing and nobody else is in it; last_owner and has_datasets
            prevent the deletion of the account.
        signed: whether its roster has the person, who leaves it by a signed entry.
    """

    organization: OrganizationPath
    slug: Slug
    name: str
    outcome: Outcome
    signed: bool


class Deletion(Struct, frozen=True):
    """The consequences of a deletion of the account."""

    organizations: list[AffectedOrganization]

    @property
    def obstacles(self) -> list[AffectedOrganization]:
        """The organizations because of which it would be refused."""
        return [
            organization
            for organization in self.organizations
            if organization.outcome in {"last_owner", "has_datasets"}
        ]


class AccessResource(Struct, frozen=True):
    """An access token."""

    access: Token

    def __repr__(self) -> str:
        return "<tokens>"


class Tokens(AccessResource, frozen=True):
    """An access token, and the refresh token for the next pair, which works once."""

    refresh: Token


Scope = Literal["read", "write"]


class ApiTokenResource(Struct, frozen=True, kw_only=True):
    """An API token without its text.

    Attributes:
        datasets: paths of the datasets to which it is limited; None if it is not limited.
        last_used: a day of UTC.
    """

    id: Id
    url: str
    name: str
    scope: Scope
    datasets: list[DatasetPath] | None
    created: Time
    expires: Time
    last_used: date | None


class CreatedApiTokenResource(ApiTokenResource, frozen=True, kw_only=True):
    """An API token; ``token`` is its text, which is shown only once."""

    token: Token

    def __repr__(self) -> str:
        return f"<API token {self.id}>"


class SecondFactorResource(Struct, frozen=True):
    """Whether logins need a code beside the password, and how many recovery codes are left."""

    enabled: bool
    recovery_codes: int


class NewSecondFactor(Struct, frozen=True):
    """The secret of an authenticator app: a key in Base32, and the same key as an ``otpauth://``
    link, which apps read as a QR code.

    Printing the object shows neither.
    """

    key: str
    uri: str

    def __repr__(self) -> str:
        return "<new second factor>"


class RecoveryCodesResource(Struct, frozen=True):
    """New recovery codes of the account, in place of earlier ones."""

    recovery_codes: list[str]


class DetailResource(Struct, frozen=True):
    """A sentence that says what was done."""

    detail: str


class MessageResource(DetailResource, frozen=True):
    """A sentence about a message to an address.

    Attributes:
        mail: folder if no mail server is configured: messages are files in the data folder.
    """

    mail: Literal["sent", "folder"]


class JobTokenResource(Struct, frozen=True):
    """A new token of a job."""

    token: str


class CsrfResource(Struct, frozen=True):
    """A token for changes by a session."""

    token: str = field(name="csrfToken")


class MirrorStatus(Struct, frozen=True):
    """The address of the API that a mirror copied, and the time of the copy."""

    source: str
    taken: Time


class StatusResource(Struct, frozen=True, kw_only=True):
    """A sign of life, with the version of the API.

    Attributes:
        clock_jumped: whether the proxy's clock has just been set; absent otherwise.
        clock_ahead: seconds by which the proxy's clock is ahead of the API's, or behind it if
            negative; absent below 30 seconds.
        mirror: present if a mirror answers in place of an API.
    """

    status: str
    api_version: str
    behind_proxy: bool
    clock_jumped: bool | UnsetType = UNSET
    clock_ahead: int | UnsetType = UNSET
    mirror: MirrorStatus | UnsetType = UNSET


_Uid = Annotated[str, _form("[0-9a-f]{32}")]
_Run = Annotated[list[U32], Meta(min_length=2, max_length=2)]


class LostRows(Struct):
    """Lost ordinals of a group, as runs of (first, count)."""

    group: _Uid
    runs: list[_Run]


class Damage(Struct):
    """The uids, in hex, of segments with lost pages, and live rows without bytes."""

    segments: list[_Uid]
    rows: list[LostRows]


class UsableCheckpoint(Struct):
    """A checkpoint that proxies accept; ``digest`` identifies it, in hexadecimal."""

    version: U63
    key_version: U32
    digest: Annotated[str, _form("[0-9a-f]{64}")]
    bytes: Annotated[int, Meta(ge=0, le=wire.MAX_CHECKPOINT_BYTES)]


_Text = Annotated[str, Meta(max_length=320)]


class Held(Struct):
    """A hold on a version of a log, for a reader that takes long.

    Attributes:
        reason: kind of the work for which the data is kept.
        email: address of the user who reads.
        until: time at which the hold ends unless it is renewed.
    """

    version: U63
    reason: _Text
    email: _Text
    begun: Time
    until: Time


class ErasureProgress(Struct, kw_only=True):
    """The progress of an erasure in a schema, as reported by the API.

    Attributes:
        version: version of the log.
        asked: version up to which erasure was requested; 0 if it never was.
        done: version up to which the erasure is complete.
        due: time from which data is erased for the latest request; None if there was none.
        holds: holds on versions of the log, whose data is kept for their readers.
    """

    version: U63
    asked: U63
    done: U63
    due: Time | None
    database: Literal["sqlite", "postgresql"]
    holds: Annotated[list[Held], Meta(max_length=1000)]


class ErasureState(ErasureProgress, kw_only=True):
    """The progress of an erasure in a schema, and the ended data that remains at the API.

    Attributes:
        rows: number of ended rows whose bytes remain.
        segments: number of ended segments whose bytes remain.
        groups: number of ended groups whose bytes remain.
        since: time at which the oldest of these rows ended; None if no row is left.
    """

    rows: U63
    segments: U63
    groups: U63
    since: Time | None


_Hex = Annotated[str, _form("([0-9a-f]{2})+")]


class SealedRecord(Struct, forbid_unknown_fields=True, kw_only=True):
    """A sealed record: ids and numbers as text, ciphertexts in Base64 by field."""

    id: Id
    url: RecordPath
    schema: SchemaPath
    version: U32
    group: _Hex
    ordinal: U32
    key_id: _Hex
    key_version: U32
    fields: dict[str, bytes]


class UnfilteredRecord(SealedRecord, forbid_unknown_fields=True, kw_only=True):
    """A row in the API's storage, which may be dead."""

    dead: bool
