"""A command as a process of its own, with somebody at its terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support import forked
from tests.support.eventually import eventually

COMMAND = (sys.executable, "-m", "encrypted_records.cli.main")


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self._process = process
        self._screen = screen
        self.shown = ""
        self._seen = 0

    def expect(self, text: str, *, within: float = 60.0) -> None:
        """Wait until ``text`` is shown, behind what was waited for before."""
        deadline = time.monotonic() + within
        while text not in self.shown[self._seen :]:
            assert self._read(deadline), f"no {text!r} in:\n{self.shown}"
        self._seen = self.shown.index(text, self._seen) + len(text)

    def type(self, line: str) -> None:
        os.write(self._screen, f"{line}\n".encode())

    def answer(self, question: str, line: str) -> None:
        self.expect(question)
        self.type(line)

    def interrupt(self) -> None:
        """Press Ctrl+C once the command reads: a signal between a prompt and the read behind it is
        seen only when the read ends."""
        asleep = 0

        def sleeps_on() -> bool:
            nonlocal asleep
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
            asleep = asleep + 1 if stat.rpartition(")")[2].split()[0] == "S" else 0
            return asleep == 10

        eventually(sleeps_on, "it waits for input", pause=0.05)
        self._process.send_signal(signal.SIGINT)

    def end(self, *, within: float = 60.0) -> int:
        """Its exit code."""
        deadline = time.monotonic() + within
        while self._read(deadline):
            pass
        return self._process.wait(max(deadline - time.monotonic(), 1))

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._screen], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        try:
            piece = os.read(self._screen, 1 << 16)
        except OSError:  # Linux's way to say that the other end is closed
            return False
        self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)


@contextmanager
def at_terminal(
    told: Mapping[str, str], *arguments: str, program: tuple[str, ...] = COMMAND
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = forked.Forked(
        [*program, *arguments],
        env=dict(told),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)
