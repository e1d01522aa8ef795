"""What the bar of a job says on a terminal."""

from __future__ import annotations

import io

import pytest

from encrypted_records.client.sdk.files import job_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("done", "said"), [(7, "storing records"), (9, "packing and publishing")])
def test_a_bar_says_what_a_job_does_when_all_of_its_records_are_stored(
    monkeypatch: pytest.MonkeyPatch, done: int, said: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with job_bar() as move:
        move(0, None)
        move(3, 9)
        move(done, 9)
    assert said in terminal.getvalue()
    assert ("packing" in terminal.getvalue()) == (done == 9)
