"""AWS KMS: a symmetric key, with an encryption context."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from encrypted_records.crypto import format as fmt
from encrypted_records.proxy.keyrings.key_services.service import (
    CONTEXT,
    TRY_SECONDS,
    KeyService,
    Unfit,
    Unreachable,
    answered,
    needed,
)

T = TypeVar("T")

#: Error codes by which the service says that it is not well, or too busy.
_NOT_WELL = frozenset(
    {
        *("DependencyTimeoutException", "InternalFailure", "KMSInternalException"),
        *("KeyUnavailableException", "ServiceUnavailable", "ThrottlingException"),
    }
)
#: Codes by which it says that a ciphertext is damaged, or of another key.
_UNFIT = frozenset({"IncorrectKeyException", "InvalidCiphertextException"})


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
        """The key that ``ERS_AWS_KMS_KEY`` names; None where it names none."""
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
        """The result of ``call``, which is given a client."""
        try:
            import boto3  # noqa: PLC0415 - an extra, and slow to import
            from botocore import exceptions  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415
        except ImportError:
            raise needed("ERS_AWS_KMS_KEY", self.name, "aws") from None
        limits = Config(
            connect_timeout=TRY_SECONDS,
            read_timeout=TRY_SECONDS,
            retries={"total_max_attempts": 2, "mode": "standard"},
        )
        try:
            return call(boto3.client("kms", config=limits))
        except exceptions.ClientError as error:
            # Its text may quote the request.
            code = str(error.response.get("Error", {}).get("Code", "no code"))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            if code in _NOT_WELL:
                raise Unreachable(code) from None
            if code in _UNFIT:
                raise Unfit(code) from None
            raise answered(status, code) from None
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise Unreachable(type(error).__name__) from None
        except (exceptions.BotoCoreError, ValueError) as error:  # no region, no credentials, no URL
            raise Unfit(type(error).__name__) from None
