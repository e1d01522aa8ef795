"""Checkpoints at the API: whose it keeps, which it hands out, and what comes after them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import ManifestDelta, SegmentHeader
from encrypted_records.model.wire import Checkpoint
from tests.server.api import Account, Answer, Api
from tests.server.checkpoints import made
from tests.server.rosters import Person, Team, share, team_of
from tests.server.test_signed_commits import met
from tests.server.writer import FRAMES, Writer, person

INVALID = (400, "invalid_checkpoint")


def put(writer: Writer, checkpoint: Checkpoint, account: Account | None = None) -> Answer:
    path = f"{writer.schema['url']}checkpoints/"
    by = account or writer.account
    return by.call("POST", path, wire.encode([checkpoint]), **FRAMES)


def listed(writer: Writer) -> list[int]:
    answer = writer.account.call("GET", f"{writer.schema['url']}checkpoints/")
    assert answer.status == 200, answer.body
    return [one["version"] for one in answer.json()]


def first(writer: Writer, known: int = 0) -> tuple[Checkpoint | None, list[ManifestDelta]]:
    path = f"{writer.schema['url']}manifest/?since=0&checkpoint={known}"
    items = list(wire.decode(writer.account.call("GET", path).body))
    found = items[0] if isinstance(items[0], Checkpoint) else None
    items = items[1:] if found else items
    deltas = [item for item in items if isinstance(item, ManifestDelta)]
    assert len(deltas) == len(items)
    return found, deltas


def versions(deltas: list[ManifestDelta]) -> list[int]:
    return [entry.version for delta in deltas for entry in delta.entries]


def headers(deltas: list[ManifestDelta]) -> list[bytes]:
    every: list[SegmentHeader] = [header for delta in deltas for header in delta.headers]
    return [one.segment for one in every]


@pytest.fixture
def writer(api: Api) -> Writer:
    """Of an organization without a roster."""
    account = api.new_account()
    return Writer(account, account.new_schema())


@pytest.fixture
def team(api: Api) -> Team:
    return team_of(api)


def test_the_newest_checkpoint_comes_before_the_log_after_it(writer: Writer) -> None:
    uploads = []
    for _ in range(3):
        uploads.append(writer.adding([person()]))
        writer.send(uploads[-1])
    assert first(writer)[0] is None
    assert versions(first(writer)[1]) == [1, 2, 3]
    checkpoint = made(writer)
    assert (put(writer, checkpoint).status, put(writer, checkpoint).status) == (201, 200)
    uploads.append(writer.adding([person()]))
    writer.send(uploads[-1])
    every = [
        segment.uid
        for upload in uploads
        for segment in wire.decode_commit_body(upload.commit).segments
    ]
    for known, after in [(0, [4]), (1, [2, 3, 4]), (3, [4]), (4, [4])]:
        given, deltas = first(writer, known)
        assert given == checkpoint
        assert (versions(deltas), headers(deltas)) == (after, every)
        assert deltas[-1].version == 4
    path = f"{writer.schema['url']}manifest/?since=0&checkpoint="
    assert met(writer.account.call("GET", f"{path}5")) == (409, "log_conflict")
    assert writer.account.call("GET", f"{path}x").status == 400
    # And whoever does not ask for one gets the log as ever.
    assert versions(writer.manifest(0)) == [1, 2, 3, 4]


@pytest.mark.both_databases
def test_the_newest_few_are_kept_and_listed(writer: Writer) -> None:
    for _ in range(5):
        writer.send(writer.adding([person()]))
        assert put(writer, made(writer)).status == 201
    assert listed(writer) == [5, 4, 3]
    answer = writer.account.call("GET", f"{writer.schema['url']}checkpoints/")
    newest = made(writer)
    assert answer.json()[0] == {
        "version": 5,
        "key_version": writer.key_version,
        "digest": wire.checkpoint_digest(newest).hex(),
        "bytes": len(newest.body),
    }


REFUSED: dict[str, tuple[Callable[[Writer], Checkpoint], tuple[int, str]]] = {
    "of a version that the log has not": (
        lambda writer: made(writer, version=9),
        (409, "log_conflict"),
    ),
    "of another digest": (lambda writer: made(writer, digest=bytes(32)), (409, "log_conflict")),
    "of another schema": (lambda writer: made(writer, schema=ids.new_id()), INVALID),
    "that names a roster": (lambda writer: made(writer, roster=1), INVALID),
    "of a member": (lambda writer: made(writer, member=ids.new_id()), INVALID),
    "that is no checkpoint": (lambda writer: Checkpoint(b"\xc1", bytes(32), b""), INVALID),
    "that is signed": (
        lambda writer: msgspec.structs.replace(made(writer), signature=bytes(64)),
        INVALID,
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_one_that_no_proxy_would_take_is_refused(writer: Writer, why: str) -> None:
    make, expected = REFUSED[why]
    writer.send(writer.adding([person()]))
    assert met(put(writer, make(writer))) == expected
    assert listed(writer) == []


def test_one_of_a_team_is_of_a_writer_under_the_present_epoch(team: Team, api: Api) -> None:
    grace = team.writer
    writer = team.ring.writer(team.schema, grace)
    writer.send(writer.adding([person()]))
    honest = made(writer, grace)
    reader = Person(api.new_account())
    team.ring.join(reader, [share(team.dataset)])
    assert met(put(writer, honest)) == (409, "roster_moved")
    writer.stated = (team.ring.number, team.ring.digest, grace.uid)
    honest = made(writer, grace)
    for forged in (
        made(writer),
        made(writer, team.ring.owner),
        msgspec.structs.replace(
            honest, signature=grace.identity.sign("commit", wire.checkpoint_digest(honest))
        ),
        made(writer, grace, member=team.ring.owner.uid),
    ):
        assert met(put(writer, forged)) == INVALID
    assert met(put(writer, honest, reader.account)) == (403, "not_writer")
    assert met(put(writer, made(writer, grace, key_version=2))) == (409, "key_mismatch")
    assert put(writer, honest, api.new_account()).status == 404
    assert put(writer, honest).status == 201
    assert first(writer)[0] == honest
    # Of a new epoch, the log comes without it.
    end = form.End(ids.from_text(team.schema["id"]), writer.seen, writer.seen_digest)
    team.ring.begin(team.dataset, grace, reader, epoch=2, ends=[end])
    assert (listed(writer), first(writer)[0]) == ([], None)


def test_one_of_somebody_who_writes_no_more_is_not_handed_out(team: Team) -> None:
    grace, ada = team.writer, team.ring.owner
    writer = team.ring.writer(team.schema, grace)
    writer.send(writer.adding([person()]))
    assert put(writer, made(writer, grace)).status == 201
    own = team.ring.writer(team.schema)
    own.stated = (team.ring.number, team.ring.digest, ada.uid)
    own.seen, own.seen_digest = writer.seen, writer.seen_digest
    assert put(own, made(own, ada)).status == 201
    assert listed(own) == [1, 1]
    team.ring.add(*team.ring.chain(form.Remove(grace.uid)))
    assert listed(own) == [1]
    given, _ = first(own)
    assert given is not None
    assert wire.decode_checkpoint_body(given).member == ada.uid


def test_they_go_with_their_schema(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    assert put(writer, made(writer)).status == 201
    deleted = writer.account.call("DELETE", f"{writer.schema['url']}?cascade=true")
    assert deleted.status == 204, deleted.body
    assert writer.account.call("GET", f"{writer.schema['url']}checkpoints/").status == 404
