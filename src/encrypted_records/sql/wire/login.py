"""A login by the protocol's user, password and database, judged by the proxy.

The listener has no right and no secret of its own: each session uses the proxy with what its client
sent. So wrong passwords are counted and limited where all are, and a person who loses a right, or a
token that is revoked, reads no record from the next statement on, and no name some seconds later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import ErsError, NotAuthenticated, Throttled
from encrypted_records.model.credentials import (
    looks_like_service_key,
    parse_api_token,
    split_password,
)
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.wire.answers import WORKER
from encrypted_records.sql.wire.failures import Failure, failure_of

T = TypeVar("T")
#: Makes a client of a proxy: e-mail and password, or a token instead; and a device's secret.
Connect = Callable[[str, str, str | None, str | None], ProxyClient]


@dataclass(frozen=True, slots=True)
class SqlLogin:
    """``engine`` is open, and ``client`` is what it asks; both are to be closed."""

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
        Failure: 28P01 where the login is wrong, 3D000 where it sees no such dataset.
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
    account = await _told(client.user())
    email = str(account.email)
    if is_token and email.casefold() != user.casefold():
        raise Failure("28P01", "the token belongs to another user", fatal=True)
    engine = Engine(client, dataset=database, limits=limits, worker=WORKER)
    try:
        await _told(engine.refresh())
    except BaseException:
        await engine.close()
        raise
    return SqlLogin(email, client, engine)


async def _told(asked: Awaitable[T]) -> T:
    """
    Raises:
        Failure: as PostgreSQL tells a refused login.
    """
    try:
        return await asked
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
