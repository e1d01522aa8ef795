"""Every error this package raises on purpose.

::

    ErsError                        code, message, hint
    ├── BadInput                    the caller sent something that cannot be used
    │   ├── Malformed               bytes that do not parse (JSON, frames, identifiers)
    │   ├── InvalidDefinition       a schema definition outside the accepted subset
    │   ├── InvalidRecords          rows that do not fit their schema
    │   ├── InvalidQuery            a search that cannot be asked
    │   ├── InvalidSetting          a flag, variable or file of the command line
    │   ├── ChecksumMismatch        bytes that are not those their sender hashed
    │   └── TooLarge                over a documented limit
    ├── Refused                     understood, and not done
    │   ├── NotAuthenticated        no credentials, or bad ones
    │   ├── NotAllowed              known caller, not permitted
    │   ├── Throttled               too often; comes with a time to wait
    │   ├── NotFound                absent, or belongs to somebody else
    │   │   └── Gone                was here, and is no longer
    │   ├── Conflict                the state has moved on or forbids it
    │   │   ├── StaleDefinition     the definition changed since the caller read it
    │   │   ├── MergeFirst          too many live segments
    │   │   └── Locked              somebody else is at it just now
    │   ├── NoProxy                 what answers is no proxy, and plaintext is for proxies alone
    │   ├── PreconditionFailed      a record has another version than the caller named
    │   ├── Unsupported             a format this side does not speak
    │   ├── VersionRefused          a protocol version this side does not speak
    │   └── Closed                  what cannot be proven right is not answered
    │       ├── KeyMissing          no key here for these records
    │       ├── DoesNotOpen         ciphertext altered, swapped or of another key
    │       └── LogBroken           the commit log was altered, withheld or rolled back
    ├── Unavailable                 may work later
    │   ├── ApiUnreachable          no connection, or it broke
    │   │   └── ProxyUnreachable    the same, between a client and its proxy
    │   ├── ApiTimeout              connected, and no answer in time
    │   ├── ApiFailed               the API answered with a failure of its own
    │   └── OutOfSpace              no room on this machine's disk
    └── Startup                     the service cannot start here

Each class has a stable ``code`` that docs/errors.md explains; an instance may narrow it.
Messages are lower case and say what happened; hints say how to go on. Neither ever carries a
value of a record, a key, a token or a password. How an error becomes an HTTP answer is decided
in :mod:`encrypted_records.model.problem`, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong with one place of an input.

    ``pointer`` is an RFC 6901 JSON pointer into the request. ``row`` counts records from 1.
    ``detail`` never repeats the value: it may be somebody's diagnosis.
    """

    code: str
    detail: str
    pointer: str | None = None
    row: int | None = None
    field: str | None = None


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


class BadInput(ErsError):
    code = "invalid"


class Malformed(BadInput):
    code = "malformed"


class InvalidDefinition(BadInput):
    code = "invalid_definition"
    default_hint = "correct the places listed under errors; the rules are in docs/http-api.md"


class InvalidRecords(BadInput):
    code = "invalid_records"
    default_hint = "nothing was stored; correct the rows listed under errors and send all again"


class InvalidQuery(BadInput):
    code = "invalid_query"
    default_hint = "correct the places listed under errors; the grammar is in docs/http-api.md"


class InvalidSetting(BadInput):
    code = "invalid_setting"


class ChecksumMismatch(BadInput):
    code = "checksum_mismatch"
    default_hint = "nothing of it was kept; send the same bytes again"


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
        "merge the schema's index segments: ers proxy merge --once; if this goes on, the schema is"
        " as large as this version can index: divide the records among several schemas"
    )


class Locked(Conflict):
    code = "locked"
    default_hint = "wait a moment and try again"


class NoProxy(Refused):
    code = "no_proxy"
    default_hint = (
        "nothing was sent: name a proxy with ERS_PROXY_URL or --proxy-url; the API itself must"
        " never see plaintext"
    )


class PreconditionFailed(Refused):
    code = "precondition_failed"


class Unsupported(Refused):
    code = "unsupported"


class VersionRefused(Refused):
    code = "version_refused"


class Closed(Refused):
    code = "closed"


class KeyMissing(Closed):
    code = "key_missing"
    default_hint = (
        "use the proxy whose keyring made this schema's key, or bring that keyring here:"
        " ers keyring restore"
    )


class DoesNotOpen(Closed):
    code = "does_not_open"
    default_hint = "the stored data was altered or belongs elsewhere; restore it from a backup"


class LogBroken(Closed):
    code = "log_broken"
    default_hint = (
        "the API's answer contradicts what this proxy has seen; restore the API's newest backup"
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
        "check the address (ERS_PROXY_URL, --proxy-url); ers up starts a proxy with its API, ers"
        " proxy one alone, and --inline one for a single command"
    )


class ApiTimeout(Unavailable):
    code = "api_timeout"


class ApiFailed(Unavailable):
    code = "api_failed"
    default_hint = "look at the API's log under the same request id"


class OutOfSpace(Unavailable):
    code = "out_of_space"
    default_hint = "make room on the disk that holds the proxy's data folder, then go on"


class Startup(ErsError):
    code = "cannot_start"
