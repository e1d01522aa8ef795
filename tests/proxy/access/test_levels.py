"""The level of access that a proxy starts with, and what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from encrypted_records.errors import Startup
from encrypted_records.model import credentials
from encrypted_records.proxy.keyrings.holder import Circumstances, Level, Policy, decide_policy
from tests.proxy.access.people import Person
from tests.support.front import Front
from tests.support.proxies import running_proxy


@pytest.mark.parametrize(
    ("access", "names", "level", "exposed"),
    [
        ("api", (), "api", False),
        ("api", ("ers.example.org",), "api", True),
        ("device", ("ers.example.org",), "device", False),
        ("auto", ("ers.example.org",), "device", False),
    ],
)
def test_a_proxy_says_that_others_reach_it_where_credentials_suffice(
    front: Front,
    people: tuple[Person, Person],
    tmp_path: Path,
    access: str,
    names: tuple[str, ...],
    level: str,
    exposed: bool,
) -> None:
    ada = people[0].at(credentials.generate_device_secret())
    with running_proxy(front.url, tmp_path, access=access, allowed_hosts=names) as proxy:
        assert ada.ingest(proxy).status == 201
        found = ada.ask(proxy, "GET", "/api/devices/").json()
        assert (found["level"], found["exposed"]) == (level, exposed)
        # Under a passphrase of its owner's own, a keyring is at level device everywhere.
        own = {"new": "a passphrase of her own", "proof": {"password": ada.account.password}}
        set_now = ada.ask(proxy, "POST", "/api/keyring/passphrase/", own)
        assert set_now.status < 300, set_now.body
        found = ada.ask(proxy, "GET", "/api/devices/").json()
        assert (found["level"], found["exposed"]) == ("device", False)


def test_an_inline_proxy_answers_its_own_command_alone(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="auto", inline_secret="between us") as proxy:
        for path in ("/api/status/", "/api/keyring/", "/", "/static/icon.svg"):
            assert ada.ask(proxy, "GET", path).status == 403
        headers = {credentials.INLINE_HEADER: "between us"}
        assert ada.ask(proxy, "GET", "/api/status/", headers=headers).status == 200


@pytest.mark.parametrize(
    ("found", "policy"),
    [
        (Circumstances("auto", "127.0.0.1", own_api=True, keyrings=3), Policy(Level.API, False)),
        (Circumstances("auto", "127.0.0.1", keyrings=1), Policy(Level.API, True)),
        (Circumstances("auto", "::1"), Policy(Level.API, True)),
        (Circumstances("auto", "localhost"), Policy(Level.API, True)),
        (Circumstances("auto", "0.0.0.0"), Policy(Level.DEVICE, False)),
        (Circumstances("auto", "192.168.1.9", own_api=True), Policy(Level.DEVICE, False)),
        (Circumstances("auto", "some.host"), Policy(Level.DEVICE, False)),
        (Circumstances("auto", "127.0.0.1", ("ers.example.org",)), Policy(Level.DEVICE, False)),
        (Circumstances("device", "127.0.0.1", own_api=True), Policy(Level.DEVICE, False)),
        (Circumstances("api", "0.0.0.0"), Policy(Level.API, False, exposed=True)),
        (Circumstances("api", "127.0.0.1", keyrings=5), Policy(Level.API, False)),
    ],
)
def test_the_level_follows_from_how_the_operator_starts_the_proxy(
    found: Circumstances, policy: Policy
) -> None:
    assert decide_policy(found) == policy


def test_two_keyrings_at_a_proxy_for_one_user_keep_it_from_starting() -> None:
    with pytest.raises(Startup) as caught:
        decide_policy(Circumstances("auto", "127.0.0.1", keyrings=2))
    assert "--access device" in caught.value.hint
    assert "--access api" in caught.value.hint
