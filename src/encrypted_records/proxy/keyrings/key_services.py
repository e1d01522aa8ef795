"""Key services, which keep a key and never reveal it: they encrypt the keyrings' key, 32 bytes.

A file in the proxy's folder has the ciphertext, which each start has the service decrypt once. Each
service binds the ciphertext to its purpose. :class:`KeyService` is the common interface; a class
for each service follows, and :func:`services_from` finds the services in the environment.

Another service is a class here, in ``_KINDS``, whose wrapping has a number in
:mod:`encrypted_records.crypto.format`, a name and a remedy in :mod:`.files`, and a description in
``ers keyring get``. Its variables have a prefix that :mod:`.files` takes out of the environment,
and that the supervisor keeps from the API.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.recovery import ServiceWrappingKey
from encrypted_records.errors import Startup
from encrypted_records.proxy.disk import write_once
from encrypted_records.proxy.keyrings.keychain import KeychainSecret, within

if TYPE_CHECKING:
    import hvac
    from azure.keyvault.keys.crypto import CryptographyClient
    from google.cloud.kms_v1 import KeyManagementServiceClient

log = logging.getLogger(__name__)


T = TypeVar("T")

#: Bound to each ciphertext, if the service supports it; it also shows in the service's log.
CONTEXT = {"application": "encrypted-records", "purpose": "keyrings"}
#: The same context for services that take bytes.
CONTEXT_BYTES = b"encrypted-records keyrings"
#: Time limit in seconds: a service answers within some hundred milliseconds, and its library may
#: retry.
_SECONDS = 15.0
#: Time limit in seconds of each connection and response, if the library tries twice.
_TRY_SECONDS = 5
_KEY_BYTES = 32


class _ServiceFailed(Exception):
    """The name of an error or its code; never its text, which may quote the request."""

    words: ClassVar[str]


class ServiceRefusal(_ServiceFailed):
    """The service answers with a refusal: access is denied, or it does not have the key."""

    words = "it refuses the request"


class Unreachable(_ServiceFailed):
    """The service cannot be reached, is too slow, or reports that it is unavailable."""

    words = "it cannot be reached"


class Unfit(_ServiceFailed):
    """The key service cannot be used, although it has not refused: credentials are missing, or a
    setting or the ciphertext does not fit.
    """

    words = "settings, credentials or the ciphertext are wrong"


class KeyService(ABC):
    """A service that encrypts and decrypts 32 bytes. Errors never quote the request."""

    #: wrapping kind of keyring files under its key (docs/SPEC.md, section 8)
    wrapping: ClassVar[int]
    #: name for people
    name: ClassVar[str]
    #: the name of the file with the ciphertext, in the proxy's folder
    file: ClassVar[str]
    #: hint for a refusal
    advice: ClassVar[str]

    @property
    @abstractmethod
    def where(self) -> str:
        """The key or the address, for messages."""

    @abstractmethod
    def encrypt(self, secret: bytes) -> str:
        """The ciphertext of 32 bytes, as ASCII.

        Raises:
            ServiceRefusal, Unreachable, Unfit
        """

    @abstractmethod
    def decrypt(self, sealed: str) -> bytes:
        """The plaintext of a ciphertext that :meth:`encrypt` returned.

        Raises:
            ServiceRefusal, Unreachable, Unfit
            ValueError: it is malformed.
        """


def service_key(
    service: KeyService,
    folder: Path,
    *,
    may_make: bool,
    kept: KeychainSecret | None = None,
    offline: bool = False,
) -> ServiceWrappingKey | None:
    """The key whose ciphertext is in ``folder``, generated if there is none and ``may_make``.

    Args:
        kept: storage for a decrypted key, for starts at which the service cannot be reached. A
            refusal by the service deletes the kept key.
        offline: whether a kept key may be used. A successful start without ``offline`` deletes the
            kept key, because it is no longer needed.

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
    except _ServiceFailed as error:
        raise _does_not_open(service, error) from None
    # If another process was first, its key counts.
    if write_once(path, made.encode("ascii")):
        log.info(
            "keyrings are protected by a key that %s decrypts: %s", service.name, service.where
        )


