"""Keyring files, and the secrets that encrypt them.

Secrets in order of preference: a passphrase from the environment, a key in the keychain, a key that
a key service decrypts, or a machine key in the same folder. No secret is a command-line flag:
arguments show in the process list.

New files are encrypted with the preferred configured secret, or with the user's own passphrase.
Files under a less preferred secret are re-encrypted with the preferred secret, including the kept
files: while such a file remains, the less preferred secret is enough to read the keyring.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from pathlib import Path

from encrypted_records import errors, runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import (
    MachineKey,
    Passphrase,
    Wrapper,
    unwrap,
    wrap,
    wrapping_of,
)
from encrypted_records.model import ids
from encrypted_records.proxy import disk as durable
from encrypted_records.proxy.keyrings.key_services import (
    may_start_offline,
    service_key,
    services_from,
)
from encrypted_records.proxy.keyrings.keychain import WAIT_SECONDS, KeychainSecret, keychain_key

log = logging.getLogger(__name__)


_KEY_BYTES = 32
_MAX_PASSPHRASE_BYTES = 4096


#: Prefixes of this program's variables that hold a secret or its location; a cloud provider's
#: variables stay.
_PREFIXES = (
    *("ERS_KEYRING_", "ERS_VAULT_", "ERS_AWS_KMS_", "ERS_GOOGLE_KMS_", "ERS_AZURE_", "ERS_PKCS11_"),
)


def secrets_from(
    environment: MutableMapping[str, str], folder: Path, *, keychain_seconds: float = WAIT_SECONDS
) -> list[Wrapper]:
    """Configured wrappers of the keyrings in ``folder``, in order of preference.

    A less preferred secret is looked up only if it was used before. The variables are removed from
    ``environment``: child processes do not need them.

    Args:
        keychain_seconds: time limit of the keychain.

    Raises:
        Startup: a configured secret cannot be used.
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
        kept = KeychainSecret(folder / f"{service.file}.kept", keychain_seconds)
        opened = service_key(service, folder, may_make=not wrappers, kept=kept, offline=offline)
        wrappers += [] if opened is None else [opened]
    for name in [name for name in environment if name.startswith(_PREFIXES)]:
        del environment[name]
    return wrappers


