"""The user's keyring at the proxy.

What passes here opens records. No value that holds a secret prints it, and nothing is kept.
"""

from __future__ import annotations

import base64
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

    async def backup_file(self, passphrase: str) -> bytes:
        """A file with all versions, sealed with ``passphrase``."""
        path = "/api/keyring/backup/file/"
        return (await self._transport.request("POST", path, json={"passphrase": passphrase})).body

    async def confirm_backup(self, phrase: str) -> None:
        """Let the proxy remember that its user has the phrase."""
        await self._ask("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})

    async def confirm_backup_file(self, file: bytes, passphrase: str) -> None:
        """Let the proxy see that the file opens, and remember that its user has it."""
        body = {"file": _base64(file), "passphrase": passphrase}
        await self._ask("POST", "/api/keyring/backup/confirm/", body)

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

    async def restore_keyring_file(
        self, file: bytes, passphrase: str, *, replace: bool = False
    ) -> KeyringInfo:
        """As :meth:`restore_keyring`, from a file that :meth:`backup_file` gave."""
        body = {"file": _base64(file), "passphrase": passphrase, "replace": replace}
        return typed(await self._ask("POST", "/api/keyring/restore/", body), KeyringInfo)

    async def unlock_keyring(self, passphrase: str) -> KeyringInfo:
        """Open the keyring for as long as the proxy runs."""
        body = {"passphrase": passphrase}
        return typed(await self._ask("POST", "/api/keyring/unlock/", body), KeyringInfo)

    async def lock_keyring(self) -> None:
        """Let the proxy forget a keyring that was unlocked."""
        await self._ask("POST", "/api/keyring/lock/")

    async def change_passphrase(self, new: str, *, old: str | None) -> int:
        """Seal the keyring under ``new``.

        Args:
            old: the present passphrase, where one seals it.

        Returns:
            How many files of replaced keyrings do not open and so stay as they are.
        """
        body = {"new": new, "old": old}
        return typed(await self._ask("POST", "/api/keyring/passphrase/", body), _Changed).left


class _Changed(msgspec.Struct, frozen=True):
    left: int


def _base64(file: bytes) -> str:
    return base64.b64encode(file).decode()