def _ask(call: Callable[[], T]) -> T:
    try:
        return within(_SECONDS, call)
    except TimeoutError:
        raise Unreachable(f"no answer within {_SECONDS:.0f} seconds") from None


def _recall(service: KeyService, error: Unreachable, kept: KeychainSecret | None) -> bytes:
    """The key that the service has decrypted at an earlier start.

    Raises:
        Startup: no key is kept.
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


def _does_not_open(service: KeyService, error: _ServiceFailed) -> Startup:
    why = f"{error.words} ({error})"
    return Startup(
        f"{service.name} at {service.where} does not decrypt the keyrings' key: {why}",
        hint=service.advice,
    )


def _answered(status: int, why: str) -> ServiceRefusal | Unreachable:
    """The failure for an HTTP status: a service that is unavailable or overloaded has not
    refused.
    """
    return (Unreachable if status == 429 or status >= 500 else ServiceRefusal)(why)


def _require_others(environment: Mapping[str, str], named: str, *others: str) -> None:
    """Check that the other variables of a service are set, if the variable ``named`` is.

    Raises:
        Startup: a variable is missing.
    """
    for name in others:
        if not environment.get(name):
            raise Startup(f"{named} is set and {name} is not", hint=f"set {name}")


def _read_secret(path: Path, secret: str, environment_variable: str) -> str:
    """The secret in a file, without surrounding whitespace.

    Raises:
        Startup: the file cannot be read.
    """
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise Startup(
            f"the file with {secret} cannot be read: {path}", hint=f"correct {environment_variable}"
        ) from None


def _needed(environment_variable: str, service: str, extra: str) -> Startup:
    """The error where the library of a configured service is not installed."""
    return Startup(
        f"{environment_variable} is set, and the library for {service} is not installed",
        hint=f"install encrypted-records[{extra}]",
    )


# AWS KMS: a symmetric key, with an encryption context.

#: Error codes of an unavailable or overloaded service.
_AWS_NOT_WELL = frozenset(
    {
        *("DependencyTimeoutException", "InternalFailure", "KMSInternalException"),
        *("KeyUnavailableException", "ServiceUnavailable", "ThrottlingException"),
    }
)
#: Error codes of a ciphertext that is damaged or belongs to another key.
_AWS_UNFIT = frozenset({"IncorrectKeyException", "InvalidCiphertextException"})


@dataclass(frozen=True, slots=True)
class AwsKms(KeyService):
    """A key by its id, ARN or alias. Region and credentials are found as by every AWS program."""

    key: str

    wrapping = fmt.WRAP_AWS_KMS
    name = "AWS KMS"
    file = "aws-kms.key"
    advice = (
        "check ERS_AWS_KMS_KEY, AWS_REGION, and that the credentials may kms:Encrypt and"
        " kms:Decrypt with the key"
    )

    @property
    def where(self) -> str:
        return self.key

    @staticmethod
    def configured(environment: Mapping[str, str]) -> AwsKms | None:
        """The key in ``ERS_AWS_KMS_KEY``; None if it is not set."""
        key = environment.get("ERS_AWS_KMS_KEY")
        return AwsKms(key) if key else None

    def encrypt(self, secret: bytes) -> str:
        answer = self._ask(
            lambda kms: kms.encrypt(KeyId=self.key, Plaintext=secret, EncryptionContext=CONTEXT)
        )
        return base64.b64encode(answer["CiphertextBlob"]).decode()

    def decrypt(self, sealed: str) -> bytes:
        blob = base64.b64decode(sealed, validate=True)
        answer = self._ask(
            lambda kms: kms.decrypt(KeyId=self.key, CiphertextBlob=blob, EncryptionContext=CONTEXT)
        )
        return bytes(answer["Plaintext"])

    def _ask(self, call: Callable[[Any], T]) -> T:
        """The result of ``call``, which receives a client."""
        try:
            import boto3  # noqa: PLC0415 - an extra, and slow to import
            from botocore import exceptions  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415
        except ImportError:
            raise _needed("ERS_AWS_KMS_KEY", self.name, "aws") from None
        limits = Config(
            connect_timeout=_TRY_SECONDS,
            read_timeout=_TRY_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
        )
        try:
            return call(boto3.client("kms", config=limits))
        except exceptions.ClientError as error:
            # The error's text may quote the request.
            code = str(error.response.get("Error", {}).get("Code", "no code"))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            if code in _AWS_NOT_WELL:
                raise Unreachable(code) from None
            if code in _AWS_UNFIT:
                raise Unfit(code) from None
            raise _answered(status, code) from None
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise Unreachable(type(error).__name__) from None
        except (exceptions.BotoCoreError, ValueError) as error:  # no region, no credentials, no URL
            raise Unfit(type(error).__name__) from None


# Google Cloud KMS: a symmetric key, with additional authenticated data.


@dataclass(frozen=True, slots=True)
class GoogleKms(KeyService):
    """A key by its resource name. Credentials are found as by every program of Google Cloud.

    Args:
        endpoint: of the service, if it is not the global endpoint.
    """

    key: str
    endpoint: str | None = None

    wrapping = fmt.WRAP_GOOGLE_KMS
    name = "Google Cloud KMS"
    file = "google-kms.key"
    advice = (
        "check ERS_GOOGLE_KMS_KEY, and that the credentials have the role"
        " roles/cloudkms.cryptoKeyEncrypterDecrypter for the key"
    )

    @property
    def where(self) -> str:
        return self.key

    @staticmethod
    def configured(environment: Mapping[str, str]) -> GoogleKms | None:
        """The key in ``ERS_GOOGLE_KMS_KEY``; None if it is not set."""
        key = environment.get("ERS_GOOGLE_KMS_KEY")
        return GoogleKms(key, environment.get("ERS_GOOGLE_KMS_ENDPOINT") or None) if key else None

    def encrypt(self, secret: bytes) -> str:
        request = {
            "name": self.key,
            "plaintext": secret,
            "additional_authenticated_data": CONTEXT_BYTES,
        }
        answer = self._ask(lambda kms: kms.encrypt(request=request, retry=None, timeout=_SECONDS))
        return base64.b64encode(answer.ciphertext).decode()

    def decrypt(self, sealed: str) -> bytes:
        request = {
            "name": self.key,
            "ciphertext": base64.b64decode(sealed, validate=True),
            "additional_authenticated_data": CONTEXT_BYTES,
        }
        # Without ``retry=None``, the library retries for a minute.
        answer = self._ask(lambda kms: kms.decrypt(request=request, retry=None, timeout=_SECONDS))
        return bytes(answer.plaintext)

    def _ask(self, call: Callable[[KeyManagementServiceClient], T]) -> T:
        """The result of ``call``, which receives a client."""
        try:
            import requests  # noqa: PLC0415 - what the library asks with
            from google.api_core import exceptions  # noqa: PLC0415 - an extra
            from google.api_core.client_options import ClientOptions  # noqa: PLC0415
            from google.auth import exceptions as of_login  # noqa: PLC0415
            from google.cloud.kms_v1 import KeyManagementServiceClient  # noqa: PLC0415
        except ImportError:
            raise _needed("ERS_GOOGLE_KMS_KEY", self.name, "gcp") from None
        options = ClientOptions(api_endpoint=self.endpoint)
        try:
            # gRPC starts its own threads, which cause trouble in a process that forks or ends.
            return call(KeyManagementServiceClient(transport="rest", client_options=options))
        except (exceptions.ServerError, exceptions.TooManyRequests, exceptions.RetryError) as error:
            raise Unreachable(type(error).__name__) from None
        except exceptions.GoogleAPIError as error:
            # The error's text may quote the request.
            raise ServiceRefusal(type(error).__name__) from None
        except (of_login.TransportError, requests.RequestException) as error:
            raise Unreachable(type(error).__name__) from None
        except (of_login.DefaultCredentialsError, ValueError) as error:  # no name of a key
            raise Unfit(type(error).__name__) from None
        except of_login.GoogleAuthError as error:
            # Only the cause shows that the machine's metadata server is unreachable.
            away = error.retryable or isinstance(error.__cause__, of_login.TransportError)
            raise (Unreachable if away else ServiceRefusal)(type(error).__name__) from None


# Azure Key Vault: an RSA key, possibly in a managed HSM.

#: RSA-OAEP takes no context, so its digest is encrypted after the key (docs/SPEC.md, section 8).
_AZURE_CONTEXT_DIGEST = hashlib.sha256(CONTEXT_BYTES).digest()


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
        """The key in ``ERS_AZURE_KEY``; None if it is not set."""
        key = environment.get("ERS_AZURE_KEY")
        return AzureKeyVault(key) if key else None

    def encrypt(self, secret: bytes) -> str:
        def wrap() -> Any:
            from azure.keyvault.keys.crypto import KeyWrapAlgorithm  # noqa: PLC0415

            plain = secret + _AZURE_CONTEXT_DIGEST
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
        if plain[-len(_AZURE_CONTEXT_DIGEST) :] != _AZURE_CONTEXT_DIGEST:
            raise ValueError("it was encrypted for another purpose")
        return plain[: -len(_AZURE_CONTEXT_DIGEST)]

    def _client(self, key: str) -> CryptographyClient:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415
        from azure.keyvault.keys.crypto import CryptographyClient  # noqa: PLC0415

        return CryptographyClient(
            key,
            DefaultAzureCredential(),
            retry_total=1,
            connection_timeout=_TRY_SECONDS,
            read_timeout=_TRY_SECONDS,
        )

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            import azure.identity  # noqa: PLC0415 - an extra, and slow to import
            import azure.keyvault.keys.crypto  # noqa: F401, PLC0415
            from azure.core import exceptions  # noqa: PLC0415
        except ImportError:
            raise _needed("ERS_AZURE_KEY", self.name, "azure") from None
        try:
            return call()
        except exceptions.HttpResponseError as error:
            # The error's text may quote the request.
            status = error.status_code
            if status is None:  # no credentials, or a login that was refused or not reached
                raise Unfit(type(error).__name__) from None
            raise _answered(status, f"status {status}") from None
        except exceptions.AzureError as error:
            raise Unreachable(type(error).__name__) from None
        except ValueError as error:  # no URL of a key
            raise Unfit(type(error).__name__) from None


# HashiCorp Vault: its transit engine.

#: Errors of an unavailable or overloaded Vault, or of a server in front of it: statuses 429, 500,
#: 501, 502, 503, and those that the library does not know, such as 504.
_VAULT_NOT_WELL = frozenset(
    {
        *("RateLimitExceeded", "InternalServerError", "VaultNotInitialized", "BadGateway"),
        *("VaultDown", "UnexpectedError"),
    }
)


@dataclass(frozen=True, slots=True)
class Vault(KeyService):
    """A key of a transit engine, and the file with the token that may use it.

    The engine accepts a context only for derived keys, so none is sent: the token's policy should
    allow this key only.
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
        """The engine in ``ERS_VAULT_...``; None if no address is set.

        Raises:
            Startup: the token's file or the key's name is missing.
        """
        address = environment.get("ERS_VAULT_ADDR")
        if not address:
            return None
        _require_others(environment, "ERS_VAULT_ADDR", "ERS_VAULT_TOKEN_FILE", "ERS_VAULT_KEY")
        return Vault(
            address=address,
            token_file=Path(environment["ERS_VAULT_TOKEN_FILE"]),
            mount=environment.get("ERS_VAULT_MOUNT") or "transit",
            key=environment["ERS_VAULT_KEY"],
        )

    def encrypt(self, secret: bytes) -> str:
        engine, plain = self._client().secrets.transit, base64.b64encode(secret).decode()
        return _ask_vault(
            lambda: engine.encrypt_data(name=self.key, mount_point=self.mount, plaintext=plain),
            "ciphertext",
        )

    def decrypt(self, sealed: str) -> bytes:
        engine = self._client().secrets.transit
        opened = _ask_vault(
            lambda: engine.decrypt_data(name=self.key, mount_point=self.mount, ciphertext=sealed),
            "plaintext",
        )
        return base64.b64decode(opened, validate=True)

    def _client(self) -> hvac.Client:
        try:
            import hvac  # noqa: PLC0415 - an extra, and slow to import
        except ImportError:
            raise _needed("ERS_VAULT_ADDR", self.name, "vault") from None
        token = _read_secret(self.token_file, "Vault's token", "ERS_VAULT_TOKEN_FILE")
        return hvac.Client(url=self.address, token=token, timeout=int(_SECONDS))


