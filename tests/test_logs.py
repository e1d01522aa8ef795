"""No line of a log quotes what a process works with, whoever writes the line."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from encrypted_records import logs

SECRET = "Zq-lupus-erythematosus"


class Quoting(Exception):
    """An error whose text quotes its input."""


@pytest.fixture(params=["text", "json"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """All that a process writes which logs as the service does."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.formatter(request.param))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "stderr", written)
    logs.log_uncaught()
    logging.getLogger().addHandler(handler)
    yield written
    logging.getLogger().removeHandler(handler)


def fail(_text: str) -> None:
    raise Quoting(SECRET)


async def forget_an_error() -> None:
    async def failing() -> None:
        fail(SECRET)

    forgotten = asyncio.create_task(failing())
    await asyncio.wait([forgotten])


async def fail_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(fail, SECRET)
    await asyncio.sleep(0)


async def take_long() -> None:
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 0.0
    loop.call_soon(str, SECRET)
    await asyncio.sleep(0)


@pytest.mark.parametrize("policy", [asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy])
@pytest.mark.parametrize(
    ("work", "words"),
    [
        (forget_an_error, "Task exception was never retrieved"),
        (fail_in_a_callback, "Exception in callback"),
        (take_long, "Executing"),
    ],
)
def test_the_event_loop_says_what_happened_and_quotes_nothing(
    work: Callable[[], Coroutine[Any, Any, None]],
    words: str,
    policy: Callable[[], asyncio.AbstractEventLoopPolicy],
    log: io.StringIO,
) -> None:
    with asyncio.Runner(debug=True, loop_factory=policy().new_event_loop) as runner:
        runner.run(work())
        gc.collect()
    assert words in log.getvalue()
    assert SECRET not in log.getvalue()


def test_a_malformed_form_is_named_without_its_bytes(log: io.StringIO) -> None:
    with pytest.raises(FormParserError):
        MultipartParser(b"x").write(b"--x\r\nname\xfe: value")
    assert "a form is malformed" in log.getvalue()
    assert "254" not in log.getvalue()


def test_an_error_that_ends_a_thread_is_named_without_its_text(log: io.StringIO) -> None:
    thread = threading.Thread(target=fail, args=[SECRET])
    thread.start()
    thread.join()
    assert "unexpected Quoting" in log.getvalue()
    assert "in fail" in log.getvalue()
    assert SECRET not in log.getvalue()


def test_an_error_that_nobody_can_catch_is_named_without_its_text(log: io.StringIO) -> None:
    class Ending:
        def __del__(self) -> None:
            fail(SECRET)

    ending = Ending()
    del ending
    gc.collect()
    assert "unexpected Quoting" in log.getvalue()
    assert SECRET not in log.getvalue()
