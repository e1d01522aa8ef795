"""Ids and versions of stored rows that are known by their position alone.

The index has neither. The API says them, in whole blocks, and with each row one sealed field, which
opens for this id, this version and this place alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from encrypted_records.crypto import sealing
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.digests import RUN
from encrypted_records.model.records import MAX_BLOCK_REFS, BlockNames, BlockRef, Group
from encrypted_records.proxy.jobs.together import run_together
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.upstream import Upstream

#: Requests under way at once.
_AT_ONCE = 4
#: (record id, version)
Name = tuple[bytes, int]


async def look_up_names(upstream: Upstream, positions: Collection[int]) -> dict[int, Name]:
    """Id and version of each of these rows, by position.

    Raises:
        NotFound: ``row_gone``; the API has one no longer.
        DoesNotOpen: what it says of a row is not so.
    """
    state, snapshot = upstream.state, upstream.snapshot
    blocks = await aside(_blocks_of, snapshot, positions)
    found: dict[int, Name] = {}
    parts = _cut(list(blocks))

    async def ask() -> None:
        for some in parts:
            told = await upstream.api.names(state.id, some, upstream.caller.auth)
            found.update(await aside(_open_all, state, snapshot, some, told, blocks))

    await run_together([ask] * _AT_ONCE)
    return found


def _blocks_of(
    snapshot: Snapshot, positions: Collection[int]
) -> dict[BlockRef, list[tuple[int, int]]]:
    """The blocks that hold these rows, each with ordinal and position of those rows."""
    blocks: dict[BlockRef, list[tuple[int, int]]] = {}
    for position in positions:
        ref = snapshot.ref(position)
        group = snapshot.groups[ref.group].group
        first = ref.ordinal - ref.ordinal % RUN
        block = BlockRef(ref.group, first, _shortest(group))
        blocks.setdefault(block, []).append((ref.ordinal, position))
    return blocks


def _shortest(group: Group) -> int:
    """The field whose sealed values take the least: one of many lengths may take a mebibyte."""
    classes = zip(group.classes, group.fields, strict=True)
    return min((not rule.only, rule.length, field) for rule, field in classes)[2]


def _cut(blocks: Sequence[BlockRef]) -> Iterator[Sequence[BlockRef]]:
    for at in range(0, len(blocks), MAX_BLOCK_REFS):
        yield blocks[at : at + MAX_BLOCK_REFS]


def _open_all(
    state: SchemaState,
    snapshot: Snapshot,
    asked: Sequence[BlockRef],
    told: Sequence[BlockNames],
    wanted: Mapping[BlockRef, Sequence[tuple[int, int]]],
) -> dict[int, Name]:
    found: dict[int, Name] = {}
    for block, names in zip(asked, told, strict=True):
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
