"""The client's address, and whether the request came by TLS.

A front server or a proxy is the peer of all its users. What it says of them in ``X-Forwarded-For``
and ``X-Forwarded-Proto`` counts only if its own address is among ``ERS_TRUSTED_PROXIES``; from
anybody else these headers are a claim that costs nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from contextvars import ContextVar

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The address of who sent the request that this thread answers; of IPv6 its network, since one
#: sender has all of that.
source: ContextVar[str] = ContextVar("source", default="unknown")

#: A household or a host has a network of this size to choose addresses from.
_IPV6_PREFIX = 64


class ClientAddress:
    """Middleware: sets :data:`source` and the request's scheme."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        peer = _address(request.META.get("REMOTE_ADDR", ""))
        told = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")
        sender = peer
        # From the right: each trusted hop has written down who spoke to it.
        while _is_trusted(sender) and told:
            before = _address(told.pop())
            if before is None:
                break
            sender = before
        source.set(_as_text(sender))
        if _is_trusted(peer) and request.META.get("HTTP_X_FORWARDED_PROTO") == "https":
            request.META["wsgi.url_scheme"] = "https"
        return self.get_response(request)


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def _is_trusted(address: Address | None) -> bool:
    return address is not None and any(address in net for net in settings.TRUSTED_PROXIES)


def _as_text(address: Address | None) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
    return "unknown" if address is None else str(address)
