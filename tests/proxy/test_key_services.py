"""Keyrings under keys that a company keeps: AWS KMS, Google Cloud KMS, Azure Key Vault, PKCS#11.

AWS is moto's server and PKCS#11 SoftHSM, both of which do the cryptography. Google and Azure are
servers that answer as their documentation says (``tests/support/recorded.py``); nobody has tried
the services themselves here.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pkcs11
import pytest
from azure.core.credentials import AccessToken
from azure.keyvault.keys.crypto import CryptographyClient
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from moto.server import ThreadedMotoServer

from encrypted_records.crypto.recovery import ServiceWrappingKey
from encrypted_records.errors import Closed, Startup
from encrypted_records.model.ids import new_id
from encrypted_records.proxy.keyrings import key_services as services
from encrypted_records.proxy.keyrings.files import secrets_from
from encrypted_records.proxy.keyrings.key_services import AzureKeyVault, Pkcs11
from tests.support.keyrings import holder, keyrings_in
from tests.support.recorded import recorded_server
from tests.support.softhsm import PIN, new_token

pytestmark = pytest.mark.usefixtures("backend")

USER = new_id()
AWS = {
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
    "AWS_EC2_METADATA_DISABLED": "true",
}
GOOGLE_KEY = "projects/clinic/locations/europe-west3/keyRings/ers/cryptoKeys/keyrings"


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@dataclass
class Case:
    """A key service that runs, and how to break it."""

    #: names it to a proxy
    environment: dict[str, str]
    #: of keyrings under its key, as the HTTP API has it
    name: str
    #: the file of the ciphertext
    file: str
    #: lets it forget the key, or deny access to it; and what the error then says
    refuse: Callable[[], str]
    #: ends it
    end: Callable[[], None]


@contextmanager
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    for name, value in {"AWS_ENDPOINT_URL_KMS": f"http://127.0.0.1:{port}", **AWS}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("kms")
    key = client.create_key()["KeyMetadata"]["KeyId"]
    # All servers of a process have the same keys.
    alias = f"alias/{key}"
    client.create_alias(AliasName=alias, TargetKeyId=key)

    def refuse() -> str:
        # It loses all keys: moto asks for no rights, and uses disabled ones.
        urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")
        ).close()
        return "AccessDeniedException|NotFoundException"

    stopped: list[bool] = []

    def end() -> None:
        if not stopped:
            server.stop()
            stopped.append(True)

    try:
        yield Case({"ERS_AWS_KMS_KEY": alias}, "aws_kms", "aws-kms.key", refuse, end)
    finally:
        end()


@contextmanager
def softhsm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    token = new_token(folder, monkeypatch)
    pin = folder / "pin"
    pin.write_text(PIN + "\n")
    environment = {
        "ERS_PKCS11_MODULE": str(token.module),
        "ERS_PKCS11_TOKEN": token.label,
        "ERS_PKCS11_KEY": token.key,
        "ERS_PKCS11_PIN_FILE": str(pin),
    }

    def refuse() -> str:
        pin.write_text("another")
        return "PinIncorrect"

    def end() -> None:
        # Somebody takes the token out.
        tokens = folder / "tokens"
        tokens.rename(folder / "elsewhere")
        tokens.mkdir()
        pkcs11.lib(str(token.module)).reinitialize()

    yield Case(environment, "pkcs11", "pkcs11.key", refuse, end)


@contextmanager
def google(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    sealed: dict[str, tuple[str, str]] = {}
    state = {"status": 200}

    def answer(path: str, body: dict[str, Any], _: object) -> tuple[int, Any, dict[str, str]]:
        if path == "/token":
            return 200, {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}, {}
        if state["status"] != 200:
            said = {403: "PERMISSION_DENIED", 503: "UNAVAILABLE"}[state["status"]]
            return state["status"], {"error": {"code": state["status"], "status": said}}, {}
        bound = body.get("additionalAuthenticatedData", "")
        if path == f"/v1/{GOOGLE_KEY}:encrypt":
            name = base64.b64encode(os.urandom(60)).decode()
            sealed[name] = (body["plaintext"], bound)
            return 200, {"name": f"{GOOGLE_KEY}/cryptoKeyVersions/1", "ciphertext": name}, {}
        plain, expected = sealed.get(body["ciphertext"], ("", "none"))
        if path != f"/v1/{GOOGLE_KEY}:decrypt" or bound != expected:
            return 400, {"error": {"code": 400, "status": "INVALID_ARGUMENT"}}, {}
        return 200, {"plaintext": plain}, {}

    with recorded_server(folder, answer) as server:
        key = rsa_key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        account = folder / "account.json"
        account.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "client_email": "proxy@clinic.example",
                    "private_key": key.decode(),
                    "token_uri": f"https://localhost:{server.port}/token",
                }
            )
        )
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(server.certificate))
        environment = {
            "ERS_GOOGLE_KMS_KEY": GOOGLE_KEY,
            "ERS_GOOGLE_KMS_ENDPOINT": f"localhost:{server.port}",
        }

        def refuse() -> str:
            state["status"] = 403
            return "Forbidden"

        def end() -> None:
            state["status"] = 503

        yield Case(environment, "google_kms", "google-kms.key", refuse, end)


class Credential:
    """Stands for the login at Azure, which no recorded server gives."""

    def get_token(self, *_: str, **__: object) -> AccessToken:
        return AccessToken("token", int(time.time()) + 3600)


@contextmanager
def azure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    key = rsa_key()
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
    state = {"status": 200}

    def number(value: int) -> str:
        raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def answer(
        path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        if "Authorization" not in headers:
            asks = 'Bearer authorization="https://login.example/t", resource="https://localhost"'
            return 401, {}, {"WWW-Authenticate": asks}
        if state["status"] != 200:
            return state["status"], {"error": {"code": "Forbidden", "message": "no"}}, {}
        kid = f"https://localhost:{server.port}/keys/keyrings/1f"
        if path.split("?", maxsplit=1)[0].endswith("/unwrapkey"):
            sealed = base64.urlsafe_b64decode(body["value"] + "==")
            value = base64.urlsafe_b64encode(key.decrypt(sealed, oaep)).rstrip(b"=").decode()
            return 200, {"kid": kid, "value": value}, {}
        public = key.public_key().public_numbers()
        told = {"kid": kid, "kty": "RSA", "key_ops": ["wrapKey", "unwrapKey"]}
        numbers = {"n": number(public.n), "e": number(public.e)}
        return 200, {"key": told | numbers, "attributes": {"enabled": True}}, {}

    with recorded_server(folder, answer) as server:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(server.certificate))

        def client(_: AzureKeyVault, name: str) -> CryptographyClient:
            return CryptographyClient(
                name, Credential(), verify_challenge_resource=False, retry_total=0
            )

        monkeypatch.setattr(AzureKeyVault, "_client", client)

        def refuse() -> str:
            state["status"] = 403
            return "status 403"

        def end() -> None:
            state["status"] = 503

        environment = {"ERS_AZURE_KEY": f"https://localhost:{server.port}/keys/keyrings"}
        yield Case(environment, "azure_key_vault", "azure-key-vault.key", refuse, end)


@pytest.fixture(params=["aws", "google", "azure", "softhsm"])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    folder = tmp_path / "service"
    folder.mkdir()
    match request.param:
        case "aws":
            opened = aws(monkeypatch)
        case "google":
            opened = google(folder, monkeypatch)
        case "azure":
            opened = azure(folder, monkeypatch)
        case _:
            opened = softhsm(folder, monkeypatch)
    with opened as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "proxy"
    path.mkdir()
    return path


def fingerprint(folder: Path, environment: dict[str, str]) -> bytes:
    keyrings = keyrings_in(folder, *secrets_from(dict(environment), folder))
    return keyrings.of(holder(USER)).fingerprint


def test_a_key_that_the_service_opens_seals_keyrings_and_is_nowhere_in_the_clear(
    case: Case, folder: Path
) -> None:
    keyrings = keyrings_in(folder, *secrets_from(dict(case.environment), folder))
    made = keyrings.of(holder(USER)).fingerprint
    assert keyrings.wrapping_name(USER) == case.name
    assert fingerprint(folder, case.environment) == made
    (key,) = secrets_from(dict(case.environment), folder)
    assert isinstance(key, ServiceWrappingKey)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / case.file in files and folder / "machine.key" not in files
    secret = key.key(b"")
    spellings = (secret, secret.hex().encode(), base64.b64encode(secret))
    assert not any(text in path.read_bytes() for path in files for text in spellings)
    with pytest.raises(Closed) as caught:
        fingerprint(folder, {})
    assert next(iter(case.environment)) in caught.value.hint


def offline(case: Case) -> dict[str, str]:
    # The keychain itself seals nothing here: it would be preferred.
    kept = {"ERS_KEYRING_KEYCHAIN": "off", "ERS_KEYRING_OFFLINE": "keychain"}
    return case.environment | kept


def test_a_service_that_refuses_stops_the_start_by_name_and_ends_what_the_keychain_has_kept(
    case: Case, folder: Path, chain: Path
) -> None:
    fingerprint(folder, offline(case))
    assert chain.read_text() != "{}"
    said = case.refuse()
    with pytest.raises(Startup, match=said) as caught:
        fingerprint(folder, offline(case))
    assert "refuses" in caught.value.message
    assert any(name in caught.value.hint for name in case.environment)
    assert chain.read_text() == "{}"


def test_a_service_that_is_away_stops_a_start_that_needs_it_and_no_other_key_is_made(
    case: Case, folder: Path, chain: Path
) -> None:
    service = case.environment | {"ERS_KEYRING_KEYCHAIN": "off"}
    made = fingerprint(folder, offline(case))
    assert chain.read_text() != "{}"
    # A start that needs no copy in the keychain ends it.
    assert fingerprint(folder, service) == made
    assert chain.read_text() == "{}"
    assert fingerprint(folder, offline(case)) == made
    case.end()
    assert fingerprint(folder, offline(case)) == made
    with pytest.raises(Startup, match="cannot be reached"):
        fingerprint(folder, service)
    assert not (folder / "machine.key").exists()


def test_a_login_that_is_missing_stops_the_start_and_leaves_the_copy(
    folder: Path, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has refused, so the next start may need it."""
    with aws(monkeypatch) as case:
        made = fingerprint(folder, offline(case))
        kept = chain.read_text()
        with monkeypatch.context() as without:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                without.delenv(name)
            for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
                without.setenv(name, str(tmp_path / "none"))
            # One that has found them remembers them.
            without.setattr(boto3, "DEFAULT_SESSION", None)
            with pytest.raises(Startup, match=r"are wrong \(NoCredentialsError"):
                fingerprint(folder, offline(case))
        assert chain.read_text() == kept != "{}"
        case.end()
        assert fingerprint(folder, offline(case)) == made


