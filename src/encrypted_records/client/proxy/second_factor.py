"""The second factor of an account's logins: codes of an authenticator app, and recovery codes."""

from __future__ import annotations

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert

_PATH = "/api/accounts/second-factor/"


class SecondFactor(msgspec.Struct, frozen=True):
    """Whether logins need a code beside the password, and how many recovery codes are left."""

    enabled: bool
    recovery_codes: int


class NewSecondFactor(msgspec.Struct, frozen=True):
    """The secret of an authenticator app: a key in Base32, and the same key as an ``otpauth://``
    link, which apps read as a QR code. Printing the object shows neither.
    """

    key: str
    uri: str

    def __repr__(self) -> str:
        return "<new second factor>"


class _RecoveryCodes(msgspec.Struct):
    recovery_codes: list[str]


def with_code(code: str) -> dict[str, str]:
    """The member of a body that shows a code, where there is one."""
    return {"code": code} if code else {}


class SecondFactorCalls(Connection):
    async def second_factor(self) -> SecondFactor:
        return convert(await self._ask("GET", _PATH), SecondFactor)

    async def begin_second_factor(self, password: str) -> NewSecondFactor:
        """A key for an authenticator app. It counts once :meth:`confirm_second_factor` was given a
        code that the app made of it.

        Raises:
            Conflict: ``second_factor_exists``.
            BadInput: ``wrong_password``.
        """
        return convert(await self._ask("POST", _PATH, {"password": password}), NewSecondFactor)

    async def confirm_second_factor(self, code: str) -> list[str]:
        """Require a code for logins from now on.

        Returns:
            The recovery codes; each replaces the app once.

        Raises:
            BadInput: ``wrong_code``.
            Conflict: ``no_second_factor``; no second factor was begun.
        """
        return await self._recovery_codes("confirm", {"code": code})

    async def renew_recovery_codes(self, password: str, code: str) -> list[str]:
        """New recovery codes; those before are worth nothing.

        Raises:
            BadInput: ``wrong_password`` or ``wrong_code``.
        """
        return await self._recovery_codes("recovery-codes", {"password": password, "code": code})

    async def remove_second_factor(self, password: str, code: str) -> None:
        """Remove the second factor, so that logins need only the password.

        Args:
            code: of the app, or a recovery code.

        Raises:
            BadInput: ``wrong_password`` or ``wrong_code``.
        """
        await self._ask("POST", f"{_PATH}remove/", {"password": password, "code": code})

    async def _recovery_codes(self, path: str, body: dict[str, str]) -> list[str]:
        answer = await self._ask("POST", f"{_PATH}{path}/", body)
        return convert(answer, _RecoveryCodes).recovery_codes
