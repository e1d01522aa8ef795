"""Commits of an organization with a roster: which the API takes, and what it says of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import Commit, CommitUpload
from tests.server.api import Account, Answer, Api
from tests.server.rosters import Team, share, standing, team_of
from tests.server.writer import Writer, person

INVALID, MOVED = (400, "invalid_commit"), (409, "roster_moved")


@pytest.fixture
def team(api: Api) -> Team:
    return team_of(api)


def met(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


def test_a_writers_signed_commit_is_stored_and_comes_back_with_its_signature(team: Team) -> None:
    writer = team.ring.writer(team.schema, team.writer)
    upload = writer.adding([person()])
    writer.send(upload)
    [delta] = writer.manifest(0)
    assert [entry.commit for entry in delta.entries] == [upload.commit]


def test_it_is_still_the_same_commit_once_the_roster_moved_on(team: Team) -> None:
    writer = team.ring.writer(team.schema, team.writer)
    upload = writer.adding([person()])
    writer.send(upload)
    team.ring.add(*team.ring.chain(standing(team.writer, [share(team.dataset, form.WRITER)])))
    assert writer.post(upload).status == 200


Altered = Callable[[Writer, Team], CommitUpload]


def _brought(upload: CommitUpload) -> tuple[Any, ...]:
    return upload.rows, upload.pages, upload.salts, upload.headers


def _with(writer: Writer, change: Callable[[Commit], bytes]) -> CommitUpload:
    upload = writer.adding([person()])
    commit = msgspec.structs.replace(upload.commit, signature=change(upload.commit))
    return CommitUpload(commit, *_brought(upload))


REFUSED: dict[str, tuple[Altered, tuple[int, str]]] = {
    "without a signature": (lambda writer, _: _with(writer, lambda _: b""), INVALID),
    "with another's": (
        lambda writer, team: _with(
            writer,
            lambda commit: team.ring.owner.identity.sign("commit", wire.commit_digest(commit)),
        ),
        INVALID,
    ),
    "with one of another kind": (
        lambda writer, team: _with(
            writer, lambda commit: team.writer.identity.sign("grant", wire.commit_digest(commit))
        ),
        INVALID,
    ),
    "in another's name": (
        lambda writer, team: writer.adding([person()], member=team.ring.owner.uid),
        INVALID,
    ),
    "without a roster": (
        lambda writer, _: writer.adding([person()], roster=0, roster_digest=bytes(32)),
        MOVED,
    ),
    "of an earlier roster": (
        lambda writer, team: writer.adding([person()], roster=1, roster_digest=team.ring.found),
        MOVED,
    ),
    "of a roster that is not this one": (
        lambda writer, _: writer.adding([person()], roster_digest=bytes(32)),
        MOVED,
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_commit_is_refused(team: Team, how: str) -> None:
    alter, expected = REFUSED[how]
    writer = team.ring.writer(team.schema, team.writer)
    assert met(writer.post(alter(writer, team))) == expected
    assert writer.manifest(0)[0].version == 0


def test_a_commit_is_of_the_present_epoch(team: Team) -> None:
    early = team.ring.writer(team.schema, team.writer)
    early.send(early.adding([person()]))
    end = form.End(ids.from_text(team.schema["id"]), early.seen, early.seen_digest)
    team.ring.begin(team.dataset, team.writer, epoch=2, ends=[end])
    early.stated = (team.ring.number, team.ring.digest, team.writer.uid)
    assert met(early.post(early.adding([person()]))) == (409, "key_mismatch")
    early.key_version, early.key_id = 2, bytes(8)
    early.send(early.adding([person()]))


def test_a_schema_that_nobody_placed_takes_no_commit(team: Team) -> None:
    schema = team.ring.owner.account.new_schema(dataset=team.dataset["url"])
    writer = team.ring.writer(schema)
    assert met(writer.post(writer.adding([person()]))) == INVALID


def test_an_organization_without_a_roster_takes_no_signed_commit(team: Team, ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(), signs=lambda _: bytes(64))
    assert met(writer.post(writer.adding([person()]))) == INVALID
    writer.signs = None
    assert met(writer.post(writer.adding([person()], roster=1))) == INVALID
    assert met(writer.post(writer.adding([person()], member=team.writer.uid))) == INVALID
    writer.send(writer.adding([person()]))


def test_whoever_was_removed_stores_nothing_by_an_earlier_roster(team: Team) -> None:
    writer = team.ring.writer(team.schema, team.writer)
    upload = writer.adding([person()])
    team.ring.add(*team.ring.chain(form.Remove(team.writer.uid)))
    assert writer.post(upload).status == 404
