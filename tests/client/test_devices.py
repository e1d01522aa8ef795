"""Clients with a device: who knows it is told something, and what they show lets them in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from encrypted_records import AsyncClient, Client, Proof, new_device
from encrypted_records.client.limits import PROXY_TIMING, ClientLimits
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.keyring import Code, OwnDevice, Unlocked
from encrypted_records.client.proxy.sharing import NewInvitation, NewService
from encrypted_records.client.proxy.transport import ProxyTransport
from encrypted_records.errors import (
    ApiFailed,
    BadInput,
    ErsError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotThisProxy,
)
from encrypted_records.model import credentials
from tests.support.listening import stranger_on
from tests.support.service import Account, Service, call, free_ports, running_service

T = TypeVar("T")
DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service at level device."""
    told = {"ERS_ACCESS": "device", "ERS_ALLOWED_HOSTS": "127.0.0.1"}
    with running_service(tmp_path_factory.mktemp("strict") / "data", environment=told) as service:
        yield service


@pytest.fixture(scope="module")
def account(strict: Service) -> Account:
    return strict.new_account()


@pytest.fixture(scope="module")
def secret(strict: Service, account: Account) -> str:
    """The device with which the account made its keyring."""
    device = new_device()
    with client_of(strict, account, device=device) as client:
        dataset = client.create_dataset("People", slug="people")
        schema = dataset.create_schema("Person", DEFINITION, slug="person")
        assert schema.ingest([{"name": "Ada"}]) == 1
    return device.secret.text


def client_of(service: Service, account: Account, **more: Any) -> Client:
    return Client(service.proxy_url, email=account.email, password=account.password, **more)


def ask(
    url: str, account: Account, question: Callable[[ProxyClient], Awaitable[T]], **more: Any
) -> T:
    async def run() -> T:
        async with ProxyClient(
            url, email=account.email, password=account.password, **more
        ) as client:
            return await question(client)

    return asyncio.run(run())


def names(client: Client) -> list[str]:
    return [one["name"] for one in client.schema("person").search()]


def test_a_keyring_takes_in_the_device_that_made_it_and_opens_for_no_other(
    strict: Service, account: Account, secret: str
) -> None:
    with client_of(strict, account, device=secret) as client:
        assert names(client) == ["Ada"]
        found = client.devices()
        assert (found.level, found.enrolled, found.count) == ("device", True, 1)
    with client_of(strict, account) as client:
        with pytest.raises(NotAuthenticated) as caught:
            names(client)
        assert caught.value.reason == "device_needed"
        found = client.devices()
        assert (found.enrolled, found.count, found.devices, found.events) == (False, 1, None, None)
        assert found.keyring is not None
    with client_of(strict, account, device=new_device()) as client:
        with pytest.raises(NotAuthenticated) as caught:
            names(client)
        assert caught.value.reason == "device_unknown"


def test_a_device_is_taken_in_by_a_code_and_its_secret_serves_the_next_client(
    strict: Service, account: Account, secret: str
) -> None:
    with client_of(strict, account, device=secret) as inside:
        code = inside.device_code(proof=Proof(password=account.password))
    with client_of(strict, account) as outside:
        with pytest.raises(NotAllowed) as caught:
            outside.add_device("notebook")
        assert caught.value.reason == "proof_needed"
        own = outside.add_device("notebook", code=code.code)
        assert names(outside) == ["Ada"]
    with client_of(strict, account, device=own.device) as again:
        assert names(again) == ["Ada"]
        again.revoke_device(own.id)
        with pytest.raises(NotAuthenticated):
            names(again)


def test_a_further_device_is_made_for_a_proof_and_ends_when_it_is_revoked(
    strict: Service, account: Account, secret: str
) -> None:
    async def live() -> str:
        async with AsyncClient(
            strict.proxy_url, email=account.email, password=account.password, device=secret
        ) as client:
            with pytest.raises(NotAllowed):
                await client.create_device("nightly")
            made = await client.create_device("nightly", proof=Proof(password=account.password))
            with pytest.raises(NotAllowed):
                await client.revoke_device(made.id)
            await client.revoke_device(made.id, proof=Proof(password=account.password))
            with pytest.raises(NotFound):
                await client.revoke_device("nowhere0", proof=Proof(password=account.password))
            return made.device

    revoked = asyncio.run(live())
    with client_of(strict, account, device=revoked) as client:
        # The proxy still knows it, and says that it is over.
        with pytest.raises(NotAuthenticated) as caught:
            names(client)
        assert caught.value.reason == "device_unknown"


