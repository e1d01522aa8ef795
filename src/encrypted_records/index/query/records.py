"""Records that are opened for what the index leaves open: whether they match, and long strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from encrypted_records.index.ordinals import bitmap, ordinals
from encrypted_records.index.query.asking import Asking, Rows, Work
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.model.predicates import Predicate, fields_of, matches, values_of
from encrypted_records.model.records import PlainRecord, RowRef

#: Rows opened at once; one request fetches them.
BATCH = 256
#: Each takes some ten milliseconds: to check so many records against values, to normalize so many
#: characters.
CHECKS, LONG_TEXT = 5000, 10_000


def open_rows(
    refs: Sequence[RowRef], *, alone: bool = False, ranked: bool = False
) -> Asking[list[PlainRecord]]:
    """The records of some rows, in their order; the rest as for :class:`Rows`."""
    if not refs:
        return []
    records: list[PlainRecord] = yield Rows(tuple(refs), alone, ranked)
    return records


def check_records(
    space: Workspace, where: Predicate, records: Sequence[PlainRecord]
) -> Asking[list[bool]]:
    """Whether each of these records matches."""
    names = fields_of(where)
    texts = (record.data.get(name) for record in records for name in names)
    yield Work(
        None,
        long=values_of(where) * len(records) > CHECKS
        or any(isinstance(text, str) and len(text) > LONG_TEXT for text in texts),
    )
    return [matches(where, record.data, space.definition) for record in records]


def learn_texts(space: Workspace, texts: Texts, *, ranked: bool = False) -> Asking[None]:
    """Open one record for each long string that is wanted, in the order of storing: they may be
    wanted in an order by their values.

    Args:
        ranked: as for :class:`Rows`.
    """
    yield Work(None)
    wanted = sorted(texts.wanted.items(), key=lambda item: item[1])
    alone = len(wanted) > space.most_kept
    for at in range(0, len(wanted), BATCH):
        some = wanted[at : at + BATCH]
        refs = [space.snapshot.ref(position) for _, position in some]
        records = yield from open_rows(refs, alone=alone, ranked=ranked)
        for ((field, key), _), record in zip(some, records, strict=True):
            spec = space.definition.fields[field]
            texts.answer(field, key, record.data.get(field), space.tails.field(spec).tail)


def keep_matching(space: Workspace, where: Predicate, part: Candidates) -> Asking[Candidates]:
    """The matching rows among some candidates; rows that the index does not decide are opened."""
    if part.matches.exact:
        return part
    # Few rows of millions are unsure: of these alone positions are made.
    unsure = ordinals(part.matches.possible - part.matches.certain)
    kept = np.zeros(len(unsure), np.bool_)
    for at in range(0, len(unsure), BATCH):
        positions = part.places.positions(unsure[at : at + BATCH])
        refs = [space.snapshot.ref(position) for position in positions.tolist()]
        records = yield from open_rows(refs, alone=len(unsure) > space.most_kept)
        kept[at : at + BATCH] = yield from check_records(space, where, records)
    return part.decided(bitmap(unsure[kept]))
