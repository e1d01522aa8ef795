"""The API holds a schema's log to one key per keyring version, and to versions that never fall."""

from __future__ import annotations

import os

import msgspec
import pytest

from encrypted_records.model import ids
from tests.server.api import Account
from tests.server.writer import Writer, body_of, person

MISMATCH = (409, "key_mismatch")


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def rotate(writer: Writer) -> bytes:
    """The writer goes over to a new key version; the key id of before."""
    old, writer.key_id = writer.key_id, os.urandom(8)
    writer.key_version += 1
    return old


def newcomer(writer: Writer) -> Writer:
    """Another writer with the same key, who has not read the log."""
    other = Writer(writer.account, writer.schema, key_id=writer.key_id)
    other.key_version = writer.key_version
    return other


def test_a_schema_goes_over_to_a_new_key_version_and_its_old_records_keep_theirs(
    writer: Writer,
) -> None:
    old, new = person(), person()
    assert writer.account.call("GET", writer.schema["url"]).json()["key_version"] is None
    writer.send(writer.adding([old]))
    first = rotate(writer)
    writer.send(writer.adding([new]))

    shown = writer.account.call("GET", writer.schema["url"]).json()
    assert (shown["key_id"], shown["key_version"]) == (writer.key_id.hex(), 2)
    assert shown["first_key_version"] == 1
    assert writer.manifest()[0].key_id == writer.key_id
    for row, key_id, version in ((old, first, 1), (new, writer.key_id, 2)):
        path = ids.reference("records", row.record_id)
        record = writer.account.call("GET", path).json()
        assert (record["key_id"], record["key_version"]) == (key_id.hex(), version)


def test_a_key_version_has_one_key_and_the_versions_never_fall(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    first = rotate(writer)
    writer.send(writer.adding([person()]))

    assert writer.refused(writer.adding([person()], key_id=os.urandom(8))) == MISMATCH
    writer.key_version = 1
    for key_id in (first, writer.key_id):
        assert writer.refused(writer.adding([person()], key_id=key_id)) == MISMATCH


def test_a_new_version_comes_only_from_who_has_seen_the_one_before(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    alien = newcomer(writer)
    rotate(alien)
    assert alien.refused(alien.adding([person()])) == MISMATCH
    rotate(writer)
    writer.send(writer.adding([person()]))
    # It has seen the first key's commit, and not that of the key which it wants to follow.
    late = newcomer(writer)
    rotate(late)
    late.catch_up()
    digest = digest_at(writer, 1)
    assert late.refused(late.adding([person()], seen=1, seen_digest=digest)) == MISMATCH
    late.send(late.adding([person()]))


def test_after_a_rotation_a_writer_must_have_seen_how_the_log_begins(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    rotate(writer)
    writer.send(writer.adding([person()]))
    other = newcomer(writer)
    assert other.refused(other.adding([person()])) == MISMATCH
    digest = digest_at(writer, 1)
    assert other.post(other.adding([person()], seen=1, seen_digest=digest)).status == 201


@pytest.mark.both_databases
def test_a_log_may_begin_under_any_version_and_two_may_begin_it_at_once(writer: Writer) -> None:
    rotate(writer)
    other = newcomer(writer)
    writer.send(writer.adding([person()]))
    assert other.post(other.adding([person()])).status == 201
    shown = writer.account.call("GET", writer.schema["url"]).json()
    assert (shown["first_key_version"], shown["key_version"]) == (2, 2)


def test_a_commit_adds_groups_and_segments_of_its_own_version_alone(writer: Writer) -> None:
    upload = writer.adding([person()])
    body = body_of(upload)
    old = body.groups[0]
    group = msgspec.structs.replace(old, key_version=2)
    changed = writer.make(
        groups=[group], segments=body.segments, rows=upload.rows, pages=upload.pages
    )
    assert writer.refused(changed) == (400, "invalid_commit")
    assert writer.refused(
        writer.make(
            groups=body.groups,
            segments=body.segments,
            rows=upload.rows,
            pages=upload.pages,
            key_version=2,
        )
    ) == (400, "invalid_commit")


def digest_at(writer: Writer, version: int) -> bytes:
    """The log's digest at ``version``, as a reader computes it."""
    reader = newcomer(writer)
    (delta,) = reader.manifest()
    reader.take_in(delta.entries[:version])
    return reader.seen_digest
