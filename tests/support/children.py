"""Processes that a test starts end with its file: one that stays is named, with the test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import comes_about

#: Seconds that a process may take to end behind the last test of its file.
ENDING_SECONDS = 10.0
#: Processes that more than one file uses.
_lasting: set[int] = set()


def running_children() -> set[int]:
    """The processes that this one has started and that run; none where nothing tells."""
    found: set[int] = set()
    for thread in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with _ending():
            found |= {int(pid) for pid in thread.read_text().split()}
    return {pid for pid in found if _state(pid) not in ("", "Z")}


@contextmanager
def lasting() -> Iterator[None]:
    """Let processes that are started in the block outlive the file."""
    before = running_children()
    yield
    _lasting.update(running_children() - before)


def _state(pid: int) -> str:
    with _ending():
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


@contextmanager
def _ending() -> Iterator[None]:
    """For what may end while it is looked at."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        return


class Watch:
    """A plugin that fails the last test of a file where a process stays that the file started."""

    def __init__(self) -> None:
        #: the test during which a process was first seen
        self._begun: dict[int, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        if fixturedef.scope not in ("package", "session"):
            return (yield)
        with lasting():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            self._look(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        done = yield
        if nextitem is None or nextitem.path != item.path:
            self._look(item)
            # One that was told to end may take a moment, and its number may be another's by now.
            comes_about(lambda: not self._left(), within=ENDING_SECONDS)
            left = {pid: self._begun.pop(pid) for pid in self._left()}
            _lasting.update(left)  # each is named once
            assert not left, "\n".join(
                f"{test} left process {pid} behind: {_command(pid)}" for pid, test in left.items()
            )
        return done

    def _left(self) -> set[int]:
        return (running_children() - _lasting) & self._begun.keys()

    def _look(self, item: pytest.Item) -> None:
        for pid in running_children() - _lasting:
            self._begun.setdefault(pid, item.nodeid)


def _command(pid: int) -> str:
    with _ending():
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return "it has ended by now"
