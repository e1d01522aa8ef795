"""The index keys of a job's rows, as small numbers, and the names of stored rows with equal keys.

Rows with the same number have equal values, and so have stored rows to which
:meth:`SetCodes.of_segment` gives that number: both sides are sorted keys, which are merged.

Stored rows are known only by position; the index has neither ids nor versions. The API states them,
for whole blocks, with one sealed field of each row, which opens only with this id, version and
place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import sealing
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import RUN
from encrypted_records.model.records import MAX_BLOCK_REFS, BlockNames, BlockRef, Group
from encrypted_records.proxy.process import aside, run_together
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.upstream import Upstream
from encrypted_records.proxy.workers.messages import SchemaRows

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class FieldCodes:
    """``keys`` are sorted and distinct; for each row, the code is 0 if it lacks the field, else 1 +
    the index of its key."""

    keys: Keys
    codes: Numbers


@dataclass(frozen=True, eq=False)
class JobKeys:
    """``rows`` and ``chunks`` are the number of each row in the upload, ascending, and its
    chunk."""

    rows: Numbers
    chunks: Numbers
    fields: Mapping[int, FieldCodes]

    @classmethod
    def of(cls, parts: Sequence[tuple[int, SchemaRows]]) -> JobKeys:
        """
        Args:
            parts: by number of the chunk, ascending; at least one.
        """
        rows = [np.frombuffer(part.rows, np.uint32).astype(np.int64) for _, part in parts]
        chunks = [
            np.full(len(columns), number, np.int64)
            for columns, (number, _) in zip(rows, parts, strict=True)
        ]
        fields: dict[int, FieldCodes] = {}
        for at, field in enumerate(parts[0][1].fields):
            columns = [part.fields[at] for _, part in parts]
            present = np.concatenate(
                [np.frombuffer(column.present, np.bool_) for column in columns]
            )
            keys = np.concatenate([np.frombuffer(column.keys, column.dtype) for column in columns])
            distinct, places = np.unique(keys, return_inverse=True)
            codes: Numbers = np.zeros(len(present), np.int64)
            codes[present] = places + 1
            fields[field.field] = FieldCodes(distinct, codes)
        return cls(np.concatenate(rows), np.concatenate(chunks), fields)


@dataclass(frozen=True, eq=False)
class SetCodes:
    """The rows' values of one set of fields as integers: 0 if a row lacks one of the fields,
    otherwise a number up to ``count`` that is equal for rows with equal values.
    """

    fields: tuple[int, ...]
    codes: Numbers
    count: int
    #: for each field but the first: the number of its codes, and the pairs that exist
    _steps: Sequence[tuple[int, Numbers]]

    @classmethod
    def of(cls, keys: JobKeys, fields: Sequence[int]) -> SetCodes:
        first, *others = (keys.fields[number] for number in fields)
        codes, count = first.codes, len(first.keys)
        steps: list[tuple[int, Numbers]] = []
        for other in others:
            width = len(other.keys) + 1
            is_complete = (codes > 0) & (other.codes > 0)
            pairs, places = np.unique(
                codes[is_complete] * width + other.codes[is_complete], return_inverse=True
            )
            codes = np.zeros(len(codes), np.int64)
            codes[is_complete] = places + 1
            count = len(pairs)
            steps.append((width, pairs))
        return cls(tuple(fields), codes, count, steps)

    def of_segment(
        self,
        keys: JobKeys,
        part: Candidates,
        made: SchemaDefinition,
        compared: SchemaDefinition,
    ) -> Numbers:
        """The number of each row of a segment, 0 if no row of the job has its values.

        Args:
            part: rows of a segment whose columns of these fields are loaded.
            made: the definition under which the job's rows were checked.
            compared: the definition whose grids the segment's keys are on.

        Raises:
            DoesNotOpen: a column does not open, or a key lies outside of its grid.
        """
        codes: Numbers | None = None
        steps = iter(self._steps)
        for number in self.fields:
            field_codes = _map(keys.fields[number].keys, part, number, made, compared)
            if codes is None:
                codes = field_codes
                continue
            width, pairs = next(steps)
            codes = np.where((codes > 0) & (field_codes > 0), codes * width + field_codes, -1)
            codes = _places(pairs, codes)
        assert codes is not None
        return codes


def _map(
    keys: Keys,
    part: Candidates,
    number: int,
    made: SchemaDefinition,
    compared: SchemaDefinition,
) -> Numbers:
    """The code of each row's key among ``keys``, or 0."""
    name = compared.by_id[number].name
    dictionary = part.dictionary(name)
    places: Numbers = np.zeros(len(dictionary.keys) + 1, np.int64)
    if len(keys) and len(dictionary.keys):
        rebase = Rebase.between(made.by_id[number], compared.by_id[number])
        sought = keys if rebase is None else rebase.keys(keys)
        places[1:] = _places(sought, dictionary.keys.astype(sought.dtype))
    mapped: Numbers = places[part.codes(name)]
    return mapped


