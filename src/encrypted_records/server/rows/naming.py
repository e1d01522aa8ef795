"""Which records the rows of whole blocks are, each with one sealed field of it.

A proxy that replaces many records knows their rows from its index, and neither their ids nor their
versions. The field that comes with them opens for no other id and version, so that nobody has to
believe this API. Blocks, because their number tells less than rows would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from encrypted_records.errors import BadInput, NotFound, TooLarge
from encrypted_records.model.digests import RUN
from encrypted_records.model.records import BlockNames, BlockRef, RowName
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.records import store
from encrypted_records.server.records.models import RecordGroup
from encrypted_records.server.rows import contents

MAX_BLOCKS = 64
_BLOCKS_AT_ONCE = 7


def names(schema: Schema, wanted: Sequence[BlockRef]) -> Iterator[BlockNames]:
    """The blocks asked for, in that order; dead rows too.

    Raises:
        BadInput: ``malformed_frame``; nothing is asked for, or not a block.
        TooLarge: more than ``MAX_BLOCKS``.
        NotFound: ``row_gone``; the schema has no such block, or its rows no such field.
    """
    if not wanted or any(one.first % RUN for one in wanted):
        raise BadInput("the body names no block, or a place in one", code="malformed_frame")
    if len(wanted) > MAX_BLOCKS:
        raise TooLarge(
            f"more than {MAX_BLOCKS} blocks in one request", hint="ask in several requests"
        )
    groups = store.groups_at(schema.uid, {one.group for one in wanted})
    described = dict(
        RecordGroup.objects.filter(pk__in=[one.number for one in groups.values()]).values_list(
            "pk", "fields"
        )
    )
    places = {
        uid: {field: at for at, field in enumerate(store.fields_of(described[one.number]))}
        for uid, one in groups.items()
    }
    for one in wanted:
        group = groups.get(one.group)
        if group is None or one.first >= group.count or one.field not in places[one.group]:
            raise NotFound(
                "a row is not here, or no longer", code="row_gone", hint="read the manifest again"
            )
    return _names(wanted, groups, places)


def _names(
    wanted: Sequence[BlockRef],
    groups: dict[bytes, store.StoredGroup],
    places: dict[bytes, dict[int, int]],
) -> Iterator[BlockNames]:
    for at in range(0, len(wanted), _BLOCKS_AT_ONCE):
        some = wanted[at : at + _BLOCKS_AT_ONCE]
        keys = {
            (groups[one.group].number, ordinal): None
            for one in some
            for ordinal in range(one.first, min(one.first + RUN, groups[one.group].count))
        }
        rows = contents.rows_at(list(keys))
        for one in some:
            group, place = groups[one.group], places[one.group][one.field]
            block: list[RowName | None] = []
            for ordinal in range(one.first, min(one.first + RUN, group.count)):
                row = rows.get((group.number, ordinal))
                if row is None and group.has(ordinal):
                    raise NotFound("a row is gone", code="row_gone", hint="")
                block.append(
                    None if row is None else RowName(row.record_id, row.version, row.fields[place])
                )
            yield BlockNames(one.group, one.first, one.field, block)
