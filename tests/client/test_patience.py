"""A server that is silent, slow or stops in between is waited for within bounds, and no longer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from encrypted_records import runtime
from encrypted_records.client.limits import Timing
from encrypted_records.client.messages import Request, Response
from encrypted_records.client.transport import CONNECTIONS, STREAMS, Transport, came_in
from encrypted_records.errors import (
    ApiFailed,
    ApiTimeout,
    ApiUnreachable,
    ErsError,
    NotFound,
    Overloaded,
    Stopping,
    Unavailable,
)

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

#: Of a transport's patience in these tests.
SECONDS = 0.5
#: More than any patience here, and less than each timeout of the client's own.
LONG = 60.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class SilenceEnded(Exception):
    """Nobody has given up."""


async def be_silent() -> None:
    await asyncio.sleep(LONG)
    raise SilenceEnded


@asynccontextmanager
async def server(
    answering: Answering, *, silent_seconds: float = SECONDS, least_rate: float = 16 << 10
) -> AsyncIterator[Transport]:
    """A transport to a server that does with each connection what the test says, and whose silence
    must not be waited for to its end."""
    ended = 0

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        try:
            await answering(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except SilenceEnded:
            ended += 1
        finally:
            writer.close()

    own = socket.create_server(("127.0.0.1", 0))
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    listening = await asyncio.start_server(take, sock=own, limit=1 << 16)
    port = own.getsockname()[1]
    timing = Timing(silent_seconds=silent_seconds, least_rate=least_rate)
    transport = Transport(f"http://127.0.0.1:{port}", timing=timing)
    try:
        yield transport
        assert not ended
    finally:
        await transport.close()
        listening.close()


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    await be_silent()


class CountedSilence:
    """A silent server that counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await silent(reader, writer)


def test_a_silent_server_is_waited_for_once_and_not_once_for_each_try() -> None:
    counted = CountedSilence()

    async def ask() -> None:
        async with server(counted) as transport:
            with pytest.raises(ApiTimeout):
                await transport.request("GET", "/")

    asyncio.run(ask())
    assert counted.asked == 1


def test_what_a_server_has_said_is_told_although_it_is_silent_when_it_is_asked_again() -> None:
    body = (
        b'{"title": "x", "status": 503, "code": "bulk_store_unavailable", "detail": "it is away"}'
    )
    problem = (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    asked = 0

    async def refuse_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await reader.readuntil(b"\r\n\r\n"):
            asked += 1
            if asked > 1:
                await be_silent()
            writer.write(problem)

    async def ask() -> None:
        async with server(refuse_once) as transport:
            with pytest.raises(Unavailable) as caught:
                await transport.request("GET", "/")
            assert caught.value.reason == "bulk_store_unavailable"

    asyncio.run(ask())
    assert asked == 2


def test_a_large_body_that_nobody_takes_is_given_up() -> None:
    async def ask() -> None:
        async with server(silent) as transport:
            with pytest.raises(ApiTimeout):
                await transport.request("POST", "/", data=b"x" * (32 << 20))

    asyncio.run(ask())


def test_a_large_body_that_is_taken_slowly_is_brought_over() -> None:
    size, taken, pause, pauses = 8 << 20, 0, 0.02, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken, pauses
        await reader.readuntil(b"\r\n\r\n")
        while taken < size:
            taken += len(await reader.read(1 << 16))
            pauses += 1
            await asyncio.sleep(pause)
        writer.write(OK)
        await writer.drain()

    async def ask() -> None:
        # No pause of the server's is so long, also on a busy machine, and all of them are longer.
        async with server(slow, silent_seconds=4 * SECONDS) as transport:
            answer = await transport.request("POST", "/", data=b"x" * size)
            assert answer.body == b"ok"

    asyncio.run(ask())
    assert taken == size and pauses * pause > 4 * SECONDS


def test_a_stream_that_nobody_takes_is_given_up_also_by_whoever_said_goodbye() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await asyncio.sleep(SECONDS / 2)  # until the sender waits for room
        writer.write_eof()  # and the connection stays
        await be_silent()

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 14)

    async def ask(answering: Answering) -> None:
        async with server(answering) as transport:
            with pytest.raises((ApiTimeout, ApiUnreachable)):
                await transport.request("PATCH", "/", data=pieces())

    asyncio.run(ask(silent))
    asyncio.run(ask(deaf))


def test_a_stream_that_comes_slowly_from_its_source_is_sent_whole() -> None:
    taken: list[int] = []

    async def taking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while (size := int(await reader.readline(), 16)) or taken.count(1) < 2:
            taken.append(len(await reader.readexactly(size + 2)) - 2)
        writer.write(OK)
        await writer.drain()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield b"x"
            await asyncio.sleep(2 * SECONDS)

    async def ask() -> None:
        async with server(taking) as transport:
            assert (await transport.request("PATCH", "/", data=pieces())).body == b"ok"

    asyncio.run(ask())
    assert taken == [1, 1]