def _places(among: Keys, wanted: Keys) -> Numbers:
    """1 + the index of each key in a sorted array, 0 if it is missing."""
    if not len(among):
        return np.zeros(len(wanted), np.int64)
    at = np.searchsorted(among, wanted)
    at[at == len(among)] = 0
    found: Numbers = np.where(among[at] == wanted, at + 1, 0)
    return found


#: Concurrent requests.
_AT_ONCE = 4
#: (record id, version)
Name = tuple[bytes, int]


async def look_up_names(upstream: Upstream, positions: Collection[int]) -> dict[int, Name]:
    """Id and version of each of these rows, by position.

    Raises:
        NotFound: ``row_gone``; the API no longer has a row.
        DoesNotOpen: the id or version that the API states is wrong.
    """
    state, snapshot = upstream.state, upstream.snapshot
    blocks = await aside(_blocks_of, snapshot, positions)
    found: dict[int, Name] = {}
    parts = _cut(list(blocks))

    async def ask() -> None:
        for batch in parts:
            names = await upstream.api.names(state.id, batch, upstream.caller.auth)
            found.update(await aside(_open_all, state, snapshot, batch, names, blocks))

    await run_together([ask] * _AT_ONCE)
    return found


def _blocks_of(
    snapshot: Snapshot, positions: Collection[int]
) -> dict[BlockRef, list[tuple[int, int]]]:
    """The blocks that contain these rows, each with the ordinals and positions of those rows."""
    blocks: dict[BlockRef, list[tuple[int, int]]] = {}
    for position in positions:
        ref = snapshot.ref(position)
        group = snapshot.groups[ref.group].group
        first = ref.ordinal - ref.ordinal % RUN
        block = BlockRef(ref.group, first, _shortest(group))
        blocks.setdefault(block, []).append((ref.ordinal, position))
    return blocks


def _shortest(group: Group) -> int:
    """The field with the shortest sealed values: a block of long values may take a mebibyte."""
    classes = zip(group.classes, group.fields, strict=True)
    return min((not rule.only, rule.length, field) for rule, field in classes)[2]


def _cut(blocks: Sequence[BlockRef]) -> Iterator[Sequence[BlockRef]]:
    for at in range(0, len(blocks), MAX_BLOCK_REFS):
        yield blocks[at : at + MAX_BLOCK_REFS]


def _open_all(
    state: SchemaState,
    snapshot: Snapshot,
    refs: Sequence[BlockRef],
    blocks: Sequence[BlockNames],
    wanted: Mapping[BlockRef, Sequence[tuple[int, int]]],
) -> dict[int, Name]:
    found: dict[int, Name] = {}
    for block, names in zip(refs, blocks, strict=True):
        if (names.group, names.first, names.field) != (block.group, block.first, block.field):
            raise DoesNotOpen("the API returned a block that was not requested")
        group = snapshot.groups[block.group].group
        key = state.ledger.keys.of(group.key_version)
        spec = snapshot.made_under(group).by_id[block.field]
        seal, where = key.field(spec).seal(group.uid), sealing.context_of(key)
        for ordinal, position in wanted[block]:
            at = ordinal - block.first
            row = names.rows[at] if at < len(names.rows) else None
            if row is None:
                raise DoesNotOpen("the API returned fewer rows than the block has")
            context = sealing.record_context(where, row.record_id, row.version)
            sealing.open_field(seal, ordinal, context, spec.id_bytes, row.sealed)
            found[position] = (row.record_id, row.version)
    return found
