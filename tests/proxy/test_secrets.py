"""Keyrings are sealed by the first of these that there is: a passphrase, the keychain, Vault, else
a key beside them."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest

from encrypted_records.cli.settings import Settings
from encrypted_records.cli.supervise.supervisor import environment as environment_of
from encrypted_records.crypto.recovery import KeychainKey, Passphrase, ServiceWrappingKey
from encrypted_records.errors import Closed, Startup
from encrypted_records.model.ids import new_id
from encrypted_records.proxy.keyrings import files, key_services
from encrypted_records.proxy.keyrings.files import secrets_from
from encrypted_records.proxy.keyrings.keychain import KeychainSecret
from tests.cli.keychain import FileKeychain
from tests.support.keyrings import holder, keyrings_in
from tests.support.vault import Vault, running_vault

USER = new_id()
TOKEN = "hvs.secret-of-the-tests"


def wrapping(folder: Path, environment: dict[str, str], **more: float) -> str:
    """How the keyring of a proxy that starts with these variables is sealed."""
    keyrings = keyrings_in(folder, *secrets_from(dict(environment), folder, **more))
    keyrings.of(holder(USER))
    return keyrings.wrapping_name(USER)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[tuple[Vault, dict[str, str]]]:
    """A transit engine, and the variables that name it."""
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with running_vault(token=TOKEN, mount="engines/transit", key="keys-of-ers") as engine:
        yield (
            engine,
            {
                "ERS_VAULT_ADDR": engine.address,
                "ERS_VAULT_TOKEN_FILE": str(token),
                "ERS_VAULT_MOUNT": "engines/transit",
                "ERS_VAULT_KEY": "keys-of-ers",
            },
        )


# --- the keychain ------------------------------------------------------------------------------


def test_a_key_in_the_keychain_seals_keyrings_and_is_found_again(
    chain: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "proxy"
    folder.mkdir()
    assert wrapping(folder, {}) == "keychain"
    made = keyrings_in(folder, *secrets_from({}, folder)).of(holder(USER)).fingerprint
    assert keyrings_in(folder, *secrets_from({}, folder)).of(holder(USER)).fingerprint == made
    assert not (folder / "machine.key").exists()
    # Two folders have keys of their own.
    (tmp_path / "second").mkdir()
    assert wrapping(tmp_path / "second", {}) == "keychain"
    assert chain.read_text().count("encrypted-records") == 2


def test_a_keychain_that_is_locked_later_leaves_the_keyring_locked(
    chain: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "proxy"
    folder.mkdir()
    assert wrapping(folder, {}) == "keychain"
    for lose in (lambda: chain.write_text("{}"), chain.unlink):
        lose()
        with pytest.raises(Closed) as caught:
            wrapping(folder, {})
        assert caught.value.reason == "keyring_locked"


@pytest.mark.parametrize("found", ["none", "plain files", "broken", "forgetful"])
def test_without_a_sound_keychain_a_key_beside_the_keyrings_is_used(
    found: str, backend: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Broken(FileKeychain):
        priority = 0.5 if found == "plain files" else 5

        def get_password(self, service: str, username: str) -> str | None:
            return None

        def set_password(self, service: str, username: str, password: str) -> None:
            assert found != "plain files", "never trusted with a key"
            if found == "broken":
                raise RuntimeError("what backends of platforms raise")

    if found != "none":
        keyring.set_keyring(Broken())
    assert wrapping(tmp_path, {}) == "machine_key"
    assert not (tmp_path / "keychain.name").exists()


def test_a_keychain_that_waits_for_somebody_does_not_hold_up_the_start(
    backend: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, ended = threading.Event(), threading.Event()

    class Waiting(FileKeychain):
        def set_password(self, service: str, username: str, password: str) -> None:
            asked.set()
            ended.wait()

    keyring.set_keyring(Waiting())
    assert wrapping(tmp_path, {}, keychain_seconds=0.05) == "machine_key"
    assert asked.wait(60)
    ended.set()


def test_of_two_proxies_that_make_a_key_at_once_the_key_of_the_first_counts(
    chain: Path, tmp_path: Path
) -> None:
    first = "ab" * 32

    class Late(FileKeychain):
        def set_password(self, service: str, username: str, password: str) -> None:
            super().set_password(service, username, password)
            super().set_password(service, "first", first)
            (tmp_path / "keychain.name").write_text("first")

    keyring.set_keyring(Late())
    (key,) = secrets_from({}, tmp_path)
    assert isinstance(key, KeychainKey) and key.key(b"").hex() == first
    # The other one's is not left there without a name.
    assert list(json.loads(chain.read_text()).values()) == [first]


def test_a_secret_that_a_keychain_does_not_delete_is_named_in_the_log(
    chain: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = KeychainSecret(tmp_path / "aws-kms.key.kept", 60)
    assert kept.keep(bytes(32))
    locked = chain.read_text()
    chain.unlink()
    kept.forget()
    assert "aws-kms.key.kept" in caplog.text and kept.recall() is None
    chain.write_text(locked)
    caplog.clear()
    assert kept.keep(bytes(32))
    kept.forget()
    assert not caplog.text
    assert chain.read_text() == locked


def test_the_keychain_is_not_even_imported_where_it_is_not_needed(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from encrypted_records.proxy.keyrings.files import secrets_from\n"
        "secrets_from(dict([sys.argv[2].split('=', 1)]), Path(sys.argv[1]))\n"
        "print('keyring' in sys.modules, 'hvac' in sys.modules)"
    )
    bus = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}
    for variable, more in (
        ("ERS_KEYRING_PASSPHRASE=x", bus),
        ("ERS_KEYRING_KEYCHAIN=off", bus),
        ("ERS_OTHER=x", {}),
    ):
        kept = {k: v for k, v in os.environ.items() if k not in (*bus, "PYTHON_KEYRING_BACKEND")}
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), variable],
            env=kept | more,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "False False", variable


# --- Vault -------------------------------------------------------------------------------------


def test_a_key_that_vault_opens_seals_keyrings_and_lies_nowhere_in_the_clear(
    vault: tuple[Vault, dict[str, str]], backend: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine, environment = vault
    folder = tmp_path / "proxy"
    folder.mkdir()
    assert wrapping(folder, environment) == "vault"
    assert engine.asked == ["encrypt", "decrypt"]
    (key,) = secrets_from(dict(environment), folder)
    assert isinstance(key, ServiceWrappingKey)
    assert engine.asked == ["encrypt", "decrypt", "decrypt"]
    (secret,) = engine.seen
    assert len(secret) == 32
    assert not any(secret in one.read_bytes() for one in folder.rglob("*") if one.is_file())
    assert (folder / "transit.key").read_text().startswith("vault:v1:")
    with pytest.raises(Closed) as caught:
        wrapping(folder, {})
    assert "ERS_VAULT_ADDR" in caught.value.hint


def test_a_vault_that_refuses_or_is_away_stops_the_start_and_says_no_secret(
    vault: tuple[Vault, dict[str, str]], backend: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine, environment = vault
    (tmp_path / "other").write_text("hvs.wrong")
    (tmp_path / "transit.key").write_text("vault:v1:bm90aGluZw==")
    cases = [
        {"ERS_VAULT_TOKEN_FILE": str(tmp_path / "other")},
        {"ERS_VAULT_TOKEN_FILE": str(tmp_path / "missing")},
        {"ERS_VAULT_TOKEN_FILE": ""},
        {"ERS_VAULT_KEY": ""},
        {"ERS_VAULT_KEY": "unknown"},
        {"ERS_VAULT_ADDR": "http://127.0.0.1:9"},
        {},  # the file is of another engine
    ]
    for changes in cases:
        with pytest.raises(Startup) as caught:
            secrets_from(environment | changes, tmp_path)
        said = f"{caught.value.message} {caught.value.hint}"
        assert "ault" in said or "ERS_VAULT" in said
        assert not any(secret in said for secret in (TOKEN, "hvs.wrong", "bm90aGluZw"))
    assert "encrypt" not in engine.asked


@pytest.mark.parametrize("status", [429, 500, 501, 502, 503, 504])
def test_a_vault_that_is_not_well_leaves_the_copy_that_a_start_needs_then(
    vault: tuple[Vault, dict[str, str]], chain: Path, tmp_path: Path, status: int
) -> None:
    engine, environment = vault
    folder = tmp_path / "proxy"
    folder.mkdir()
    service = environment | {"ERS_KEYRING_KEYCHAIN": "off"}
    offline = service | {"ERS_KEYRING_OFFLINE": "keychain"}
    assert wrapping(folder, offline) == "vault"
    kept = chain.read_text()
    engine.status = status
    with pytest.raises(Startup, match="cannot be reached"):
        wrapping(folder, service)
    assert wrapping(folder, offline) == "vault"
    assert chain.read_text() == kept != "{}"


@pytest.mark.parametrize("answer", [{}, {"data": None}, {"data": {"text": "x"}}, ["x"]])
def test_an_answer_that_is_none_of_vault_refuses_nothing(
    vault: tuple[Vault, dict[str, str]],
    chain: Path,
    tmp_path: Path,
    answer: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page of a gateway must not end the copy that a start needs behind it."""
    engine, environment = vault
    folder = tmp_path / "proxy"
    folder.mkdir()
    offline = environment | {"ERS_KEYRING_KEYCHAIN": "off", "ERS_KEYRING_OFFLINE": "keychain"}
    assert wrapping(folder, offline) == "vault"
    kept = chain.read_text()
    monkeypatch.setattr(engine, "answer", lambda *_: (200, answer))
    with pytest.raises(Startup, match="not from a transit engine"):
        wrapping(folder, offline)
    assert chain.read_text() == kept != "{}"


