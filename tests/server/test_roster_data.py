"""Epochs, ends of logs, places and grants: what an owner states of data, held against what is."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from tests.server.api import PERSON, Account, Api, id_bytes
from tests.server.overtaking import overtaken
from tests.server.rosters import Person, Ring, found, placement, share, standing
from tests.server.writer import Writer, person

INVALID = (400, "invalid_entry")
INCOMPLETE = (400, "grants_incomplete")
PROXY = (409, "through_a_proxy")


@pytest.fixture
def ring(api: Api) -> Ring:
    return found(api.new_account())


@pytest.fixture
def grace(guests: list[Account]) -> Person:
    return Person(guests[0])


@pytest.fixture
def dataset(ring: Ring) -> Any:
    return ring.owner.account.new_dataset()


def end_of(writer: Writer) -> form.End:
    return form.End(id_bytes(writer.schema), writer.seen, writer.seen_digest)


def read(account: Account, resource: Any) -> Any:
    return account.call("GET", resource["url"]).json()


def test_epochs_follow_each_other(ring: Ring, dataset: Any) -> None:
    assert ring.refuses(ring.dataset(dataset, epoch=2)) == INVALID
    first = ring.begin(dataset)
    assert ring.refuses(ring.dataset(dataset, epoch=3)) == INVALID
    assert ring.refuses(ring.dataset(dataset, epoch=1)) == INVALID  # another commitment
    same = ring.dataset(dataset, epoch=1, commitment=first.commitment)
    ring.add(ring.follow(ring.sign(same)))
    ring.begin(dataset, epoch=2)
    assert ring.refuses(first) == INVALID
    strange = {"id": ids.to_text(ids.new_id()), "slug": "s", "name": "n"}
    assert ring.refuses(ring.dataset(strange)) == INVALID


def test_a_dataset_that_is_renamed_meanwhile_has_the_name_of_the_roster(
    api: Api, ring: Ring, dataset: Any
) -> None:
    renamed = "UPDATE datasets_dataset SET name = 'Visits' WHERE id = %s"
    overtaken(api, renamed, id_bytes(dataset), lambda: ring.begin(dataset))
    assert read(ring.owner.account, dataset)["name"] == dataset["name"]


def test_a_dataset_of_another_organization_is_none(ring: Ring, bob: Account) -> None:
    theirs = bob.new_dataset()
    assert ring.refuses(ring.dataset(theirs)) == INVALID
    schema = bob.new_schema(dataset=theirs["url"])
    assert ring.refuses([placement(schema)]) == INVALID
    own = ring.owner.account.new_dataset()
    moved = placement(schema, dataset=id_bytes(own))
    assert ring.refuses([moved]) == INVALID
    assert read(bob, schema)["name"] == schema["name"]


def test_an_epoch_comes_with_a_grant_for_everybody(
    ring: Ring, dataset: Any, grace: Person, guests: list[Account]
) -> None:
    ring.begin(dataset)
    ring.join(grace, [share(dataset)])
    single = Person(guests[1])
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    ring.add(ring.follow(ring.sign([placement(schema)])))
    ring.join(single, [share(dataset, form.READER, [schema])])
    entry = ring.follow(ring.sign(ring.dataset(dataset, epoch=2)))
    everybody = [ring.owner, grace, single]
    for missing in everybody:
        some = [ring.grant(dataset, one, 2) for one in everybody if one is not missing]
        answer = ring.send(entry, *some)
        assert (answer.status, answer.code) == INCOMPLETE
        [flaw] = answer.json()["errors"]
        assert missing.id in flaw["detail"]
    ring.add(entry, *(ring.grant(dataset, one, 2) for one in everybody))
    assert [grant.epoch for grant in ring.grants_of(single)] == [2]


def test_a_wider_right_comes_with_a_grant(ring: Ring, dataset: Any, grace: Person) -> None:
    other = ring.owner.account.new_dataset()
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    for one in (dataset, other):
        ring.begin(one)
    ring.add(ring.follow(ring.sign([placement(schema)])))
    ring.join(grace)
    steps = [
        [share(dataset, form.READER, [schema])],
        [share(dataset)],
        [share(dataset), share(other, form.WRITER)],
    ]
    for shares, needed in zip(steps, (dataset, dataset, other), strict=True):
        entry = ring.sign(standing(grace, shares))
        assert ring.refused(entry) == INCOMPLETE
        ring.follow(entry)
        ring.add(entry, ring.grant(needed, grace))
    # To write what one reads, and less of anything, needs no other key.
    for shares in ([share(dataset, form.WRITER), share(other)], [share(other)]):
        ring.add(ring.follow(ring.sign(standing(grace, shares))))
    assert [ids.to_text(grant.dataset) for grant in ring.grants_of(grace)] == [other["id"]]
    entry = ring.sign(standing(grace, role=form.OWNER))
    assert ring.refused(entry) == INCOMPLETE
    ring.follow(entry)
    ring.add(entry, ring.grant(dataset, grace))


def test_a_grant_is_for_who_may_read_and_by_an_owner(
    ring: Ring, dataset: Any, grace: Person, guests: list[Account]
) -> None:
    stranger = Person(guests[1])
    ring.begin(dataset)
    ring.join(grace, [share(dataset)])
    for wrong in (
        ring.grant(dataset, stranger),
        ring.grant(dataset, grace, by=grace),
        ring.grant(dataset, grace, epoch=2),
        ring.grant(dataset, grace, organization=ids.new_id()),
        ring.grant(dataset, grace, actor=grace.uid),
        ring.grant({"id": ids.to_text(ids.new_id())}, grace),
    ):
        assert ring.refused(wrong) == INVALID
    right = ring.grant(dataset, grace)
    altered = form.Grant(right.body[:-1] + bytes([right.body[-1] ^ 1]), right.signature)
    assert ring.refused(altered) == INVALID
    moved = (409, "roster_moved")
    assert ring.refused(ring.grant(dataset, grace, digest=os.urandom(32))) == moved
    assert ring.refused(ring.grant(dataset, grace, number=ring.number + 1)) == moved
    # A member hands in no owner's.
    assert ring.refused(right, by=grace) == (403, "owners_only")
    assert ring.send(right).status == 201


def test_grants_of_an_epoch_that_is_over_are_not_taken_again(
    ring: Ring, dataset: Any, grace: Person
) -> None:
    ring.begin(dataset)
    ring.join(grace, [share(dataset)])
    old = ring.grant(dataset, grace)
    ring.begin(dataset, grace, epoch=2)
    assert ring.refused(old) == (409, "roster_moved")
    assert [grant.epoch for grant in ring.grants_of(grace)] == [2]


def test_the_ends_of_logs_are_their_present_heads(ring: Ring, dataset: Any) -> None:
    account = ring.owner.account
    schemas = [account.new_schema(dataset=dataset["url"]) for _ in range(2)]
    elsewhere = Writer(account, account.new_schema())
    unplaced = Writer(account, account.new_schema(dataset=dataset["url"]))
    ring.begin(dataset)
    ring.add(ring.follow(ring.sign([placement(schema) for schema in schemas])))
    writers = [ring.writer(schema) for schema in schemas]
    writers[0].send(writers[0].adding([person()]))
    stale = [end_of(writer) for writer in writers]
    writers[0].send(writers[0].adding([person()]))
    moved = (409, "log_moved")
    wrong = [
        stale,
        [form.End(stale[1].schema, 0, os.urandom(32))],
        [form.End(stale[1].schema, 1, bytes(32))],
    ]
    for ends in wrong:
        entry = ring.sign(ring.dataset(dataset, 2, ends=ends))
        answer = ring.send(entry)
        assert (answer.status, answer.code) == moved
        assert len(answer.json()["errors"]) == 1
    [flaw] = ring.send(ring.sign(ring.dataset(dataset, 2, ends=stale))).json()["errors"]
    assert writers[0].schema["url"] in flaw["detail"]
    for ends in (
        [end_of(writers[0])] * 2,
        [end_of(elsewhere)],
        [end_of(unplaced)],
        [form.End(ids.new_id(), 0, bytes(32))],
    ):
        assert ring.refuses(ring.dataset(dataset, 2, ends=ends)) == INVALID
    ring.begin(dataset, epoch=2, ends=[end_of(writer) for writer in writers])


def test_an_end_that_comes_later_is_where_the_log_stood_when_the_epoch_began(
    ring: Ring, dataset: Any
) -> None:
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    ring.begin(dataset)
    ring.add(ring.follow(ring.sign([placement(schema)])))
    writer = ring.writer(schema)
    empty = end_of(writer)
    writer.send(writer.adding([person()]))
    first = end_of(writer)
    writer.send(writer.adding([person()]))
    second = end_of(writer)
    begun = ring.begin(dataset, epoch=2)

    def answer(end: form.End) -> tuple[int, str]:
        entry = ring.dataset(dataset, 2, commitment=begun.commitment, ends=[end])
        answer = ring.send(ring.sign(entry))
        return answer.status, answer.code

    moved = (409, "log_moved")
    for wrong in (empty, first, form.End(second.schema, 2, os.urandom(32))):
        assert answer(wrong) == moved
    # A commit of the new epoch leaves it where it was.
    writer.stated = (ring.number, ring.digest, ring.owner.uid)
    writer.key_version, writer.key_id = 2, os.urandom(len(writer.key_id))
    writer.send(writer.adding([person()]))
    for wrong in (empty, first, end_of(writer)):
        assert answer(wrong) == moved
    ending = ring.dataset(dataset, 2, commitment=begun.commitment, ends=[second])
    ring.add(ring.follow(ring.sign(ending)))
    assert ring.refuses(ring.dataset(dataset, 2, ends=[second])) == INVALID  # another commitment


def test_a_log_that_began_under_an_epoch_ended_with_nothing(ring: Ring, dataset: Any) -> None:
    ring.begin(dataset)
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    ring.add(ring.follow(ring.sign([placement(schema)])))
    begun = ring.begin(dataset, epoch=2)
    writer = ring.writer(schema)
    empty = end_of(writer)
    writer.key_version = 2
    writer.send(writer.adding([person()]))
    entry = ring.dataset(dataset, 2, commitment=begun.commitment, ends=[end_of(writer)])
    assert ring.send(ring.sign(entry)).code == "log_moved"
    ending = ring.dataset(dataset, 2, commitment=begun.commitment, ends=[empty])
    ring.add(ring.follow(ring.sign(ending)))


@pytest.mark.both_databases
def test_of_a_commit_and_an_end_of_its_log_at_once_one_comes_first(
    ring: Ring, dataset: Any
) -> None:
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    ring.begin(dataset)
    ring.add(ring.follow(ring.sign([placement(schema)])))
    writer = ring.writer(schema)
    epoch = 1
    for _ in range(5):
        writer.stated = (ring.number, ring.digest, ring.owner.uid)
        upload = writer.adding([person()])
        known = ring.number, ring.digest
        ends = [end_of(writer)]
        entry = ring.follow(ring.sign(ring.dataset(dataset, epoch + 1, ends=ends)))
        items = [entry, ring.grant(dataset, ring.owner, epoch + 1)]
        with ThreadPoolExecutor(2) as pool:
            stored = pool.submit(writer.post, upload)
            ended = pool.submit(ring.send, *items)
        if stored.result().status == 201:
            assert ended.result().code == "log_moved"
            ring.number, ring.digest = known
            writer.follow(upload)
        else:
            assert (stored.result().code, ended.result().status) == ("roster_moved", 201)
            ring.verify([entry])
            epoch += 1
            writer.key_version, writer.key_id = epoch, os.urandom(len(writer.key_id))


def test_places_name_schemas_and_datasets(ring: Ring, dataset: Any) -> None:
    account = ring.owner.account
    schema = account.new_schema(dataset=dataset["url"])
    entries = ring.chain(
        ring.dataset(dataset, slug="people", name="People"),
        [placement(schema, slug="first", name="First")],
    )
    ring.add(*entries, ring.grant(dataset, ring.owner))
    assert (read(account, dataset)["slug"], read(account, dataset)["name"]) == ("people", "People")
    assert (read(account, schema)["slug"], read(account, schema)["name"]) == ("first", "First")


def test_what_is_placed_is_changed_through_a_proxy_alone(ring: Ring, dataset: Any) -> None:
    account = ring.owner.account
    other = account.new_dataset()
    schema = account.new_schema(dataset=dataset["url"])
    ring.begin(dataset)
    # Not placed yet: as ever.
    assert account.call("PATCH", schema["url"], {"name": "Other"}).status == 200
    ring.add(ring.follow(ring.sign([placement(schema)])))
    for url, changes in (
        (dataset["url"], {"name": "Other"}),
        (dataset["url"], {"slug": "other"}),
        (schema["url"], {"name": "Other"}),
        (schema["url"], {"slug": "other"}),
        (schema["url"], {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}}),
    ):
        answer = account.call("PATCH", url, changes)
        assert (answer.status, answer.code) == PROXY, changes
        assert list(answer.flaws()) == [f"/{next(iter(changes))}"]
    moved = account.call("PATCH", schema["url"], {"dataset": other["url"]})
    assert (moved.status, moved.code) == (409, "schema_placed")
    # What says the same, and descriptions, are taken.
    for url, changes in (
        (dataset["url"], {"name": dataset["name"], "description": "more"}),
        (schema["url"], {"name": schema["name"], "description": "more", "schema": PERSON}),
        (schema["url"], {"dataset": dataset["url"]}),
    ):
        assert account.call("PATCH", url, changes).status == 200, changes


def test_a_schema_with_records_stays_in_its_dataset(ring: Ring, dataset: Any) -> None:
    account = ring.owner.account
    schema = account.new_schema(dataset=dataset["url"])
    ring.begin(dataset)
    ring.add(ring.follow(ring.sign([placement(schema)])))
    writer = ring.writer(schema)
    writer.send(writer.adding([person()]))
    other = account.new_dataset()
    answer = account.call("PATCH", writer.schema["url"], {"dataset": other["url"]})
    assert (answer.status, answer.code) == (409, "schema_placed")


def test_a_place_states_what_is(ring: Ring, dataset: Any) -> None:
    account = ring.owner.account
    ring.begin(dataset)
    other, without = account.new_dataset(), account.new_dataset()
    ring.begin(other)
    schemas = [account.new_schema(dataset=dataset["url"]) for _ in range(2)]
    ring.add(ring.follow(ring.sign([placement(schemas[0])])))
    assert ring.refuses([placement(schemas[1], definition=os.urandom(32))]) == (
        409,
        "stale_definition",
    )
    taken = placement(schemas[1], slug=schemas[0]["slug"])
    assert ring.refuses([taken]) == (409, "slug_taken")
    for wrong in (
        [placement(schemas[1]), placement(schemas[1])],
        [placement(schemas[1], name="n" * 201)],
        [msgspec.structs.replace(placement(schemas[1]), schema=ids.new_id())],
        [placement(schemas[1], dataset=id_bytes(other))],
        [placement(account.new_schema(dataset=without["url"]))],
    ):
        assert ring.refuses(wrong) == INVALID
    assert ring.refuses([placement(schemas[0], dataset=id_bytes(other))]) == (409, "schema_placed")


@pytest.mark.both_databases
def test_the_name_of_what_was_deleted_is_freed(ring: Ring, dataset: Any) -> None:
    account = ring.owner.account
    ring.begin(dataset)
    schema = account.new_schema(dataset=dataset["url"])
    freed = [placement(schema, slug="", name="")]
    ring.add(ring.follow(ring.sign([placement(schema)])))
    assert account.call("DELETE", schema["url"]).status == 204
    assert ring.refuses([placement(schema)]) == INVALID
    ring.add(ring.follow(ring.sign(freed)))
    again = account.new_schema(dataset=dataset["url"], slug=schema["slug"])
    ring.add(ring.follow(ring.sign([placement(again)])))


def test_writers_of_the_whole_dataset_place_schemas(
    ring: Ring, dataset: Any, grace: Person
) -> None:
    ring.begin(dataset)
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    ring.add(ring.follow(ring.sign([placement(schema)])))
    ring.join(grace, [share(dataset)])
    refused = (403, "not_writer")
    for shares in (
        [share(dataset)],
        [share(dataset, form.WRITER, [schema]), share(dataset)],
    ):
        ring.add(ring.follow(ring.sign(standing(grace, shares))))
        assert ring.refuses([placement(schema)], by=grace) == refused
    ring.add(ring.follow(ring.sign(standing(grace, [share(dataset, form.WRITER)]))))
    ring.add(ring.follow(ring.sign([placement(schema)], by=grace)), by=grace)
