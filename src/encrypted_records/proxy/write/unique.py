"""Look up the holders of the keys of new records (docs/SPEC.md, section 7.8).

The lookup is of one version of the log, and the commit that follows states that it knows all
records that were added up to there (``exact``): if it does not, the API refuses it, and so does
every reader. So the lookup need not be of the newest state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, DoesNotOpen, Flaw, NotFound
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference
from encrypted_records.model.predicates import UniqueKey, find, keys_of
from encrypted_records.model.records import Group, PlainRecord, RowRef
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.upstream import Upstream

#: The code of the refusal of a commit that came after others which added records.
LOG_MOVED = "log_moved"
_HINT = "nothing was stored; change the named values, or replace the record that has them"


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A live record, its row, and the row's group."""

    record: PlainRecord
    row: RowRef
    group: Group


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a key: the id of a record, or for a record of the same request its number."""

    id: bytes
    row: int | None = None


Owners = Mapping[UniqueKey, Owner]


@contextmanager
def at_one_version(context: QueryContext) -> Iterator[None]:
    """Read stored values at the version of the context, whose state is locked.

    Raises:
        Conflict: ``log_moved``; segments of this version are gone.
        DoesNotOpen: a page or a row was altered.
    """
    try:
        yield
    except NotFound as error:
        if error.reason != "segment_gone":
            raise
        # Nothing is stored because of this claim: the values are looked up again at a newer
        # version, or the request fails with this code.
        raise Conflict("the log has moved on", code=LOG_MOVED) from None
    except DoesNotOpen:
        # A cached page may be the altered page.
        context.fetcher.forget(context.snapshot.segments)
        raise


class UniqueKeys:
    def __init__(self, api: Api, fetcher: Fetcher) -> None:
        self._api = api
        self._fetcher = fetcher

    async def look_up(
        self, caller: Holder, state: SchemaState, keys: Collection[UniqueKey]
    ) -> dict[UniqueKey, LiveRecord]:
        """The live records that have one of these keys, at the version of the ledger.

        The state's lock is held from here until the commit is stored.

        Raises:
            Conflict, DoesNotOpen: as :func:`at_one_version`.
        """
        where = find(keys)
        if where is None:
            return {}
        upstream = Upstream(self._api, caller, state, confirmed=True)
        context = QueryContext(upstream, self._fetcher)
        with at_one_version(context):
            parts = await context.match_rows(where)
            positions = [place for part in parts for place in part.positions.tolist()]
            refs = [context.snapshot.ref(position) for position in positions]
            records = await context.rows(refs)
        groups = context.snapshot.groups
        return {
            key: LiveRecord(record, ref, groups[ref.group].group)
            for record, ref in zip(records, refs, strict=True)
            for key in keys_of(state.definition, record.data)
        }


def owners_of(stored: Mapping[UniqueKey, LiveRecord], but: Collection[RowRef] = ()) -> Owners:
    """Owners of the keys, without those whose rows end."""
    return {
        key: Owner(owner.record.record_id) for key, owner in stored.items() if owner.row not in but
    }


def claim(
    definition: SchemaDefinition,
    records: Iterable[tuple[int, PlainRecord]],
    taken: Owners,
    *,
    data: str = "/{}/data",
) -> tuple[dict[UniqueKey, Owner], list[Flaw]]:
    """The keys that these records take, and flaws for the keys that others have.

    Args:
        records: with their numbers in the request, from 1 on.
        taken: the keys that others have.
        data: the JSON pointer of a record's data, for its index from 0 on.
    """
    claimed: dict[UniqueKey, Owner] = {}
    flaws: list[Flaw] = []
    for row, record in records:
        for key in keys_of(definition, record.data):
            owner = taken.get(key) or claimed.get(key)
            if owner is None:
                claimed[key] = Owner(record.record_id, row)
                continue
            last = key.fields[-1]
            flaws.append(
                Flaw(
                    "not_unique",
                    _say(key.fields, owner, in_request=key not in taken),
                    f"{data.format(row - 1)}/{escape_pointer(last)}",
                    row,
                    last,
                )
            )
    return claimed, flaws


def _say(fields: Sequence[str], owner: Owner, *, in_request: bool) -> str:
    where = f"row {owner.row} of this request" if in_request else reference("records", owner.id)
    return say(fields, where)


def say(fields: Sequence[str], where: str) -> str:
    """The text that ``where`` has the values of these fields."""
    if len(fields) == 1:
        return f"{where} already has this value, which must be unique"
    return f"{where} already has these values of {', '.join(fields)}, which must be unique together"


def not_unique(flaws: Sequence[Flaw]) -> Conflict:
    rows = len({flaw.row for flaw in flaws})
    return Conflict(
        f"{rows} of the records {'has' if rows == 1 else 'have'} unique values that"
        " others already have",
        code="not_unique",
        flaws=tuple(flaws),
        hint=_HINT,
    )
