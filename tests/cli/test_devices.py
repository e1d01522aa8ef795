"""``ers device`` at a proxy that several people share: who gets in, by what, and who does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Said
from tests.cli.people import Person, code_from, look, names_seen, password_of, words_of
from tests.support.eventually import eventually
from tests.support.shared_proxy import Machine, SharedProxy, shared_proxy

SECRET = "paper scissors\n"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedProxy]:
    with shared_proxy(tmp_path_factory.mktemp("shared")) as one:
        yield one


@pytest.fixture
def ada(proxy: SharedProxy, tmp_path: Path) -> Person:
    return Person(proxy, tmp_path)


@pytest.fixture
def grace(proxy: SharedProxy, tmp_path: Path) -> Person:
    return Person(proxy, tmp_path)


@pytest.fixture
def home(ada: Person) -> Machine:
    return ada.at_home()


@pytest.fixture
def laptop(ada: Person, home: Machine) -> Machine:
    """A machine that is logged in, and not taken in."""
    return ada.machine(logged_in=True)


def patiently(machine: Machine, *arguments: str, typed: str = "", **told: str) -> Said:
    """A command that must succeed, though what was wrong before slows it down."""

    def heard() -> Said | None:
        said = machine.ers(*arguments, typed=typed, **told)
        return None if "too many wrong" in said.err else said

    said = eventually(heard, "it is heard")
    assert said is not None and said.code == 0, said
    return said


def id_of(machine: Machine) -> str:
    """The id of a machine that was taken in."""
    listed = machine.done("device", "list").one["devices"]
    return next(str(one["id"]) for one in listed if one["this"])


def test_two_people_share_a_proxy_and_each_gets_in_with_one_code(
    ada: Person, grace: Person
) -> None:
    for person in (ada, grace):
        home, laptop = person.at_home(), person.machine(logged_in=True)
        refused = look(laptop)
        assert refused.code == 4
        assert "ers device add" in refused.err

        added = laptop.done("device", "add", typed=code_from(home, **password_of(home)))

        assert "is registered" in added.out
        assert names_seen(laptop) == ["Ada"]
        listed = laptop.done("device", "list").one["devices"]
        assert {(one["way"], one["this"]) for one in listed} == {("made", False), ("code", True)}


def test_whoever_asks_to_be_taken_in_sees_first_which_keyring_it_is(
    home: Machine, laptop: Machine
) -> None:
    fingerprint = home.done("keyring", "get").one["fingerprint"]

    asked = laptop.ers("device", "add", typed="\n")

    assert asked.code == 2
    assert fingerprint in asked.err
    assert re.search(r"created \d{4}-\d\d-\d\d", asked.err)
    assert "1 registered" in asked.err


def test_before_there_is_a_keyring_a_machine_is_kept_for_the_one_that_will_be_made(
    ada: Person,
) -> None:
    machine = ada.machine(logged_in=True)
    assert "none yet" in machine.done("device", "list", "--output", "table").out
    assert "no keyring here yet" in machine.done("device", "add").out


def test_a_code_that_is_wrong_used_or_for_somebody_else_lets_nobody_in(
    ada: Person, grace: Person, home: Machine, laptop: Machine
) -> None:
    theirs, second = grace.at_home(), ada.machine(logged_in=True)
    code = code_from(home, **password_of(home))

    foreign = laptop.ers("device", "add", typed=code_from(theirs, **password_of(theirs)))
    wrong = laptop.ers("device", "add", typed="0000-0000\n")
    right = laptop.ers("device", "add", typed=code.lower().replace("-", " "))
    again = second.ers("device", "add", typed=code)

    assert (foreign.code, wrong.code, right.code, again.code) == (4, 4, 0, 4)
    assert all("the code is wrong" in one.err for one in (foreign, wrong, again))
    assert look(second).code == 4
    events = home.done("device", "list").one["events"]
    assert [
        event["count"] for event in events if event["detail"] == "code" and not event["device"]
    ] == [3]


def test_the_words_take_a_machine_in_where_every_device_is_lost(
    home: Machine, laptop: Machine
) -> None:
    words = words_of(home, **password_of(home))

    wrong = laptop.ers("device", "add", typed=" ".join(reversed(words.split())) + "\n")
    added = patiently(laptop, "device", "add", typed=words + "\n")

    assert wrong.code == 4
    assert names_seen(laptop) == ["Ada"]
    assert words not in added.out + added.err


def test_the_passphrase_takes_a_machine_in_and_opens_the_keyring_there_alone(
    ada: Person, home: Machine, laptop: Machine
) -> None:
    home.done("keyring", "passphrase", typed=SECRET, **password_of(home))
    assert names_seen(home) == ["Ada"]
    third = ada.machine(logged_in=True)

    added = laptop.done("device", "add", typed=SECRET)
    third.done("device", "add", typed=code_from(home, typed=SECRET))

    assert "protected by a passphrase" in added.err
    assert names_seen(laptop) == ["Ada"]
    locked = look(third)
    assert locked.code == 4
    assert "ers keyring unlock" in locked.err
    third.done("keyring", "unlock", typed=SECRET)
    assert names_seen(third) == ["Ada"]


def test_a_passphrase_of_ones_own_is_the_proof_then_and_the_password_is_none(
    home: Machine,
) -> None:
    home.done("keyring", "passphrase", typed=SECRET, **password_of(home))

    refused = home.ers("keyring", "rotate", "--yes", **password_of(home))
    wrong = home.ers("keyring", "rotate", "--yes", typed="scissors\n", **password_of(home))
    right = patiently(home, "keyring", "rotate", "--yes", typed=SECRET)

    assert refused.code == 2
    assert "needs a proof" in refused.err
    assert wrong.code == 4
    assert "version 2" in right.out


def test_the_words_make_up_for_a_lost_passphrase(home: Machine, laptop: Machine) -> None:
    words = words_of(home, **password_of(home))
    home.done("keyring", "passphrase", typed="forgotten since\n", **password_of(home))
    home.done("keyring", "lock")

    laptop.done("keyring", "restore", "--replace", typed=words)

    assert names_seen(laptop) == ["Ada"]


def test_who_runs_the_proxy_lets_in_whoever_lost_everything_and_nobody_else_does(
    ada: Person, grace: Person, home: Machine, laptop: Machine
) -> None:
    known = laptop.done("device", "list").one["user"]
    stranger, operator = grace.at_home(), grace.machine(operators=True)

    refused = stranger.ers("device", "code", "--user", known, **password_of(stranger))
    code = code_from(operator, "--user", known, ERS_EMAIL=grace.email, **password_of(operator))
    stolen = stranger.ers("device", "add", "--new", typed=code, **password_of(stranger))
    laptop.done("device", "add", typed=code)

    assert refused.code == 4
    assert "on the proxy's machine" in refused.err
    assert stolen.code == 4
    assert names_seen(laptop) == ["Ada"]


def test_what_gives_keys_out_asks_a_machine_that_is_away_for_the_password_each_time(
    home: Machine, laptop: Machine
) -> None:
    silent = home.ers("keyring", "backup", "--force")
    wrong = home.ers("keyring", "backup", "--force", typed="not-my-password\n")
    told = patiently(home, "keyring", "backup", "--force", **password_of(home))
    typed = home.done("keyring", "backup", "--force", typed=home.account.password + "\n")
    again = home.ers("keyring", "backup", "--force")
    stranger = laptop.ers("keyring", "backup", "--force", **password_of(laptop))

    assert (silent.code, wrong.code, again.code, stranger.code) == (2, 4, 2, 4)
    assert "the proof is wrong" in wrong.err
    assert told.out == typed.out
    assert len(told.out.split()) == 48
    assert silent.out + wrong.out + again.out + stranger.out == ""
    assert "not come from a device that is registered" in stranger.err


def test_keys_change_and_go_into_files_for_the_password_too(home: Machine, tmp_path: Path) -> None:
    file = tmp_path / "keyring.backup"
    proof = home.account.password + "\n"

    home.done("keyring", "rotate", "--yes", typed=proof)
    home.done("keyring", "backup", "--file", str(file), typed=SECRET + proof)
    refused = home.ers("keyring", "restore", "--file", str(file), typed=SECRET)
    home.done("keyring", "restore", "--file", str(file), typed=SECRET + proof)

    assert refused.code == 2
    assert names_seen(home) == ["Ada"]


def test_a_new_machine_restores_a_keyring_where_there_is_none(ada: Person, home: Machine) -> None:
    words = words_of(home, **password_of(home))
    heir = Person(ada.proxy, home.state.parent)
    machine = heir.machine()
    told = {"ERS_EMAIL": heir.email, **password_of(machine)}

    machine.done("keyring", "restore", typed=words, **told)

    assert machine.done("device", "list", **told).one["enrolled"]
    fingerprint = home.done("keyring", "get").one["fingerprint"]
    assert machine.done("keyring", "get", **told).one["fingerprint"] == fingerprint


def test_an_account_without_a_login_makes_its_keyring_from_a_device_of_its_own(
    grace: Person,
) -> None:
    machine = grace.machine()
    told = {"ERS_EMAIL": grace.email, **password_of(machine)}
    refused = machine.ers("keyring", "get", **told)
    assert refused.code == 4

    machine.done("keyring", "backup", "--force", **told)

    (device,) = machine.done("device", "list", **told).one["devices"]
    assert (device["way"], device["this"]) == ("made", True)


def test_a_revoked_machine_is_refused_and_may_be_taken_in_anew(
    home: Machine, laptop: Machine
) -> None:
    laptop.done("device", "add", typed=code_from(home, **password_of(home)))
    lost = id_of(laptop)

    unproven = home.ers("device", "revoke", lost)
    home.done("device", "revoke", lost, **password_of(home))
    refused = look(laptop)
    laptop.done("device", "add", typed=code_from(home, **password_of(home)))

    assert unproven.code == 2
    assert refused.code == 4
    assert "ers device add" in refused.err
    assert names_seen(laptop) == ["Ada"]
    assert home.ers("device", "revoke", lost, **password_of(home)).code == 3


def test_ones_own_device_is_revoked_without_a_proof_and_forgotten(
    home: Machine, laptop: Machine
) -> None:
    laptop.done("device", "add", typed=code_from(home, **password_of(home)))

    laptop.done("device", "revoke", id_of(laptop))

    assert not (laptop.state / "encrypted-records" / "devices.json").exists()
    assert look(laptop).code == 4
    assert names_seen(home) == ["Ada"]


def test_a_program_gets_a_device_of_its_own_by_its_secret_or_by_a_file(
    ada: Person, home: Machine, tmp_path: Path
) -> None:
    made = home.done("device", "create", "nightly", **password_of(home))
    assert re.fullmatch(r"ersd1_[A-Za-z0-9]{8}_[\w-]{43}\n", made.out)
    (tmp_path / "nightly.device").write_text(made.out)
    server = ada.machine()
    told = {"ERS_EMAIL": ada.email, **password_of(server)}

    assert names_seen(server, ERS_DEVICE=made.out.strip(), **told) == ["Ada"]
    assert names_seen(server, ERS_DEVICE=str(tmp_path / "nightly.device"), **told) == ["Ada"]
    assert look(server, **told).code == 4
    listed = server.done("device", "list", ERS_DEVICE=made.out.strip(), **told).one
    assert [device["name"] for device in listed["devices"] if device["this"]] == ["nightly"]
    for nonsense in (made.out.strip()[:-1], f"'{made.out.strip()}'", str(tmp_path), "nowhere"):
        refused = look(server, ERS_DEVICE=nonsense, **told)
        assert refused.code == 2
        assert "ERS_DEVICE" in refused.err
        assert made.out[:16] not in refused.err


def test_a_person_reads_the_list_of_devices_and_events(home: Machine) -> None:
    words_of(home, **password_of(home))
    shown = home.done("device", "list", "--output", "table").out
    assert re.search(r"^level +device: ", shown, re.M)
    assert re.search(r"^keyring +[0-9a-f]+, created \d{4}-", shown, re.M)
    assert re.search(r"ers on .* +made .* this one$", shown, re.M) or "this one" in shown
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d +words shown +\w{8}", shown, re.M)


def test_doctor_says_at_which_level_the_proxy_works_and_how_to_get_in(
    home: Machine, laptop: Machine
) -> None:
    inside = {line["check"]: line for line in home.done("doctor").lines}
    outside = laptop.ers("doctor")

    assert inside["access"]["found"] == "level device: this machine is one of 1 device"
    assert outside.code == 4
    assert "ers device add" in outside.lines[-1]["hint"]


def test_on_the_machine_of_the_proxy_its_user_is_shown_the_keyring_and_asked(
    ada: Person, home: Machine
) -> None:
    machine = ada.machine(operators=True)
    fingerprint = home.done("keyring", "get").one["fingerprint"]

    said = machine.log_in()
    unasked = machine.ers("device", "add")
    assert look(machine).code == 4
    machine.done("device", "add", "--yes")

    assert "ers device add" in said.err
    assert unasked.code == 2
    assert fingerprint in unasked.err
    assert "no terminal to ask for it" in unasked.err
    assert names_seen(machine) == ["Ada"]
    # The door is a proof as good as the password, and asks nobody.
    assert len(words_of(machine).split()) == 24