def _ask_vault(call: Callable[[], Any], member: str) -> str:
    import hvac.exceptions  # noqa: PLC0415
    import requests  # noqa: PLC0415 - what hvac asks with, and whose errors it lets through

    try:
        return str(call()["data"][member])
    except hvac.exceptions.VaultError as error:
        # The error's text quotes the request and the response.
        why = type(error).__name__
        raise (Unreachable if why in _VAULT_NOT_WELL else ServiceRefusal)(why) from None
    except requests.RequestException as error:
        raise Unreachable(type(error).__name__) from None
    except (KeyError, TypeError, ValueError):
        raise Unfit("its answer is not from a transit engine") from None


# A hardware module, or a program, with the interface PKCS#11: AES-256-GCM.

_PKCS11_NONCE_BYTES = 12
_PKCS11_TAG_BITS = 128
#: Errors by which a module does not refuse: the token is absent; the module's file does not load,
#: two tokens have the label, the ciphertext is damaged, or the error is unspecific.
_PKCS11_UNSAID: dict[str, type[Unreachable] | type[Unfit]] = {
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
        """The key in ``ERS_PKCS11_...``; None if no module is set.

        Raises:
            Startup: token, key or the PIN's file is missing.
        """
        module = environment.get("ERS_PKCS11_MODULE")
        if not module:
            return None
        _require_others(
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
        nonce = runtime.random_bytes(_PKCS11_NONCE_BYTES)
        sealed = self._with_key(lambda key, how: key.encrypt(secret, **how(nonce)))
        return base64.b64encode(nonce + sealed).decode()

    def decrypt(self, sealed: str) -> bytes:
        raw = base64.b64decode(sealed, validate=True)
        nonce, encrypted = raw[:_PKCS11_NONCE_BYTES], raw[_PKCS11_NONCE_BYTES:]
        if len(nonce) < _PKCS11_NONCE_BYTES:
            raise ValueError("it is too short")
        return bytes(self._with_key(lambda key, how: key.decrypt(encrypted, **how(nonce))))

    def _with_key(self, work: Callable[[Any, Callable[[bytes], dict[str, Any]]], T]) -> T:
        try:
            import pkcs11  # noqa: PLC0415 - an extra, and loads native code
        except ImportError:
            raise _needed("ERS_PKCS11_MODULE", self.name, "pkcs11") from None
        pin = _read_secret(self.pin_file, "the PIN", "ERS_PKCS11_PIN_FILE")

        def how(nonce: bytes) -> dict[str, Any]:
            return {
                "mechanism": pkcs11.Mechanism.AES_GCM,
                "mechanism_param": pkcs11.GCMParams(nonce, CONTEXT_BYTES, _PKCS11_TAG_BITS),
            }

        try:
            token = pkcs11.lib(str(self.module)).get_token(token_label=self.token)
            with token.open(user_pin=pin) as session:
                secret_key = pkcs11.ObjectClass.SECRET_KEY
                return work(session.get_key(object_class=secret_key, label=self.key), how)
        except pkcs11.PKCS11Error as error:
            # The error's text may contain the label that was looked for.
            why = type(error).__name__
            raise _PKCS11_UNSAID.get(why, ServiceRefusal)(why) from None


# The key services that the environment names.

_KINDS = (Vault, AwsKms, GoogleKms, AzureKeyVault, Pkcs11)
_OFFLINE = "ERS_KEYRING_OFFLINE"


def services_from(environment: Mapping[str, str]) -> list[KeyService]:
    """The configured services, in order of preference.

    Raises:
        Startup: a setting is missing.
    """
    found = (kind.configured(environment) for kind in _KINDS)
    return [service for service in found if service is not None]


def may_start_offline(environment: Mapping[str, str]) -> bool:
    """Whether a start may use the key that the keychain has kept.

    Raises:
        Startup: the setting has another value.
    """
    setting = environment.get(_OFFLINE)
    if setting not in (None, "", "keychain"):
        raise Startup(f"{_OFFLINE} must be unset or keychain", hint=f"correct {_OFFLINE}")
    return setting == "keychain"
