"""Lost machines, lost people, and words that come too late; what was secret is nowhere."""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from encrypted_records import runtime
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.recovery import keyring_of, phrase_of
from encrypted_records.errors import ErsError
from encrypted_records.model import credentials, ids
from encrypted_records.model import roster as form
from encrypted_records.proxy.sharing import changes, joining
from encrypted_records.proxy.sharing.joining import Invited
from tests.proxy.sharing.people import Person, Team
from tests.support.front import Front, running_front
from tests.support.keyrings import keyrings_in

A_WEEK = 7 * 86_400


def phrases(person: Person) -> list[str]:
    roots = keyrings_in(person.folder).of(person.holder).roots
    return [phrase_of(roots[root]) for root in sorted(roots)]


def restore_elsewhere(person: Person, words: list[str]) -> None:
    """On another machine, with nothing but the recovery words."""
    person.folder = person.folder.with_name(f"{person.folder.name}-new")
    keyring = keyring_of(words, created=int(time.time()))
    keyrings_in(person.folder).changes.restore(person.holder, keyring, replace=False)


def rotate_keyring(person: Person, *, confirm: bool) -> None:
    keyrings = keyrings_in(person.folder)
    keyring = keyrings.changes.rotate(person.holder)
    if confirm:
        keyrings.backups.confirm(person.id, keyring.roots.values())


def test_words_on_an_empty_machine_bring_an_owner_and_a_reader_back(team: Team) -> None:
    grace = team.join()
    before = team.keys(grace)
    for person in (team.ada, grace):
        restore_elsewhere(person, phrases(person))
        assert team.keys(person) == before
    # And they go on: the owner lets somebody in, and what comes is shared.
    assert set(team.keys(team.join())) == {1}


def test_an_owners_standing_waits_for_the_backup_of_rotated_keys(team: Team) -> None:
    """Before it, the words that are kept still open everything; after it, the new ones do."""
    ada = team.ada
    assert team.made
    old = phrases(ada)
    rotate_keyring(ada, confirm=False)
    number = team.view(ada).roster.number
    team.settle()
    assert team.view(ada).roster.number == number
    lost = ada.folder
    restore_elsewhere(ada, old)
    assert set(team.keys(ada)) == {1}

    ada.folder = lost
    keyrings = keyrings_in(ada.folder)
    keyrings.backups.confirm(ada.id, keyrings.of(ada.holder).roots.values())
    # Other keys of an owner's make all that was granted to the old ones due.
    assert team.settle().rotated == ["People"]
    new = phrases(ada)
    ada.folder = lost.with_name("third")
    restore_elsewhere(ada, new)
    assert set(team.keys(ada)) == {1, 2}
    # Who has the older words alone is told that the organization has other keys of theirs.
    ada.folder = lost.with_name("fourth")
    restore_elsewhere(ada, old)
    assert team.refusal(lambda: team.keys(ada)) == "roster_unknown"


def test_a_new_account_under_an_old_address_is_somebody_else(team: Team) -> None:
    """Grace's account has another address by now, and somebody else has hers."""
    grace, stranger = team.join(), team.somebody()
    address = grace.account.email
    assert grace.id != stranger.id
    readdress(grace, f"former-{address}")
    readdress(stranger, address)
    invited = team.ada.do(
        lambda sharing: sharing.inviting.invite(
            team.ada.holder, team.organization, address, [team.share()]
        )
    )
    # Who had that address in the roster is meant; the API shows it to who has it now.
    assert invited.member == grace.id
    shown = stranger.call("GET", "/api/invitations/").json()["results"]
    assert [one["id"] for one in shown] == [ids.to_text(invited.id)]
    assert team.refusal(lambda: team.accept(stranger, invited)) == "invitation_words"
    assert team.refusal(lambda: team.keys(stranger)) in {"not_found", "not_admitted"}
    assert team.settle().admitted == []


def test_whoever_makes_a_new_account_under_a_former_members_address_comes_in_as_new(
    team: Team,
) -> None:
    grace = team.join()
    address = grace.account.email
    delete_account(grace)
    again = replace(team.somebody(), account=team.ada.service.new_account(address))
    assert (again.account.email, again.id != grace.id) == (address, True)
    # Nothing follows from the address: what the roster says of it is hers who had it.
    assert team.refusal(lambda: team.keys(again)) == "not_found"
    standing = team.view(team.ada).roster.member(grace.id)
    assert standing is not None and standing.present

    def invite_as_new() -> Invited:
        return team.ada.do(
            lambda sharing: sharing.inviting.invite(
                team.ada.holder, team.organization, address, [team.share()], new=True
            )
        )

    named = team.invite(again)
    assert named.member == grace.id
    with pytest.raises(ErsError) as refused:
        team.accept(again, named)
    assert refused.value.reason == "invitation_words"
    assert "invite this account as a new person" in refused.value.hint
    assert team.refusal(invite_as_new) == "already_member"

    team.ada.do(
        lambda sharing: sharing.members.remove(team.ada.holder, team.organization, grace.id)
    )
    assert team.settle().rotated == ["People"]
    invited = invite_as_new()
    assert invited.member == b""
    team.accept(again, invited)
    assert team.settle().admitted == [address]
    assert team.keys(again) == team.keys(team.ada)
    roster = team.view(team.ada).roster
    assert [member.member for member in roster.members() if member.name == address] == [again.id]


