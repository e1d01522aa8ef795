"""What every command has in common: a fast start, and codes that mean something."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest

from encrypted_records import errors
from encrypted_records.cli import main, terminal
from encrypted_records.cli.input.files import open_result
from encrypted_records.cli.login.proofs import devices_of
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.terminal import exit_code, printable
from encrypted_records.errors import ErsError
from tests.cli.tree import commands

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ErsError, 1),
        (errors.Startup, 1),
        (errors.InvalidSetting, 2),
        (errors.InvalidQuery, 2),
        (errors.TooLarge, 2),
        (errors.NotFound, 3),
        (errors.NotAuthenticated, 4),
        (errors.Conflict, 4),
        (errors.KeyMissing, 4),
        (errors.Throttled, 4),
        (errors.ApiUnreachable, 5),
        (errors.ApiFailed, 5),
        (errors.InvalidRecords, 6),
    ],
)
def test_an_error_has_the_exit_code_of_its_kind(error: type[ErsError], code: int) -> None:
    assert exit_code(error("what happened")) == code


def test_what_the_other_side_says_is_wrong_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.report(ErsError("one\x1b[2J\ntwo\x9b", hint="three\u202e"))
    assert capsys.readouterr().err == "error: one\\x1b[2J\ntwo\\x9b\nhint: three\\u202e\n"


@pytest.mark.parametrize("from_api", [False, True])
def test_a_device_is_replaced_where_the_proxy_itself_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch, from_api: bool
) -> None:
    monkeypatch.delenv("ERS_DEVICE", raising=False)
    unknown = errors.NotAuthenticated("x", code="device_unknown")
    unknown.from_api = from_api
    kept: list[object] = []

    async def devices() -> None:
        raise unknown

    client = SimpleNamespace(devices=devices)
    session = cast("CommandSession", SimpleNamespace(client=client, keep_device=kept.append))
    with pytest.raises(errors.NotAuthenticated):
        asyncio.run(devices_of(session))
    assert len(kept) == (not from_api)


def test_every_exit_code_is_documented() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCUMENT, re.MULTILINE)}
    ours = {code for _, code in terminal.EXIT_CODES} | {
        terminal.DONE,
        terminal.FAILED,
        terminal.INTERRUPTED,
        terminal.DECLINED,
        terminal.UNREAD,
    }
    assert listed == ours


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("keyrings", "ers keyring"),
        ("serch", "ers record search or ers dataset search"),
        ("schema serch", "ers record search or ers dataset search"),
        ("dataset lst", "ers dataset list"),
        ("share inivte", "ers share invite"),
        ("agregate", "ers record aggregate"),
        ("version", "ers --version"),
        ("record count", "ers record aggregate"),
        ("show", "ers record get or ers schema get or ers dataset get"),
    ],
)
def test_a_name_that_is_nearly_right_leads_to_the_whole_command(
    capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    assert main.run(typed.split()) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        f"error: no such command: ers {typed}; did you mean {meant}?"
    )


def test_a_name_like_no_other_is_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["schema", "zzzzz"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: no such command: ers schema zzzzz",
        "hint: see ers schema --help",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("keyring show", "keyring get"),
        ("retention show", "retention get"),
        ("job status", "job get"),
        ("record show", "record get"),
    ],
)
def test_an_old_name_works_and_says_the_new_one(
    capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    code = main.run([*old.split(), "--help"])
    shown = capsys.readouterr()
    assert shown.err == f"ers {old} is now called ers {new}\n"
    assert (code, f"Usage: ers {new}" in shown.out) == (0, True)


def test_an_old_name_in_another_group_is_told_by_the_usage_of_the_new_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["job", "upload", "--help"]) == 0
    assert "Usage: ers import [OPTIONS] [SOURCE]" in capsys.readouterr().out
    assert main.run(["job", "upload", "--no-such-option"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "hint: see ers import --help"


_COUNTED = """
import os, sys
from encrypted_records.cli.main import main
sys.argv = ["ers", "--version"]
try:
    main()
except SystemExit:
    import numpy
    print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux lists them")
def test_a_command_has_no_threads_for_each_core_of_the_machine() -> None:
    given = {name: value for name, value in os.environ.items() if "OPENBLAS_NUM" not in name}
    done = subprocess.run(
        [sys.executable, "-c", _COUNTED], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "1"


def test_no_help_lists_an_old_name() -> None:
    names = {path.rpartition(" ")[2] for path, _ in commands()}
    assert "get" in names
    assert not names & {"show"}


def test_no_result_and_no_question_can_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Names are the API's or another member's, and values another member's."""

    def show() -> None:
        terminal.say("Deleted \x1b]52;c;eA==\x07\nnext \x9b2J.")
        with open_result(None) as out:
            for piece in (b"a,\x1b[2J\r", b"\nb,\xc2", b"\x9b2J\n"):
                out.write(piece)

    asked: list[str] = []
    monkeypatch.setattr(click, "confirm", lambda question, **_: asked.append(question))
    terminal.ask_yes("Remove \x1b[2J?")
    assert asked == ["Remove \\x1b[2J?"]
    show()
    raw = b"Deleted \x1b]52;c;eA==\x07\nnext \xc2\x9b2J.\na,\x1b[2J\r\nb,\xc2\x9b2J\n"
    assert capsysbinary.readouterr().out == raw
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show()
    shown = b"Deleted \\x1b]52;c;eA==\\x07\nnext \\x9b2J.\na,\\x1b[2J\nb,\\x9b2J\n"
    assert capsysbinary.readouterr().out == shown


def test_what_was_stored_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\n\u202e\x9bc") == "a\\x1b[2Jb\\r\\n\\u202e\\x9bc"
    assert printable("Zoë 東京") == "Zoë 東京"


def test_a_ctrl_c_that_a_question_did_not_see_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prompt(*_label: object, **_options: object) -> str:
        with contextlib.suppress(KeyboardInterrupt):  # it came just before the system waits
            signal.raise_signal(signal.SIGINT)
        signal.pause()
        return "nobody"

    monkeypatch.setattr(click, "prompt", prompt)
    held = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        terminal.ask("E-mail")
    assert signal.getsignal(signal.SIGINT) is held


def test_a_bug_is_shown_for_a_report_without_what_it_quotes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object, **_more: object) -> None:
        raise KeyError("lupus erythematosus")

    monkeypatch.setenv("ERS_TRACEBACK", "1")
    monkeypatch.setattr(main.ers, "main", fail)
    assert main.run(["record", "list"]) == 1
    shown = capsys.readouterr().err
    assert "in fail" in shown
    assert "builtins.KeyError" in shown
    assert "error: internal error (KeyError)" in shown
    assert "report what that shows" in shown
    # What follows the name of an error is its text; the line of the program stands there as well.
    assert "KeyError: " not in shown
    assert "KeyError('" not in shown


def test_a_file_that_a_result_replaces_keeps_its_permissions_and_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    kept, link = tmp_path / "kept.csv", tmp_path / "link.csv"
    kept.touch()
    kept.chmod(0o600)
    link.symlink_to(kept)
    with open_result(str(link)) as out:
        out.write(b"new")
    assert (link.is_symlink(), kept.read_bytes()) == (True, b"new")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert synced == [kept.stat().st_ino]  # a power failure leaves no empty file of this name


def test_a_name_of_bytes_that_are_no_utf_8_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    terminal.open_streams()
    terminal.say(os.fsdecode(b"caf\xe9"))
    assert out.buffer.getvalue() == b"caf\xe9\n"
    assert printable(os.fsdecode(b"caf\xe9")) == "caf\\udce9"
