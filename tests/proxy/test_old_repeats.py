"""A request from before all records were sealed again, where nobody can tell whether it came."""

from __future__ import annotations

import pytest

from encrypted_records.errors import Conflict
from encrypted_records.index.log.history import Resealed
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.model import ids
from encrypted_records.proxy.schemas.state import SchemaState, ShownSchema
from encrypted_records.proxy.write.ingest import NEWEST, IdempotencyKey, IngestRequest
from tests.index.world import World

TEXT = '{"type": "object", "properties": {"t": {"type": "string"}}}'
#: When all was sealed again, in milliseconds since 1970.
MOMENT = 1_790_000_000_000
SLACK = NEWEST * 1000
#: Of no keyring here.
FORGOTTEN = (9, bytes(16))


def state_of(world: World, *former: tuple[int, bytes]) -> SchemaState:
    """A schema of which all was sealed again, once under each of these keys before."""
    ledger = world.ledger
    ledger.resealed = Resealed(ledger.version, MOMENT if former else 0, former)
    schema = ledger.keys.schema
    shown = ShownSchema(ledger.keys.organization, bytes(16), "rows", "rows", world.definition)
    return SchemaState(schema, shown, ledger)


def request_of(state: SchemaState, moment: int) -> IngestRequest:
    key = moment.to_bytes(6, "big") + ids.new_id()[6:]
    raw = RawRecord(1, None, {"t": "x"})
    return IngestRequest({state.id: [raw]}, IdempotencyKey(key, bytes(32)), 10)


def test_a_request_from_before_is_refused_where_the_key_before_is_not_here() -> None:
    state = state_of(World(TEXT), FORGOTTEN)
    for moment in (MOMENT - 1, MOMENT, MOMENT + SLACK):  # clocks differ by so much
        old = request_of(state, moment)
        for ask in (old.ids_in, old.is_stored, old.assign_ids):
            with pytest.raises(Conflict) as caught:
                ask({state.id: state})
            assert caught.value.reason == "repeat_too_old"


def test_a_request_from_after_it_is_stored_as_any_other() -> None:
    state = state_of(World(TEXT), FORGOTTEN)
    new = request_of(state, MOMENT + SLACK + 1)
    assert not new.is_stored({state.id: state})
    (created,) = new.assign_ids({state.id: state}).values()
    assert created == next(iter(new.assign_ids({state.id: state}).values()))


def test_where_no_key_was_replaced_no_request_is_too_old() -> None:
    state = state_of(World(TEXT))
    assert not request_of(state, MOMENT - 1).is_stored({state.id: state})


def test_a_key_that_is_here_still_tells_what_it_knows() -> None:
    world = World(TEXT)
    key = world.ledger.keys.newest
    state = state_of(world, (key.version, key.id))
    assert not request_of(state, MOMENT - 1).is_stored({state.id: state})
