"""API tokens: credentials for other programs, with limits and an end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import date, datetime, timedelta
from typing import Literal

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert
from encrypted_records.client.proxy.second_factor import with_code
from encrypted_records.model.ids import from_text, reference

TOKEN_LIFETIME = timedelta(days=30)
Scope = Literal["read", "write"]


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its text.

    ``datasets`` are the paths of those that it is limited to, None where it is not; ``last_used``
    is a day of UTC.
    """

    id: str
    name: str
    scope: Scope
    datasets: list[str] | None
    created: datetime
    expires: datetime
    last_used: date | None


class NewApiToken(ApiToken, frozen=True, kw_only=True):
    """``token`` is the secret text of the token; it is shown only once."""

    token: str

    def __repr__(self) -> str:
        return f"<API token {self.id}>"


class ApiTokens(Connection):
    async def create_token(
        self,
        name: str,
        *,
        scope: Scope = "read",
        datasets: Sequence[str] | None = None,
        expires_in: timedelta = TOKEN_LIFETIME,
        password: str | None = None,
        code: str = "",
    ) -> NewApiToken:
        """A new token.

        Args:
            datasets: paths of those that it is limited to.
            password: of the account; not needed where the request has it in Basic credentials.
            code: of the account's second factor, where it has one.

        Raises:
            BadInput: ``required`` or ``wrong_password`` of the password;
                ``second_factor_required`` or ``wrong_code`` of the code; among others.
            Conflict: ``too_many_tokens``.
        """
        body = {
            "name": name,
            "scope": scope,
            "datasets": None if datasets is None else list(datasets),
            "expires_in": int(expires_in.total_seconds()),
        }
        if password is not None:
            body |= {"password": password, **with_code(code)}
        return convert(await self._ask("POST", "/api/tokens/", body), NewApiToken)

    async def api_tokens(self) -> AsyncIterator[ApiToken]:
        """The account's tokens, page after page."""
        async for token in self._list("/api/tokens/"):
            yield convert(token, ApiToken)

    async def revoke_token(self, id: str) -> None:  # noqa: A002
        """Revoke a token.

        Raises:
            Malformed: that is no identifier.
            NotFound: the account has no such token.
        """
        await self._ask("DELETE", reference("tokens", from_text(id)))
