"""A proxy that knows this machine is known by that; what took its port gets nothing. And where
device secrets are not: in no log, argument, address, or request to the API."""

from __future__ import annotations

import base64
import json
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import keyring
import pytest

from encrypted_records.cli.login.keychain import KeptDevices
from encrypted_records.client.proxy.transport import Device, new_device
from tests.cli.keychain import FileKeychain
from tests.cli.people import Person, code_from, look, names_seen, password_of, secret_on
from tests.support.listening import stranger_on
from tests.support.service import descendants
from tests.support.shared_proxy import Machine, SharedProxy, shared_proxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedProxy]:
    with shared_proxy(tmp_path_factory.mktemp("this")) as one:
        yield one


@pytest.fixture(scope="module")
def ada(proxy: SharedProxy, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return Person(proxy, tmp_path_factory.mktemp("ada"))


@pytest.fixture(scope="module")
def home(ada: Person) -> Machine:
    return ada.at_home()


COMMANDS = (
    ("login", "--email", "{email}"),
    ("record", "search", "--schema", "person"),
    ("record", "create", "--schema", "person", "--file", "-"),
    ("keyring", "backup", "--force"),
    ("keyring", "unlock"),
    ("device", "list"),
    ("device", "add"),
    ("device", "code"),
    ("user", "password"),
    ("token", "verify"),
    ("register", "--email", "another@example.org", "--organization", "Another"),
    ("logout",),
)


def ways_to_ask(home: Machine) -> Iterator[tuple[str, dict[str, str]]]:
    """How a command is told who asks, and from where."""
    file = home.state / "encrypted-records" / "logins.json"
    before = file.read_text()
    yield "by the login", {}
    file.write_text(re.sub(r'"access":"[^"]*"', '"access":"expired.e30.x"', before))
    yield "by a login that has to be renewed", {}
    file.write_text(before)
    yield "by password", {"ERS_EMAIL": home.account.email, **password_of(home)}
    yield "from a device that is named", {"ERS_DEVICE": secret_on(home)}


def test_a_program_that_took_the_port_gets_nothing_but_the_question_who_it_is(
    proxy: SharedProxy, home: Machine
) -> None:
    proxy.stop()
    try:
        with stranger_on(proxy.port) as stranger:
            for way, told in ways_to_ask(home):
                before = len(stranger.heard)
                commands = COMMANDS if way == "by the login" else COMMANDS[1:4]
                for command in commands:
                    refused_by(home, command, told, way)
                assert len(stranger.heard) - before >= len(commands)
    finally:
        proxy.start()

    for line, headers, body in stranger.heard:
        assert line == "GET /api/status/ HTTP/1.1"
        assert re.fullmatch(r"\w{8}\.[\w-]{16,64}", headers["x-ers-challenge"])
        told_it = {"host", "accept", "accept-encoding", "user-agent", "x-ers-challenge"}
        assert set(headers) <= told_it | {"x-request-id"}
        assert body == b""
    questions = {headers["x-ers-challenge"] for _, headers, _ in stranger.heard}
    assert len(questions) == len(stranger.heard)


def refused_by(machine: Machine, command: tuple[str, ...], told: dict[str, str], way: str) -> None:
    words = [word.format(email=machine.account.email) for word in command]
    asks = words[0] in ("login", "register") or "password" in words
    more = {**told, **password_of(machine)} if asks else told
    said = machine.ers(*words, typed='{"name": "my secret"}\nnew-password-of-mine\n', **more)
    assert said.code == 4, (way, words, said)
    assert "does not know your device" in said.err
    assert "ers device add --new" in said.err


def test_the_api_does_not_hear_what_a_proxy_is_asked(home: Machine, proxy: SharedProxy) -> None:
    proxy.tap.sent.clear()
    assert names_seen(home)[0] == "Ada"
    sent = bytes(proxy.tap.sent).lower()
    assert b"get /api/status/" in sent
    assert b"x-ers-" not in sent


def test_a_door_that_was_left_behind_is_shown_to_nobody_who_does_not_know_it(
    proxy: SharedProxy, tmp_path: Path
) -> None:
    person = Person(proxy, tmp_path)
    machine = person.machine()
    door = machine.state / "encrypted-records" / f"door-{proxy.port}"
    door.parent.mkdir(parents=True)
    door.write_text((proxy.state / "encrypted-records" / door.name).read_text())
    told = {"ERS_EMAIL": person.email, **password_of(machine)}
    proxy.stop()
    try:
        with stranger_on(proxy.port) as stranger:
            machine.ers("keyring", "backup", "--force", **told)
    finally:
        proxy.start()

    # Nothing of this account was ever taken in there, so there is nothing to know the proxy by.
    assert [line for line, *_ in stranger.heard if "/api/keyring/backup/" in line]
    assert [one for _, one, _ in stranger.heard if "thedoor0" in one.get("x-ers-challenge", "")]
    assert not [one for _, one, _ in stranger.heard if "x-ers-door" in one]


def test_a_proxy_that_was_set_up_anew_is_told_nothing_until_that_is_meant(
    ada: Person, home: Machine, proxy: SharedProxy
) -> None:
    laptop = ada.machine(logged_in=True)
    laptop.done("device", "add", typed=code_from(home, **password_of(home)))
    folder, kept = proxy.folder / "proxy", proxy.folder / "proxy-before"
    proxy.stop()
    folder.rename(kept)
    proxy.start()
    try:
        assert "does not know your device" in look(laptop).err
        said = laptop.done("device", "add", "--new")
        assert "no keyring here yet" in said.out
    finally:
        proxy.stop()
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        kept.rename(folder)
        proxy.start()
    assert names_seen(home) == ["Ada"]


def test_device_secrets_are_in_no_log_no_argument_no_environment_and_no_request_to_the_api(
    ada: Person, home: Machine, proxy: SharedProxy
) -> None:
    laptop = ada.machine(logged_in=True)
    seen: set[str] = set()
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(proxy.process.pid, seen, over))
    watching.start()
    try:
        code = code_from(home, **password_of(home))
        laptop.done("device", "add", typed=code)
        made = home.done("device", "create", "nightly", **password_of(home)).out.strip()
        names_seen(laptop, ERS_DEVICE=made)
        laptop.done("schema", "list")
        laptop.done("dataset", "create", "--name", "More", "--slug", "more")
        laptop.done("doctor")
        laptop.done("import", "--exact", "-", "--schema", "person", typed='{"name": "Alan"}\n')
    finally:
        over.set()
        watching.join()

    door = (proxy.state / "encrypted-records" / f"door-{proxy.port}").read_text()
    secrets = [secret_on(home), secret_on(laptop), made, door, code.strip()]
    places = {
        "log": proxy.log,
        "API": bytes(proxy.tap.sent).decode("latin-1"),
        "processes": "\n".join(seen),
    }
    assert "/api/records/search/" in places["log"]
    assert "/api/datasets/" in places["API"]
    assert "encrypted_records.cli.main" in places["processes"]
    for name, text in places.items():
        for secret in secrets:
            assert secret not in text, name
            assert base64.b64encode(secret.encode()).decode().rstrip("=") not in text, name
        assert "ersd1_" not in text, name