def test_each_secret_goes_before_those_that_come_later(
    vault: tuple[Vault, dict[str, str]], chain: Path, tmp_path: Path
) -> None:
    _, environment = vault
    passphrase = {"ERS_KEYRING_PASSPHRASE": "seven wet kettles"}
    order = [passphrase | environment, environment, environment | {"ERS_KEYRING_KEYCHAIN": "off"}]
    for number, (variables, kind) in enumerate(
        zip(order, (Passphrase, KeychainKey, ServiceWrappingKey), strict=True)
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = secrets_from(dict(variables), folder)
        assert [type(one) for one in found] == [kind]
    # One that was used before is asked for as well, to open what it sealed.
    folder = tmp_path / "2"
    assert [type(secret) for secret in secrets_from(passphrase | environment, folder)] == [
        *(Passphrase, ServiceWrappingKey)
    ]


def test_what_was_read_is_taken_out_of_the_environment(
    vault: tuple[Vault, dict[str, str]], backend: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = vault[1] | {"ERS_KEYRING_PASSPHRASE": "x", "ERS_KEYRING_KEYCHAIN": "off"}
    environment |= {"ERS_DATA_DIR": "kept"}
    secrets_from(environment, tmp_path)
    assert environment == {"ERS_DATA_DIR": "kept"}


def test_what_is_taken_out_of_the_environment_never_reaches_the_api_beside_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for prefix in files._PREFIXES:
        monkeypatch.setenv(prefix + "ANY", "secret")
    settings = Settings(data_dir=tmp_path)
    assert "secret" in environment_of(settings, "proxy").values()
    assert "secret" not in environment_of(settings, "api").values()


def test_every_variable_of_a_key_service_is_among_those_that_are_taken_out() -> None:
    named = re.findall(r'"(ERS_[A-Z0-9_]+)"', inspect.getsource(key_services))
    assert named
    assert [name for name in named if not name.startswith(files._PREFIXES)] == []
