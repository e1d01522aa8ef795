"""Keyring holders: the proxy's level decides what a request needs, and a holder has proved it.

The level depends on how the operator starts the proxy, and not on any statement of an API, a
request or a page.

- ``api``: authentication by the API is sufficient.
- ``device``: a request must also come from a device that is registered for that user.

Wrong passphrases and proofs slow their senders down; no user is locked out permanently.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from encrypted_records import runtime
from encrypted_records.errors import Startup, Throttled
from encrypted_records.model.credentials import BearerToken, DeviceSecret, ServiceKey


class Level(StrEnum):
    API = "api"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Policy:
    """Attributes:
    level: what a request needs.
    lone: whether the proxy serves a single user, whose keyring was the first made here.
    exposed: whether it works at level ``api`` although other users can reach its port.
    """

    level: Level
    lone: bool
    exposed: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Circumstances under which the proxy was started.

    Attributes:
        access: the value of ``--access``: ``auto``, ``api`` or ``device``.
        host: the address that it listens on.
        allowed_hosts: additional host names of this proxy.
        own_api: whether ``ers up`` runs it with an API and a database in the same data folder.
        keyrings: number of users with keyrings here.
    """

    access: str
    host: str
    allowed_hosts: tuple[str, ...] = field(default=())
    own_api: bool = False
    keyrings: int = 0


def decide_policy(circumstances: Circumstances) -> Policy:
    """The policy for these circumstances.

    Raises:
        Startup: two users have keyrings at a single-user proxy.
    """
    beyond = not _is_loopback(circumstances.host) or bool(circumstances.allowed_hosts)
    if circumstances.access == "device" or (circumstances.access == "auto" and beyond):
        return Policy(Level.DEVICE, lone=False)
    if circumstances.access == "api":
        return Policy(Level.API, lone=False, exposed=beyond)
    if circumstances.own_api:
        return Policy(Level.API, lone=False)
    if circumstances.keyrings > 1:
        raise Startup(
            f"{circumstances.keyrings} users have keyrings here, and a proxy of an API that"
            " somebody else runs is for one user",
            hint="start it with --access device, so that each request must come from a registered"
            " device of its user; or with --access api, if you also run the API and trust it",
        )
    return Policy(Level.API, lone=True)


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


#: The wait after the first wrong passphrase; it doubles with each further failure, up to the
#: longest.
_FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0


class Attempts:
    """Failed attempts by name. Its caller lets one attempt of a name end before the next begins.

    Args:
        message: text of the error for an attempt that comes too early.
    """

    def __init__(
        self,
        message: str = "too many wrong passphrases",
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        self._message = message
        self._clock = clock
        #: number of consecutive failures, and when the next attempt is allowed
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def check(self, name: bytes) -> None:
        """Refuse an attempt that comes too early.

        Raises:
            Throttled: too early; with the seconds to wait.
        """
        _, until = self._wrong.get(name, (0, 0.0))
        wait = until - self._clock()
        if wait > 0:
            raise Throttled(self._message, retry_after=math.ceil(wait))

    def wrong(self, name: bytes) -> None:
        count = self._wrong.get(name, (0, 0.0))[0] + 1
        # The exponent is bounded, so that no number of attempts overflows it.
        wait = min(_FIRST_SECONDS * 2.0 ** min(count - 1, 30), LONGEST_SECONDS)
        self._wrong[name] = (count, self._clock() + wait)

    def right(self, name: bytes) -> None:
        self._wrong.pop(name, None)


@dataclass(frozen=True, slots=True)
class Holder:
    """A caller who may use the keyring of ``user``.

    ``proxy.admission`` makes it for requests, and ``proxy.api.devices`` for the first keyring of a
    user who creates a device; :meth:`of_accepted_work` makes it for accepted work.

    Attributes:
        auth: the value of an Authorization header of the user; it must not be printed.
        device: the id of the registered device that sent the request; None if there is none.
        newcomer: an unregistered device: it is registered if a keyring is made for this request. It
            never opens an existing keyring.
        address: the network address of the sender; empty for accepted work.
        token: the API token that the request came with. No keyring is made for a read-only token,
            and a token has access only to jobs and uploads that it began.
        service: the service whose secret key, which is its keyring, authenticates the request.
        accepted: whether this is work that was accepted earlier, such as a job. It may encrypt and
            send under an unlocked keyring, and returns no data.
    """

    user: bytes
    auth: str = field(repr=False)
    device: str | None = None
    newcomer: DeviceSecret | None = None
    address: str = ""
    accepted: bool = False
    token: BearerToken | None = None
    service: ServiceKey | None = None

    @property
    def began(self) -> bytes | None:
        """The digest of the request's API token, stored with the jobs and uploads that it begins;
        None without a token.
        """
        return None if self.token is None else self.token.digest

    def owns(self, user: bytes, began: bytes | None) -> bool:
        """Whether this request has access to a job or upload of ``user`` with the token digest
        ``began``.
        """
        return user == self.user and (self.token is None or self.token.digest == began)

    @property
    def may_be_limited(self) -> bool:
        """Whether the API may show less to this request than to its user: an API token may be
        limited to some datasets, and accepted work may have begun with such a token.
        """
        return self.token is not None or self.accepted

    @classmethod
    def of_accepted_work(cls, user: bytes, auth: str = "") -> Holder:
        """The holder for work that the proxy has accepted: a job, or an upload that is handed over
        to a job.
        """
        return cls(user, auth, accepted=True)