def _watch(pid: int, seen: set[str], over: threading.Event) -> None:
    """Arguments and environments of the proxy and its processes, while commands run."""
    while True:
        for one in [pid, *descendants(pid)]:
            for what in ("cmdline", "environ"):
                with suppress(OSError):
                    seen.add(Path(f"/proc/{one}/{what}").read_text(errors="replace"))
        if over.wait(0.2):
            return


def test_the_file_of_devices_is_for_its_owner_alone_and_outlasts_a_logout(
    ada: Person, home: Machine
) -> None:
    laptop = ada.machine(logged_in=True)
    laptop.done("device", "add", typed=code_from(home, **password_of(home)))
    file = laptop.state / "encrypted-records" / "devices.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()

    laptop.done("logout")
    assert file.read_text() == text
    laptop.log_in()

    assert file.read_text() == text
    assert names_seen(laptop)[0] == "Ada"


def test_each_account_has_a_device_of_its_own_at_a_proxy(tmp_path: Path) -> None:
    kept, one, other = KeptDevices(tmp_path), new_device(), new_device()
    kept.keep("http://127.0.0.1:1", "ada@example.org", one)
    kept.keep("http://127.0.0.1:1", "grace@example.org", other)
    assert kept.find("http://127.0.0.1:1", "Ada@Example.org") == one
    assert kept.find("http://127.0.0.1:2", "ada@example.org") is None
    kept.forget("http://127.0.0.1:1", "ada@example.org")
    assert kept.find("http://127.0.0.1:1", "ada@example.org") is None
    assert kept.find("http://127.0.0.1:1", "grace@example.org") == other


def test_a_secret_lies_in_the_keychain_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keychain = tmp_path / "keychain"
    keychain.write_text("{}")
    monkeypatch.setenv("ERS_TEST_KEYCHAIN", str(keychain))
    monkeypatch.setattr(keyring, "get_keyring", FileKeychain)
    kept, device = KeptDevices(tmp_path), new_device()

    assert kept.keep("http://127.0.0.1:1", "ada@example.org", device) == "the keychain"

    assert "ersd1_" not in kept.file.path.read_text()
    assert KeptDevices(tmp_path).find("http://127.0.0.1:1", "ada@example.org") == device
    kept.keep("http://127.0.0.1:1", "ada@example.org", Device(device.secret))
    found = kept.find("http://127.0.0.1:1", "ada@example.org")
    assert found is not None and not found.new
    kept.forget("http://127.0.0.1:1", "ada@example.org")
    assert json.loads(keychain.read_text()) == {}
    assert kept.find("http://127.0.0.1:1", "ada@example.org") is None
