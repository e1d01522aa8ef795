"""Starting and ending: what stands in the way is said in one line, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.api import PASSWORD, Api, free_port, running_api, start, wait_until_up
from tests.server.conftest import Stopped
from tests.support.eventually import eventually
from tests.support.postgres import NewDatabase


def refusal(folder: Path, **options: object) -> str:
    """What an API that cannot start says."""
    process = start(folder, **{"port": free_port()} | options)  # type: ignore[arg-type]  # options of start
    assert process.wait(30) == 1
    lines = (folder / "log").read_text().strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with listening() as port:
        said = refusal(tmp_path, port=port)
    assert said.startswith(f"cannot_start: cannot listen on 127.0.0.1 port {port}")


def test_a_second_api_on_the_same_port_is_refused(api: Api, tmp_path: Path) -> None:
    assert "address already in use" in refusal(tmp_path, port=api.port)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file stands here")
    assert "cannot be written" in refusal(tmp_path)


def test_a_database_out_of_reach_is_refused(tmp_path: Path) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    assert "the database does not answer" in refusal(tmp_path, database_url=url)


def test_a_database_of_another_kind_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, database_url="mysql://u@127.0.0.1/x").startswith("invalid_setting")


def migrated(stopped: Stopped, app: str, name: str) -> None:
    """Have its database say that a migration was done."""
    with sqlite3.connect(stopped.database) as database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (?, ?, '2030-01-01')",
            (app, name),
        )


def test_a_database_of_a_newer_version_is_refused(stopped: Stopped) -> None:
    migrated(stopped, "records", "9999_from_the_future")
    assert "newer version" in refusal(stopped.folder)


def test_a_database_that_an_app_of_earlier_versions_migrated_is_not_newer_and_has_its_accounts(
    stopped: Stopped,
) -> None:
    migrated(stopped, "token_blacklist", "0001_initial")
    with running_api(stopped.folder) as api:
        headers = {"Authorization": f"Bearer {stopped.account.token}"}
        assert api.call("GET", "/api/users/self/", headers=headers).status == 200
        assert api.token_pair(stopped.account.email, PASSWORD).status == 200


def test_two_apis_may_start_at_once_on_one_new_database(
    tmp_path: Path, postgresql: NewDatabase
) -> None:
    url = postgresql()
    ports, processes = [free_port(), free_port()], []
    try:
        for number, port in enumerate(ports):
            folder = tmp_path / str(number)
            folder.mkdir()
            processes.append(start(folder, port=port, database_url=url))
        for port, process in zip(ports, processes, strict=True):
            wait_until_up(port, process)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def test_what_is_made_is_for_its_owner_alone(api: Api) -> None:
    made = [api.data_dir, *api.data_dir.rglob("*")]
    assert api.data_dir / "api" / "secret.key" in made
    assert [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_logs_can_be_json_and_sigterm_ends_it_soon_and_frees_the_port(tmp_path: Path) -> None:
    with running_api(tmp_path, log_format="json") as api:
        api.call("GET", "/api/status/", headers={"X-Request-ID": "as-json"})
        api.process.send_signal(signal.SIGTERM)
        # What ends by itself has this code; what has to be killed, that of the signal.
        assert api.process.wait(60) == 0
        wait_until_free(api.port)
    lines = [json.loads(line) for line in api.log.read_text().splitlines()]
    line = next(line for line in lines if line["request_id"] == "as-json")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/status/", 200)


def test_a_killed_api_leaves_no_process_and_frees_the_port(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        started = children(api.process.pid)
        api.process.kill()
        api.process.wait(60)
        wait_until_free(api.port)
        assert [pid for pid in started if alive(pid)] == []


def children(pid: int) -> list[int]:
    return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def wait_until_free(port: int) -> None:
    def is_free() -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

    eventually(is_free, "the port is free")
