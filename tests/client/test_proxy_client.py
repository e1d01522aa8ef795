"""The client of the proxy: exact numbers, whole lists, and nothing secret to strangers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

import pytest
import uvicorn

from encrypted_records import runtime
from encrypted_records.client.limits import PROXY_TIMING, STANDARD, ClientLimits
from encrypted_records.client.proxy import erasure
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import BadInput, NoProxy, NotFound, ProxyUnreachable
from tests.support.erasures import UNDONE
from tests.support.service import Account, Service, free_ports

T = TypeVar("T")
Ask = Callable[[Callable[[ProxyClient], Awaitable[T]]], T]


@pytest.fixture
def ask(running: Service, account: Account) -> Ask[Any]:
    return lambda question: with_client(running.proxy_url, account, question)


def with_client(
    url: str,
    account: Account,
    question: Callable[[ProxyClient], Awaitable[T]],
    limits: ClientLimits = STANDARD,
) -> T:
    async def run() -> T:
        async with ProxyClient(
            url, email=account.email, password=account.password, limits=limits
        ) as client:
            return await question(client)

    return asyncio.run(run())


def test_a_list_is_followed_page_after_page(running: Service, account: Account) -> None:
    names = [f"dataset {number}" for number in range(5)]

    async def make_and_list(client: ProxyClient) -> list[str]:
        for name in names:
            await client.create("datasets", name=name, organization=account.organization)
        return [dataset["name"] async for dataset in client.listing("datasets")]

    assert (
        sorted(with_client(running.proxy_url, account, make_and_list, ClientLimits(listed=2)))
        == names
    )


def test_a_resource_is_made_read_changed_and_deleted(ask: Ask[Any], account: Account) -> None:
    async def live(client: ProxyClient) -> None:
        made = await client.create("datasets", name="one", organization=account.organization)
        changed = await client.change(made["url"], description="two", name=None)
        assert (changed["name"], changed["description"]) == ("one", "two")
        assert await client.resource(made["url"]) == changed
        await client.delete(made["url"])
        with pytest.raises(NotFound):
            await client.resource(made["url"])

    ask(live)


def test_numbers_keep_every_digit_in_both_directions(ask: Ask[Any], account: Account) -> None:
    bound = Decimal("0.10000000000000000555")
    field = {"type": "number", "minimum": -bound, "maximum": bound, "precision": 18}

    async def store(client: ProxyClient) -> Any:
        dataset = await client.create_dataset(name="exact", organization=account.organization)
        schema = await client.create_schema(
            name="exact",
            dataset=dataset.url,
            definition={"type": "object", "properties": {"n": field}},
        )
        await client.ingest(schema.url, [{"n": Decimal("0.100000000000000001")}])
        found = await client.search(schema.url)
        return (await client.resource(schema.url))["schema"], found.results[0].data

    definition, data = ask(store)
    assert definition["properties"]["n"]["maximum"] == bound
    assert data == {"n": Decimal("0.100000000000000001")}


def test_plaintext_and_keys_are_not_sent_to_what_is_no_proxy(
    running: Service, account: Account
) -> None:
    questions: list[Callable[[ProxyClient], Awaitable[Any]]] = [
        lambda client: client.ingest("/api/schemas/x/", [{"name": "secret-4711"}]),
        lambda client: client.search("/api/schemas/x/"),
        lambda client: client.restore_keyring("secret-4711"),
    ]
    for question in questions:
        with pytest.raises(NoProxy, match="is not a proxy"):
            with_client(running.base_url, account, question)
    # Whereas what the API may see it answers.
    assert with_client(running.base_url, account, lambda client: client.user()).email


def test_no_connection_is_the_proxys_and_says_how_one_is_started(account: Account) -> None:
    (port,) = free_ports(1)
    with pytest.raises(ProxyUnreachable) as refused:
        with_client(f"http://127.0.0.1:{port}", account, lambda client: client.status())
    assert "ers up" in refused.value.hint


def test_an_error_of_the_service_is_the_class_of_its_code(ask: Ask[Any]) -> None:
    with pytest.raises(BadInput) as refused:
        ask(lambda client: client.create("datasets", name="x", organization="/api/nothing/"))
    assert refused.value.flaws[0].code == "invalid_reference"


def test_what_is_sent_after_a_wait_at_the_terminal_takes_a_new_connection() -> None:
    async def app(*_: object) -> None: ...

    assert PROXY_TIMING.idle_seconds < uvicorn.Config(app).timeout_keep_alive

    at_once = ClientLimits(timing=replace(PROXY_TIMING, idle_seconds=0.0))
    closed = threading.Event()

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            taken, _address = listener.accept()
            with taken:
                taken.recv(65536)
                taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            closed.set()

    async def ask_wait_ask(url: str) -> None:
        async with ProxyClient(url, limits=at_once) as client:
            await client.status()
            # As a question on the terminal does: the loop does not see the connection end.
            assert closed.wait(60)
            await client.verify_token("token")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        asyncio.run(ask_wait_ask(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        server.join(60)
    assert not server.is_alive()


def test_a_receipt_is_not_lost_where_nobody_can_say_any_more_that_bytes_are_gone(
    ask: Ask[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "POLL_INTERVAL", 0.01)

    async def see(client: ProxyClient) -> erasure.SchemaErasure:
        return await client._see_through(UNDONE, runtime.monotonic() + 60)

    assert ask(see) == UNDONE
