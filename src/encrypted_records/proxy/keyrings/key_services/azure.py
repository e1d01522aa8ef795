"""Azure Key Vault: an RSA key, or one of a managed HSM."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from encrypted_records.crypto import format as fmt
from encrypted_records.proxy.keyrings.key_services.service import (
    CONTEXT_BYTES,
    TRY_SECONDS,
    KeyService,
    Unfit,
    Unreachable,
    answered,
    needed,
)

if TYPE_CHECKING:
    from azure.keyvault.keys.crypto import CryptographyClient

T = TypeVar("T")

#: RSA-OAEP takes no context, so its digest is encrypted behind the key (docs/SPEC.md, section 8).
_CONTEXT_DIGEST = hashlib.sha256(CONTEXT_BYTES).digest()


@dataclass(frozen=True, slots=True)
class AzureKeyVault(KeyService):
    """A key by its URL, with or without a version. Credentials are found as by other programs for
    Azure (``DefaultAzureCredential``).

    The ciphertext names the version that made it, so that a key that was rotated still decrypts.
    """

    key: str

    wrapping = fmt.WRAP_AZURE_KEY_VAULT
    name = "Azure Key Vault"
    file = "azure-key-vault.key"
    advice = (
        "check ERS_AZURE_KEY, and that the credentials may get, wrapKey and unwrapKey with the key"
    )

    @property
    def where(self) -> str:
        return self.key

    @staticmethod
    def configured(environment: Mapping[str, str]) -> AzureKeyVault | None:
        """The key that ``ERS_AZURE_KEY`` names; None where it names none."""
        key = environment.get("ERS_AZURE_KEY")
        return AzureKeyVault(key) if key else None

    def encrypt(self, secret: bytes) -> str:
        def wrap() -> Any:
            from azure.keyvault.keys.crypto import KeyWrapAlgorithm  # noqa: PLC0415

            plain = secret + _CONTEXT_DIGEST
            return self._client(self.key).wrap_key(KeyWrapAlgorithm.rsa_oaep_256, plain)

        made = self._ask(wrap)
        return f"{made.key_id} {base64.b64encode(made.encrypted_key).decode()}"

    def decrypt(self, sealed: str) -> bytes:
        key, _, text = sealed.partition(" ")
        encrypted = base64.b64decode(text, validate=True)
        if not (key + "/").startswith(self.key.rstrip("/") + "/"):
            raise Unfit("the file was encrypted under another key")

        def unwrap() -> Any:
            from azure.keyvault.keys.crypto import KeyWrapAlgorithm  # noqa: PLC0415

            return self._client(key).unwrap_key(KeyWrapAlgorithm.rsa_oaep_256, encrypted)

        plain = bytes(self._ask(unwrap).key)
        if plain[-len(_CONTEXT_DIGEST) :] != _CONTEXT_DIGEST:
            raise ValueError("it was encrypted for another purpose")
        return plain[: -len(_CONTEXT_DIGEST)]

    def _client(self, key: str) -> CryptographyClient:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415
        from azure.keyvault.keys.crypto import CryptographyClient  # noqa: PLC0415

        return CryptographyClient(
            key,
            DefaultAzureCredential(),
            retry_total=1,
            connection_timeout=TRY_SECONDS,
            read_timeout=TRY_SECONDS,
        )

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            import azure.identity  # noqa: PLC0415 - an extra, and slow to import
            import azure.keyvault.keys.crypto  # noqa: F401, PLC0415
            from azure.core import exceptions  # noqa: PLC0415
        except ImportError:
            raise needed("ERS_AZURE_KEY", self.name, "azure") from None
        try:
            return call()
        except exceptions.HttpResponseError as error:
            # Its text may quote the request.
            status = error.status_code
            if status is None:  # no credentials, or a login that was refused or not reached
                raise Unfit(type(error).__name__) from None
            raise answered(status, f"status {status}") from None
        except exceptions.AzureError as error:
            raise Unreachable(type(error).__name__) from None
        except ValueError as error:  # no URL of a key
            raise Unfit(type(error).__name__) from None
