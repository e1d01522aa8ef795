"""Somebody who was removed, or let into one schema alone, with all they ever had and the whole
database of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.crypto import sealing
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import DatasetKey, SchemaKey
from encrypted_records.errors import DoesNotOpen, ErsError, NotAllowed, SqlError
from encrypted_records.index.roster import access
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.roster import Grant
from encrypted_records.proxy.sharing.settling import Sharing
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.failures import state_of
from tests.e2e.database import Database, database_of
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import DEFINITION, Shared, numbers

SPEC = parse_definition(msgspec.json.encode(DEFINITION)).fields["n"]


def id_of(schema: str) -> bytes:
    return ids.from_text(schema.split("/")[-2])


def held_by(person: Person, organization: bytes, dataset: bytes) -> Mapping[int, DatasetKey]:
    async def act(sharing: Sharing) -> Mapping[int, DatasetKey]:
        view = await sharing.reader.read(person.holder, organization)
        assert view is not None
        return await sharing.grants.whole(view, dataset)

    return person.do(act)


def opened_rows(database: Database, secret: SchemaKey) -> set[tuple[bytes, int]]:
    """Record and version of each row of its schema in the database of which a key opens a field."""
    found = set()
    rows = database.run(
        "SELECT g.uid, r.* FROM record_row r JOIN record_group g ON g.id = r.group_id"
        " WHERE g.schema_id = %s",
        secret.schema,
    )
    for row in rows:
        context = sealing.record_context(
            sealing.context_of(secret), row["record_id"], row["version"]
        )
        key = secret.field(SPEC).seal(row["uid"])
        for field in msgspec.msgpack.decode(row["sealed"], type=list[bytes]):
            try:
                sealing.open_field(key, row["ordinal"], context, SPEC.id_bytes, field)
            except DoesNotOpen:
                continue
            found.add((row["record_id"], row["version"]))
    return found


def opened_headers(database: Database, secret: SchemaKey) -> int:
    """Of how many segments of its schema in the database a key opens the header."""
    found = 0
    for row in database.run(
        "SELECT uid, header FROM index_segment WHERE schema_id = %s", secret.schema
    ):
        try:
            sealing.open_header(
                secret.meta(row["uid"]),
                row["header"],
                schema_context=sealing.context_of(secret),
                segment=row["uid"],
            )
        except DoesNotOpen:
            continue
        found += 1
    return found


def opened_grants(database: Database, roster: Roster, identity: Identity) -> list[bytes]:
    """Whose grants, of all that the API keeps, an identity opens, by the right associated data."""
    found = []
    for row in database.run(
        "SELECT * FROM roster_grant WHERE organization_id = %s", roster.organization
    ):
        body = form.read_grant(Grant(row["body"], row["signature"]))
        member = roster.member(body.member)
        assert member is not None
        try:
            identity.open(body.sealed, access._info(body, roster.keys_of(member).digest))
        except DoesNotOpen:
            continue
        found.append(body.member)
    return found


def test_who_was_removed_opens_nothing_that_is_stored_after_it_is_done(shared: Shared) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    (first,) = ada.ingest([{"n": 1}])
    gone = shared.person(form.WRITER)
    grace = shared.proxy(gone)
    (second,) = grace.ingest([{"n": 2}])
    held = held_by(gone, team.organization, team.dataset)
    view = team.view(gone)
    stays = shared.proxy(shared.person(form.WRITER))

    assert shared.put_out(ada, gone).json()["rotated"] == ["People"]

    (third,) = ada.ingest([{"n": 3}])
    (fourth,) = stays.ingest([{"n": 4}])
    assert stays.proxy("PATCH", f"/api/records/{second}/", {"data": {"n": 7}}).status == 200
    assert numbers(ada) == numbers(stays) == [1, 3, 4, 7]
    roster = team.view(team.ada).roster
    everything = held_by(team.ada, team.organization, team.dataset)
    schema = id_of(shared.schema)
    with database_of(team.ada.service) as database:
        before = opened_rows(database, held[1].schema(schema))
        after = opened_rows(database, everything[2].schema(schema))
        # By the rule that makes a schema's key of that of the dataset.
        place = {"organization": team.organization, "dataset": team.dataset}
        next_of_hers = DatasetKey(held[1].export(), epoch=2, **place).schema(schema)
        assert opened_rows(database, next_of_hers) == set()
        hers = opened_grants(database, roster, view.identity)
        of_ada = opened_grants(database, roster, team.view(team.ada).identity)
    assert set(held) == {1}
    old, new = ({ids.from_text(one) for one in some} for some in ((first, second), (third, fourth)))
    # What she could read before, she still can; of what was stored since, there is no row.
    assert {record for record, version in before if version == 1} >= {ids.from_text(first)}
    assert {record for record, _ in before} <= old
    assert before.isdisjoint(after)
    assert {record for record, _ in after} == new | {ids.from_text(second)}
    assert set(hers) <= {gone.id}
    assert of_ada == [team.ada.id]


def test_an_engine_of_sql_that_is_open_gets_nothing_more_of_who_was_removed(
    shared: Shared,
) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    gone = shared.person(form.READER)
    url, account = shared.proxy(gone).service.proxy_url, gone.account

    async def run() -> ErsError:
        client = ProxyClient(url, email=account.email, password=account.password)
        async with client, Engine(client) as engine:
            async with await engine.execute("SELECT n FROM adults") as result:
                assert (await result.table()).to_pylist() == [{"n": 1}]
            assert (await asyncio.to_thread(shared.put_out, ada, gone)).status == 200
            with pytest.raises(ErsError) as caught:
                await engine.execute("SELECT n FROM adults")
            return caught.value

    error = asyncio.run(run())
    assert isinstance(error, NotAllowed | SqlError)
    assert state_of(error) in ("42501", "42P01", "3D000"), error


def test_who_was_let_into_one_schema_opens_no_byte_of_its_neighbour(shared: Shared) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    neighbour = replace(ada, schema=shared.new_schema("Children"))
    neighbour.ingest([{"n": 2}, {"n": 3}])
    reader = shared.person(form.READER, shared.schema)
    view = team.view(reader)

    async def single(sharing: Sharing) -> Mapping[tuple[bytes, int], SchemaKey]:
        held = await sharing.grants.open(view, team.dataset)
        assert not held.whole
        return held.single

    secrets = reader.do(single)
    mine, other = id_of(shared.schema), id_of(neighbour.schema)
    assert set(secrets) == {(mine, 1)}
    # In the neighbour's place, so that nothing but the secret decides.
    held = secrets[mine, 1]
    tried = SchemaKey(held.hand_over(), organization=held.organization, schema=other, version=1)
    whole = held_by(team.ada, team.organization, team.dataset)[1]
    with database_of(team.ada.service) as database:
        assert (len(opened_rows(database, held)), opened_headers(database, held)) == (1, 1)
        there = whole.schema(other)
        assert (len(opened_rows(database, there)), opened_headers(database, there)) == (2, 1)
        assert (opened_rows(database, tried), opened_headers(database, tried)) == (set(), 0)
        roster = team.view(team.ada).roster
        assert opened_grants(database, roster, view.identity) == [reader.id]
