"""Credentials of an account: the second factor of its logins, and API tokens for other programs.

Codes of the second factor come from an authenticator app, or are recovery codes. API tokens have
limits and an expiry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.model import resources
from encrypted_records.model.ids import from_text, reference

_PATH = "/api/accounts/second-factor/"


def with_code(code: str) -> dict[str, str]:
    """The member of a body with a code, if there is one."""
    return {"code": code} if code else {}


class SecondFactorCalls(Connection):
    async def second_factor(self) -> resources.SecondFactorResource:
        return (await self._ask("GET", _PATH)).convert(resources.SecondFactorResource)

    async def begin_second_factor(self, password: str) -> resources.NewSecondFactor:
        """Get a key for an authenticator app. It takes effect after :meth:`confirm_second_factor`
        got a code from the app.

        Raises:
            Conflict: ``second_factor_exists``.
            BadInput: ``wrong_password``.
        """
        answer = await self._ask("POST", _PATH, {"password": password})
        return answer.convert(resources.NewSecondFactor)

    async def confirm_second_factor(self, code: str) -> list[str]:
        """Require a code for logins from now on.

        Returns:
            The recovery codes; each replaces the app once.

        Raises:
            BadInput: ``wrong_code``.
            Conflict: ``no_second_factor``; no second factor was begun. ``second_factor_exists``.
        """
        return await self._recovery_codes("confirm", {"code": code})

    async def renew_recovery_codes(self, password: str, code: str) -> list[str]:
        """Create new recovery codes; earlier ones become invalid.

        Raises:
            BadInput: ``wrong_password`` or ``wrong_code``.
        """
        return await self._recovery_codes("recovery-codes", {"password": password, "code": code})

    async def remove_second_factor(self, password: str, code: str) -> None:
        """Remove the second factor, so that logins need only the password.

        Args:
            code: from the app, or a recovery code.

        Raises:
            BadInput: ``wrong_password`` or ``wrong_code``.
        """
        await self._ask("POST", f"{_PATH}remove/", {"password": password, "code": code})

    async def _recovery_codes(self, path: str, body: dict[str, str]) -> list[str]:
        answer = await self._ask("POST", f"{_PATH}{path}/", body)
        return answer.convert(resources.RecoveryCodesResource).recovery_codes


TOKEN_LIFETIME = timedelta(days=30)


class ApiTokens(Connection):
    async def create_token(
        self,
        name: str,
        *,
        scope: resources.Scope = "read",
        datasets: Sequence[str] | None = None,
        expires_in: timedelta = TOKEN_LIFETIME,
        password: str | None = None,
        code: str = "",
    ) -> resources.CreatedApiTokenResource:
        """Create a token.

        Args:
            datasets: paths of the datasets to which the token is limited.
            password: of the account; not needed if the request has it in Basic credentials.
            code: of the account's second factor, if it has one.

        Raises:
            BadInput: ``required`` or ``wrong_password`` for the password;
                ``second_factor_required`` or ``wrong_code`` for the code; among others.
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
        answer = await self._ask("POST", "/api/tokens/", body)
        return answer.convert(resources.CreatedApiTokenResource)

    async def api_tokens(self) -> AsyncIterator[resources.ApiTokenResource]:
        """The account's tokens, page by page."""
        async for token in self._list("/api/tokens/", resources.ApiTokenResource):
            yield token

    async def revoke_token(self, id: str) -> None:  # noqa: A002
        """Revoke a token.

        Raises:
            Malformed: ``id`` is not an identifier.
            NotFound: the account has no such token.
        """
        await self._ask("DELETE", reference("tokens", from_text(id)))
