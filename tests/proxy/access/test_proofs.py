"""Proofs: without one in the very request, no key goes out and none is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from encrypted_records.model.credentials import (
    DOOR,
    DOOR_HEADER,
    generate_device_secret,
    parse_device_secret,
)
from encrypted_records.model.ids import from_text
from encrypted_records.proxy.keyrings.holder import Attempts
from tests.proxy.access.people import Person, code_of
from tests.support.authenticator import with_second_factor
from tests.support.front import Front
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service, call


def test_whoever_lost_the_passphrase_gets_back_by_words_while_another_device_has_it(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada = people[0].at(generate_device_secret())
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201
        password = {"proof": {"password": ada.account.password}}
        phrase = ada.ask(proxy, "POST", "/api/keyring/backup/", password).json()[0]["phrase"]
        for elsewhere in (ada.at(generate_device_secret()), ada):
            own = {"new": "a passphrase of her own", **password}
            set_now = ada.ask(proxy, "POST", "/api/keyring/passphrase/", own)
            assert set_now.status == 200, set_now.body
            body = {"phrases": [phrase], "proof": {"phrase": phrase}}
            restored = elsewhere.ask(proxy, "POST", "/api/keyring/restore/", body)
            assert restored.status == 201, restored.body
            assert elsewhere.ingest(proxy).status == 201
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201


@pytest.mark.parametrize("access", ["api", "device"])
def test_keys_go_out_and_change_for_a_fresh_proof_alone(
    front: Front, people: tuple[Person, Person], tmp_path: Path, access: str
) -> None:
    ada, bob = people
    giving: list[tuple[str, str, dict[str, object]]] = [
        ("POST", "/api/keyring/backup/", {}),
        ("POST", "/api/keyring/backup/file/", {"passphrase": "of a file"}),
        ("POST", "/api/keyring/rotate/", {}),
        ("POST", "/api/keyring/passphrase/", {"new": "another"}),
        ("POST", "/api/keyring/restore/", {"phrases": ["a b"], "replace": True}),
        ("POST", "/api/devices/code/", {}),
        ("POST", "/api/devices/", {"create": True}),
        ("DELETE", "/api/devices/AAAAAAAA/", {}),
    ]
    with running_proxy(front.url, tmp_path, access=access) as proxy:
        ada.ingest(proxy)
        folder = tmp_path / "proxy" / "keyrings"
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        for method, path, body in giving:
            # A device alone, and the passphrase of a keyring that has none of its user's own.
            for proof in (None, {"passphrase": "something"}):
                refused = ada.ask(proxy, method, path, {**body, "proof": proof})
                assert code_of(refused) == "proof_needed", (path, refused.body)
            # A password without a device: that is what the API knows.
            password = {"password": ada.account.password}
            stranger = ada.at(generate_device_secret() if access == "device" else None)
            refused = stranger.ask(proxy, method, path, {**body, "proof": password})
            assert code_of(refused) == "proof_needed", (path, refused.body)
            # The right device with somebody else's password.
            other = {"password": bob.account.password}
            refused = ada.ask(proxy, method, path, {**body, "proof": other})
            assert code_of(refused) in ("proof_wrong", "throttled"), (path, refused.body)
            proxy.services.proofs.attempts.right(from_text(ada.user))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_wrong_password_makes_the_next_proof_wait_even_the_right_one(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people
    now = 0.0
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        proxy.services.proofs.attempts = Attempts(clock=lambda: now)

        def backup(password: str) -> Answer:
            proof = {"proof": {"password": password}}
            return ada.ask(proxy, "POST", "/api/keyring/backup/", proof)

        assert code_of(backup(bob.account.password)) == "proof_wrong"
        front.forget()
        for password in (bob.account.password, ada.account.password):
            assert code_of(backup(password)) == "throttled"
        assert not [one for one in front.asked if bob.account.password.encode() in one.body]
        now = 2.0
        assert backup(ada.account.password).status == 200
        assert code_of(backup(bob.account.password)) == "proof_wrong", "nothing is left of before"


def test_a_password_that_was_changed_at_the_api_proves_nothing_any_more(
    service: Service, front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201
        new = "staple battery horse"
        body = {"old_password": ada.account.password, "password": new, "password_confirm": new}
        url = f"{service.base_url}/api/accounts/change-password/"
        assert call("POST", url, body, auth=ada.account.auth).status == 200
        # The proxy still remembers who sent the old one; for keys that is not enough.
        proof = {"proof": {"password": ada.account.password}}
        refused = ada.ask(proxy, "POST", "/api/keyring/backup/", proof)
        assert refused.status == 401, refused.body


def test_a_password_proves_nothing_without_the_code_of_a_second_factor(
    service: Service, front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    password = {"password": ada.account.password}
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201
        credentials = {"email": ada.account.email, **password}
        token = call("POST", f"{service.base_url}/api/token/", credentials).json()["access"]
        bearer = f"Bearer {token}"
        app = with_second_factor(service, ada.account)

        def backup(proof: dict[str, str]) -> Answer:
            url = f"{proxy.url}/api/keyring/backup/"
            return call("POST", url, {"proof": proof}, auth=bearer, headers=ada.headers())

        assert code_of(backup(password)) == "proof_code_needed"
        assert backup({**password, "code": app.code()}).status == 200
        assert code_of(backup({**password, "code": app.stale()})) == "proof_wrong"


def test_an_own_passphrase_is_needed_on_each_device_at_either_level(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="api") as proxy:
        ada.ingest(proxy)
        proof = {"proof": {"password": ada.account.password}}
        changed = ada.ask(
            proxy, "POST", "/api/keyring/passphrase/", {"new": "open sesame", **proof}
        )
        assert changed.status == 200, changed.body
        assert ada.ingest(proxy).status == 201
        assert code_of(ada.at(None).ingest(proxy)) == "device_needed"
        # Unlocking without a device takes in a new one.
        unlock = {"passphrase": "open sesame"}
        opened = ada.at(None).ask(proxy, "POST", "/api/keyring/unlock/", unlock)
        second = ada.at(parse_device_secret(opened.json()["device"]))
        assert second.ingest(proxy).status == 201
        # Neither the password nor the door stands in for the passphrase.
        refused = ada.ask(proxy, "POST", "/api/keyring/rotate/", proof, headers=proxy.door)
        assert code_of(refused) == "proof_needed"
    with running_proxy(front.url, tmp_path, access="api") as proxy:
        assert code_of(ada.ingest(proxy)) == "keyring_locked"
        assert ada.ask(proxy, "POST", "/api/keyring/unlock/", unlock).status == 200
        assert ada.ingest(proxy).status == 201
        # The other device has not typed it here.
        assert code_of(second.ingest(proxy)) == "keyring_locked"


def test_the_door_lets_in_and_proves_and_opens_for_nobody_else(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        second = ada.at(generate_device_secret())
        wrong = {DOOR_HEADER: generate_device_secret(DOOR).text}
        refused = second.ask(proxy, "POST", "/api/devices/", {"name": "x"}, headers=wrong)
        assert code_of(refused) == "proof_needed"
        entered = second.ask(proxy, "POST", "/api/devices/", {"name": "x"}, headers=proxy.door)
        assert entered.status == 201, entered.body
        assert second.ask(proxy, "POST", "/api/keyring/rotate/", headers=proxy.door).status == 201
        # A code for somebody who has lost every way in.
        asked = {"user": ada.user}
        refused = bob.ask(proxy, "POST", "/api/devices/code/", asked)
        assert code_of(refused) == "proof_needed"
        made = bob.ask(proxy, "POST", "/api/devices/code/", asked, headers=proxy.door)
        third = ada.at(generate_device_secret())
        body = {"code": made.json()["code"]}
        assert third.ask(proxy, "POST", "/api/devices/", body).status == 201
        file = proxy.door_file
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()
