"""A hardware module, or a program, with the interface PKCS#11: AES-256-GCM."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.proxy.keyrings.key_services.service import (
    CONTEXT_BYTES,
    KeyService,
    ServiceRefusal,
    Unfit,
    Unreachable,
    check_beside,
    needed,
    read_secret,
)

T = TypeVar("T")

_NONCE_BYTES = 12
_TAG_BITS = 128
#: Errors by which a module does not refuse: the token is not there; the module's file does not
#: load, two tokens have the label, the ciphertext is damaged, or it says nothing in particular.
_UNSAID: dict[str, type[Unreachable] | type[Unfit]] = {
    **dict.fromkeys(("DeviceError", "DeviceMemory", "DeviceRemoved", "HostMemory"), Unreachable),
    **dict.fromkeys(("NoSuchToken", "TokenNotPresent"), Unreachable),
    **dict.fromkeys(("PKCS11Error", "MultipleTokensReturned", "GeneralError"), Unfit),
    **dict.fromkeys(("EncryptedDataInvalid", "EncryptedDataLenRange", "FunctionFailed"), Unfit),
}


@dataclass(frozen=True, slots=True)
class Pkcs11(KeyService):
    """An AES key by its label on a token by its label; the PIN is in a file.

    The ciphertext is a nonce of 12 random bytes, then AES-256-GCM with the context as associated
    data (docs/SPEC.md, section 8).
    """

    module: Path
    token: str
    key: str
    pin_file: Path

    wrapping = fmt.WRAP_PKCS11
    name = "PKCS#11"
    file = "pkcs11.key"
    advice = (
        "check ERS_PKCS11_MODULE, ERS_PKCS11_TOKEN, ERS_PKCS11_KEY and the PIN; the key must allow"
        " to encrypt and decrypt"
    )

    @property
    def where(self) -> str:
        return f"token {self.token}"

    @staticmethod
    def configured(environment: Mapping[str, str]) -> Pkcs11 | None:
        """The key that ``ERS_PKCS11_...`` name; None where no module is named.

        Raises:
            Startup: token, key or the PIN's file is missing.
        """
        module = environment.get("ERS_PKCS11_MODULE")
        if not module:
            return None
        check_beside(
            environment,
            "ERS_PKCS11_MODULE",
            *("ERS_PKCS11_TOKEN", "ERS_PKCS11_KEY", "ERS_PKCS11_PIN_FILE"),
        )
        return Pkcs11(
            module=Path(module),
            token=environment["ERS_PKCS11_TOKEN"],
            key=environment["ERS_PKCS11_KEY"],
            pin_file=Path(environment["ERS_PKCS11_PIN_FILE"]),
        )

    def encrypt(self, secret: bytes) -> str:
        nonce = runtime.random_bytes(_NONCE_BYTES)
        sealed = self._with_key(lambda key, how: key.encrypt(secret, **how(nonce)))
        return base64.b64encode(nonce + sealed).decode()

    def decrypt(self, sealed: str) -> bytes:
        raw = base64.b64decode(sealed, validate=True)
        nonce, encrypted = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
        if len(nonce) < _NONCE_BYTES:
            raise ValueError("it is too short")
        return bytes(self._with_key(lambda key, how: key.decrypt(encrypted, **how(nonce))))

    def _with_key(self, work: Callable[[Any, Callable[[bytes], dict[str, Any]]], T]) -> T:
        try:
            import pkcs11  # noqa: PLC0415 - an extra, and loads native code
        except ImportError:
            raise needed("ERS_PKCS11_MODULE", self.name, "pkcs11") from None
        pin = read_secret(self.pin_file, "the PIN", "ERS_PKCS11_PIN_FILE")

        def how(nonce: bytes) -> dict[str, Any]:
            return {
                "mechanism": pkcs11.Mechanism.AES_GCM,
                "mechanism_param": pkcs11.GCMParams(nonce, CONTEXT_BYTES, _TAG_BITS),
            }

        try:
            token = pkcs11.lib(str(self.module)).get_token(token_label=self.token)
            with token.open(user_pin=pin) as session:
                secret_key = pkcs11.ObjectClass.SECRET_KEY
                return work(session.get_key(object_class=secret_key, label=self.key), how)
        except pkcs11.PKCS11Error as error:
            # Its text may say what was looked for.
            why = type(error).__name__
            raise _UNSAID.get(why, ServiceRefusal)(why) from None
