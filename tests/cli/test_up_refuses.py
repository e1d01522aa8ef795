"""What ``ers up`` refuses before anything starts: one line, and one with the fix."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from encrypted_records.cli import data_folder, main
from tests.support import forked
from tests.support.service import ERS, clean_environment, free_ports


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refusal(*arguments: str) -> list[str]:
    """The lines of an ``ers`` that refuses to start."""
    done = forked.run([*ERS, *arguments], clean_environment())
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]
    return lines


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_a_port_in_use_is_named_with_the_flag_that_changes_it(
    side: str, taken: int, tmp_path: Path
) -> None:
    other = "proxy" if side == "api" else "api"
    free = free_ports(1)[0]
    error, hint = refusal(
        "up", f"--data-dir={tmp_path}/data", f"--{side}-port={taken}", f"--{other}-port={free}"
    )
    assert error == f"error: port {taken} of 127.0.0.1 is in use"
    assert hint == f"hint: choose another with --{side}-port or ERS_{side.upper()}_PORT"


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_a_port_for_metrics_in_use_is_named_with_its_flag(
    side: str, taken: int, tmp_path: Path
) -> None:
    port = free_ports(1)[0]
    error, hint = refusal(
        side, f"--data-dir={tmp_path}", f"--{side}-port={port}", f"--{side}-metrics-port={taken}"
    )
    assert error == f"error: port {taken} of 127.0.0.1 is in use"
    assert f"--{side}-metrics-port" in hint


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_a_port_that_another_program_has_on_the_other_loopback_address_is_refused(
    side: str, tmp_path: Path
) -> None:
    """That program could relay what browsers send to ``http://localhost:PORT``."""
    port, other = free_ports(2)
    another = "proxy" if side == "api" else "api"
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        error, _ = refusal(
            "up",
            f"--data-dir={tmp_path}/data",
            f"--{side}-port={port}",
            f"--{another}-port={other}",
        )
    assert error == f"error: port {port} of ::1 is in use"


def test_one_port_for_both_is_refused(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    error, _ = refusal(
        "up", f"--data-dir={tmp_path}/data", f"--api-port={port}", f"--proxy-port={port}"
    )
    assert "cannot both listen" in error


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    error, hint = refusal("up", f"--data-dir={tmp_path}/data", "--api-host=192.0.2.1")
    assert error.startswith("error: cannot listen on 192.0.2.1")
    assert "--api-host" in hint


@pytest.mark.parametrize("command", ["up", "api", "proxy", "demo"])
def test_a_folder_that_cannot_be_written_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error, hint = refusal(command, f"--data-dir={tmp_path}/file/data")
    assert error == f"error: the data folder {tmp_path}/file/data cannot be used: not a directory"
    assert "--data-dir" in hint


def test_a_folder_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_folder.prepare(tmp_path)
    monkeypatch.setattr(data_folder, "ENDING_SECONDS", 0.0)
    with data_folder.hold(tmp_path, "up"):
        assert main.run(["up", f"--data-dir={tmp_path}"]) == 1
    assert capsys.readouterr().err.startswith("error: another ers up (process ")


@pytest.mark.parametrize(("command", "least"), [("proxy", 320), ("api", 32)])
def test_too_few_descriptors_are_refused_by_name(command: str, least: int, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "encrypted_records.cli.main", command]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {least - 1}; exec "$@"', "sh", *line],
        env=clean_environment(
            **{f"ERS_{command.upper()}_PORT": str(free_ports(1)[0])},
            ERS_DATA_DIR=str(tmp_path / "data"),
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done
    error, hint = done.stderr.splitlines()
    assert f"may have {least - 1} files and connections open, and needs {least}" in error
    assert f"ulimit -n {least}" in hint
