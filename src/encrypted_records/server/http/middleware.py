"""Middleware for every request before a view sees it: its address, id, log line, size and host.

A front server or a proxy is the peer of all its users. Its headers ``X-Forwarded-For`` and
``X-Forwarded-Proto`` are trusted only if its own address is in ``ERS_TRUSTED_PROXIES``; anybody
else can forge them.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from encrypted_records import logs
from encrypted_records.errors import BadInput, ErsError, Misdirected, TooLarge
from encrypted_records.server import metrics as api_metrics
from encrypted_records.server.gateway import admission
from encrypted_records.server.http import problems

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Address of the sender of this thread's request. For IPv6 its network, because a sender can use
#: all of its addresses.
source: ContextVar[str] = ContextVar("source", default="unknown")

#: Prefix length of the network from which a household or a host can choose addresses.
_IPV6_PREFIX = 64


class ClientAddress:
    """Middleware: sets :data:`source` and the request's scheme."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        peer = _address(request.META.get("REMOTE_ADDR", ""))
        hops = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")
        sender = peer
        # From the right: each trusted hop has added the address of its peer.
        while _is_trusted(sender) and hops:
            before = _address(hops.pop())
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


Handler = Callable[[HttpRequest], HttpResponseBase]

_log = logging.getLogger("encrypted_records.request")

#: Headers added to every answer that does not set them.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class RequestLog:
    """Accepts or generates the request id, returns it, and logs a line per request.

    The line has method, path, status and duration; never a query, a body or a credential.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        name = logs.take_id(request.META.get("HTTP_X_REQUEST_ID", ""))
        token = logs.request_id.set(name)
        began = time.perf_counter()
        try:
            response = self.get_response(request)
            response["X-Request-ID"] = name
            for header, value in _HEADERS.items():
                response.headers.setdefault(header, value)
            if request.is_secure():
                response["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
            response.headers.setdefault("Content-Security-Policy", _policy(request.path))
            if isinstance(response, HttpResponse):  # but not a streamed answer
                response.headers.setdefault("Content-Length", str(len(response.content)))
            seconds = time.perf_counter() - began
            route = api_metrics.template(request)
            api_metrics.requests.observe(request.method or "", route, response.status_code, seconds)
            facts = {
                "method": request.method,
                "path": request.path,
                "status": response.status_code,
                "milliseconds": round(seconds * 1000, 1),
            }
            # repr: the caller chose the path, and it must not break the line
            _log.info("%s %r %s in %s ms", *facts.values(), extra={"facts": facts})
            return response
        finally:
            logs.request_id.reset(token)


def _policy(path: str) -> str:
    """The content security policy: only operators' pages load anything, and only from here."""
    source = "'self'" if path.startswith("/admin/") else "'none'"
    return f"default-src {source}; form-action {source}; base-uri 'none'; frame-ancestors 'none'"


class RequestGate:
    """Refuses requests that no view should see, before any of the body is read."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            self.check(request)
        except ErsError as error:
            return problems.answer(error)
        return self.get_response(request)

    def check(self, request: HttpRequest) -> None:
        try:
            request.get_host()
        except DisallowedHost:
            raise Misdirected(
                "the name in the Host header does not belong to this service",
                hint="add the name to ERS_ALLOWED_HOSTS of the API",
            ) from None
        if "HTTP_TRANSFER_ENCODING" in request.META:
            # WSGI passes exactly Content-Length bytes; without the header the body would seem
            # empty.
            raise BadInput(
                "the body has no declared length",
                code="length_required",
                hint="send Content-Length instead of Transfer-Encoding",
            )
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not admission.is_within(length, request.path):
            raise TooLarge(
                f"the body is larger than {admission.limit_of(request.path)} bytes",
                hint="send it in several requests",
            )
