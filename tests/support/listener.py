"""A listener of PostgreSQL's protocol in a thread of the tests' process, before a real proxy."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.sql.limits import SqlLimits, WireLimits
from encrypted_records.sql.wire.server import Listener


@dataclass(frozen=True)
class Running:
    """A listener with the login and the dataset that tests use."""

    port: int
    user: str
    password: str = field(repr=False)
    database: str
    listener: Listener

    @property
    def dsn(self) -> str:
        """For drivers that take a URL."""
        user = self.user.replace("@", "%40")
        return f"postgresql://{user}:{self.password}@127.0.0.1:{self.port}/{self.database}"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that use libpq."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            "PGDATABASE": self.database,
        }

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, **options)

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@contextmanager
def running_listener(
    proxy_url: str,
    *,
    user: str,
    password: str,
    database: str,
    limits: WireLimits | None = None,
    sql_limits: SqlLimits | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Running]:
    def connect(email: str, secret: str, token: str | None, device: str | None) -> ProxyClient:
        if token is not None:
            return ProxyClient(proxy_url, token=token, device=device)
        return ProxyClient(proxy_url, email=email, password=secret, device=device)

    listener = Listener(
        connect,
        tls=tls,
        limits=limits or WireLimits(login_seconds=120),
        sql_limits=sql_limits or SqlLimits(),
    )
    with closing(socket.create_server(("127.0.0.1", 0), backlog=2048)) as listening:
        started, ended = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            async with listener.listening([listening]):
                started.set()
                await ended.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
        thread.start()
        started.wait(30)
        try:
            port = listening.getsockname()[1]
            yield Running(port, user, password, database, listener)
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(30)
            loop.close()


def startup(user: str, database: str, version: int = 3 << 16, **others: str) -> bytes:
    """The bytes of a first message."""
    pairs = {"user": user, "database": database, **others}
    body = struct.pack("!i", version)
    body += b"".join(f"{name}\0{value}\0".encode() for name, value in pairs.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack("!i", len(body) + 4) + body


def received(connection: socket.socket) -> list[tuple[str, bytes]]:
    """All messages until the other side ends the connection."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    found = []
    while len(data) >= 5:
        (size,) = struct.unpack_from("!i", data, 1)
        found.append((data[:1].decode(), data[5 : size + 1]))
        data = data[size + 1 :]
    return found


def fields(body: bytes) -> dict[str, str]:
    """The fields of an error."""
    parts = body.rstrip(b"\0").split(b"\0")
    return {part[:1].decode(): part[1:].decode() for part in parts if part}
