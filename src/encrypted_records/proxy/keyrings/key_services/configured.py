"""The key services that the environment names."""

from __future__ import annotations

from collections.abc import Mapping

from encrypted_records.errors import Startup
from encrypted_records.proxy.keyrings.key_services.aws import AwsKms
from encrypted_records.proxy.keyrings.key_services.azure import AzureKeyVault
from encrypted_records.proxy.keyrings.key_services.google import GoogleKms
from encrypted_records.proxy.keyrings.key_services.pkcs11 import Pkcs11
from encrypted_records.proxy.keyrings.key_services.service import KeyService
from encrypted_records.proxy.keyrings.key_services.vault import Vault

_KINDS = (Vault, AwsKms, GoogleKms, AzureKeyVault, Pkcs11)
OFFLINE = "ERS_KEYRING_OFFLINE"


def services_from(environment: Mapping[str, str]) -> list[KeyService]:
    """The configured services, the preferred one first.

    Raises:
        Startup: a setting is missing.
    """
    found = (kind.configured(environment) for kind in _KINDS)
    return [service for service in found if service is not None]


def may_start_offline(environment: Mapping[str, str]) -> bool:
    """Whether a start may go on with a key that the keychain has kept.

    Raises:
        Startup: the setting says something else.
    """
    said = environment.get(OFFLINE)
    if said not in (None, "", "keychain"):
        raise Startup(f"{OFFLINE} must be unset or keychain", hint=f"correct {OFFLINE}")
    return said == "keychain"
