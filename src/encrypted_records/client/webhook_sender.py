"""Send webhooks to addresses that users name; the content of answers is ignored.

A user who may name an address could make the proxy connect to machines that only the proxy can
reach. So an address is checked when a connection begins, after its name was resolved: changing the
name's address afterwards has no effect. Redirects are not followed, proxies and cookies are not
used, and the answer is not read.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import aiohttp
from aiohttp import AddrInfoType

from encrypted_records.client.messages import Closing
from encrypted_records.errors import InvalidQuery, Unavailable

#: Seconds for a delivery, from its connection to the head of its answer.
SECONDS = 15.0
MOST_URL = 2000
_NAT64 = IPv6Network("64:ff9b::/96")
_PRIVATE = "the address of a webhook is not a public one"
_ALLOWED = "start the proxy with --webhooks any (ERS_WEBHOOKS) to allow private addresses"


class NotPublic(OSError):
    """Webhooks may not be sent to this address."""


class WebhookSender(Closing):
    def __init__(self, to: str = "public") -> None:
        """
        Args:
            to: ``public`` for public addresses, with TLS; or ``any``.
        """
        self._anywhere = to == "any"
        self._session: aiohttp.ClientSession | None = None

    def check_url(self, url: str) -> None:
        """
        Raises:
            InvalidQuery: webhooks may not be sent to this URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidQuery("the address of a webhook is not a URL", hint="") from None
        schemes = ("https", "http") if self._anywhere else ("https",)
        if parts.scheme not in schemes or not parts.hostname or len(url) > MOST_URL:
            begin = " or ".join(f"{scheme}://" for scheme in schemes)
            raise InvalidQuery(
                f"the address of a webhook must begin with {begin}, have a host and have at most"
                f" {MOST_URL:,} characters",
                hint="" if self._anywhere else f"{_ALLOWED}, which also allows http://",
            )
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise InvalidQuery(
                "the address of a webhook must not contain a user or a fragment", hint=""
            )
        if port == 0:
            raise InvalidQuery("the address of a webhook must have a port of at least 1", hint="")
        try:
            address = ip_address(parts.hostname)
        except ValueError:
            return
        if not self._anywhere and not is_public(address):
            raise InvalidQuery(_PRIVATE, hint=_ALLOWED)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the answer.

        Raises:
            InvalidQuery: as :meth:`check_url`; the proxy may have been started with other settings.
            Unavailable: there is no answer; the message gives the reason, but no address.
        """
        self.check_url(url)
        try:
            async with self._open().post(
                url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unavailable(_reason_of(error), code="webhook_failed", hint="") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0,  # the caller limits them
                force_close=True,
                socket_factory=self._socket,
                use_dns_cache=False,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session

    def _socket(self, address: AddrInfoType) -> socket.socket:
        """A socket for a connection to an address; the host name does not matter.

        Raises:
            NotPublic: webhooks may not be sent to this address.
        """
        family, kind, protocol, _, place = address
        host = str(place[0]).partition("%")[0]
        if not self._anywhere and not is_public(ip_address(host)):
            raise NotPublic(_PRIVATE)
        return socket.socket(family=family, type=kind, proto=protocol)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is public: not of this machine, a link, a private network or a multicast
    group, nor such an IPv4 address embedded in IPv6.
    """
    if isinstance(address, IPv6Address):
        if address.teredo is not None:
            return False
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _reason_of(error: BaseException) -> str:
    """The reason why there is no answer, without a name or an address."""
    causes: list[BaseException | None] = [error, error.__cause__, getattr(error, "os_error", None)]
    if any(isinstance(cause, NotPublic) for cause in causes):
        return _PRIVATE
    if isinstance(error, TimeoutError):
        return f"no answer within {SECONDS:.0f} seconds"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return "TLS failed, or the certificate is not valid"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the name is not known"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection"
    return "the connection broke off"
