"""Google Cloud KMS: a symmetric key, with additional authenticated data."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from encrypted_records.crypto import format as fmt
from encrypted_records.proxy.keyrings.key_services.service import (
    CONTEXT_BYTES,
    SECONDS,
    KeyService,
    ServiceRefusal,
    Unfit,
    Unreachable,
    needed,
)

if TYPE_CHECKING:
    from google.cloud.kms_v1 import KeyManagementServiceClient

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GoogleKms(KeyService):
    """A key by its resource name. Credentials are found as by every program of Google Cloud.

    Args:
        endpoint: of the service, where it is not the one for all regions.
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
        """The key that ``ERS_GOOGLE_KMS_KEY`` names; None where it names none."""
        key = environment.get("ERS_GOOGLE_KMS_KEY")
        return GoogleKms(key, environment.get("ERS_GOOGLE_KMS_ENDPOINT") or None) if key else None

    def encrypt(self, secret: bytes) -> str:
        request = {
            "name": self.key,
            "plaintext": secret,
            "additional_authenticated_data": CONTEXT_BYTES,
        }
        answer = self._ask(lambda kms: kms.encrypt(request=request, retry=None, timeout=SECONDS))
        return base64.b64encode(answer.ciphertext).decode()

    def decrypt(self, sealed: str) -> bytes:
        request = {
            "name": self.key,
            "ciphertext": base64.b64decode(sealed, validate=True),
            "additional_authenticated_data": CONTEXT_BYTES,
        }
        # Without a limit of ours, the library tries for a minute.
        answer = self._ask(lambda kms: kms.decrypt(request=request, retry=None, timeout=SECONDS))
        return bytes(answer.plaintext)

    def _ask(self, call: Callable[[KeyManagementServiceClient], T]) -> T:
        """The result of ``call``, which is given a client."""
        try:
            import requests  # noqa: PLC0415 - what the library asks with
            from google.api_core import exceptions  # noqa: PLC0415 - an extra
            from google.api_core.client_options import ClientOptions  # noqa: PLC0415
            from google.auth import exceptions as of_login  # noqa: PLC0415
            from google.cloud.kms_v1 import KeyManagementServiceClient  # noqa: PLC0415
        except ImportError:
            raise needed("ERS_GOOGLE_KMS_KEY", self.name, "gcp") from None
        options = ClientOptions(api_endpoint=self.endpoint)
        try:
            # gRPC starts threads of its own, which a process that forks or ends does not like.
            return call(KeyManagementServiceClient(transport="rest", client_options=options))
        except (exceptions.ServerError, exceptions.TooManyRequests, exceptions.RetryError) as error:
            raise Unreachable(type(error).__name__) from None
        except exceptions.GoogleAPIError as error:
            # Its text may quote the request.
            raise ServiceRefusal(type(error).__name__) from None
        except (of_login.TransportError, requests.RequestException) as error:
            raise Unreachable(type(error).__name__) from None
        except (of_login.DefaultCredentialsError, ValueError) as error:  # no name of a key
            raise Unfit(type(error).__name__) from None
        except of_login.GoogleAuthError as error:
            # Only the cause tells that the machine's own server of credentials is away.
            away = error.retryable or isinstance(error.__cause__, of_login.TransportError)
            raise (Unreachable if away else ServiceRefusal)(type(error).__name__) from None
