"""Run ``ers`` in this process against a running service, and see what it says."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.cli import main, terminal
from encrypted_records.cli.command_group import STANDARD, CommandLimits
from tests.support.service import Account, Service


@dataclass(frozen=True)
class Said:
    """What a command has said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON lines of the result."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def one(self) -> Any:
        (found,) = self.lines
        return found


class Ers:
    """
    Args:
        environment: what the command is told by variables; no other ``ERS_`` variable is set.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        **environment: str,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name in [name for name in os.environ if name.startswith("ERS_")]:
            monkeypatch.delenv(name)
        # A keychain of the machine's own is no place for the logins of tests.
        self.set(
            PYTHON_KEYRING_BACKEND="keyring.backends.fail.Keyring",
            **{"ERS_CONFIG": os.devnull, "ERS_OUTPUT": "ndjson"} | environment,
        )

    def set(self, **environment: str) -> None:
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)

    def unset(self, *names: str) -> None:
        for name in names:
            self._monkeypatch.delenv(name)

    def __call__(
        self, *arguments: str | Path, typed: str = "", limits: CommandLimits = STANDARD
    ) -> Said:
        stdin = io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8")
        with self._monkeypatch.context() as patch, logging_of_its_own():
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(terminal, "report_bug", partial(_show_bug, terminal.report_bug))
            code = main.run([str(argument) for argument in arguments], limits)
        captured = self._capsys.readouterr()
        return Said(code, captured.out, captured.err)

    def done(
        self, *arguments: str | Path, typed: str = "", limits: CommandLimits = STANDARD
    ) -> Said:
        """What a command says that must succeed."""
        said = self(*arguments, typed=typed, limits=limits)
        assert said.code == 0, said.err
        return said


def _show_bug(report: Callable[[BaseException], int], error: BaseException) -> int:
    """Say where it is behind what a user is told, which does not name it."""
    code = report(error)
    traceback.print_exception(error)
    return code


@contextlib.contextmanager
def logging_of_its_own() -> Iterator[None]:
    """What a command does to logging ends with it, as where it has a process of its own: a proxy in
    this process would go on writing into the stderr of the command."""
    kept = {logger: (list(logger.handlers), logger.level, logger.disabled) for logger in _loggers()}
    try:
        yield
    finally:
        for one in _loggers():
            one.handlers, level, one.disabled = kept.get(one, ([], logging.NOTSET, False))
            one.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(one for one in named if isinstance(one, logging.Logger))]


def run_here(
    told: Mapping[str, str], *arguments: str, typed: str = "", folder: Path | None = None
) -> Said:
    """Run ``ers`` in this process with an environment of its own: starting another takes most of a
    second."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        logging_of_its_own(),
    ):
        patch.setattr(os, "environ", dict(told))
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"))
        if folder is not None:
            patch.chdir(folder)
        code = main.run(list(arguments))
        for stream in (out, err):
            stream.flush()
    return Said(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


#: Words that only a shell understands: operators, which are part of a word if quoted, and what it
#: puts something else for.
_OF_SHELLS = re.compile(r"[();<>|&]+|.*[$`].*", re.DOTALL)


def run_line(told: Mapping[str, str], line: str, folder: Path, typed: str = "") -> Said:
    """Run a line of a shell: ``ers`` in this process where the line is nothing else."""
    plain = re.sub(r"\$([A-Z_]+)\b", lambda named: told.get(named[1], named[0]), line)
    words = shlex.shlex(plain, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    program, *arguments = words
    quoted = re.search(r"'[^']*\$", line)  # where it may stand for itself
    if program == "ers" and not quoted and not any(map(_OF_SHELLS.fullmatch, arguments)):
        return run_here(told, *arguments, typed=typed, folder=folder)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env=told,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def environment(service: Service, account: Account) -> dict[str, str]:
    return {
        "ERS_PROXY_URL": service.proxy_url,
        "ERS_EMAIL": account.email,
        "ERS_PASSWORD": account.password,
        "ERS_OUTPUT": "ndjson",
        "XDG_STATE_HOME": str(service.state_dir),
    }
