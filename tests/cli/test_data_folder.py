"""The data folder: made once, for its owner alone, used by one service at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from encrypted_records.cli import data_folder
from encrypted_records.cli.settings import Settings
from encrypted_records.cli.supervise import operating
from encrypted_records.errors import Startup
from tests.support.eventually import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_run_makes_it_for_its_owner_alone(folder: Path) -> None:
    data_folder.prepare(folder)
    assert mode(folder) == 0o700
    assert (folder / "format").read_text() == "api 2\nproxy 2\n"


def test_every_other_run_leaves_it_as_it_is(folder: Path) -> None:
    data_folder.prepare(folder)
    (folder / "keys").touch()
    data_folder.prepare(folder)
    assert {path.name for path in folder.iterdir()} == {"format", "keys"}


def test_an_empty_folder_that_is_there_is_taken_and_closed(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o755)
    data_folder.prepare(folder)
    assert mode(folder) == 0o700


def test_a_folder_that_others_can_read_and_nobody_can_close_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    data_folder.prepare(folder)
    for readable in (0o740, 0o701, 0o777):
        folder.chmod(readable)
        with (
            monkeypatch.context() as patch,
            pytest.raises(Startup, match="other users can read") as refused,
        ):
            patch.setattr(Path, "chmod", refuse)
            data_folder.prepare(folder)
        assert f"chmod 700 {folder}" in refused.value.hint


def test_a_folder_of_somebody_elses_files_is_refused_and_untouched(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "thesis.tex").touch()
    with pytest.raises(Startup, match="not a data folder of this service"):
        data_folder.prepare(folder)
    assert mode(folder) == 0o755
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_folder_of_another_user_is_refused_and_untouched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where root looks after the folder of a service, which could not open root's files."""
    data_folder.prepare(folder)
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    told = Settings(data_dir=folder)
    for use in (
        lambda: data_folder.prepare(folder),
        lambda: operating.verify_stored(told),
        lambda: operating.examine_stored(told, 0),
    ):
        with pytest.raises(Startup, match="belongs to the user") as refused:
            use()
        assert "runuser -u" in refused.value.hint
    assert sorted(folder.rglob("*")) == before


def test_a_folder_of_a_newer_version_is_refused_by_name(folder: Path) -> None:
    data_folder.prepare(folder)
    (folder / "format").write_text("api 2\nproxy 3\n")
    newer = "newer version: form 3 of the proxy, and this version knows 2"
    with pytest.raises(Startup, match=newer):
        data_folder.prepare(folder)
    with pytest.raises(Startup, match=newer):
        data_folder.prepare(folder, ["proxy"])
    # What the other side keeps there is nothing to this one.
    data_folder.prepare(folder, ["api"])


@pytest.mark.parametrize("text", ["1\n", "1", "api 1\nproxy 2\n", "proxy 2\napi 1\n"])
def test_a_folder_of_an_older_version_is_refused_by_name_and_untouched(
    folder: Path, text: str
) -> None:
    data_folder.prepare(folder)
    (folder / "format").write_text(text)
    older = "older version: form 1 of the api, and this one needs 2"
    with pytest.raises(Startup, match=older) as refused:
        data_folder.prepare(folder)
    assert "export the records" in refused.value.hint
    assert (folder / "format").read_text() == text


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "api 2", "api 2\nproxy", "api 2\nproxy two", "9" * 5000,
     "api 2\nproxy 2\nproxy 2",
     "api 2\nproxy 2\nmore words here\n", "\0" * 100],
)  # fmt: skip
def test_a_format_that_names_no_form_of_each_side_is_refused(folder: Path, text: str) -> None:
    data_folder.prepare(folder)
    (folder / "format").write_text(text)
    with pytest.raises(Startup, match="should contain a number for each side"):
        data_folder.prepare(folder)


def test_a_folder_that_cannot_be_made_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Startup, match="not a directory") as refused:
        data_folder.prepare(tmp_path / "file" / "data")
    assert "--data-dir" in refused.value.hint


def test_two_of_a_kind_cannot_hold_one_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "ENDING_SECONDS", 0.0)
    data_folder.prepare(folder)
    with (
        data_folder.hold(folder, "up"),
        data_folder.hold(folder, "api"),
        pytest.raises(Startup, match=r"another ers up \(process \d+\)"),
        data_folder.hold(folder, "up"),
    ):
        pass


def test_one_command_at_a_time_moves_or_reconciles_objects(folder: Path) -> None:
    data_folder.prepare(folder)
    told = Settings(data_dir=folder)
    with data_folder.hold(folder, "storage"):
        for command in (operating.move_stored, operating.reconcile_stored):
            with pytest.raises(Startup, match=f"another ers storage .process {os.getpid()}"):
                command(told)


@pytest.mark.parametrize("role", ["up", "api", "proxy"])
def test_a_start_waits_for_a_holder_that_ends_and_says_so(
    folder: Path, role: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_folder.prepare(folder)
    holder = ExitStack()
    holder.enter_context(data_folder.hold(folder, role))

    def end(_seconds: float) -> None:
        assert f"another ers {role} (process {os.getpid()}) to end" in capsys.readouterr().err
        holder.close()

    monkeypatch.setattr("encrypted_records.cli.data_folder.time.sleep", end)
    with data_folder.hold(folder, role):
        pass
    holder.enter_context(data_folder.hold(folder, role))
    with pytest.raises(Startup), data_folder.hold(folder, role, wait=False):
        pass
    holder.close()


def test_a_holder_that_was_killed_holds_nothing(folder: Path) -> None:
    data_folder.prepare(folder)
    script = (
        "import os, sys, pathlib; from encrypted_records.cli import data_folder\n"
        "with data_folder.hold(pathlib.Path(sys.argv[1]), 'up'): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert killed.returncode == -9
    with data_folder.hold(folder, "up"):
        pass


def test_a_power_failure_leaves_no_format_or_a_whole_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(Startup, match="input/output error"):
        patched.setattr(os, "fsync", fail)
        data_folder.prepare(folder)
    assert not (folder / "format").exists()
    (folder / "format.new").touch()  # as a power failure leaves it
    data_folder.prepare(folder)
    assert (folder / "format").read_text() == "api 2\nproxy 2\n"


def test_two_first_starts_at_the_same_moment_prepare_one_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True, mode=0o700)
    real, asked = fcntl.flock, threading.Event()

    def lock(file: int, operation: int) -> None:
        asked.set()
        real(file, operation)

    with ThreadPoolExecutor(1) as pool, data_folder.alone_in(folder):
        monkeypatch.setattr(fcntl, "flock", lock)
        other = pool.submit(data_folder.prepare, folder)
        eventually(lambda: asked.is_set() or other.done(), "the other one waits, or is done")
        assert asked.is_set()
        (folder / "format").write_text("api 2\nproxy 2\n")
        (folder / "api").mkdir()
    other.result()


def test_a_folder_whose_file_system_has_no_locks_is_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    data_folder.prepare(folder)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(Startup, match=r"api\.lock cannot be locked: no locks available"),
        data_folder.hold(folder, "api"),
    ):
        pass
