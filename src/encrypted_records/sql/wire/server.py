"""The listener: connections of PostgreSQL's protocol, from their first byte to their last.

Rules: a password is requested only over TLS or on loopback; a client's bytes are never logged;
bytes that violate the protocol end only their connection, with a FATAL error; a client that does
not read or send costs a bounded number of bytes and seconds.

A login has a user, a password and a database, and the proxy verifies it. The listener has no rights
and no secrets: each session uses the proxy with its client's credentials. So wrong passwords are
counted and limited as everywhere. A person who loses a right, or a revoked token, reads no record
from the next statement on, and no name some seconds later.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from encrypted_records import runtime
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import ErsError, InvalidSetting, NotAuthenticated, Throttled
from encrypted_records.model.credentials import (
    looks_like_service_key,
    parse_api_token,
    split_password,
)
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.failures import Failure, failure_of
from encrypted_records.sql.limits import SqlLimits, WireLimits
from encrypted_records.sql.wire import messages as m
from encrypted_records.sql.wire.answers import WORKER, StatementAnswers
from encrypted_records.sql.wire.channel import Channel, ClientGone
from encrypted_records.sql.wire.session import WireSession
from encrypted_records.sql.wire.settings import REPORTED, SessionSettings, start

T = TypeVar("T")
#: Creates a proxy client from e-mail and password, or a token instead; and a device's secret.
Connect = Callable[[str, str, str | None, str | None], ProxyClient]


@dataclass(frozen=True, slots=True)
class SqlLogin:
    """``engine`` is open and uses ``client``; both have to be closed."""

    email: str
    client: ProxyClient
    engine: Engine

    async def close(self) -> None:
        await self.engine.close()
        await self.client.close()


async def log_in(
    connect: Connect, user: str, password: str, database: str, limits: SqlLimits
) -> SqlLogin:
    """
    Args:
        user: an e-mail address.
        password: of the account, or an API token; a device's secret may follow after a colon, as
            in Basic credentials.
        database: a dataset's slug.

    Raises:
        Failure: 28P01 if the login is wrong, 3D000 if it cannot access such a dataset.
    """
    password, device = split_password(password)
    if looks_like_service_key(password) or looks_like_service_key(user):
        raise Failure(
            "28P01",
            "a service's secret key was sent as a password",
            hint="use an API token: ers token create NAME",
            fatal=True,
        )
    token = parse_api_token(password)
    client = connect(user, password, token.text if token else None, device.text if device else None)
    try:
        return await _opened(client, user, database, limits, is_token=token is not None)
    except BaseException:
        await client.close()
        raise


async def _opened(
    client: ProxyClient, user: str, database: str, limits: SqlLimits, *, is_token: bool
) -> SqlLogin:
    account = await _or_login_failure(client.user())
    email = str(account.email)
    if is_token and email.casefold() != user.casefold():
        raise Failure("28P01", "the token belongs to another user", fatal=True)
    engine = Engine(client, dataset=database, limits=limits, worker=WORKER)
    try:
        await _or_login_failure(engine.refresh())
    except BaseException:
        await engine.close()
        raise
    return SqlLogin(email, client, engine)


async def _or_login_failure(request: Awaitable[T]) -> T:
    """
    Raises:
        Failure: a refused login, in PostgreSQL's form.
    """
    try:
        return await request
    except NotAuthenticated as error:
        raise Failure(
            "28P01",
            "password authentication failed: e-mail address, password or token is wrong",
            hint=error.hint,
            fatal=True,
        ) from None
    except Throttled as error:
        wait = f"; try again in {error.retry_after} s" if error.retry_after else ""
        raise Failure("28000", f"too many failed logins{wait}", fatal=True) from None
    except ErsError as error:
        failure = failure_of(error)
        raise Failure(failure.state, failure.message, hint=failure.hint, fatal=True) from None


log = logging.getLogger(__name__)

#: The newest minor version, and the length of its cancel keys; keys of 3.0 have four bytes.
_MINOR, _LONG_KEY, _SHORT_KEY = 2, 32, 4


@dataclass(eq=False, slots=True)
class _WireConnection:
    """A connection; ``session`` is set after its login. ``misses`` counts cancel requests with a
    wrong key.
    """

    channel: Channel
    task: asyncio.Task[None]
    session: WireSession | None = None
    secret: bytes = field(default=b"", repr=False)
    misses: int = 0


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").split("%")[0]).is_loopback
    except ValueError:
        return False


def check_host(host: str, tls: ssl.SSLContext | None) -> None:
    """
    Raises:
        InvalidSetting: other machines would send passwords and read records unencrypted.
    """
    if tls is None and not is_loopback(host):
        raise InvalidSetting(
            f"--listen {host} is not a loopback address, and passwords would cross the"
            " network unencrypted",
            hint="listen on 127.0.0.1, or give a certificate: --tls-cert FILE --tls-key FILE",
        )


class Listener:
    """
    Args:
        connect: creates clients of the proxy.
        tls: for clients that request it; without it, they are told that TLS is not available.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        tls: ssl.SSLContext | None,
        limits: WireLimits,
        sql_limits: SqlLimits,
    ) -> None:
        self._connect, self._tls = connect, tls
        self._limits, self._sql_limits = limits, sql_limits
        self._waiting: OrderedDict[_WireConnection, None] = OrderedDict()
        self._sessions: dict[int, _WireConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Serve these sockets until the block ends, which ends their sessions."""
        servers = [await asyncio.start_server(self._serve, sock=sock) for sock in sockets]
        try:
            yield
        finally:
            for server in servers:
                server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer, self._limits)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = _WireConnection(channel, task)
        self._keep_alive(writer)
        self._waiting[connection] = None
        while len(self._waiting) > self._limits.waiting:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.channel.abort()
            oldest.task.cancel()  # its login may wait for the proxy
        try:
            await self._guarded(connection)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            _end(channel, Failure("57P01", "the listener is stopping"))
        finally:
            self._waiting.pop(connection, None)
            await channel.close()

    async def _guarded(self, connection: _WireConnection) -> None:
        """Serve a connection, and tell its client why it ends."""
        channel = connection.channel
        try:
            await self._connection(connection)
        except m.ProtocolViolation as error:
            _end(channel, Failure("08P01", str(error)))
        except Failure as failure:
            _end(channel, failure)
        except ErsError as error:
            _end(channel, failure_of(error))
        except TimeoutError:
            _end(channel, Failure("08006", "the login took too long"))
        except ClientGone:
            raise
        except Exception as error:
            # Without its text, which may contain a value.
            log.error("a session failed because of an internal error", exc_info=error)  # noqa: TRY400
            _end(channel, Failure("XX000", "internal error: the output of ers sql names its place"))

    @staticmethod
    def _keep_alive(writer: asyncio.StreamWriter) -> None:
        """Let the system detect clients that disappeared."""
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    async def _connection(self, connection: _WireConnection) -> None:
        channel = connection.channel
        async with asyncio.timeout(self._limits.login_seconds):
            startup = await self._start(channel)
            if startup is None:
                return
            user, database = self._named(startup)
            settings = start(user, database, startup.parameters)
            password = await self._password(channel)
            login = await log_in(self._connect, user, password, database, self._sql_limits)
        del password
        try:
            self._waiting.pop(connection, None)
            if len(self._sessions) >= self._limits.connections:
                raise Failure("53300", "too many connections already")
            process = self._number()
            connection.secret = runtime.random_bytes(
                _LONG_KEY if startup.minor >= _MINOR else _SHORT_KEY
            )
            answers = StatementAnswers(
                login.engine,
                user=login.email,
                settings=lambda: dict(settings.all()),
                process=process,
                fresh_seconds=self._limits.catalogue_seconds,
            )
            session = connection.session = WireSession(channel, answers, settings, self._limits)
            self._sessions[process] = connection
            try:
                channel.log_in()
                await self._greet(channel, settings, process, connection.secret)
                await session.run()
            finally:
                del self._sessions[process]
                await answers.close()
        finally:
            await login.close()

    async def _start(self, channel: Channel) -> m.StartupMessage | None:
        """The start of a session; None for a cancel request.

        Raises:
            Failure: the password would be sent unencrypted.
        """
        requested: set[bool] = set()
        while isinstance(first := await channel.first(), m.EncryptionRequest):
            if first.tls in requested or channel.has_more:
                # Bytes after the request arrived unencrypted, and must not count as encrypted.
                raise m.ProtocolViolation("unexpected data after a request for encryption")
            requested.add(first.tls)
            if first.tls and self._tls is not None and not channel.encrypted:
                channel.write(m.ACCEPT_TLS)
                await channel.flush()
                await channel.start_tls(self._tls)
            else:
                channel.write(m.REFUSE_ENCRYPTION)
                await channel.flush()
        if isinstance(first, m.Cancel):
            self._cancel(first)
            return None
        if not channel.encrypted and not is_loopback(channel.peer):
            raise Failure("28000", "passwords are accepted over TLS only: use sslmode=require")
        unknown = [name for name in first.parameters if name.startswith("_pq_.")]
        if first.minor not in (0, _MINOR) or unknown:
            minor = _MINOR if first.minor > _MINOR else first.minor if first.minor != 1 else 0
            channel.write(m.negotiate_version(minor, unknown))
            return m.StartupMessage(minor, first.parameters)
        return first

    @staticmethod
    def _named(startup: m.StartupMessage) -> tuple[str, str]:
        user = startup.parameters.get("user", "")
        database = startup.parameters.get("database", "") or user
        if not user:
            raise Failure("28000", "no PostgreSQL user name specified in startup packet")
        if startup.parameters.get("replication", "off").lower() not in ("", "off", "false", "no"):
            raise Failure("0A000", "replication is not supported")
        return user, database

    @staticmethod
    async def _password(channel: Channel) -> str:
        channel.start_reading()
        channel.write(m.ASK_PASSWORD)
        await channel.flush()
        message = await channel.receive()
        if not isinstance(message, m.Password):
            if isinstance(message, m.Terminate):
                raise ClientGone
            raise m.ProtocolViolation("expected password response")
        if not message.text:
            raise Failure("28P01", "empty password returned by client")
        return message.text

    @staticmethod
    async def _greet(
        channel: Channel, settings: SessionSettings, process: int, secret: bytes
    ) -> None:
        channel.write(m.AUTHENTICATION_OK)
        for name, reported in REPORTED.items():
            channel.write(m.parameter_status(reported, settings.show(name)))
        channel.write(m.backend_key(process, secret))
        channel.write(m.ready("I"))
        await channel.flush()

    def _number(self) -> int:
        while True:
            number = 1 + runtime.chance.randrange(2**31 - 1)
            if number not in self._sessions:
                return number

    def _cancel(self, request: m.Cancel) -> None:
        """Cancel a session's statement. As in PostgreSQL, the caller never learns whether there was
        a statement. After some wrong keys for a session, all its cancel requests are ignored, so
        that a key cannot be guessed. Wrong keys for a session do not affect others.
        """
        connection = self._sessions.get(request.process)
        if connection is None or connection.misses >= self._limits.cancel_misses:
            return
        if not hmac.compare_digest(connection.secret, request.secret):
            connection.misses += 1
        elif connection.session is not None:
            connection.session.cancel()


def _end(channel: Channel, failure: Failure) -> None:
    channel.write(m.error_response("FATAL", failure.state, failure.message, hint=failure.hint))


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """
    Args:
        certificate, key: files in PEM form.

    Raises:
        InvalidSetting: they cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["postgresql"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(
            "the certificate or its key cannot be used",
            hint="--tls-cert and --tls-key name PEM files that belong together and can be read"
            f" ({type(error).__name__})",
        ) from None
    return context
