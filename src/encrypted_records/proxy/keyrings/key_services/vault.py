"""HashiCorp Vault: its transit engine."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encrypted_records.crypto import format as fmt
from encrypted_records.proxy.keyrings.key_services.service import (
    SECONDS,
    KeyService,
    ServiceRefusal,
    Unfit,
    Unreachable,
    check_beside,
    needed,
    read_secret,
)

if TYPE_CHECKING:
    import hvac

#: Errors by which it, or what stands before it, says that it is not well, or too busy: statuses
#: 429, 500, 501, 502, 503, and those that the library does not know, such as 504.
_NOT_WELL = frozenset(
    {
        *("RateLimitExceeded", "InternalServerError", "VaultNotInitialized", "BadGateway"),
        *("VaultDown", "UnexpectedError"),
    }
)


@dataclass(frozen=True, slots=True)
class Vault(KeyService):
    """A key of a transit engine, and the file with the token that may use it.

    Keys of the engine take a context only where they are derived ones, so none is sent: let the
    token's policy allow this key alone.
    """

    address: str
    token_file: Path
    mount: str
    key: str

    wrapping = fmt.WRAP_VAULT
    name = "Vault"
    file = "transit.key"
    advice = "check the address, the token and its policy, and the key's name"

    @property
    def where(self) -> str:
        return self.address

    @staticmethod
    def configured(environment: Mapping[str, str]) -> Vault | None:
        """The engine that ``ERS_VAULT_...`` name; None where no address is given.

        Raises:
            Startup: the token's file or the key's name is missing.
        """
        address = environment.get("ERS_VAULT_ADDR")
        if not address:
            return None
        check_beside(environment, "ERS_VAULT_ADDR", "ERS_VAULT_TOKEN_FILE", "ERS_VAULT_KEY")
        return Vault(
            address=address,
            token_file=Path(environment["ERS_VAULT_TOKEN_FILE"]),
            mount=environment.get("ERS_VAULT_MOUNT") or "transit",
            key=environment["ERS_VAULT_KEY"],
        )

    def encrypt(self, secret: bytes) -> str:
        engine, plain = self._client().secrets.transit, base64.b64encode(secret).decode()
        return _ask(
            lambda: engine.encrypt_data(name=self.key, mount_point=self.mount, plaintext=plain),
            "ciphertext",
        )

    def decrypt(self, sealed: str) -> bytes:
        engine = self._client().secrets.transit
        opened = _ask(
            lambda: engine.decrypt_data(name=self.key, mount_point=self.mount, ciphertext=sealed),
            "plaintext",
        )
        return base64.b64decode(opened, validate=True)

    def _client(self) -> hvac.Client:
        try:
            import hvac  # noqa: PLC0415 - an extra, and slow to import
        except ImportError:
            raise needed("ERS_VAULT_ADDR", self.name, "vault") from None
        token = read_secret(self.token_file, "Vault's token", "ERS_VAULT_TOKEN_FILE")
        return hvac.Client(url=self.address, token=token, timeout=int(SECONDS))


def _ask(call: Callable[[], Any], member: str) -> str:
    import hvac.exceptions  # noqa: PLC0415
    import requests  # noqa: PLC0415 - what hvac asks with, and whose errors it lets through

    try:
        return str(call()["data"][member])
    except hvac.exceptions.VaultError as error:
        # Its text quotes what was sent and answered.
        why = type(error).__name__
        raise (Unreachable if why in _NOT_WELL else ServiceRefusal)(why) from None
    except requests.RequestException as error:
        raise Unreachable(type(error).__name__) from None
    except (KeyError, TypeError, ValueError):
        raise Unfit("its answer is not from a transit engine") from None