def test_whom_the_api_lets_into_a_members_account_is_nobody_to_a_proxy(team: Team) -> None:
    """An API that gives the account itself, under its id and address, to somebody else."""
    grace = team.join(team.share(form.WRITER))
    stranger = replace(grace, folder=team.folder / "stranger")
    assert stranger.id == grace.id
    # On a machine without her keyring, and with one of their own.
    assert team.refusal(lambda: team.keys(stranger)) == "key_missing"
    keyrings_in(stranger.folder).of(stranger.holder)
    assert team.refusal(lambda: team.keys(stranger)) == "roster_unknown"
    # Nor do they leave in her name.
    leave = lambda: stranger.do(  # noqa: E731
        lambda sharing: sharing.members.remove(stranger.holder, team.organization, grace.id)
    )
    assert team.refusal(leave) == "roster_unknown"
    # Invited anew, they have no words; hers stay right.
    invited = team.invite(grace)
    other = " ".join(reversed(invited.words.split()))
    assert team.refusal(lambda: team.accept(stranger, invited, other)) == "invitation_words"
    assert team.settle().admitted == []
    assert team.keys(grace) == team.keys(team.ada)


def delete_account(person: Person) -> None:
    """What an operator can do in the API's database: the account goes, with all that is its own."""
    path = person.service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as database, database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema")]
        for table in tables:
            for key in database.execute(f"PRAGMA foreign_key_list({table})").fetchall():
                if key[2] == "accounts_user":
                    where = f'"{key[3]}" = ?'
                    database.execute(f'DELETE FROM "{table}" WHERE {where}', (person.id,))
        database.execute("DELETE FROM accounts_user WHERE id = ?", (person.id,))
    for message in (person.service.data_dir / "mail").glob("*.eml"):
        if person.account.email in message.read_text():
            message.unlink()


def readdress(person: Person, address: str) -> None:
    """What an operator can do in the API's database."""
    path = person.service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as database, database:
        database.execute("UPDATE accounts_user SET email = ? WHERE id = ?", (address, person.id))
    person.account = replace(person.account, email=address)


def test_who_was_removed_comes_back_by_new_words_alone(team: Team) -> None:
    grace = team.join()
    team.ada.do(
        lambda sharing: sharing.members.remove(team.ada.holder, team.organization, grace.id)
    )
    assert team.settle().rotated == ["People"]
    invited = team.invite(grace)
    assert invited.member == grace.id
    team.accept(grace, invited)
    assert team.settle().admitted == [grace.account.email]
    assert team.keys(grace) == team.keys(team.ada)


def test_a_declined_invitation_takes_no_words_and_lets_nobody_in(team: Team) -> None:
    eve = team.somebody()
    invited = team.invite(eve)
    declined = eve.call("DELETE", ids.reference("invitations", invited.id))
    assert declined.status == 204, declined.body
    assert team.refusal(lambda: team.accept(eve, invited)) == "invitation_over"
    assert team.settle().admitted == []


def test_words_that_come_late_open_nothing(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, late = team.somebody(), team.somebody()
    invited, answered = team.invite(eve), team.invite(late)
    team.accept(late, answered)
    after = SimpleNamespace(**vars(runtime) | {"wall": lambda: runtime.wall() + A_WEEK + 60})
    monkeypatch.setattr(joining, "runtime", after)
    monkeypatch.setattr(changes, "runtime", after)
    assert team.refusal(lambda: team.accept(eve, invited)) == "invitation_over"
    # An answer in time to an owner who looks too late is over as well, and says so.
    settled = team.settle()
    assert settled.admitted == []
    assert [trouble.error.reason for trouble in settled.troubles] == ["invitation_over"]


@pytest.fixture
def heard(team: Team) -> Iterator[list[Front]]:
    """Fronts that hear all that the owner, and who is asked to use them, send."""
    with ExitStack() as stack:
        fronts = [stack.enter_context(running_front(team.ada.service.base_url)) for _ in range(2)]
        team.ada.url = fronts[0].url
        yield fronts


def spellings(secret: bytes) -> list[bytes]:
    return [
        secret,
        secret.hex().encode(),
        base64.b64encode(secret).rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="),
    ]


def assert_nowhere(needles: list[bytes], fronts: list[Front], folder: Path, log: str) -> None:
    sent = [
        b"\n".join([one.path.encode(), one.body, repr(dict(one.headers)).encode()])
        for front in fronts
        for one in front.asked
    ]
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert sent
    assert kept
    for needle in needles:
        for text in (*sent, *kept, log.encode()):
            assert needle not in text


def test_the_words_are_in_no_request_no_file_and_no_log(
    team: Team, heard: list[Front], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    grace = team.somebody(heard[1].url)
    invited = team.invite(grace)
    wrong = " ".join(reversed(invited.words.split()))
    assert team.refusal(lambda: team.accept(grace, invited, wrong)) == "invitation_words"
    team.accept(grace, invited)
    team.settle()
    secret = InvitationSecret.from_words(invited.words)._secret
    needles = [invited.words.encode(), wrong.encode(), *spellings(secret)]
    assert_nowhere(needles, heard, team.folder, caplog.text)


def test_nothing_of_a_services_secret_reaches_the_api(
    team: Team, heard: list[Front], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    shares = [team.share(form.WRITER)]
    made = team.ada.do(
        lambda sharing: sharing.services.make(
            team.ada.holder, team.organization, "nightly", shares, 0
        )
    )
    secret = credentials.parse_service_key(made.key).secret
    assert_nowhere([made.key.encode(), *spellings(secret)], heard, team.folder, caplog.text)
