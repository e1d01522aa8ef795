"""Serve a mirror by HTTP: the API's read endpoints only.

A caller sends Basic credentials: the id of a user, whose grants are read, and the secret of the
mirror. There are no passwords: the secret gives access to all of its ciphertext. Without a secret,
only callers on this machine get answers (docs/http-api.md).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records import errors, logs, runtime
from encrypted_records.http import problem
from encrypted_records.listening.binding import LOCAL_NAMES
from encrypted_records.listening.pace import ServerLimits
from encrypted_records.listening.serving import Server, listening, room_for_connections, settle
from encrypted_records.mirror.layout import Store
from encrypted_records.mirror.reader import PUBLIC, MirrorReader
from encrypted_records.model import ids, strict_json

log = logging.getLogger(__name__)

#: Maximum bytes of a request: room for more references than the API accepts.
MOST_BYTES = 1 << 20
STOP_SECONDS = 5
#: A Host header: a name or an address, and maybe a port.
_HOST = re.compile("(.+?)(?::[0-9]+)?")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def create_app(store: Store, secret: str | None) -> Starlette:
    """The ASGI application.

    Args:
        secret: required from callers; None if only this machine can reach the listener.
    """
    reader = MirrorReader(store)

    async def answer(request: Request) -> Response:
        try:
            _require_name(request, secret)
            path = request.scope["raw_path"].decode("latin-1")
            public = request.method in ("GET", "HEAD") and path in PUBLIC
            member = bytes(ids.ID_BYTES) if public else _member(request, secret)
            body = await _body(request)
            answered = await runtime.in_thread(
                reader.answer,
                "GET" if request.method == "HEAD" else request.method,
                path,
                parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True),
                body,
                member,
            )
        except errors.ErsError as error:
            return _refusal(error)
        return Response(
            answered.body, answered.status, headers=_HEADERS, media_type=answered.media_type
        )

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", answer, methods=methods)])


def run(store: Store, host: str, port: int, secret: str | None, log_format: str) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Startup: the port is taken, or others can reach the listener and there is no secret.
        MirrorBroken: there is no complete mirror.
    """
    logs.log_to_stderr(log_format, force=True)
    if not secret and host not in (*LOCAL_NAMES, "::1"):
        raise errors.Startup(
            "others can reach the mirror, and it has no secret",
            hint="set ERS_MIRROR_SECRET, here and for the proxies that read it; or leave"
            " --api-host out",
        )
    head = MirrorReader(store).head()
    with listening(host, port, "--api-port") as sockets:
        log.info("a mirror of %s is served on http://%s:%d", head.source, host, port)
        settle()
        _server(store, secret).run(sockets=sockets)


@contextmanager
def serving_inline(store: Store) -> Iterator[tuple[str, str]]:
    """Serve a mirror only to this process, in a thread; yields its URL and its secret.

    Raises:
        MirrorBroken: there is no complete mirror.
        Unavailable: the place cannot be read.
    """
    MirrorReader(store).head()
    secret = runtime.random_text(32)
    with listening("127.0.0.1", 0, "--api-port") as sockets:
        server = _server(store, secret)
        thread = threading.Thread(  # noqa: TID251 # it ends with this block
            target=server.run, args=(sockets,), daemon=True
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}", secret
        finally:
            server.should_exit = True
            thread.join(STOP_SECONDS)


def _server(store: Store, secret: str | None) -> Server:
    limits = ServerLimits()
    limits = replace(limits, connections=room_for_connections(limits.connections))
    return Server(create_app(store, secret), limits, stop_seconds=STOP_SECONDS)


def _require_name(request: Request, secret: str | None) -> None:
    """Without a secret, check the Host header, so that web pages cannot read the mirror through a
    browser on this machine.

    Raises:
        Misdirected: the request names another host.
    """
    named = _HOST.fullmatch(request.headers.get("host", "").lower())
    if secret is None and (named is None or named[1] not in LOCAL_NAMES):
        raise errors.Misdirected(
            "the mirror has no name of this kind",
            hint="ask it as localhost; or set ERS_MIRROR_SECRET",
        )


def _member(request: Request, secret: str | None) -> bytes:
    """The member whose grants the caller reads.

    Raises:
        NotAuthenticated: the credentials are not valid for this mirror.
    """
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        user, _, password = base64.b64decode(shown.strip(), validate=True).decode().partition(":")
        member = ids.from_text(user)
    except (binascii.Error, ValueError, errors.Malformed):
        password, member = "", b""
    right = secret is None or hmac.compare_digest(password.encode(), secret.encode())
    if not member or not right:
        raise errors.NotAuthenticated(
            "a mirror knows no passwords and no tokens",
            code="mirror_secret",
            hint="send Basic credentials: the id of a user, and the mirror's ERS_MIRROR_SECRET",
        )
    return member


async def _body(request: Request) -> bytes:
    """
    Raises:
        TooLarge: it is longer than any request of a mirror.
    """
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise errors.TooLarge("the body is longer than any that a mirror reads")
        parts.append(part)
    return b"".join(parts)


def _refusal(error: errors.ErsError) -> Response:
    document = problem.of_error(error)
    headers = dict(_HEADERS)
    if document["status"] == 401:
        headers["WWW-Authenticate"] = 'Basic realm="encrypted-records-mirror", charset="UTF-8"'
    return Response(
        strict_json.encode(document),
        document["status"],
        headers=headers,
        media_type=problem.MEDIA_TYPE,
    )
