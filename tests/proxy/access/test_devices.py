"""Devices: how one is let in, what is said to one that is not, and how one is sent away."""

from __future__ import annotations

import base64
import time
from pathlib import Path

from encrypted_records.model.credentials import (
    ANSWER_HEADER,
    CHALLENGE_HEADER,
    DOOR_HEADER,
    DeviceSecret,
    challenge_answer,
    generate_device_secret,
    parse_device_secret,
)
from encrypted_records.model.ids import from_text
from encrypted_records.proxy.settings import Overrides
from tests.proxy.access.people import Person, code_of
from tests.support.front import Asked, Front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import DOORS, Account, call


def test_at_level_device_nothing_is_asked_of_the_api_for_a_request_without_a_device(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201
        front.forget()
        assert code_of(ada.at(None).ingest(proxy)) == "device_needed"
        assert ada.device is not None
        other_key = ada.device.text[:-4] + "AAAA"
        wrong = DeviceSecret(ada.device.id, other_key)
        assert code_of(ada.at(wrong).ingest(proxy)) == "device_unknown"
        assert front.asked == []


def shown(asked: Asked) -> bytes:
    """All of a request, and what its Basic credentials are."""
    headers = dict(asked.headers)
    basic = next((text for name, text in headers.items() if name.lower() == "authorization"), "")
    scheme, _, secret = basic.partition(" ")
    decoded = base64.b64decode(secret) if scheme.lower() == "basic" else b""
    return b"\n".join([asked.path.encode(), asked.body, repr(headers).encode(), decoded])


def test_no_device_secret_ever_reaches_the_api(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    assert ada.device is not None
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        front.forget()
        assert ada.ingest(proxy).status == 201
        in_password = Account(
            ada.account.email, f"{ada.account.password}:{ada.device.text}", ada.account.organization
        )
        found = call("GET", f"{proxy.url}/api/keyring/", auth=in_password.auth)
        assert found.status == 200, found.body
        # All are handed on: with the secret in a header, behind the password, and with the door's.
        door = DOORS[proxy.url].read_text()
        handed_on = [
            ada.ask(proxy, "GET", "/api/datasets/"),
            call("GET", f"{proxy.url}/api/datasets/", auth=in_password.auth),
            call(
                *("GET", f"{proxy.url}/api/datasets/"),
                auth=in_password.auth,
                headers={DOOR_HEADER: door},
            ),
        ]
        assert [one.status for one in handed_on] == [200, 200, 200]
        assert len(front.asked) > len(handed_on)
        for asked in front.asked:
            assert ada.device.text.encode() not in shown(asked)
            assert door.encode() not in shown(asked)
        assert ada.device.digest not in (tmp_path / "proxy" / "heads.sqlite3").read_bytes()
        stored = b"".join(path.read_bytes() for path in (tmp_path / "proxy").glob("access*"))
        assert ada.device.digest in stored
        assert ada.device.text.encode() not in stored


def test_a_code_lets_in_one_device_of_its_own_keyring_once(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        bob.ingest(proxy)
        made = ada.ask(
            proxy, "POST", "/api/devices/code/", {"proof": {"password": ada.account.password}}
        )
        assert made.status == 201, made.body
        code = made.json()["code"]
        second, third = generate_device_secret(), generate_device_secret()
        # A code of another keyring, then the right one, then again.
        other = bob.at(generate_device_secret())
        assert code_of(other.ask(proxy, "POST", "/api/devices/", {"code": code})) == "code_wrong"
        entered = ada.at(second).ask(
            proxy, "POST", "/api/devices/", {"code": code.lower(), "name": "phone"}
        )
        assert entered.status == 201, entered.body
        again = ada.at(third).ask(proxy, "POST", "/api/devices/", {"code": code})
        assert code_of(again) == "code_wrong"

        assert ada.at(second).ingest(proxy).status == 201
        assert code_of(ada.at(third).ingest(proxy)) == "device_unknown"
        listed = ada.at(second).ask(proxy, "GET", "/api/devices/").json()
        assert [device["way"] for device in listed["devices"]] == ["made", "code"]
        stranger = ada.at(third).ask(proxy, "GET", "/api/devices/").json()
        assert "devices" not in stranger
        assert stranger["count"] == 2


def test_a_code_ends_after_five_wrong_tries(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        proof = {"proof": {"password": ada.account.password}}
        code = ada.ask(proxy, "POST", "/api/devices/code/", proof).json()["code"]
        second = ada.at(generate_device_secret())
        for _ in range(5):
            wrong = second.ask(proxy, "POST", "/api/devices/", {"code": "0000-0000"})
            assert code_of(wrong) == "code_wrong"
        assert code_of(second.ask(proxy, "POST", "/api/devices/", {"code": code})) == "code_wrong"


def test_words_let_a_device_in_and_wrong_ones_make_strangers_wait(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        proof = {"proof": {"password": ada.account.password}}
        (shown,) = ada.ask(proxy, "POST", "/api/keyring/backup/", proof).json()
        second = ada.at(generate_device_secret())
        assert code_of(second.ask(proxy, "POST", "/api/devices/", {"phrase": "x y"})) == (
            "proof_wrong"
        )
        early = second.ask(proxy, "POST", "/api/devices/", {"phrase": shown["phrase"]})
        assert early.status == 429
        # Strangers slow down strangers, and not the devices that are in.
        assert ada.ask(proxy, "POST", "/api/keyring/backup/", proof).status == 200
        proxy.services.proofs.attempts.right(from_text(ada.user))
        entered = second.ask(proxy, "POST", "/api/devices/", {"phrase": shown["phrase"]})
        assert entered.status == 201, entered.body
        assert second.ingest(proxy).status == 201


def test_a_revoked_device_is_refused_from_then_on(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    assert ada.device is not None
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        proof = {"proof": {"password": ada.account.password}}
        made = ada.ask(
            proxy, "POST", "/api/devices/", {"create": True, "name": "nightly", **proof}
        ).json()
        second = ada.at(parse_device_secret(made["device"]))
        assert second.ingest(proxy).status == 201
        gone = second.ask(proxy, "DELETE", f"/api/devices/{ada.device.id}/", proof)
        assert gone.status == 204, gone.body
        assert code_of(ada.ingest(proxy)) == "device_unknown"
        # Nor is it taken in again.
        code = second.ask(proxy, "POST", "/api/devices/code/", proof).json()["code"]
        again = ada.ask(proxy, "POST", "/api/devices/", {"code": code})
        assert code_of(again) == "device_unknown"
    # That outlasts the proxy.
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert code_of(ada.ingest(proxy)) == "device_unknown"
        assert second.ingest(proxy).status == 201


def test_a_device_is_removed_once_it_was_unused_for_long_and_not_by_a_clock_that_jumped(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    wall, real = time.time(), 1000.0
    overrides = Overrides(clock=lambda: wall, real_time=lambda: real)
    with running_proxy(front.url, tmp_path, access="device", overrides=overrides) as proxy:

        def register(person: Person) -> Person:
            proof = {"proof": {"password": ada.account.password}}
            made = person.ask(proxy, "POST", "/api/devices/", {"create": True, "name": "", **proof})
            return ada.at(parse_device_secret(made.json()["device"]))

        assert ada.ingest(proxy).status == 201
        wall += 365 * 86_400
        second = register(ada)
        assert ada.ingest(proxy).status == 201
        real += 365 * 86_400
        wall += 365 * 86_400
        third = register(second)
        assert third.ingest(proxy).status == 201
        assert ada.ingest(proxy).status != 201


def test_a_proxy_answers_challenges_and_says_nothing_of_devices_it_does_not_know(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    assert ada.device is not None
    nonce = "0123456789abcdef"

    def answer(proxy: Proxy, name: str) -> str:
        headers = {CHALLENGE_HEADER: f"{name}.{nonce}"}
        found = call("GET", f"{proxy.url}/api/status/", headers=headers)
        return str(found.headers[ANSWER_HEADER])

    with running_proxy(front.url, tmp_path, access="device") as proxy:
        host = proxy.url.removeprefix("http://")
        right = challenge_answer(ada.device.digest, nonce, host)
        assert answer(proxy, ada.device.id) != right  # it was never here
        ada.ingest(proxy)
        assert answer(proxy, ada.device.id) == right
        assert len(answer(proxy, "AAAAAAAA")) == len(right)
        bad = {CHALLENGE_HEADER: "no-nonce"}
        assert call("GET", f"{proxy.url}/api/status/", headers=bad).status == 400
