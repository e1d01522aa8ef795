"""An answer's head leaves with its body, and alone where the body takes its time."""

from __future__ import annotations

import asyncio
from typing import cast

from encrypted_records.listening.connections import Joining

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"the body"


class _Packets:
    """A transport that notes what it is given at once, and when it is closed."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.sent.append(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def joining(packets: _Packets) -> Joining:
    return Joining(cast("asyncio.Transport", packets), asyncio.get_running_loop())


def test_a_head_leaves_with_the_beginning_of_its_body() -> None:
    async def whole() -> None:
        packets = _Packets()
        answer = joining(packets)
        answer.write(HEAD)
        assert packets.sent == []
        answer.write(BODY)
        assert packets.sent == [HEAD + BODY]
        answer.write(b"more")
        await asyncio.sleep(0)
        assert packets.sent == [HEAD + BODY, b"more"]

    asyncio.run(whole())


def test_a_head_does_not_wait_for_a_body_that_does_not_come() -> None:
    async def whole() -> None:
        packets = _Packets()
        answer = joining(packets)
        answer.write(HEAD)
        await asyncio.sleep(0)
        assert packets.sent == [HEAD]
        answer.write(BODY)
        assert packets.sent == [HEAD, BODY]

    asyncio.run(whole())


def test_what_was_written_leaves_before_the_connection_is_closed() -> None:
    async def whole() -> None:
        packets = _Packets()
        answer = joining(packets)
        answer.write(HEAD)
        answer.close()
        assert (packets.sent, packets.is_closed) == ([HEAD], True)
        await asyncio.sleep(0)
        assert packets.sent == [HEAD]

    asyncio.run(whole())


def test_nothing_is_sent_to_a_connection_that_was_closed_meanwhile() -> None:
    async def whole() -> None:
        packets = _Packets()
        answer = joining(packets)
        answer.write(HEAD)
        packets.close()
        await asyncio.sleep(0)
        assert packets.sent == []
        assert answer.is_closing()

    asyncio.run(whole())
