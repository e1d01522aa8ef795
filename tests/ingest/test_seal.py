"""What was sealed opens to what went in, and nothing of it is in the bytes that are sent."""

from __future__ import annotations

import pytest
from hypothesis import given

from encrypted_records.index.log.ledger import Ledger
from encrypted_records.ingest.seal import seal
from encrypted_records.model import digests, wire
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import MAX_MINI_RECORDS, PlainRecord
from tests.index.strategies import Case, cases
from tests.index.world import World
from tests.reference import definitions as plain
from tests.reference import fields as ref
from tests.reference import keys, segments, words

TEXT = (
    '{"type": "object", "properties": {"diagnosis": {"type": "string"},'
    ' "n": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615}}}'
)


@given(cases())
def test_sealing_and_opening_gives_the_input_back(case: Case) -> None:
    world = World(case.text)
    for sequence, group in enumerate(case.groups):
        records = world.plain(group)
        world.apply(seal(world.ledger, world.definition, records).upload)
        assert [world.open((sequence, at)) for at in range(len(records))] == records


@given(cases())
def test_the_reference_opens_what_the_package_sealed(case: Case) -> None:
    world = World(case.text)
    definition = plain.load(case.text)
    key = world.key
    place = keys.Schema(key.organization, key.schema, key.version, key.hand_over())
    records = world.plain(case.groups[0])
    upload = seal(world.ledger, world.definition, records).upload
    body = wire.decode_commit_body(upload.commit)
    (group,), (segment,) = body.groups, body.segments
    for ordinal, (record, row) in enumerate(zip(records, upload.rows[0].present, strict=True)):
        for number, sealed in zip(group.fields, row.fields, strict=True):
            name = world.definition.by_id[number].name
            at = (group.uid, ordinal, row.record_id, row.version)
            value = ref.open_field(place, definition.fields[name], *at, sealed)
            assert value == record.data.get(name)
    columns = segments.open_mini(
        place, definition, segment.uid, upload.headers[0].data, upload.pages[0].data
    )
    named = plain.columns(definition)
    assert list(columns) == list(named)
    rows: list[tuple[int, dict[str, ref.Value]]] = [
        (at, {name: one.data.get(name) for name in definition.fields})  # type: ignore[misc] # texts
        for at, one in enumerate(records)
    ]
    for name, column in columns.items():
        if named[name]["type"] == "words":
            own = named[name]
            assert column == words.entries(definition, own, place.field(own), rows)
            continue
        absent = [ordinal for ordinal, index_key in column if index_key is None]
        assert absent == [at for at, one in enumerate(records) if name not in one.data]
    assert keys.mac(place.log, upload.commit.body) == upload.commit.mac


def test_a_commit_says_what_it_brings() -> None:
    world = World(TEXT)
    upload = seal(
        world.ledger, world.definition, world.plain([{"n": 1}, {"diagnosis": "x"}])
    ).upload
    body = wire.decode_commit_body(upload.commit)
    (group,), (segment,), (batch,), (page,) = body.groups, body.segments, upload.rows, upload.pages
    assert (group.count, segment.count, segment.purged, len(batch.present)) == (2, 2, 0, 2)
    assert segment.groups == [(group.uid, 0)]
    assert (batch.group, batch.first, page.segment, page.number) == (group.uid, 0, segment.uid, 0)
    assert group.fields == world.definition.ids
    assert body.definition == world.definition.digest
    (group,), (segment,) = body.groups, body.segments
    assert group.rows == digests.digest_rows(upload.salts[0].salt, upload.rows[0].present)
    digests.check_mini(segment, upload.headers[0], upload.pages[0].data)
    assert (body.killed, body.replaced) == ([], [])
    assert world.ledger.version == 0, "sealing changes nothing until the commit is stored"


def test_no_value_is_in_the_bytes_that_are_sent() -> None:
    world = World(TEXT)
    value, number = "Huntington's disease", 0x0123456789ABCDEF
    upload = seal(
        world.ledger, world.definition, world.plain([{"diagnosis": value, "n": number}])
    ).upload
    body = b"".join(wire.encode_uploads([upload]))
    for spelled in (value.encode(), value[:8].encode(), number.to_bytes(8, "big")):
        assert spelled not in body
    assert b"diagnosis" in body, "the names of fields are no secret, and this search can find"


def test_absent_fields_are_sealed_like_any_other() -> None:
    world = World(TEXT)
    upload = seal(
        world.ledger, world.definition, world.plain([{}, {"diagnosis": "x", "n": 0}])
    ).upload
    absent, present = upload.rows[0].present
    assert [len(field) for field in absent.fields] == [len(field) for field in present.fields]


@pytest.mark.parametrize("count", [1, MAX_MINI_RECORDS, MAX_MINI_RECORDS + 1])
def test_a_batch_is_found_by_every_record_whatever_form_its_segment_has(count: int) -> None:
    world = World('{"type": "object", "properties": {"s": {"type": "string"}}}')
    records = [PlainRecord(new_id(), 1, {"s": f"{at:04}"}) for at in range(count)]
    world.apply(seal(world.ledger, world.definition, records).upload)
    assert len(world.ask({"field": "s", "op": "is_null", "value": False})[0]) == count
    last = {"field": "s", "op": "eq", "value": f"{count - 1:04}"}
    assert world.ask(last)[0] == {(0, count - 1)}
    (segment,) = world.ledger.snapshot().segments
    assert segment.form == ("mini" if count <= MAX_MINI_RECORDS else "paged")


def test_sealing_no_records_is_our_bug() -> None:
    world = World(TEXT)
    with pytest.raises(AssertionError):
        seal(Ledger(world.keys, new_id()), world.definition, [])


def test_sealing_one_batch_twice_uses_two_uids_and_no_common_ciphertext() -> None:
    world = World(TEXT)
    records = world.plain([{"diagnosis": "x", "n": 1}])
    one, other = (seal(world.ledger, world.definition, records).upload for _ in range(2))
    assert one.rows[0].group != other.rows[0].group
    assert one.pages[0].segment != other.pages[0].segment
    assert not {*one.rows[0].present[0].fields} & {*other.rows[0].present[0].fields}
