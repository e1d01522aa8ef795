"""``ers mirror`` and what reads it, by commands, with the API stopped and gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import Said, environment, run_here
from tests.support.ports import free_ports
from tests.support.service import ERS, Account, Service, running_service
from tests.support.sides import running_side

PASSPHRASE = "a passphrase of a backup\n"
ROWS = "name,age\nada,36\ngrace,79\nlin,28\n"


@dataclass
class World:
    """A service that has ended, and the mirror that was made of it."""

    service: Service
    account: Account
    mirror: Path
    #: the secret key of a service that reads
    key: str = ""
    #: the words of the keyring, and its backup file
    words: str = ""
    backup: Path = Path()

    @property
    def ports(self) -> tuple[int, int]:
        urls = (self.service.base_url, self.service.proxy_url)
        api, proxy = (int(url.rpartition(":")[2]) for url in urls)
        return api, proxy

    def ers(self, *arguments: str, typed: str = "", **more: str) -> Said:
        told = environment(self.service, self.account) | more
        return run_here(told, *arguments, typed=typed)

    def done(self, *arguments: str) -> Said:
        said = self.ers(*arguments)
        assert said.code == 0, said.err
        return said


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("mirrored")
    people = folder / "people.csv"
    people.write_text(ROWS)
    with running_service(folder / "data") as service:
        one = World(service, service.new_account(), folder / "mirror")
        one.done("import", str(people), "--yes")
        one.done("device", "add")
        one.done("login")
        dataset = one.done("dataset", "list").lines[0]["slug"]
        made = one.done("service", "create", "nightly", "--dataset", dataset)
        one.key = made.out.strip()
        shown = one.done("keyring", "backup", "--force").out.split()
        one.words = " ".join(shown[1::2])  # each behind its number
        one.backup = folder / "keyring.backup"
        sealed = one.ers("keyring", "backup", "--file", str(one.backup), typed=PASSPHRASE)
        assert sealed.code == 0, sealed.err
        first = one.done("mirror", str(one.mirror), "--base-url", service.base_url)
        assert "1 schema mirrored" in first.out
        again = one.done("mirror", str(one.mirror), "--base-url", service.base_url, "--quiet")
        assert "1 object" in again.out
        assert again.err == ""
    shutil.rmtree(folder / "data" / "api")  # nothing of the API is left
    yield one


def test_a_proxy_answers_from_a_folder_when_the_api_is_gone(world: World) -> None:
    arguments = ("--mirror", str(world.mirror))
    data = world.service.data_dir
    with running_service(data, *arguments, command="proxy", ports=world.ports):
        found = world.done("record", "search", "--schema", "people", "age > 30")
        refused = world.ers("record", "delete", found.lines[0]["id"], "--yes")
        told = environment(world.service, world.account)
        del told["ERS_EMAIL"], told["ERS_PASSWORD"]
        age_logins(world)
        reading = {"ERS_PROXY_URL": world.service.proxy_url, "ERS_SERVICE": world.key}
        reading |= {"ERS_OUTPUT": "ndjson", "XDG_STATE_HOME": str(world.mirror.parent / "its")}
        by_key = run_here(reading, "record", "search", "--schema", "people")
        by_login = run_here(told, "record", "search", "--schema", "people")
    assert sorted(one["data"]["name"] for one in found.lines) == ["ada", "grace"]
    assert refused.code != 0
    assert "nothing can be changed" in refused.err
    assert world.service.base_url in refused.err
    assert len(by_key.lines) == 3, by_key.err
    assert len(by_login.lines) == 3, "a login that has expired, which nobody can renew"


@pytest.mark.parametrize("kind", ["words", "file"])
def test_a_new_machine_needs_the_mirror_and_a_backup_of_the_keyring_alone(
    kind: str, world: World, tmp_path: Path
) -> None:
    backup = ("--file", str(world.backup)) if kind == "file" else ()
    typed = PASSPHRASE if kind == "file" else world.words
    arguments = ("--mirror", str(world.mirror))
    with running_service(tmp_path / "data", *arguments, command="proxy") as service:
        new = reading(service, service.state_dir)
        before = run_here(new, "record", "search", "--schema", "people")
        restored = run_here(new, "keyring", "restore", *backup, typed=typed)
        found = run_here(new, "record", "search", "--schema", "people", "age > 30")
        code = run_here(new, "device", "code").out.strip()
        laptop = reading(service, tmp_path / "laptop")
        registered = run_here(laptop, "device", "add", typed=code)
        asked = run_here(laptop, "device", "code", typed=world.words)
        there = run_here(laptop, "record", "search", "--schema", "people")
        (own,) = [
            one["id"] for one in run_here(laptop, "device", "list").one["devices"] if one["this"]
        ]
        revoked = run_here(new, "device", "revoke", own)
        after = run_here(laptop, "record", "search", "--schema", "people")
    assert before.code != 0
    assert "ers device add" in before.err
    assert restored.code == 0, restored.err
    assert sorted(one["data"]["name"] for one in found.lines) == ["ada", "grace"]
    assert registered.code == 0, registered.err
    assert asked.code == 0, asked.err
    assert len(there.lines) == 3, there.err
    assert revoked.code == 0, revoked.err
    assert (after.code != 0, after.out) == (True, "")


def reading(service: Service, state: Path) -> dict[str, str]:
    """The variables of commands that have no login."""
    named = {"ERS_PROXY_URL": service.proxy_url, "ERS_OUTPUT": "ndjson"}
    return named | {"XDG_STATE_HOME": str(state)}


def age_logins(world: World) -> None:
    """Have the stored login be from long ago, so that commands renew it."""
    (path,) = world.service.state_dir.rglob("logins*.json")
    kept = json.loads(path.read_text())
    for login in kept.values():
        login["kept"] = 1.0
    path.write_text(json.dumps(kept))


def test_a_proxy_answers_from_a_mirror_that_is_served(world: World) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    settings = {
        "ERS_DATA_DIR": str(world.mirror.parent / "unused"),
        "ERS_API_PORT": str(port),
        "ERS_MIRROR_SECRET": "a secret of the test",
    }
    reading = {"ERS_MIRROR": url, "ERS_MIRROR_SECRET": "a secret of the test"}
    log = world.mirror.parent / "mirror.log"
    data = world.service.data_dir
    with (
        running_side(str(world.mirror), settings, url, log, program=(*ERS, "api", "--mirror")),
        running_service(data, command="proxy", ports=world.ports, environment=reading),
    ):
        found = world.done("record", "search", "--schema", "people")
    assert len(found.lines) == 3
    assert not (world.mirror.parent / "unused").exists(), "a mirror needs no data folder"


def test_a_mirror_is_proven_without_api_and_login_and_damage_is_named(world: World) -> None:
    nobody = {"PATH": "/usr/bin", "HOME": str(world.mirror.parent)}
    proven = run_here(nobody, "verify", "--mirror", str(world.mirror))
    assert proven.code == 0, proven.err
    assert "3 records" in proven.out
    assert "nothing altered or missing" in proven.out
    assert "whole in itself" in proven.out, "there is nothing to compare it with"
    data = str(world.service.data_dir)
    known = run_here(nobody, "verify", "--mirror", str(world.mirror), "--data-dir", data)
    assert "seen before by the proxy here" in known.out
    assert "whole in itself" not in known.out

    damaged = world.mirror.with_name("damaged")
    shutil.copytree(world.mirror, damaged)
    (rows,) = damaged.glob("schemas/*/groups/*/0-3")
    rows.write_bytes(rows.read_bytes()[:-1] + b"?")
    said = run_here(nobody, "verify", "--mirror", str(damaged))
    assert said.code == 1
    assert str(rows.relative_to(damaged)) in said.out
    assert "1 altered or missing" in said.out


def test_a_place_without_a_mirror_is_named_by_whoever_reads_it(
    world: World, tmp_path: Path
) -> None:
    port = str(free_ports(1)[0])
    for arguments in (
        ("verify",),
        ("api", "--api-port", port),
        ("proxy", "--proxy-port", port, "--data-dir", str(tmp_path / "data")),
    ):
        said = world.ers(*arguments, "--mirror", str(tmp_path))
        assert said.code != 0
        assert "the mirror lacks an object: mirror.json" in said.err


def test_a_login_goes_only_to_an_api_that_is_named_and_not_in_the_clear(
    world: World, tmp_path: Path
) -> None:
    arguments = ("--mirror", str(world.mirror))
    data = world.service.data_dir
    with running_service(data, *arguments, command="proxy", ports=world.ports):
        unnamed = world.ers("mirror", str(tmp_path / "one"))
        clear = world.ers("mirror", str(tmp_path / "two"), "--base-url", "http://records.example")
    assert unnamed.code != 0
    assert "--base-url" in unnamed.err
    assert clear.code != 0
    assert "without encryption" in clear.err
    assert list(tmp_path.iterdir()) == []


def test_a_mirror_is_not_served_to_others_without_a_secret(world: World) -> None:
    port = str(free_ports(1)[0])
    said = world.ers(
        "api", "--mirror", str(world.mirror), "--api-host", "0.0.0.0", "--api-port", port
    )
    assert said.code != 0
    assert "ERS_MIRROR_SECRET" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("proxy", "--accept-stale"),
        ("verify", "--mirror", "x", "--stored"),
        ("mirror", "ftp://example.org/x"),
        ("mirror", "s3://bucket/x?unknown=1"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], world: World) -> None:
    assert world.ers(*arguments).code == 2
