"""A wrapping key that HashiCorp Vault's transit engine opens when the proxy starts.

``transit.key`` in the proxy's folder holds the key as the ciphertext that the engine made of it.
Without Vault, or once the token is revoked there, it opens nothing.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encrypted_records import runtime
from encrypted_records.crypto.recovery import TransitKey
from encrypted_records.errors import Startup
from encrypted_records.proxy.disk.atomic_files import write_once

if TYPE_CHECKING:
    import hvac

log = logging.getLogger(__name__)

_KEY_BYTES = 32
_SECONDS = 15


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """The address of the transit engine, the key to use, and the file with the token."""

    address: str
    token_file: Path
    mount: str
    key: str


def vault_settings(environment: Mapping[str, str]) -> VaultSettings | None:
    """The settings in ``ERS_VAULT_...``; None where no address is given.

    Raises:
        Startup: the token's file or the key's name is missing.
    """
    address = environment.get("ERS_VAULT_ADDR")
    if not address:
        return None
    for name in ("ERS_VAULT_TOKEN_FILE", "ERS_VAULT_KEY"):
        if not environment.get(name):
            raise Startup(f"ERS_VAULT_ADDR is set and {name} is not", hint=f"set {name}")
    return VaultSettings(
        address=address,
        token_file=Path(environment["ERS_VAULT_TOKEN_FILE"]),
        mount=environment.get("ERS_VAULT_MOUNT") or "transit",
        key=environment["ERS_VAULT_KEY"],
    )


def transit_key(path: Path, settings: VaultSettings, *, may_make: bool) -> TransitKey | None:
    """The key whose ciphertext is in ``path``, made now where there is none and ``may_make``.

    Raises:
        Startup: Vault cannot be asked or refuses, or what it answers is no key.
    """
    if not (path.exists() or may_make):
        return None
    engine = _client(settings).secrets.transit
    key_name = {"name": settings.key, "mount_point": settings.mount}
    if not path.exists():
        plain = base64.b64encode(runtime.random_bytes(_KEY_BYTES)).decode()
        made = _ask(
            settings, lambda: engine.encrypt_data(plaintext=plain, **key_name), "ciphertext"
        )
        # Should another process have been first, its key counts.
        if write_once(path, made.encode()):
            log.info("keyrings are sealed with a key that %s opens", settings.address)
    sealed = path.read_text("ascii")
    opened = _ask(settings, lambda: engine.decrypt_data(ciphertext=sealed, **key_name), "plaintext")
    try:
        return TransitKey(base64.b64decode(opened, validate=True))
    except (binascii.Error, ValueError):
        raise Startup(
            f"{path} does not hold a key", hint="restore it from the same backup as the keyrings"
        ) from None


def _client(settings: VaultSettings) -> hvac.Client:
    try:
        import hvac  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise Startup(
            "ERS_VAULT_ADDR is set, and the library for Vault is not installed",
            hint="install encrypted-records[vault]",
        ) from None
    try:
        token = settings.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise Startup(
            f"the file with Vault's token cannot be read: {settings.token_file}",
            hint="correct ERS_VAULT_TOKEN_FILE",
        ) from None
    return hvac.Client(url=settings.address, token=token, timeout=_SECONDS)


def _ask(settings: VaultSettings, call: Callable[[], Any], member: str) -> str:
    import hvac.exceptions  # noqa: PLC0415
    import requests  # noqa: PLC0415 - what hvac asks with, and whose errors it lets through

    try:
        return str(call()["data"][member])
    except hvac.exceptions.VaultError as error:
        # Its text quotes what was sent and answered.
        why = f"it refuses ({type(error).__name__})"
    except requests.RequestException as error:
        why = f"it cannot be reached ({type(error).__name__})"
    except (KeyError, TypeError, ValueError):
        why = "its answer is none of a transit engine"
    raise Startup(
        f"Vault at {settings.address} does not open the keyrings' key: {why}",
        hint="check the address, the token and its policy, and the key's name",
    )