def test_keys_are_given_out_for_a_proof(strict: Service, account: Account, secret: str) -> None:
    async def live(client: ProxyClient) -> None:
        with pytest.raises(NotAllowed) as caught:
            await client.backup_phrases()
        assert caught.value.reason == "proof_needed"
        by_password = Proof(password=account.password)
        (phrase,) = await client.backup_phrases(proof=by_password)
        words = Proof(phrase=phrase.phrase)
        file = await client.backup_file("paper scissors", proof=words)
        assert (await client.restore_keyring([phrase.phrase], proof=words)).versions
        assert (
            await client.restore_keyring_file(file, "paper scissors", proof=by_password)
        ).versions

    ask(strict.proxy_url, account, live, device=secret)


def test_what_does_not_know_the_device_hears_a_question_and_nothing_else(
    account: Account, secret: str
) -> None:
    (port,) = free_ports(1)
    with stranger_on(port) as stranger:
        client = Client(
            f"http://127.0.0.1:{port}",
            email=account.email,
            password=account.password,
            device=secret,
        )
        with client, pytest.raises(NotThisProxy) as caught:
            client.create_dataset("My secret")
    assert "ers device add --new" in caught.value.hint
    assert [(line, body) for line, _, body in stranger.heard] == [
        ("GET /api/status/ HTTP/1.1", b"")
    ]
    (headers,) = [headers for _, headers, _ in stranger.heard]
    assert not {"authorization", "x-ers-device"} & headers.keys()
    assert secret not in str(stranger.heard)


@pytest.mark.parametrize("answer", [b"", b"[]", b"no JSON", b'"x"' * 400_000, b"[" * 10_000])
def test_nonsense_is_no_proxy(account: Account, secret: str, answer: bytes) -> None:
    (port,) = free_ports(1)
    with stranger_on(port, answer) as stranger:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(NotThisProxy):
            ask(url, account, lambda client: client.user(), device=secret)
        with pytest.raises(ErsError):
            ask(url, account, lambda client: client.keyring())
    assert "authorization" not in str(stranger.heard).lower()


def test_an_answer_that_was_overheard_is_none_to_another_question(
    strict: Service, account: Account, secret: str
) -> None:
    known = credentials.parse_device_secret(secret)
    assert known is not None
    asked = {"X-ERS-Challenge": f"{known.id}.{'n' * 32}"}
    overheard = call("GET", f"{strict.proxy_url}/api/status/", headers=asked)
    told = overheard.headers["X-ERS-Answer"]
    assert told == credentials.challenge_answer(
        known.digest, "n" * 32, strict.proxy_url.partition("//")[2]
    )
    (port,) = free_ports(1)
    with stranger_on(port, told=told), pytest.raises(NotThisProxy):
        ask(f"http://127.0.0.1:{port}", account, lambda client: client.user(), device=secret)


def test_an_answer_for_another_address_is_none(
    strict: Service, account: Account, secret: str
) -> None:
    """What hands the question on to the proxy, under its own name, is found out."""
    (port,) = free_ports(1)

    def relayed(headers: dict[str, str]) -> str:
        handed_on = {"X-ERS-Challenge": headers["x-ers-challenge"]}
        answered = call("GET", f"{strict.proxy_url}/api/status/", headers=handed_on)
        return str(answered.headers["X-ERS-Answer"])

    with stranger_on(port, told=relayed) as stranger, pytest.raises(NotThisProxy):
        ask(f"http://127.0.0.1:{port}", account, lambda client: client.user(), device=secret)
    assert len(stranger.heard) == 1


