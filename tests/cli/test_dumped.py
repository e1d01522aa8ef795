"""A service on PostgreSQL with a folder of objects and a proxy by itself is backed up while it runs
and put back elsewhere, by the commands of docs/operations.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.test_backup import DEFINITION, MANY, writing
from tests.support import jobs
from tests.support.postgres import NewDatabase, installed
from tests.support.service import Service, clean_environment, free_ports, state_of
from tests.support.sides import running_side
from tests.support.store import new_store

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@contextmanager
def served(folder: Path, proxy: Path, settings: Mapping[str, str]) -> Iterator[Service]:
    """An API with these settings, and a proxy with this folder."""
    api_port, proxy_port = free_ports(2)
    api_url, proxy_url = (f"http://127.0.0.1:{port}" for port in (api_port, proxy_port))
    log = folder / "log"
    api = {**settings, "ERS_DATA_DIR": str(folder / "api"), "ERS_API_PORT": str(api_port)}
    own = {
        "ERS_DATA_DIR": str(proxy),
        "ERS_PROXY_PORT": str(proxy_port),
        "ERS_BASE_URL": api_url,
        "ERS_ACCESS": "api",
        "XDG_STATE_HOME": str(state_of(folder / "api")),
    }
    with (
        running_side("api", api, api_url, log),
        running_side("proxy", own, proxy_url, log) as process,
    ):
        yield Service(process, api_url, proxy_url, folder / "api", log)


def ran(script: str, folder: Path, settings: Mapping[str, str]) -> str:
    """What a script of the document says, with its places below this folder."""
    binaries = installed()
    if binaries is None or not (binaries / "pg_dump").exists():
        pytest.skip("no PostgreSQL with pg_dump is installed (Debian: postgresql)")
    here = re.sub(r"/(srv|backups)/", lambda found: f"{folder}/{found[1]}/", script)
    ers = f'ers() {{ "{sys.executable}" -m encrypted_records.cli.main "$@"; }}\n'
    environment = clean_environment(**settings, PATH=f"{binaries}:{os.environ['PATH']}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ers + here],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scripts() -> list[str]:
    found = re.findall(r"```sh\n(.*?)```", OPERATIONS.read_text(), re.DOTALL)
    words = ("pg_dump", "pg_restore", "ers-proxy", "restored-proxy")
    return [one for one in found if any(word in one for word in words)]


def test_a_service_on_postgresql_is_backed_up_while_it_runs_and_put_back(
    tmp_path: Path, postgresql: NewDatabase
) -> None:
    proxy_there, api_there, api_back, proxy_back = scripts()
    srv = tmp_path / "srv"
    srv.mkdir()
    settings = {
        "ERS_DATABASE_URL": postgresql(),
        "ERS_BULK_URL": f"file://{srv}/ers-objects?least=0",
    }
    with served(srv, srv / "ers-proxy", settings) as service:
        store = new_store(service, DEFINITION)
        rows = [{"number": number, "text": f"of a job {number:0300d}"} for number in range(MANY)]
        jobs.completed(store, jobs.started(store, jobs.as_json(store, rows)))
        with writing(store) as now:
            before = list(now.acknowledged)
            (tmp_path / "backups" / "monday").mkdir(parents=True)
            ran(proxy_there, tmp_path, {})
            ran(api_there, tmp_path, settings)
            now.wait_for(len(now.acknowledged) + 1)  # the service goes on
        stored = jobs.as_json(store, [{"number": 10**6, "text": "after it"}])
        jobs.completed(store, jobs.started(store, stored))
    # The machine is lost; what is left are the backups.
    srv.rename(tmp_path / "lost")
    srv.mkdir()
    settings = {
        "ERS_DATABASE_URL": postgresql(),
        "ERS_BULK_URL": f"file://{tmp_path}/backups/monday/objects?least=0",
    }
    ran(api_back, tmp_path, settings | {"ERS_DATA_DIR": str(srv / "api")})
    ran(proxy_back, tmp_path, {})
    with served(srv, srv / "restored-proxy", settings) as service:
        store = replace(store, service=service)
        found = sorted(record["data"]["number"] for record in store.everything())
        of_the_job = set(range(MANY))
        assert of_the_job | set(before) <= set(found) <= of_the_job | set(now.sent)
        assert len(found) == len(set(found))
        # And it goes on from there.
        assert store.send([{"number": 10**6 - 1, "text": "after"}]).status == 201
