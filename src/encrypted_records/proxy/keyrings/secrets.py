"""The secrets that wrap keyrings, in the order in which they are preferred: a passphrase from the
environment, a key in the keychain, a key that a key service opens, else a key that lies beside
them.

None is a flag: arguments show in the process list.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.recovery import MachineKey, Passphrase, Wrapper
from encrypted_records.errors import BadInput, Startup
from encrypted_records.proxy.disk import write_once
from encrypted_records.proxy.keyrings.key_services.configured import (
    may_start_offline,
    services_from,
)
from encrypted_records.proxy.keyrings.key_services.service import service_key
from encrypted_records.proxy.keyrings.keychain import WAIT_SECONDS, Kept, keychain_key

log = logging.getLogger(__name__)

_KEY_BYTES = 32
_MAX_PASSPHRASE_BYTES = 4096


#: Beginnings of our variables that hold a secret, or the way to one; a cloud's own stay.
_PREFIXES = (
    *("ERS_KEYRING_", "ERS_VAULT_", "ERS_AWS_KMS_", "ERS_GOOGLE_KMS_", "ERS_AZURE_", "ERS_PKCS11_"),
)


def secrets_from(
    environment: MutableMapping[str, str], folder: Path, *, keychain_seconds: float = WAIT_SECONDS
) -> list[Wrapper]:
    """Configured wrappers of the keyrings in ``folder``, the preferred one first.

    A secret that comes after the preferred one is asked for only where it was used before. The
    variables are taken out of ``environment``: no process that this one starts has use for them.

    Args:
        keychain_seconds: for which the keychain is waited for.

    Raises:
        Startup: what is configured cannot be used.
    """
    wrappers: list[Wrapper] = []
    passphrase = passphrase_from(environment)
    services, offline = services_from(environment), may_start_offline(environment)
    if passphrase is not None:
        wrappers.append(passphrase)
    if environment.get("ERS_KEYRING_KEYCHAIN") != "off":
        key = keychain_key(
            folder / "keychain.name", may_make=not wrappers, seconds=keychain_seconds
        )
        wrappers += [] if key is None else [key]
    for service in services:
        kept = Kept(folder / f"{service.file}.kept", keychain_seconds)
        opened = service_key(service, folder, may_make=not wrappers, kept=kept, offline=offline)
        wrappers += [] if opened is None else [opened]
    for name in [name for name in environment if name.startswith(_PREFIXES)]:
        del environment[name]
    return wrappers


def passphrase_from(environment: Mapping[str, str]) -> Passphrase | None:
    """The configured passphrase: of ``ERS_KEYRING_PASSPHRASE_FILE``, else the variable without
    ``_FILE``; None where neither is set. A newline at the end of the file is not part of it.

    Raises:
        Startup: the file cannot be read, or what was found is no passphrase.
    """
    name = "ERS_KEYRING_PASSPHRASE_FILE"
    file = environment.get(name)
    try:
        if file:
            return Passphrase(_read(Path(file)))
        name = "ERS_KEYRING_PASSPHRASE"
        text = environment.get(name)
        return Passphrase(text) if text else None
    except OSError as error:
        why = (error.strerror or "it fails").lower()
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except BadInput as error:
        why = error.message
    raise Startup(f"cannot use {name}: {why}", hint=f"correct {name}, or unset it") from None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(_MAX_PASSPHRASE_BYTES + 1)
    if len(text) > _MAX_PASSPHRASE_BYTES:
        raise BadInput(f"a passphrase has at most {_MAX_PASSPHRASE_BYTES} bytes")
    return text.decode().removesuffix("\n").removesuffix("\r")


def machine_key(path: Path, *, may_make: bool) -> MachineKey | None:
    """The machine key in ``path``, made now where there is none and ``may_make``.

    Raises:
        Startup: it is damaged.
    """
    if not path.exists():
        if not may_make:
            return None
        if write_once(path, runtime.random_bytes(_KEY_BYTES)):
            log.warning(
                "keyrings are protected by %s: anybody who can read this folder can read the"
                " records. Set ERS_KEYRING_PASSPHRASE_FILE to protect them with a passphrase",
                path,
            )
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise Startup(
            f"the machine key {path} is damaged", hint="restore it from a backup of this folder"
        )
    return MachineKey(key)