def test_it_asks_again_before_anything_goes_out_on_a_new_connection(
    strict: Service, account: Account, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = ClientLimits(timing=replace(PROXY_TIMING, idle_seconds=0.2))
    questions: list[str] = []
    original = ProxyTransport.challenge

    async def counted(self: ProxyTransport, asked: Any) -> bool:
        questions.append(asked.id)
        return await original(self, asked)

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f'{{"name": "person {number}"}}\n'.encode()

    async def live(client: ProxyClient) -> int:
        for _ in range(3):
            await client.user()
        assert len(questions) == 1
        await asyncio.sleep(0.5)  # longer than a connection stays open
        job = await client.upload(pieces(), "application/x-ndjson", schema=schema)
        assert len(questions) == 2
        assert [one async for one in client.watch(job)][-1].total == 3
        await asyncio.sleep(0.5)
        await asyncio.gather(*(client.user() for _ in range(40)))
        return len(questions)

    with client_of(strict, account, device=secret) as one:
        schema = one.schema("person").id
    monkeypatch.setattr(ProxyTransport, "challenge", counted)
    assert ask(strict.proxy_url, account, live, device=secret, limits=soon) > 2


@pytest.mark.service
def test_a_client_that_outlives_its_proxy_tells_nothing_to_what_comes_after_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_service(tmp_path_factory.mktemp("outlives") / "data") as service:
        account, device = service.new_account(), new_device()
        door = credentials.parse_device_secret(next(iter(service.door.values())))
        url, port = service.proxy_url, int(service.proxy_url.rpartition(":")[2])
        ask(url, account, lambda one: one.backup_phrases(), device=device, door=door)
        with client_of(service, account, device=device.secret.text) as client:
            client.user()
            service.stop()
            with stranger_on(port) as stranger:
                for _ in range(2):
                    with pytest.raises(NotThisProxy):
                        client.create_dataset("My secret")
    assert stranger.heard
    assert {line for line, _, _ in stranger.heard} == {"GET /api/status/ HTTP/1.1"}


def test_the_door_goes_where_it_counts_and_to_no_stranger(running: Service) -> None:
    account = running.new_account()
    door = credentials.parse_device_secret(next(iter(running.door.values())))

    async def live(client: ProxyClient) -> None:
        assert await client.has_door()
        assert await client.backup_phrases()

    ask(running.proxy_url, account, live, door=door)
    (port,) = free_ports(1)
    with stranger_on(port) as stranger:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(ErsError):
            ask(url, account, lambda client: client.keyring(), door=door)
        ask(url, account, lambda client: client.status(), door=door)
        with pytest.raises(NotThisProxy):
            ask(url, account, lambda client: client.status(), door=door, requires_door=True)
    assert not [one for one in stranger.heard if "x-ers-door" in one[1]]


def test_a_list_cannot_send_the_client_and_its_secrets_elsewhere(
    account: Account, secret: str
) -> None:
    """The next page of a list is what the API says it is."""
    (there,) = free_ports(1)
    known = credentials.parse_device_secret(secret)
    assert known is not None

    def answered(headers: dict[str, str]) -> str:
        nonce = headers.get("x-ers-challenge", ".").partition(".")[2]
        return credentials.challenge_answer(known.digest, nonce, headers["host"])

    (port,) = free_ports(1)
    page: dict[str, Any] = {"count": 1, "previous": None, "results": [], "behind_proxy": True}
    page["next"] = f"@127.0.0.1:{there}/api/datasets/"

    async def every(client: ProxyClient) -> list[Any]:
        return [dataset async for dataset in client.listing("datasets")]

    with (
        stranger_on(there) as elsewhere,
        stranger_on(port, json.dumps(page).encode(), answered),
        pytest.raises(ApiFailed),
    ):
        ask(f"http://127.0.0.1:{port}", account, every, device=secret)
    assert elsewhere.heard == []


def test_the_name_of_this_machine_counts_as_the_address_that_proxies_listen_on() -> None:
    """Of [::1], which the name means as well, anybody may take the same port, and relay."""
    for url, address in {
        "http://localhost:8080": "http://127.0.0.1:8080",
        "http://LOCALHOST": "http://127.0.0.1",
        "https://localhost:8443": "https://localhost:8443",
        "http://[::1]:8080": "http://[::1]:8080",
        "http://records.example.org": "http://records.example.org",
    }.items():
        assert ProxyTransport(url).base_url == address


def test_no_secret_prints(secret: str) -> None:
    known = new_device()
    shown = [
        Proof(password="my secret", passphrase="my secret", phrase="my secret"),
        known,
        Code("my secret", 600),
        OwnDevice(id="a", name="b", way="c", created=0, used=0, this=True, device="my secret"),
        Unlocked(
            fingerprint="f",
            versions=[],
            wrapping="w",
            backup_confirmed=True,
            restore_tried=None,
            device="my secret",
        ),
        NewInvitation(id="a", words="my secret", expires=1, member=None, replaced=None),
        NewService("a", "my secret", 1),
    ]
    for one in shown:
        assert "my secret" not in repr(one) + str(one)
        assert known.secret.text not in repr(one) + str(one)
    with pytest.raises(BadInput) as caught:
        Client(device=secret + "x")
    assert secret not in caught.value.message + caught.value.hint