def passphrase_from(environment: Mapping[str, str]) -> Passphrase | None:
    """The configured passphrase: from the file in ``ERS_KEYRING_PASSPHRASE_FILE``, or from the
    variable without ``_FILE``; None if neither is set. A newline at the end of the file is not part
    of it.

    Raises:
        Startup: the file cannot be read, or its content is not a passphrase.
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
    except errors.BadInput as error:
        why = error.message
    raise errors.Startup(f"cannot use {name}: {why}", hint=f"correct {name}, or unset it") from None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(_MAX_PASSPHRASE_BYTES + 1)
    if len(text) > _MAX_PASSPHRASE_BYTES:
        raise errors.BadInput(f"a passphrase has at most {_MAX_PASSPHRASE_BYTES} bytes")
    return text.decode().removesuffix("\n").removesuffix("\r")


def _machine_key(path: Path, *, may_make: bool) -> MachineKey | None:
    """The machine key in ``path``, made now if there is none and ``may_make``.

    Raises:
        Startup: it is damaged.
    """
    if not path.exists():
        if not may_make:
            return None
        if durable.write_once(path, runtime.random_bytes(_KEY_BYTES)):
            log.warning(
                "keyrings are protected by %s: anybody who can read this folder can read the"
                " records. Set ERS_KEYRING_PASSPHRASE_FILE to protect them with a passphrase",
                path,
            )
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise errors.Startup(
            f"the machine key {path} is damaged", hint="restore it from a backup of this folder"
        )
    return MachineKey(key)


NAMES = {
    fmt.WRAP_MACHINE_KEY: "machine_key",
    fmt.WRAP_PASSPHRASE: "passphrase",
    fmt.WRAP_KEYCHAIN: "keychain",
    fmt.WRAP_VAULT: "vault",
    fmt.WRAP_AWS_KMS: "aws_kms",
    fmt.WRAP_GOOGLE_KMS: "google_kms",
    fmt.WRAP_AZURE_KEY_VAULT: "azure_key_vault",
    fmt.WRAP_PKCS11: "pkcs11",
}
_UNLOCK = (
    "unlock it with ers keyring unlock or on the proxy's page /keyring/; or set"
    " ERS_KEYRING_PASSPHRASE_FILE or ERS_KEYRING_PASSPHRASE to its passphrase and start the"
    " proxy again"
)
#: Remedies if the secret of a wrapping is missing.
_NOT_HERE = {
    fmt.WRAP_KEYCHAIN: "unlock the keychain that has its key and start the proxy again",
    fmt.WRAP_VAULT: "set ERS_VAULT_ADDR and the related variables and start the proxy again",
    fmt.WRAP_AWS_KMS: "set ERS_AWS_KMS_KEY and start the proxy again",
    fmt.WRAP_GOOGLE_KMS: "set ERS_GOOGLE_KMS_KEY and start the proxy again",
    fmt.WRAP_AZURE_KEY_VAULT: "set ERS_AZURE_KEY and start the proxy again",
    fmt.WRAP_PKCS11: "set ERS_PKCS11_MODULE and the related variables and start the proxy again",
}


class KeyringFiles:
    """
    Args:
        folder: the proxy's folder.
        secrets: wrappers of keyrings, in order of preference. Without any, a machine key in
            ``folder`` encrypts them.

    Raises:
        Startup: the machine key is needed and cannot be read or made, or is damaged.
    """

    def __init__(self, folder: Path, *secrets: Wrapper) -> None:
        self._folder = folder / "keyrings"
        durable.make_folder(self._folder)
        #: by wrapping, in order of preference
        self._secrets: dict[int, Wrapper] = {secret.wrapping: secret for secret in secrets}
        self._add_machine_key(folder / "machine.key")

    def path(self, user: bytes) -> Path:
        return self._folder / f"{ids.to_text(user)}.keyring"

    def users(self) -> list[bytes]:
        """The users whose keyrings are here."""
        return [ids.from_text(path.stem) for path in self._folder.glob("*.keyring")]

    def read(self, user: bytes) -> tuple[Path, bytes]:
        """The path of the user's keyring, and the file.

        Raises:
            NotFound: there is none.
            Closed: there was one.
        """
        path = self.path(user)
        try:
            return path, path.read_bytes()
        except FileNotFoundError:
            kept = durable.list_kept(path)
            if kept:
                raise damaged(
                    path, f"it is missing, but there is {kept[-1].name}", "put the file back"
                ) from None
            raise no_keyring() from None

    def create(self, user: bytes, keyring: Keyring, given: Passphrase | None) -> bool:
        """Write the file unless it exists; returns whether this call wrote it."""
        return durable.write_once(self.path(user), wrap(keyring, self.wrapper(given), user))

    def replace(self, user: bytes, keyring: Keyring, given: Passphrase | None) -> None:
        """Replace the file; the old file is kept in the same folder."""
        path = self.path(user)
        kept = durable.replace_and_keep(path, wrap(keyring, self.wrapper(given), user))
        log.warning("keyring %s was replaced; it is kept as %s", path.name, kept.name)

    def open(
        self,
        path: Path,
        file: bytes,
        user: bytes,
        given: Passphrase | None,
    ) -> Keyring:
        """Open a keyring file.

        Args:
            given: the user's own passphrase, tried before the configured passphrase.

        Raises:
            Closed: ``keyring_locked``: the secret that encrypts it is missing, or the passphrase is
                wrong; ``keyring_damaged``.
        """
        try:
            wrapping = wrapping_of(file)
            wrapper = self._secrets.get(wrapping)
            if wrapping == fmt.WRAP_PASSPHRASE:
                wrapper = given or wrapper
            if wrapper is None and wrapping == fmt.WRAP_MACHINE_KEY:
                raise errors.DoesNotOpen(
                    "the machine key that protects it is not here",
                    hint="restore machine.key from the same backup",
                )
            if wrapper is None:
                raise locked(path, wrapping)
            try:
                return unwrap(file, wrapper, user)
            except errors.DoesNotOpen as error:
                if wrapping != fmt.WRAP_PASSPHRASE:
                    raise
                raise errors.Closed(
                    f"keyring {path.name}: {error.message}", code="keyring_locked", hint=_UNLOCK
                ) from None
        except (errors.DoesNotOpen, errors.Unsupported) as error:
            raise damaged(path, error.message, error.hint) from None

    def wrapper(self, given: Passphrase | None) -> Wrapper:
        """The wrapper for new files of a user."""
        return given or next(iter(self._secrets.values()))

    def is_own(self, file: bytes, user: bytes) -> bool:
        """Whether a file is under a passphrase other than the operator's."""
        operators = self._secrets.get(fmt.WRAP_PASSPHRASE)
        return wrapping(file) == fmt.WRAP_PASSPHRASE and (
            operators is None or not _opens(file, operators, user)
        )

    def seal_later(
        self, path: Path, file: bytes, user: bytes, keyring: Keyring, given: Passphrase | None
    ) -> None:
        """Re-encrypt a file and its kept files with the preferred secret, if they are under a less
        preferred secret.
        """
        if self._comes_later(file, given):
            durable.replace_and_keep(path, wrap(keyring, self.wrapper(given), user))
            self.open(path, path.read_bytes(), user, given)
            name = NAMES[self.wrapper(given).wrapping]
            log.info("keyring %s is now protected by: %s", path.name, name)
        self.seal_kept_later(path, user, given)

    def seal_kept_later(self, path: Path, user: bytes, given: Passphrase | None) -> None:
        """Re-encrypt kept files of ``path`` under a less preferred secret with the preferred
        secret.
        """
        if any(self._comes_later(kept.read_bytes(), given) for kept in durable.list_kept(path)):
            self._seal_kept(path, user, given, self.wrapper(given), later_alone=True)

    def seal_under(
        self, path: Path, user: bytes, keyring: Keyring, old: Passphrase | None, new: Passphrase
    ) -> int:
        """Encrypt a keyring and its kept files under ``new``; the replaced file is not kept.

        Kept files are re-encrypted first. So an interruption leaves the keyring under its previous
        secret.

        Returns:
            The number of kept files that stay under their secret, because it is missing.
        """
        left = self._seal_kept(path, user, old, new)
        # The replaced file is not kept: it would open with the old passphrase.
        durable.replace(path, wrap(keyring, new, user))
        return left

    def _seal_kept(
        self,
        path: Path,
        user: bytes,
        given: Passphrase | None,
        wrapper: Wrapper,
        *,
        later_alone: bool = False,
    ) -> int:
        left = 0
        for kept in durable.list_kept(path):
            file = kept.read_bytes()
            if later_alone and not self._comes_later(file, given):
                continue
            try:
                keyring = self.open(kept, file, user, given)
            except errors.ErsError:
                left += not _opens(file, wrapper, user)
                log.warning("%s cannot be decrypted and is left unchanged", kept.name)
            else:
                durable.replace(kept, wrap(keyring, wrapper, user))
        return left

    def _comes_later(self, file: bytes, given: Passphrase | None) -> bool:
        """Whether the file is under a less preferred secret than new files."""
        order = list(self._secrets)
        stored, present = wrapping(file), self.wrapper(given).wrapping
        if stored not in order:
            return False
        return present not in order or order.index(stored) > order.index(present)

    def _add_machine_key(self, path: Path) -> None:
        """Load the machine key if it exists; make it only if no other secret is configured."""
        files = [keyring.read_bytes() for keyring in self._folder.glob("*.keyring")]
        if not path.exists() and any(wrapping(file) == fmt.WRAP_MACHINE_KEY for file in files):
            raise errors.Startup(
                f"the machine key {path} is missing, but there are keyrings protected by it",
                hint="restore it from the same backup as the keyrings",
            )
        key = _machine_key(path, may_make=not self._secrets)
        if key is not None:
            self._secrets[key.wrapping] = key