def test_an_answer_that_trickles_does_not_hold_for_ever() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)

    async def ask() -> None:
        async with server(trickle, least_rate=100.0) as transport:
            with pytest.raises(ApiTimeout):
                await transport.request("GET", "/")

    asyncio.run(ask())


def test_an_answer_whose_length_was_altered_on_the_way_is_not_waited_for() -> None:
    async def altered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK.replace(b"2\r\n\r\n", b"6\r\n\r\n"))
        await writer.drain()
        await be_silent()

    async def ask() -> None:
        async with server(altered) as transport:
            with pytest.raises(ApiTimeout):
                await transport.request("GET", "/")

    asyncio.run(ask())


def test_a_pause_that_the_server_names_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, paused = 0, list[float]()

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(runtime, "sleep", sleep)

    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            later = b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"
            writer.write(later if asked == 1 else OK)
            await writer.drain()

    async def ask() -> None:
        async with server(busy, silent_seconds=30.0) as transport:
            assert (await transport.request("GET", "/")).body == b"ok"

    asyncio.run(ask())
    assert asked == 2
    assert len(paused) == 1 and paused[0] >= 3


def test_a_server_that_has_answered_before_is_tried_once_more_as_while_it_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away, paused = True, list[float]()
    timing = Timing(pauses=(1.0, 2.0), restart_seconds=4.0)

    async def sleep(seconds: float) -> None:
        nonlocal away
        paused.append(seconds)
        away = away and seconds != timing.restart_seconds

    monkeypatch.setattr(runtime, "sleep", sleep)

    async def restarting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not away:
            writer.write(OK)
            await writer.drain()

    async def ask() -> None:
        nonlocal away
        async with server(restarting) as transport:
            transport.timing = timing
            with pytest.raises(ApiUnreachable):
                await transport.request("GET", "/")
            assert paused == [1.0, 2.0]
            away = False
            assert (await transport.request("GET", "/")).body == b"ok"
            away = True
            assert (await transport.request("GET", "/")).body == b"ok"
            assert paused == [1.0, 2.0, 1.0, 2.0, 4.0]

    asyncio.run(ask())


async def ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(OK)
        await writer.drain()


def test_a_busy_client_has_no_more_connections_than_it_is_granted() -> None:
    most = now = 0

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            await ok(reader, writer)
        finally:
            now -= 1

    async def ask() -> None:
        async with server(counted, silent_seconds=60.0) as transport:
            answers = await asyncio.gather(*[transport.request("GET", "/") for _ in range(200)])
            assert [answer.status for answer in answers] == [200] * 200

    asyncio.run(ask())
    assert most == CONNECTIONS


def test_streams_that_nobody_reads_hold_up_no_request() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /stream "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx")
            await writer.drain()
            await reader.read()
            return
        writer.write(OK)
        await writer.drain()

    async def ask() -> None:
        async with server(endless, silent_seconds=30.0) as transport, AsyncExitStack() as stack:
            for _ in range(STREAMS):
                await stack.enter_async_context(transport.stream("GET", "/stream"))
            assert (await transport.request("GET", "/")).body == b"ok"

    asyncio.run(ask())


def test_who_came_before_it_was_known_does_not_try_once_more() -> None:
    async def one_after_another(transport: Transport, lock: asyncio.Lock) -> type[Exception] | None:
        came_in.set(runtime.monotonic())
        async with lock:
            try:
                await transport.request("GET", "/")
            except ApiTimeout as error:
                return type(error)
        return None

    counted = CountedSilence()

    async def ask() -> None:
        async with server(counted) as transport:
            lock = asyncio.Lock()
            waiting = [asyncio.create_task(one_after_another(transport, lock)) for _ in range(100)]
            assert await asyncio.gather(*waiting) == [ApiTimeout] * 100

    asyncio.run(ask())
    assert counted.asked == 1


def test_who_comes_later_tries_anew_and_whoever_answers_is_heard() -> None:
    speaks = False

    async def at_times(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (ok if speaks else silent)(reader, writer)

    async def ask() -> None:
        nonlocal speaks
        async with server(at_times, silent_seconds=3 * SECONDS) as transport:
            came_in.set(runtime.monotonic())
            with pytest.raises(ApiTimeout):
                await transport.request("GET", "/")
            speaks = True
            with pytest.raises(ApiTimeout):
                await transport.request("GET", "/")  # for the same one
            came_in.set(runtime.monotonic())
            assert (await transport.request("GET", "/")).body == b"ok"
            came_in.set(0.0)
            assert (await transport.request("GET", "/")).body == b"ok"

    asyncio.run(ask())


def test_no_connection_is_found_out_together_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    async def ask() -> None:
        async with server(silent) as transport:
            pass
        attempt, lock = transport.attempt, asyncio.Lock()

        async def counted(request: Request) -> Response:
            nonlocal tried
            tried += 1
            return await attempt(request)

        async def one() -> None:
            came_in.set(runtime.monotonic())
            async with lock:
                with pytest.raises(ApiUnreachable):
                    await transport.request("POST", "/", data=b"")

        monkeypatch.setattr(transport, "attempt", counted)
        await asyncio.gather(*[one() for _ in range(100)])
        await transport.close()

    asyncio.run(ask())
    assert tried == 1


def test_an_answer_without_an_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transport, "longest_answer", 1 << 20)
    sent = 0

    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while sent < 64 << 20:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async def ask() -> None:
        async with server(go_on) as transport:
            with pytest.raises(ApiFailed, match="no end"):
                await transport.request("GET", "/")

    asyncio.run(ask())
    assert sent < 64 << 20


