"""Which addresses a server listens on, and which names lead to it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from encrypted_records.errors import Startup
from encrypted_records.listening.binding import bound, names_of
from encrypted_records.listening.serving import listening

LOCAL = ("127.0.0.1", "localhost", "[::1]")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "0.0.0.0"])
def test_a_loopback_address_is_listened_on_in_both_families(host: str) -> None:
    with bound(host, 0) as sockets:
        port = sockets[0].getsockname()[1]
        for address in ("127.0.0.1", "::1") if host != "0.0.0.0" else ("127.0.0.1",):
            socket.create_connection((address, port), timeout=10).close()
        family = {one.family for one in sockets}
        assert family == {socket.AF_INET, socket.AF_INET6}


def test_all_addresses_of_both_families_are_taken_by_one_socket() -> None:
    with bound("::", 0) as (listening_socket,):
        port = listening_socket.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=10).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_in_several_writes_does_not_wait_for_acknowledgements(host: str) -> None:
    async def run() -> int:
        options: asyncio.Queue[int] = asyncio.Queue()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            options.put_nowait(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with bound(host, 0) as (listening_socket, _):
            server = await asyncio.start_server(serve, sock=listening_socket)
            async with server:
                with socket.create_connection(listening_socket.getsockname()[:2], timeout=10):
                    return await options.get()

    assert asyncio.run(run())


@pytest.mark.parametrize(("host", "taken"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_a_server_does_not_start_beside_a_program_on_the_other_loopback_address(
    host: str, taken: str
) -> None:
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    with socket.create_server((taken, 0), family=family) as other:
        port = other.getsockname()[1]
        refused = pytest.raises(Startup, match=f"cannot listen on {taken} port {port}")
        with refused, listening(host, port, "--port"):
            pass
        # The first address was given back.
        own = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=own).close()


@pytest.mark.parametrize("address", LOCAL)
def test_nobody_can_take_the_port_of_a_server_on_another_name_of_the_machine(address: str) -> None:
    with bound("127.0.0.1", 0) as sockets:
        port = sockets[0].getsockname()[1]
        bare = address.strip("[]")
        family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        with pytest.raises(OSError, match="in use"):
            socket.create_server((bare, port), family=family)


def test_a_server_answers_to_the_names_that_lead_to_it_alone() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::"):
        assert set(LOCAL) <= set(names_of(host))
    assert names_of("192.0.2.7") == ("192.0.2.7",)
    assert names_of("2001:db8::7") == ("[2001:db8::7]",)