def keyring_disk_errors() -> AbstractContextManager[None]:
    """Convert disk errors to named errors. Files are written whole or not at all, so nothing is
    lost.
    """
    return durable.disk_errors(
        "the disk failed under the keyring",
        code="keyring_disk",
        full="the disk is full: the keyring is unchanged",
    )


def wrapping(file: bytes) -> int | None:
    """The wrapping of a file; None where it cannot be read."""
    try:
        return wrapping_of(file)
    except errors.Unsupported:
        return None


def _opens(file: bytes, wrapper: Wrapper, user: bytes) -> bool:
    try:
        unwrap(file, wrapper, user)
    except (errors.DoesNotOpen, errors.Unsupported):
        return False
    return True


def no_keyring() -> errors.NotFound:
    return errors.NotFound(
        "you have no keyring here yet",
        code="no_keyring",
        hint="if you have one on another machine, or had, restore it before you store anything: ers"
        " keyring restore; otherwise storing the first records creates it",
    )


def locked(path: Path, sealed_with: int = fmt.WRAP_PASSPHRASE) -> errors.Closed:
    if sealed_with == fmt.WRAP_PASSPHRASE:
        message, hint = "is protected by a passphrase, and none is configured", _UNLOCK
    else:
        name = NAMES[sealed_with].replace("_", " ")
        message, hint = f"is protected by a {name} that is not here", _NOT_HERE[sealed_with]
    return errors.Closed(f"keyring {path.name} {message}", code="keyring_locked", hint=hint)


def damaged(path: Path, message: str, hint: str) -> errors.Closed:
    return errors.Closed(f"keyring {path.name}: {message}", code="keyring_damaged", hint=hint)
