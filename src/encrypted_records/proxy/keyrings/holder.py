"""Who may use a keyring: the level of a proxy decides what a request needs, a holder has shown it.

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
    """
    Attributes:
        level: what a request needs.
        lone: whether the proxy is for one user: the one whose keyring was made here first.
        exposed: whether it works at level ``api`` although others can reach its port.
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
        allowed_hosts: further names that it answers to.
        own_api: whether ``ers up`` runs it beside an API and a database in the same data folder.
        keyrings: how many users have keyrings here.
    """

    access: str
    host: str
    allowed_hosts: tuple[str, ...] = field(default=())
    own_api: bool = False
    keyrings: int = 0


def decide_policy(circumstances: Circumstances) -> Policy:
    """The policy for these circumstances.

    Raises:
        Startup: two users have keyrings at a proxy that is for one.
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


#: The wait after the first wrong passphrase; it doubles with each further one, up to the longest.
_FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0


class Attempts:
    """Counts by name. Its caller lets one attempt of a name end before the next begins.

    Args:
        message: of the error for an attempt that comes too early.
    """

    def __init__(
        self,
        message: str = "too many wrong passphrases",
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        self._message = message
        self._clock = clock
        #: how many were wrong in a row, and when the next is looked at
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def check(self, name: bytes) -> None:
        """Refuse an attempt that comes too early.

        Raises:
            Throttled: it does; with the seconds to wait.
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
        service: the service whose secret key, which is its keyring, the request has.
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
        """The digest of the request's API token, kept with the jobs and uploads that it begins;
        None where it came with none.
        """
        return None if self.token is None else self.token.digest

    def owns(self, user: bytes, began: bytes | None) -> bool:
        """Whether a job or upload of that user, which was begun with that, is for this request."""
        return user == self.user and (self.token is None or self.token.digest == began)

    @property
    def may_be_limited(self) -> bool:
        """Whether the API may show less to this request than to its user: to an API token, or a job
        that one began, which are limited to some datasets."""
        return self.token is not None or self.accepted

    @classmethod
    def of_accepted_work(cls, user: bytes, auth: str = "") -> Holder:
        """For what the proxy has accepted earlier: a job, or an upload that is handed over to
        one."""
        return cls(user, auth, accepted=True)
