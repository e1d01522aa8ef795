"""The user's keyring at the proxy.

What passes here opens records. No value that holds a secret prints it, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from encrypted_records.client.connection import Connection, typed


class KeyVersion(msgspec.Struct, frozen=True):
    """One root key; ``created`` is in seconds since 1970, 0 where it is not known."""

    version: int
    created: int
    fingerprint: str
    backup_confirmed: bool


class KeyringInfo(msgspec.Struct, frozen=True):
    """What may be shown of a keyring."""

    fingerprint: str
    versions: list[KeyVersion]
    wrapping: str
    backup_confirmed: bool


class SealedSchema(msgspec.Struct, frozen=True):
    """A schema that has records, the versions that they are sealed under, and whether the keys are
    in this keyring."""

    url: str
    name: str
    first_key_version: int
    key_version: int
    key_id: str
    held: bool


class Phrase(msgspec.Struct, frozen=True):
    """The recovery phrase of one version. It is the key: it belongs on paper, and nowhere else."""

    version: int
    phrase: str

    def __repr__(self) -> str:
        return f"<phrase of version {self.version}>"


class KeyringCalls(Connection):
    async def keyring(self) -> KeyringInfo:
        return typed(await self._ask("GET", "/api/keyring/"), KeyringInfo)

    async def sealed_schemas(self) -> list[SealedSchema]:
        """The schemas with records that the user reaches."""
        return typed(await self._ask("GET", "/api/keyring/schemas/"), list[SealedSchema])

    async def backup_phrases(self, *, all_versions: bool = False) -> list[Phrase]:
        """The recovery phrases of the versions that no backup was confirmed of, or of all."""
        body = {"all": all_versions}
        return typed(await self._ask("POST", "/api/keyring/backup/", body), list[Phrase])

    async def confirm_backup(self, phrase: str) -> None:
        """Let the proxy remember that its user has the phrase."""
        await self._ask("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})

    async def restore_keyring(
        self, phrases: Sequence[str], *, replace: bool = False
    ) -> KeyringInfo:
        """Make the keyring of these phrases, one for each version, this user's at the proxy.

        Args:
            replace: whether it may take the place of one that has other keys.
        """
        body = {"phrases": list(phrases), "replace": replace}
        return typed(await self._ask("POST", "/api/keyring/restore/", body), KeyringInfo)

    async def rotate_keyring(self) -> KeyringInfo:
        """Add a key version, which seals from now on."""
        return typed(await self._ask("POST", "/api/keyring/rotate/"), KeyringInfo)