def test_answers_that_come_at_once_take_no_more_memory_than_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Transport, "longest_answer", 1 << 20)
    over = asyncio.Event()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bytes(1 << 19))
        await over.wait()

    async def ask(transport: Transport) -> int:
        try:
            return len((await transport.request("GET", "/")).body)
        except ApiFailed as error:
            assert "memory together" in error.message
            return 0
        finally:
            over.set()

    async def ask_all() -> list[int]:
        async with server(begin) as transport:
            return await asyncio.gather(*[ask(transport) for _ in range(20)])

    assert set(asyncio.run(ask_all())) == {0, 1 << 19}


def test_too_much_work_is_an_error_of_its_own() -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"code": "overloaded", "status": 503}'
        writer.write(
            b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        await writer.drain()

    async def ask() -> None:
        async with server(busy) as transport:
            with pytest.raises(Overloaded) as refused:
                await transport.request("POST", "/", data=b"")
            assert refused.value.retry_after == 2

    asyncio.run(ask())


def test_an_ingest_that_a_stopping_proxy_refuses_is_sent_again_under_its_key() -> None:
    body = b'{"code": "stopping", "status": 503}'
    refusal = b"HTTP/1.1 503 Stopping\r\nRetry-After: 0\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    keys: list[bytes] = []

    async def stop_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            length = {name.lower(): value for name, value in fields.items()}[b"content-length"]
            await reader.readexactly(int(length))
            keys.extend(
                value for name, value in fields.items() if name.lower() == b"idempotency-key"
            )
            writer.write(refusal if len(keys) == 1 else OK)

    async def ask() -> None:
        async with server(stop_once, silent_seconds=LONG) as transport:
            key = {"Idempotency-Key": "k"}
            answer = await transport.request(
                "POST", "/api/records/ingest/", json=[], headers=key, repeatable=True
            )
            assert answer.status == 200
        async with server(stop_once, silent_seconds=LONG) as transport:
            keys.clear()
            with pytest.raises(Stopping) as refused:
                await transport.request("POST", "/", data=b"", headers=key)
            assert refused.value.retry_after == 0

    asyncio.run(ask())
    assert keys == [b"k"]


_REASON = (
    b'{"error":{"type":"/help/errors/not_found/","title":"There is no such resource","status":404,'
    b'"detail":"the dataset is no longer shared with you","code":"not_found"}}\n'
)


@pytest.mark.parametrize(
    ("media_type", "last", "kind", "said"),
    [
        ("application/x-ndjson", _REASON, NotFound, "the dataset is no longer shared with you"),
        ("application/x-ndjson", b'{"error":1}\n', ApiUnreachable, "broke off before its end"),
        ("application/x-ndjson", b'{"id":"1"', ApiUnreachable, "broke off before its end"),
        ("text/csv", _REASON, ApiUnreachable, "broke off before its end"),
    ],
)
def test_an_answer_that_breaks_off_gives_the_reason_or_where_to_find_it(
    media_type: str, last: bytes, kind: type[ErsError], said: str
) -> None:
    """An address that answered is not one to check."""

    async def check() -> ErsError:
        read = asyncio.Event()

        async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Request-ID: 0b57\r\n"
                + f"Content-Type: {media_type}\r\n\r\n".encode()
            )
            for part in (b'{"id":"0"}\n', last):
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
            await read.wait()

        async with server(break_off) as transport, transport.stream("GET", "/") as pieces:
            got = b""
            with pytest.raises(ErsError, match=said) as refused:
                async for piece in pieces:
                    got += piece
                    if got.endswith(last):
                        read.set()
        return refused.value

    error = asyncio.run(check())
    assert type(error) is kind
    assert ("request 0b57" in error.hint) is (kind is ApiUnreachable)


def test_a_redirection_is_no_success() -> None:
    async def move(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 301 Moved\r\nLocation: https://there/\r\nContent-Length: 0\r\n\r\n")

    async def ask() -> None:
        async with server(move) as transport:
            with pytest.raises(ApiFailed, match="301 redirected to another address"):
                await transport.request("DELETE", "/api/tokens/x/")
            with pytest.raises(ApiFailed, match="301 redirected to another address"):
                async with transport.stream("POST", "/api/records/export/"):
                    pass

    asyncio.run(ask())