def test_a_ciphertext_for_another_purpose_is_refused(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint(folder, case.environment)
    monkeypatch.setattr(services, "CONTEXT", {"purpose": "another"})
    monkeypatch.setattr(services, "CONTEXT_BYTES", b"another")
    monkeypatch.setattr(services, "_AZURE_CONTEXT_DIGEST", bytes(32))
    with pytest.raises(Startup):
        fingerprint(folder, case.environment)


def test_a_damaged_ciphertext_is_named_and_not_replaced(case: Case, folder: Path) -> None:
    fingerprint(folder, case.environment)
    for content in ("", "?", "bm90aGluZw==", "https://localhost/keys/x/1 AAAA"):
        (folder / case.file).write_text(content)
        with pytest.raises(Startup):
            fingerprint(folder, case.environment)
        assert (folder / case.file).read_text() == content


def test_keyrings_move_to_a_service_and_from_it(case: Case, folder: Path) -> None:
    made = fingerprint(folder, {})
    assert fingerprint(folder, case.environment) == made
    passphrase = {"ERS_KEYRING_PASSPHRASE": "seven wet kettles"}
    assert fingerprint(folder, case.environment | passphrase) == made
    assert fingerprint(folder, passphrase) == made


def test_a_service_that_never_answers_is_waited_for_no_longer_than_the_limit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = Pkcs11(tmp_path / "module", "token", "key", tmp_path / "pin")
    (folder / never.file).write_text("AAAA")
    ended = threading.Event()

    def hang(*_: object) -> bytes:
        ended.wait()
        return b""

    monkeypatch.setattr(Pkcs11, "decrypt", hang)
    monkeypatch.setattr(services, "_SECONDS", 0.05)
    with pytest.raises(Startup, match="no answer within"):
        services.service_key(replace(never), folder, may_make=True)
    ended.set()


PKCS11 = {
    "ERS_PKCS11_MODULE": "/usr/lib/module.so",
    "ERS_PKCS11_TOKEN": "token",
    "ERS_PKCS11_KEY": "key",
    "ERS_PKCS11_PIN_FILE": "pin",
}


@pytest.mark.parametrize(
    ("environment", "library", "extra"),
    [
        ({"ERS_AWS_KMS_KEY": "key"}, "boto3", "aws"),
        ({"ERS_AWS_KMS_KEY": "key"}, "botocore", "aws"),
        ({"ERS_GOOGLE_KMS_KEY": GOOGLE_KEY}, "requests", "gcp"),
        ({"ERS_GOOGLE_KMS_KEY": GOOGLE_KEY}, "google.cloud.kms_v1", "gcp"),
        ({"ERS_AZURE_KEY": "https://v.example/keys/k"}, "azure.core", "azure"),
        ({"ERS_AZURE_KEY": "https://v.example/keys/k"}, "azure.identity", "azure"),
        (PKCS11, "pkcs11", "pkcs11"),
    ],
)
def test_a_library_that_is_not_installed_is_named(
    environment: dict[str, str],
    library: str,
    extra: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Startup) as caught:
        secrets_from(dict(environment), folder)
    assert caught.value.hint == f"install encrypted-records[{extra}]"
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "environment",
    [
        {"ERS_PKCS11_MODULE": "/usr/lib/module.so"},
        {"ERS_AWS_KMS_KEY": "key", "ERS_KEYRING_OFFLINE": "yes"},
    ],
)
def test_settings_that_are_not_whole_are_named(environment: dict[str, str], folder: Path) -> None:
    with pytest.raises(Startup, match="ERS_"):
        secrets_from(dict(environment), folder)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("environment", "more"),
    [
        ({"ERS_AZURE_KEY": "nonsense"}, {}),
        ({"ERS_AWS_KMS_KEY": "key"}, {**AWS, "AWS_ENDPOINT_URL_KMS": "nonsense"}),
    ],
)
def test_settings_of_another_form_stop_the_start_and_are_named(
    environment: dict[str, str],
    more: dict[str, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Startup, match="are wrong") as caught:
        secrets_from(dict(environment), folder)
    assert all(name in caught.value.hint for name in environment)
    assert not list(folder.iterdir())


def test_a_name_that_is_none_of_a_google_key_is_no_damage_of_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with google(tmp_path, monkeypatch) as case:
        fingerprint(folder, case.environment)
        with pytest.raises(Startup, match="are wrong"):
            fingerprint(folder, case.environment | {"ERS_GOOGLE_KMS_KEY": "nonsense"})
