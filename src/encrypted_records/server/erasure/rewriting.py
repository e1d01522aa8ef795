"""Write an object of rows again: without what is erased, or with what was found elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from django.db import transaction

from encrypted_records.server.objects import layout, objects
from encrypted_records.server.objects.layout import Row
from encrypted_records.server.records.bulk_tables import RowPart
from encrypted_records.server.records.models import RecordGroup


@contextmanager
def rewritten(
    group: RecordGroup,
    part: RowPart,
    rows: Sequence[Row | None],
    row_digests: bytes,
    gone: Mapping[int, bytes],
    *,
    at_once: bool,
) -> Iterator[bool]:
    """Have these rows be those of a part, in the transaction that runs inside the block, with the
    group's row locked; whether they are. Where they are not, another API has written the part
    again, or its group has ended, and nothing was changed.

    The new object is written before the transaction and taken over in it, as everything that
    becomes an object. What the part had is doomed. A part without rows is dropped.

    Args:
        rows: of all ordinals of the part.
        row_digests: of these rows, one after the other.
        gone: the digests of those that were erased, by ordinal.
        at_once: whether what the part had goes without a grace time.

    Raises:
        StoreFull, StoreUnavailable: nothing was changed.
    """
    made = layout.row_objects(bytes(group.uid), part.first, rows, row_digests, gone)
    # One at most: it is no longer than the one before, which was not too long.
    written = list(made) if any(rows) else []
    with objects.written([one.data for one in written]) as numbers, transaction.atomic():
        locked = RecordGroup.objects.select_for_update().filter(pk=group.pk, ended_at=None)
        mine = RowPart.objects.filter(group_id=group.pk, first=part.first, object_id=part.object_id)
        if not locked.exists() or not mine.exists():
            objects.give_up(numbers)
            yield False
            return
        for one, number in zip(written, numbers, strict=True):
            objects.replace(part.object_id, number, at_once=at_once)
            mine.update(
                object_id=number,
                blocks=one.entries,
                first_id=one.first_id,
                last_id=one.last_id,
            )
        if not written:
            objects.drop(mine, at_once=at_once)
        yield True
