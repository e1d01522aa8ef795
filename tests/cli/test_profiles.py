"""What a profile of the config file says for a command, and what the file may hold."""

from __future__ import annotations

import fcntl
import json
import secrets
import stat
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from encrypted_records.cli import settings
from tests.cli.command import Ers
from tests.support.eventually import eventually
from tests.support.service import Service

DEFINITION = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
        },
    }
)
PEOPLE = json.dumps([{"name": "Ada\nLovelace", "age": 36}, {"name": "Alan"}])


@pytest.fixture
def people(ers: Ers) -> str:
    """A schema with two records, which its dataset has the name of."""
    slug = f"s{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    where = ("--dataset", slug, "--name", slug, "--slug", slug)
    ers.done("schema", "create", *where, "--file", "-", typed=DEFINITION)
    ers.done("record", "create", "--schema", slug, "--file", "-", typed=PEOPLE)
    return slug


@pytest.fixture
def configured(ers: Ers, tmp_path: Path) -> Path:
    path = tmp_path / "here" / "config.toml"
    ers.set(ERS_CONFIG=str(path))
    ers.unset("ERS_OUTPUT")
    return path


def test_a_profile_says_what_no_flag_and_no_variable_says(
    ers: Ers, configured: Path, people: str, running: Service
) -> None:
    ers.unset("ERS_PROXY_URL")
    ers.done("config", "set", "proxy_url", running.proxy_url)
    ers.done("config", "set", "--profile", "work", "output", "csv")
    ers.done("config", "set", "--profile", "work", "proxy_url", running.proxy_url)
    ers.done("config", "set", "--profile", "work", "schema", people)
    ers.done("config", "set", "--profile", "work", "dataset", people)

    assert json.loads(ers.done("status").out)["address"] == running.proxy_url
    search = ("record", "search", "age = 36")
    assert ers(*search).code == 2  # no schema
    found = ers.done(*search, "--profile", "work").out
    assert found.startswith('name,age,leave_out:id\n"Ada\nLovelace",36,')
    ers.set(ERS_PROFILE="work")
    assert ers.done(*search, "-o", "json").out.startswith("[")
    assert ers.done("schema", "get", people, "-o", "json").out.startswith("{")
    ers.set(ERS_OUTPUT="ndjson")
    assert ers.done(*search).one["data"]["age"] == 36

    ers.done("config", "unset", "schema")
    assert ers("config", "get", "schema").code == 3
    said = ers("status", "--profile", "wrok")
    assert (said.code, "there are: default, work" in said.err) == (3, True)


def test_the_dataset_of_a_profile_is_where_schemas_are_looked_for(
    ers: Ers, configured: Path, people: str
) -> None:
    other = f"{people}-other"
    ers.done("dataset", "create", "--name", other, "--slug", other)
    ers.done("config", "set", "dataset", other)

    assert ers("schema", "get", people).code == 3
    assert json.loads(ers.done("schema", "get", f"{people}/{people}").out)["slug"] == people
    made = ers.done("schema", "create", "--name", "x", "--file", "-", typed=DEFINITION)
    found = json.loads(ers.done("dataset", "get", other).out)
    assert json.loads(made.out)["dataset"] == found["url"]


def test_the_config_file_is_its_owners_alone_and_keeps_what_else_it_holds(
    ers: Ers, configured: Path
) -> None:
    configured.parent.mkdir()
    configured.write_text("# mine\napi_port = 9000  # not 8000\n")
    configured.chmod(0o644)

    ers.done("config", "set", "output", "csv")
    ers.done("config", "unset", "output")
    ers.done("config", "set", "organization", 'a "b" \\ é')

    assert stat.S_IMODE(configured.stat().st_mode) == 0o600
    assert configured.read_text().startswith("# mine\napi_port = 9000  # not 8000\n")
    assert ers.done("config", "get", "organization").out == 'a "b" \\ é\n'
    assert ers.done("config", "path").out == f"{configured}\n"
    assert list(configured.parent.iterdir()) == [configured]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("password", "violet-harbour"),
        ("proxy_url", "http://ada:violet-harbour@proxy.example"),
        ("output", "violet-harbour"),
        ("organization", ""),
    ],
)
def test_a_profile_takes_no_secret_and_nothing_unknown(
    ers: Ers, configured: Path, key: str, value: str
) -> None:
    said = ers("config", "set", key, value)
    assert said.code == 2
    assert "violet" not in said.err
    assert not configured.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("profiles = 3", "profiles are tables"),
        ("[profiles]\nwork = 3", "work is not a table"),
        ("[profiles.work]\nproxi_url = 'http://x'", "did you mean proxy_url?"),
        ("[profiles.work]\noutput = 3", "profile work, output: expected a text"),
        ("[profiles.work]\nproxy_url = 'x'", "profile work, proxy_url: expected http://"),
        ("[profiles", "is not valid TOML"),
    ],
)
def test_a_broken_config_file_is_named_and_not_written_over(
    ers: Ers, configured: Path, text: str, says: str
) -> None:
    configured.parent.mkdir()
    configured.write_text(text)
    for command in (["status"], ["config", "list"], ["config", "set", "output", "csv"]):
        said = ers(*command)
        assert (said.code, says in said.err, str(configured) in said.err) == (2, True, True)
    assert configured.read_text() == text


def test_two_commands_that_change_the_file_at_once_both_change_it(
    configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = fcntl.flock, threading.Event()

    def lock(file: int, operation: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            asked.set()
        real(file, operation)

    with ThreadPoolExecutor(1) as pool:

        def overtaken(document: Any) -> str:
            """The other one comes when this one has read the file and not written it yet."""
            monkeypatch.setattr(tomlkit, "dumps", dumps)
            other.append(pool.submit(settings.change_profile, "default", "output", "csv"))
            eventually(lambda: asked.is_set() or other[0].done(), "the other one waits, or is done")
            return dumps(document)

        other: list[Future[None]] = []
        dumps = tomlkit.dumps
        monkeypatch.setattr(fcntl, "flock", lock)
        monkeypatch.setattr(tomlkit, "dumps", overtaken)
        settings.change_profile("default", "dataset", "clinic")
        other[0].result()
    assert settings.read_profiles() == {"default": {"dataset": "clinic", "output": "csv"}}
