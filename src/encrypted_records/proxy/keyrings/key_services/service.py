"""The interface of a key service, and the file with what it encrypted."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

from encrypted_records import runtime
from encrypted_records.crypto.recovery import ServiceWrappingKey
from encrypted_records.errors import Startup
from encrypted_records.proxy.disk import write_once
from encrypted_records.proxy.keyrings.keychain import Kept
from encrypted_records.proxy.keyrings.waiting import within

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Bound to each ciphertext, as far as a service can; it also shows in the service's own log.
CONTEXT = {"application": "encrypted-records", "purpose": "keyrings"}
#: The same for services that take bytes.
CONTEXT_BYTES = b"encrypted-records keyrings"
#: A service answers within some hundred milliseconds; its library may try more than once.
SECONDS = 15.0
#: Limit of each connection and answer, where the library tries twice.
TRY_SECONDS = 5
_KEY_BYTES = 32


class _Failed(Exception):
    """The name of an error, or its code; never its text, which may quote what was sent."""

    words: ClassVar[str]


class ServiceRefusal(_Failed):
    """The service answers and does not do it: it denies access, or does not have the key."""

    words = "it refuses the request"


class Unreachable(_Failed):
    """The service cannot be reached, is too slow, or says that it is not well."""

    words = "it cannot be reached"


class Unfit(_Failed):
    """The key service cannot be used, although it has not refused: credentials are missing, or a
    setting or the ciphertext does not fit.
    """

    words = "settings, credentials or the ciphertext are wrong"


class KeyService(ABC):
    """A service that encrypts and decrypts 32 bytes. Errors never quote what it was sent."""

    #: of the keyring files that its key seals (docs/SPEC.md, section 8)
    wrapping: ClassVar[int]
    #: as people call it
    name: ClassVar[str]
    #: the name of the file with the ciphertext, in the proxy's folder
    file: ClassVar[str]
    #: what to look at where it refuses
    advice: ClassVar[str]

    @property
    @abstractmethod
    def where(self) -> str:
        """The key or the address, for messages."""

    @abstractmethod
    def encrypt(self, secret: bytes) -> str:
        """The ciphertext of 32 bytes, as ASCII.

        Raises:
            Refused, Unreachable, Unfit
        """

    @abstractmethod
    def decrypt(self, sealed: str) -> bytes:
        """The plaintext of a ciphertext that :meth:`encrypt` returned.

        Raises:
            Refused, Unreachable, Unfit
            ValueError: it has another form.
        """


def service_key(
    service: KeyService,
    folder: Path,
    *,
    may_make: bool,
    kept: Kept | None = None,
    offline: bool = False,
) -> ServiceWrappingKey | None:
    """The key whose ciphertext is in ``folder``, generated if there is none and ``may_make``.

    Args:
        kept: storage for a decrypted key, for starts at which the service cannot be reached. A
            refusal by the service deletes the kept key.
        offline: whether a kept key may be used. A successful start without ``offline`` deletes the
            kept key, because it is not wanted any more.

    Raises:
        Startup: the service cannot be reached, or refuses, or the decrypted bytes are not a key.
    """
    path = folder / service.file
    if not (path.exists() or may_make):
        return None
    if not path.exists():
        _make(service, path)
    sealed = path.read_text("ascii", errors="replace")
    try:
        secret = _ask(lambda: service.decrypt(sealed))
        if len(secret) != _KEY_BYTES:
            raise ValueError("it has another length")
    except Unreachable as error:
        secret = _recall(service, error, kept if offline else None)
    except Unfit as error:
        raise _does_not_open(service, error) from None
    except ServiceRefusal as error:
        if kept is not None:
            kept.forget()
        raise _does_not_open(service, error) from None
    except ValueError:
        raise Startup(
            f"{path} does not contain a key", hint="restore it from the same backup as the keyrings"
        ) from None
    else:
        if kept is not None and not offline:
            kept.forget()
        elif kept is not None and not kept.keep(secret):
            log.warning(
                "the key that %s decrypted cannot be kept: there is no keychain", service.name
            )
    return ServiceWrappingKey(service.wrapping, secret)


def _make(service: KeyService, path: Path) -> None:
    try:
        made = _ask(lambda: service.encrypt(runtime.random_bytes(_KEY_BYTES)))
    except _Failed as error:
        raise _does_not_open(service, error) from None
    # Should another process have been first, its key counts.
    if write_once(path, made.encode("ascii")):
        log.info(
            "keyrings are protected by a key that %s decrypts: %s", service.name, service.where
        )


def _ask(call: Callable[[], T]) -> T:
    try:
        return within(SECONDS, call)
    except TimeoutError:
        raise Unreachable(f"no answer within {SECONDS:.0f} seconds") from None


def _recall(service: KeyService, error: Unreachable, kept: Kept | None) -> bytes:
    """The key that the service has decrypted at an earlier start.

    Raises:
        Startup: none is kept.
    """
    secret = None if kept is None else kept.recall()
    if secret is None:
        raise _does_not_open(service, error)
    log.warning(
        "%s cannot be reached (%s): the proxy starts with the key that it decrypted earlier,"
        " from the keychain",
        service.name,
        error,
    )
    return secret


def _does_not_open(service: KeyService, error: _Failed) -> Startup:
    why = f"{error.words} ({error})"
    return Startup(
        f"{service.name} at {service.where} does not decrypt the keyrings' key: {why}",
        hint=service.advice,
    )


def answered(status: int, why: str) -> ServiceRefusal | Unreachable:
    """The failure that an HTTP status stands for: a service that is not well, or too busy, has not
    refused.
    """
    return (Unreachable if status == 429 or status >= 500 else ServiceRefusal)(why)


def check_beside(environment: Mapping[str, str], named: str, *others: str) -> None:
    """Check that a service which the variable ``named`` names has the other variables, too.

    Raises:
        Startup: a variable is missing.
    """
    for name in others:
        if not environment.get(name):
            raise Startup(f"{named} is set and {name} is not", hint=f"set {name}")


def read_secret(path: Path, what: str, environment_variable: str) -> str:
    """The secret in a file, without the space around it.

    Raises:
        Startup: the file cannot be read.
    """
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise Startup(
            f"the file with {what} cannot be read: {path}", hint=f"correct {environment_variable}"
        ) from None


def needed(environment_variable: str, service: str, extra: str) -> Startup:
    """The error where the library of a configured service is not installed."""
    return Startup(
        f"{environment_variable} is set, and the library for {service} is not installed",
        hint=f"install encrypted-records[{extra}]",
    )
