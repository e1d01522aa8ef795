"""The errors that this package raises deliberately.

::

    ErsError                        code, message, hint
    ├── BadInput                    the caller sent something that cannot be used
    │   ├── Malformed               bytes that do not parse (JSON, frames, identifiers)
    │   ├── InvalidDefinition       a schema definition outside the accepted subset
    │   ├── InvalidRecords          rows that do not fit their schema
    │   ├── InvalidQuery            a search with an invalid condition, order or other part
    │   ├── SqlError                a statement of SQL that is refused, or fails
    │   ├── InvalidSetting          an invalid flag, variable or file of the command line
    │   ├── ClientClosed            a call of a client that its program has closed
    │   ├── InvitationWords         words that do not belong to the invitation
    │   ├── ChecksumMismatch        received bytes that differ from those that their sender hashed
    │   └── TooLarge                over a documented limit
    ├── Refused                     a request that was understood, and refused
    │   ├── NotAuthenticated        no credentials, or bad ones
    │   ├── NotAllowed              known caller, not permitted
    │   ├── Throttled               too often; comes with a time to wait
    │   ├── NotFound                absent, or belongs to another user
    │   │   └── Gone                was here before, and is deleted
    │   ├── Conflict                the state has changed, or forbids the request
    │   │   ├── StaleDefinition     the definition changed since the caller read it
    │   │   ├── MergeFirst          too many segments; merging reduces their number
    │   │   ├── UploadedBefore      a job stores this file, or has stored it
    │   │   ├── InvitationOver      it was used, withdrawn, declined, or has expired
    │   │   └── Locked              another operation uses it at this moment
    │   ├── NoProxy                 the server is not a proxy, and only proxies may get plaintext
    │   ├── Misdirected             the Host header names a host that is not this server
    │   ├── NotThisProxy            the proxy does not know the client's device
    │   ├── PreconditionFailed      a record has another version than the caller named
    │   ├── Unsupported             a format this side does not speak
    │   ├── NotInstalled            an optional package is needed here
    │   ├── VersionRefused          a protocol version this side does not speak
    │   └── Closed                  the answer cannot be proven right, so it is not given
    │       ├── KeyMissing          no key here for these records
    │       ├── DoesNotOpen         ciphertext altered, swapped or of another key
    │       │   └── Altered         it decrypts, but its commit names another digest
    │       ├── LogBroken           the commit log was altered, withheld or rolled back
    │       ├── CheckpointBroken    a checkpoint of a log that cannot be accepted
    │       ├── RosterBroken        an organization's roster was altered
    │       ├── RosterOlder         a roster lacks entries that were seen before
    │       ├── RosterUnknown       nothing proves that a roster is this user's
    │       ├── IdentityReplaced    the roster has other keys for this user
    │       ├── KeysRefused         public keys that are not acceptable
    │       ├── GrantBroken         a grant is not what an owner made for this member
    │       ├── MirrorBroken        an object of a mirror was altered, or is missing
    │       └── SchemaUnsigned      the API's data about a schema is not signed
    ├── Unavailable                 may work later
    │   ├── ApiUnreachable          no connection, or it broke
    │   │   └── ProxyUnreachable    the same, between a client and its proxy
    │   ├── ApiTimeout              connected, but no answer in time
    │   ├── TooSlow                 a request did not arrive within its time limit
    │   ├── Overloaded              too many requests; comes with a time to wait
    │   ├── Stopping                this side is shutting down; comes with a time to wait
    │   ├── ApiFailed               the API answered with an internal failure
    │   ├── OutOfSpace              no room on this machine's disk
    │   ├── DatabaseFull            no room on the disk under the API's database
    │   ├── DatabaseDiskFailed      the disk under the API's database fails, or is read-only
    │   └── DatabaseDamaged         the API's database is corrupt
    └── Startup                     the service cannot start here

Each class has a stable ``code`` that docs/errors.md explains; an instance may narrow it. Messages
are lower case and describe the failure; hints describe the next step. Neither ever contains a value
of a record, a key, a token or a password. :func:`time_of` writes times in messages; the command
line and the pages show them in local time. :mod:`encrypted_records.http.problem` maps errors to
HTTP answers.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

#: A time in a message or a hint, as :func:`time_of` writes it.
TIME: Final = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\b")


def time_of(seconds: float) -> str:
    """A time in seconds since 1970, for a message: in UTC, to the second.

    Raises:
        ValueError, OverflowError: it is beyond the year 9999.
    """
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def how_far(seconds: float) -> str:
    """How far a clock is from another one, for a message: ``3 hours ahead of``."""
    size, where = abs(seconds), "ahead of" if seconds > 0 else "behind"
    for unit, long in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if size >= 1.5 * long:
            return f"{size / long:.0f} {unit}s {where}"
    return f"{size:.0f} seconds {where}"


@dataclass(frozen=True, slots=True)
class Flaw:
    """An error at one position of an input.

    ``pointer`` is an RFC 6901 JSON pointer into the request's body; ``parameter`` is the name of a
    query parameter, ``header`` that of a header. ``row`` counts records from 1. ``detail`` never
    repeats the value, which may be confidential.
    """

    code: str
    detail: str
    pointer: str | None = None
    row: int | None = None
    field: str | None = None
    parameter: str | None = None
    header: str | None = None


class ErsError(Exception):
    """Base of the tree; raise a named branch instead."""

    code: ClassVar[str] = "internal_error"
    default_hint: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        flaws: tuple[Flaw, ...] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.reason = code or type(self).code
        self.flaws = flaws
        #: seconds to wait before trying again, where the other side named them
        self.retry_after = retry_after
        self.repeated = False  #: whether an earlier try failed in transit, and may have succeeded
        #: whether its texts may be the API's, which is not trusted: it came from there, or was made
        #: while such an error was handled
        self.from_api = bool(getattr(sys.exception(), "from_api", False))


class ValuesRounded(UserWarning):
    """Values were stored with fewer decimals than they were given with. A definition with
    ``"rounding": "refuse"`` makes that an error."""


class BadInput(ErsError):
    code = "invalid"


class Malformed(BadInput):
    code = "malformed"


class InvalidDefinition(BadInput):
    code = "invalid_definition"
    default_hint = "correct the named places; the rules are in docs/http-api.md"


class InvalidRecords(BadInput):
    code = "invalid_records"
    default_hint = "nothing was stored; correct the rows that are named and send all again"


class ReadingRefused(InvalidRecords):
    """A file cannot be read, or not in the format that the caller named."""

    code = "reading"
    default_hint = ""


class InvalidQuery(BadInput):
    code = "invalid_query"
    default_hint = "correct the named places; the grammar is in docs/http-api.md"


class SqlError(BadInput):
    """A statement of SQL is refused, or fails. ``sqlstate`` has five characters (ISO 9075)."""

    code = "sql_invalid"
    sqlstate = "42000"


class InvalidSetting(BadInput):
    code = "invalid_setting"


class ReadingQuestion(BadInput):
    """``reading`` is the ``FileReading`` found so far; ``flaws`` are the open questions."""

    code = "reading_question"
    reading: object = None


class ClientClosed(BadInput):
    code = "client_closed"
    default_hint = "nothing was sent; make a new client, or close it later"


class InvitationWords(BadInput):
    code = "invitation_words"
    default_hint = (
        "nothing was sent; compare the words with those that the inviter has told, and that the"
        " invitation is the one they are for"
    )


class ChecksumMismatch(BadInput):
    code = "checksum_mismatch"
    default_hint = "nothing was kept; send the same bytes again"


class TooLarge(BadInput):
    code = "too_large"


class Refused(ErsError):
    code = "refused"


class NotAuthenticated(Refused):
    code = "not_authenticated"
    default_hint = "send Basic credentials (e-mail and password) or a Bearer access token"


class NotAllowed(Refused):
    code = "not_allowed"


class Throttled(Refused):
    code = "throttled"
    default_hint = "wait for the seconds that Retry-After names, then try again"


class NotFound(Refused):
    code = "not_found"


class Gone(NotFound):
    code = "gone"


class Conflict(Refused):
    code = "conflict"


class StaleDefinition(Conflict):
    code = "stale_definition"
    default_hint = "read the schema again and repeat the request"


class MergeFirst(Conflict):
    code = "merge_first"
    default_hint = (
        "merge the schema's index segments: ers proxy merge --once; if the error persists,"
        " the proxy's log says why merges fail"
    )


class UploadedBefore(Conflict):
    """``job_id`` is the UUID of the job that stores the file, or has stored it."""

    code = "uploaded_before"
    default_hint = "to store it once more: on_repeat=allow, in Python again=True"
    job_id = ""

    @classmethod
    def by(cls, job_id: str, message: str, *, hint: str | None = None) -> UploadedBefore:
        error = cls(message, hint=hint)
        error.job_id = job_id
        return error


class InvitationOver(Conflict):
    code = "invitation_over"
    default_hint = "ask an owner of the organization for a new invitation"


class Locked(Conflict):
    code = "locked"
    default_hint = "wait a moment and try again"


class NoProxy(Refused):
    code = "no_proxy"
    default_hint = (
        "nothing was sent: give the address of a proxy (ers: ERS_PROXY_URL or --proxy-url); the API"
        " itself must never see plaintext"
    )


class Misdirected(Refused):
    code = "unknown_host"


class NotThisProxy(Refused):
    code = "not_this_proxy"
    default_hint = (
        "nothing was sent: another program or another proxy listens there, or the proxy has"
        " lost its devices; if you expect this, register a new device: ers device add --new"
    )


class PreconditionFailed(Refused):
    code = "precondition_failed"


class Unsupported(Refused):
    code = "unsupported"


class NotInstalled(Refused):
    """The operation needs an optional package that is not installed."""

    code = "not_installed"


class VersionRefused(Refused):
    code = "version_refused"


class Closed(Refused):
    code = "closed"


class KeyMissing(Closed):
    code = "key_missing"
    default_hint = (
        "use the proxy whose keyring has this schema's key, or restore that keyring here:"
        " ers keyring restore"
    )


class DoesNotOpen(Closed):
    code = "does_not_open"
    default_hint = "the stored data was altered or belongs elsewhere; restore it from a backup"


class Altered(DoesNotOpen):
    code = "altered"


class LogBroken(Closed):
    code = "log_broken"
    default_hint = (
        "restore the API's newest backup; ers schema status shows how far the log is valid,"
        " ers proxy accept-rollback accepts a restored database, and ers salvage saves what"
        " can be decrypted"
    )


class CheckpointBroken(Closed):
    code = "checkpoint_broken"
    default_hint = "nothing is lost: the log itself is read instead, which takes longer"


class RosterBroken(Closed):
    code = "roster_broken"
    default_hint = "the API's copy of the roster was altered: restore the API's newest backup"


class RosterWithheld(Closed):
    code = "roster_withheld"
    default_hint = (
        "a token that is limited to other datasets does not show this name: log in, or"
        " create a token for this dataset; otherwise the API hides the name: restore its"
        " newest backup"
    )


class RosterOlder(Closed):
    code = "roster_older"
    default_hint = (
        "the API shows less of the organization's roster than this proxy has seen, or a"
        " different one: restore the API's newest backup; if this is the newest: ers proxy"
        " accept-rollback"
    )


class RosterUnknown(Closed):
    code = "roster_unknown"
    default_hint = (
        "nothing was decrypted, encrypted or signed; use a proxy that knows the"
        " organization, or restore the keyring with which you joined it (ers keyring restore),"
        " or ask an owner to invite you again"
    )


class IdentityReplaced(Closed):
    code = "identity_replaced"
    default_hint = (
        "ask the named owner whether the change was intended; the keyring whose keys the"
        " organization has now decrypts everything"
    )


class KeysRefused(Closed):
    code = "keys_refused"
    default_hint = "ask the member to use a keyring of their own"


class GrantBroken(Closed):
    code = "grant_broken"
    default_hint = "ask an owner to grant the dataset's keys again: ers share settle"


class MirrorBroken(Closed):
    code = "mirror_altered"
    default_hint = (
        "use another copy; or delete the object that is named and run ers mirror, which copies it"
        " again"
    )


class SchemaUnsigned(Closed):
    code = "schema_unsigned"
    default_hint = (
        "nothing was decrypted or encrypted; an owner signs the schema by storing a record in it"
    )


class Unavailable(ErsError):
    code = "unavailable"
    default_hint = "try again shortly"


class ApiUnreachable(Unavailable):
    code = "api_unreachable"
    default_hint = "check that the API runs and that --base-url names it"


class ProxyUnreachable(ApiUnreachable):
    code = "proxy_unreachable"
    default_hint = (
        "check the address (ers: ERS_PROXY_URL or --proxy-url); ers up starts a proxy with its API,"
        " ers proxy one alone, and a command with --inline one for itself"
    )


class ApiTimeout(Unavailable):
    code = "api_timeout"


class TooSlow(Unavailable):
    code = "too_slow"
    default_hint = "send it again, faster or in smaller pieces"


class Overloaded(Unavailable):
    code = "overloaded"
    default_hint = "wait for the seconds that Retry-After names, then try again"


class Stopping(Unavailable):
    code = "stopping"
    default_hint = "send the request again after the seconds that Retry-After names"


class ApiFailed(Unavailable):
    code = "api_failed"
    default_hint = "look at the API's log under the same request id"


class OutOfSpace(Unavailable):
    code = "out_of_space"
    default_hint = "make room on the disk that holds the proxy's data folder, then try again"


class DatabaseFull(Unavailable):
    code = "database_full"
    default_hint = "make room on the disk that holds the API's database, then try again"


class DatabaseDiskFailed(Unavailable):
    code = "database_disk_failed"
    default_hint = "the operator of the API has to check its disk and the log of its system"


class DatabaseDamaged(Unavailable):
    code = "database_damaged"
    default_hint = "stop the API and restore its database from a backup"


class StoreFull(Unavailable):
    code = "bulk_store_full"
    default_hint = "make room on the disk that holds the API's bulk store, then try again"


class StoreUnavailable(Unavailable):
    code = "bulk_store_unavailable"
    default_hint = "try again shortly; if it lasts, check the store that is named"


class ObjectLost(Unavailable):
    code = "object_lost"
    default_hint = "restore the object from a backup of the bulk store; its name is in the message"


class ObjectAltered(ObjectLost):
    code = "object_altered"


class Startup(ErsError):
    code = "cannot_start"


def _tree(kind: type[ErsError]) -> list[type[ErsError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


#: Every class of this module by its own ``code``.
BY_CODE: dict[str, type[ErsError]] = {kind.code: kind for kind in _tree(ErsError)}
